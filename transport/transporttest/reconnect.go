package transporttest

func reconnectCases() []testCase {
	const why = "When the source is lost Receive returns an error; the engine calls again. " +
		"ErrUnavailable: the broker was lost before it answered; a later call may succeed by itself."
	return []testCase{
		{
			name: "sending and receiving go on after a cut",
			why:  why,
			cuts: true,
			run:  checkGoesOn,
		},
		{
			name:  "what was in hand at a cut comes again",
			why:   "A delivery that is neither acked nor nacked when Receive returns is delivered again.",
			needs: claimsInFlight(3),
			cuts:  true,
			run:   checkCutInHand,
		},
		{
			name:  "an answer from before a cut harms nothing",
			why:   "An answer after Receive has returned is too late: it may be an error, and the message comes again.",
			needs: claimsInFlight(6),
			cuts:  true,
			run:   checkCutAnswers,
		},
	}
}

// checkGoesOn cuts the connections with messages under way in both directions.
func checkGoesOn(e *env) {
	const n = 40
	r := e.receiveAgain("g", 5, "cut.a")
	missing := make(map[string]bool)
	for range 3 {
		msgs := e.messages("cut.a", n)
		for _, m := range msgs {
			missing[m.ID] = true
		}
		res := e.send(msgs...)
		for i := 0; len(missing) > 0; i++ {
			if i == n/4 {
				e.cut()
			}
			d := r.next()
			d.answered()
			_ = d.Ack() // of one that the cut has taken away it may be an error
			delete(missing, d.msg.ID)
		}
		e.drain(r, res)
	}
}

func checkCutInHand(e *env) {
	const n = 3
	r := e.receiveAgain("g", n, "cut.a")
	res := e.send(e.messages("cut.a", n)...)
	for range n {
		r.next()
	}
	e.cut()
	again := make(map[string]bool)
	for len(again) < n { // one that comes a third time is no fault
		d := r.next()
		d.answered()
		_ = d.Ack()
		again[string(d.msg.Body)] = true
	}
	e.drain(r, res)
}

// checkCutAnswers answers what a lost Receive has delivered, whose number or
// place others have by now: those must come again when they are not answered.
func checkCutAnswers(e *env) {
	const n = 6
	r := e.receiveAgain("g", n, "cut.a")
	res := e.send(e.messages("cut.a", n)...)
	var old []*delivery
	for range n {
		old = append(old, r.next())
	}
	e.cut()
	seen := make(map[string]bool)
	for len(seen) < n {
		seen[string(r.next().msg.Body)] = true
	}
	for i, d := range old {
		if i%2 == 0 {
			_ = d.Ack()
		} else {
			_ = d.Nack(0)
		}
	}
	r.stop()
	next := e.start("g", n, nil, "cut.a")
	clear(seen)
	for len(seen) < n {
		seen[string(next.nextAcked(1)[0].Body)] = true
	}
	e.drain(next, res)
}

// drain acks what comes until a Send is over.
func (e *env) drain(r *receiver, res *result) {
	e.Helper()
	for d := r.nextUntil(res.done); d != nil; d = r.nextUntil(res.done) {
		d.answered()
		_ = d.Ack()
	}
	res.stored()
}
