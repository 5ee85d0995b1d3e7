package transporttest

import (
	"fmt"

	"github.com/capbus/gocap/transport"
)

func orderedCases() []testCase {
	const why = "Ordered lets the queue deliver to one receiver of the group at a time, over all processes, in the order of sending; the next one takes over when it has ended, and first gets what it had not answered."
	return []testCase{
		{
			name:  "an ordered group delivers to one receiver",
			why:   why,
			needs: claimsSingle,
			run:   checkSingle,
		},
		{
			name:  "the next receiver goes on in order",
			why:   why,
			needs: claimsSingle,
			run:   checkNextInOrder,
		},
		{
			name:  "an ordered group does not hold up others",
			why:   why,
			needs: claimsSingle,
			run:   checkSingleOfOthers,
		},
		{
			name:  "single active needs order",
			why:   "SingleActive: a Source may be Ordered. Needs Ordered.",
			needs: claimsSingle,
			run: func(e *env) {
				if !claimsOrder(e.tr) {
					e.Errorf("the transport claims SingleActive, but not Ordered")
				}
			},
		},
	}
}

// startOrdered starts a receiver of an ordered source and does not wait.
func (e *env) startOrdered(group string, window int, topics ...string) *receiver {
	return e.startSource(transport.Source{Group: e.group(group), Topics: topics, Window: window, Ordered: true}, nil)
}

func checkSingle(e *env) {
	first := e.startOrdered("g", 1, "single.a")
	first.sync()
	second := e.startOrdered("g", 1, "single.a")
	second.sync() // its topics are known, whoever got the probe
	const n = 50
	res := e.send(e.messages("single.a", n)...)
	for i := range n { // with a window of one, another would get what this one waits for
		d := first.next()
		if string(d.msg.Body) != fmt.Sprint(i) {
			e.Errorf("message %q in place %d", d.msg.Body, i)
		}
		if i == 0 {
			e.pause() // the second one has time to take what it must not have
		}
		d.ack()
	}
	res.stored()
	if d := second.poll(); d != nil {
		e.Errorf("message %q went to the second receiver", d.msg.Body)
	}
}

func checkNextInOrder(e *env) {
	first := e.startOrdered("g", 5, "single.a")
	first.sync()
	second := e.startOrdered("g", 3, "single.a")
	third := e.startOrdered("g", 3, "single.a")
	const n = 12
	res := e.send(e.messages("single.a", n)...)
	place := 0
	inPlace := func(d *delivery) {
		e.Helper()
		if string(d.msg.Body) != fmt.Sprint(place) {
			e.Errorf("message %q in place %d", d.msg.Body, place)
		}
		d.ack()
		place++
	}
	take := func(r *receiver) {
		e.Helper()
		inPlace(r.next())
	}
	take(first)
	take(first)
	for range 3 { // stay unanswered
		first.next()
	}
	first.stop()
	d := e.nextOfEither(second, third)
	next, last := d.r, third
	if next == third {
		last = second
	}
	inPlace(d)
	for place < 7 {
		take(next)
	}
	next.stop()
	for place < n {
		take(last)
	}
	res.stored()
}

// nextOfEither returns the first delivery that comes to one of two receivers.
func (e *env) nextOfEither(a, b *receiver) *delivery {
	e.Helper()
	overdue := e.after()
	for {
		if d := a.poll(); d != nil {
			return d
		}
		if d := b.poll(); d != nil {
			return d
		}
		select {
		case <-a.arrive:
		case <-b.arrive:
		case <-overdue:
			e.Fatalf("neither receiver got anything within %v", e.wait)
		}
	}
}

func checkSingleOfOthers(e *env) {
	ordered := e.startOrdered("ordered", 1, "single.a")
	ordered.sync()
	first := e.receive("plain", 1, "single.a")
	second := e.start("plain", 1, nil, "single.a")
	res := e.send(e.messages("single.a", 4)...)
	a, b := first.next(), second.next() // both are needed: neither has answered
	a.ack()
	b.ack()
	for range 4 {
		ordered.next().ack()
	}
	e.nextOfBoth(first, second, 2)
	res.stored()
}
