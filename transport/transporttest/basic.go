package transporttest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/capbus/gocap/transport"
)

func basicCases() []testCase {
	return []testCase{
		{
			name: "traits are named and do not change",
			why:  "Traits says what the transport can do. It does not change.",
			run:  checkTraits,
		},
		{
			name: "check finds a healthy broker",
			why:  "Check reports whether the broker can be used now.",
			run:  checkHealthy,
		},
		{
			name: "what is sent arrives",
			why:  "Send hands messages to the broker …; nil means stored by the broker.",
			run:  checkArrival,
		},
		{
			name: "a send of nothing returns nothing",
			why:  "It returns one error a message, in the same order.",
			run: func(e *env) {
				if errs := e.try(e.Context()).wait(); len(errs) != 0 {
					e.Errorf("a send of no messages returned %v", errs)
				}
			},
		},
		{
			name:  "order is kept",
			why:   "Ordered: messages sent one after another arrive in that order.",
			needs: claimsOrder,
			run:   checkOrder,
		},
		{
			name: "many senders and receivers at once",
			why:  "All methods may be called concurrently.",
			run:  checkConcurrency,
		},
		{
			name: "a send ends with its context",
			why:  "Send returns when ctx ends, with ErrUnavailable for what is then unanswered.",
			run:  checkSendEnds,
		},
	}
}

// sameBodies checks that messages carry the bodies 0 to n-1, in any order.
func (e *env) sameBodies(got []*transport.Message, n int) {
	e.Helper()
	seen := make(map[string]int)
	for _, m := range got {
		seen[string(m.Body)]++
	}
	for _, m := range e.messages("t", n) {
		if seen[string(m.Body)] != 1 {
			e.Errorf("message %s arrived %d times", m.Body, seen[string(m.Body)])
		}
	}
}

func checkOrder(e *env) {
	const n = 60
	r := e.receive("g", 7, "basic.#", "basic.a")
	msgs := e.messages("basic.a", n)
	go func() {
		e.sendOnce(msgs[:n/2])
		for _, m := range msgs[n/2:] {
			e.sendOnce([]*transport.Message{m})
		}
	}()
	for i, m := range r.nextAcked(n) {
		if m.ID != msgs[i].ID {
			e.Fatalf("in place %d came message %s", i, m.Body)
		}
	}
}

func checkConcurrency(e *env) {
	const senders, each = 8, 20
	ack := func(_ context.Context, d *delivery) { d.ack() }
	var (
		mu   sync.Mutex
		seen = make(map[string]bool)
		all  = make(chan struct{})
	)
	count := func(ctx context.Context, d *delivery) {
		ack(ctx, d)
		mu.Lock()
		defer mu.Unlock()
		if !seen[d.msg.ID] {
			seen[d.msg.ID] = true
			if len(seen) == senders*each {
				close(all)
			}
		}
	}
	for range 3 {
		e.start("g", 5, count, "basic.a").sync()
	}
	e.start("other", 5, ack, "basic.a").sync()
	for range senders {
		e.send(e.messages("basic.a", each)...)
	}
	if !e.closed(all) {
		mu.Lock()
		defer mu.Unlock()
		e.Errorf("%d of %d messages arrived", len(seen), senders*each)
	}
}

func checkSendEnds(e *env) {
	r := e.receive("g", 1, "basic.a")
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	res := e.try(ctx, e.messages("basic.a", 2)...)
	d := r.next() // the message is under way, and nobody answers it yet
	cancel()
	for _, err := range res.wait() {
		if err != nil && !errors.Is(err, transport.ErrUnavailable) {
			e.Errorf("got %v, neither stored nor ErrUnavailable", err)
		}
	}
	d.ack()

	began := time.Now()
	for _, err := range e.try(ctx, e.message("basic.a", "late")).wait() {
		if !errors.Is(err, transport.ErrUnavailable) {
			e.Errorf("a send with a context that has ended returned %v after %v; ErrUnavailable was due", err, time.Since(began))
		}
	}
}

func checkTraits(e *env) {
	first := e.tr.Traits()
	if first.Name == "" {
		e.Errorf("Traits().Name is empty")
	}
	r := e.receive("g", 10, "basic.a")
	e.send(e.message("basic.a", "x"))
	r.nextAcked(1)
	if now := e.tr.Traits(); now != first {
		e.Errorf("traits changed from %+v to %+v", first, now)
	}
}

func checkHealthy(e *env) {
	ctx, cancel := context.WithTimeout(e.Context(), e.wait)
	defer cancel()
	if err := e.tr.Check(ctx); err != nil {
		e.Errorf("check: %v", err)
	}
}

func checkArrival(e *env) {
	r := e.receive("g", 10, "basic.a")
	res := e.send(e.messages("basic.a", 25)...)
	e.sameBodies(r.nextAcked(25), 25)
	res.stored()
}
