package transporttest

import (
	"context"

	"github.com/capbus/gocap/transport"
)

func windowCases() []testCase {
	const why = "Source.Window: most deliveries unanswered at once; deliver gets at most that many at once."
	return []testCase{
		{
			name:  "the window bounds what is unanswered",
			why:   why,
			needs: claimsInFlight(3),
			run:   checkWindow,
		},
		{
			name: "a window of one",
			why:  why,
			run: func(e *env) {
				r := e.receive("g", 1, "window.a")
				res := e.send(e.messages("window.a", 10)...)
				e.sameBodies(r.nextAcked(10), 10)
				res.stored()
			},
		},
		{
			name: "a window that is larger than what there is",
			why:  why,
			run: func(e *env) {
				r := e.receive("g", 1000, "window.a")
				res := e.send(e.messages("window.a", 10)...)
				e.sameBodies(r.nextAcked(10), 10)
				res.stored()
			},
		},
		{
			name: "deliver blocks while the workers are full",
			why:  "Deliver blocks while the workers are full.",
			run:  checkBlockedDeliver,
		},
	}
}

// checkWindow leaves deliveries unanswered; the receiver fails the case when
// there are too many of them. A second group shows when all has been sent.
func checkWindow(e *env) {
	const window, n = 3, 12
	r, all := e.receive("g", window, "window.a"), e.receive("all", n, "window.a")
	res := e.send(e.messages("window.a", n)...)
	e.sameBodies(all.nextAcked(n), n)
	var got []*transport.Message
	var held []*delivery
	for range window {
		held = append(held, r.next())
	}
	for len(got) < n {
		d := held[0]
		held = held[1:]
		got = append(got, d.msg)
		all.sync() // time for one too many to come
		d.ack()
		if len(got)+len(held) < n {
			held = append(held, r.next())
		}
	}
	e.sameBodies(got, n)
	res.stored()
}

// checkBlockedDeliver holds deliver up, answers from elsewhere, and lets it go.
func checkBlockedDeliver(e *env) {
	const n = 6
	inside := make(chan *delivery)
	r := e.start("g", 2, func(ctx context.Context, d *delivery) {
		select {
		case inside <- d:
		case <-ctx.Done():
		}
	}, "window.a")
	r.sync()
	res := e.send(e.messages("window.a", n)...)
	var got []*transport.Message
	for range n {
		select {
		case d := <-inside:
			got = append(got, d.msg)
			d.ack()
		case <-e.after():
			e.Fatalf("%d of %d messages were delivered", len(got), n)
		}
	}
	e.sameBodies(got, n)
	res.stored()
}
