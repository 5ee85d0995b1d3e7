package transporttest

import "context"

func stopCases() []testCase {
	return []testCase{
		{
			name:  "receive ends with its context",
			why:   "Receive delivers until ctx ends, then returns nil.",
			needs: claimsQueue,
			run:   checkReceiveEnds,
		},
		{
			name:  "deliver sees the end of receive",
			why:   "Receive delivers until ctx ends, then returns nil.",
			needs: claimsQueue,
			run:   checkDeliverEnds,
		},
		{
			name:  "what is answered while receive ends counts",
			why:   "A delivery that is neither acked nor nacked when Receive returns is delivered again.",
			needs: claimsQueue,
			run:   checkLateAnswers,
		},
		{
			name: "a group goes on after a stop",
			why:  "The engine calls Receive again; one queue a group.",
			run:  checkGroupGoesOn,
		},
	}
}

// checkLateAnswers acks within deliver after the context has ended: the engine
// does so while it stops, with what it has stored already.
func checkLateAnswers(e *env) {
	inside := make(chan struct{}, 10)
	acked := make(map[string]bool) // written in deliver, read after Receive
	r := e.start("g", 1, func(ctx context.Context, d *delivery) {
		inside <- struct{}{}
		<-ctx.Done()
		d.ack()
		acked[d.msg.ID] = true
	}, "stop.a")
	r.sync()
	msgs := e.messages("stop.a", 3)
	res := e.send(msgs...)
	select {
	case <-inside:
	case <-e.after():
		e.Fatalf("no delivery within %v", e.wait)
	}
	r.stop()
	if len(acked) == 0 {
		e.Errorf("receive returned while deliver was running")
	}
	next := e.receive("g", 5, "stop.a")
	got := next.nextAcked(len(msgs) - len(acked))
	res.stored()
	for _, m := range append(got, next.rest()...) {
		if acked[m.ID] {
			e.Errorf("message %s was acked before receive returned, and came again", m.Body)
		}
	}
}

func checkReceiveEnds(e *env) {
	idle, busy := e.receive("idle", 1, "stop.b"), e.receive("busy", 1, "stop.a")
	e.send(e.messages("stop.a", 3)...)
	d := busy.next()
	idle.stop()
	busy.stop()
	_ = d.Ack() // too late or not: it must not panic
	e.receive("busy", 10, "stop.a").nextAcked(1)
}

func checkDeliverEnds(e *env) {
	inside := make(chan struct{}, 10)
	r := e.start("g", 5, func(ctx context.Context, _ *delivery) {
		inside <- struct{}{}
		<-ctx.Done()
	}, "stop.a")
	r.sync()
	res := e.send(e.message("stop.a", "0"))
	select {
	case <-inside:
	case <-e.after():
		e.Fatalf("no delivery within %v", e.wait)
	}
	r.stop()
	e.sameBodies(e.receive("g", 5, "stop.a").nextAcked(1), 1)
	res.stored()
}

func checkGroupGoesOn(e *env) {
	for range 3 {
		r := e.receive("g", 2, "stop.a")
		res := e.send(e.messages("stop.a", 3)...)
		e.sameBodies(r.nextAcked(3), 3)
		res.stored()
		r.stop()
	}
}
