package transporttest

import (
	"sync"
	"time"
)

func redeliveryCases() []testCase {
	const whyNack = "Nack gives the message back, to be delivered again after the wait, to any consumer of the group."
	const whyLost = "A delivery that is neither acked nor nacked when Receive returns is delivered again."
	return []testCase{
		{
			name: "a nack delivers again after the wait",
			why:  whyNack,
			run:  checkNackWaits,
		},
		{
			name: "a nack without a wait delivers again",
			why:  whyNack,
			run:  checkNackAtOnce,
		},
		{
			name: "a nacked message is lost neither for itself nor for others",
			why:  whyNack,
			run:  checkNackAmongOthers,
		},
		{
			name:  "another consumer gets what was nacked",
			why:   whyNack,
			needs: claimsQueue,
			run:   checkNackElsewhere,
		},
		{
			name:  "another consumer gets what a lost one had in hand",
			why:   whyLost,
			needs: claims(claimsQueue, claimsInFlight(3)),
			run:   checkLostToAnother,
		},
		{
			name:  "the next receiver gets what the last one had in hand",
			why:   whyLost,
			needs: claimsQueue,
			run:   checkLostToNext,
		},
		{
			name: "what was acked does not come again",
			why:  "Ack says that the message is safely stored here.",
			run:  checkAckedIsDone,
		},
		{
			name: "the first answer counts",
			why:  "Ack and Nack may be called more than once, from any goroutine; the first answer counts.",
			run:  checkAnswers,
		},
	}
}

func checkNackWaits(e *env) {
	const wait = 15 * pause
	r := e.receive("g", 5, "again.a")
	m := e.message("again.a", "0")
	res := e.send(m)
	d := r.next()
	nacked := time.Now()
	d.nack(wait)
	again := r.next()
	if took := time.Since(nacked); took < wait {
		e.Errorf("nacked for %v, it came again after %v", wait, took)
	}
	e.sameMessage(again.msg, m)
	again.ack()
	res.stored()
}

func checkAnswers(e *env) {
	r := e.receive("g", 4, "again.a")
	res := e.send(e.messages("again.a", 4)...)
	for i := range 4 {
		d := r.next()
		d.answered()
		if i%2 == 0 {
			if err := d.Ack(); err != nil {
				e.Errorf("ack: %v", err)
			}
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := d.Ack(); err != nil {
					e.Errorf("ack of a delivery that may be answered: %v", err)
				}
			})
			if i%2 == 0 {
				wg.Go(func() { _ = d.Nack(0) })
			}
		}
		wg.Wait()
	}
	res.stored()
	e.nothing(r)
}

func checkNackAtOnce(e *env) {
	r := e.receive("g", 1, "again.a")
	res := e.send(e.message("again.a", "0"))
	for range 5 {
		r.next().nack(0)
	}
	e.sameBodies(r.nextAcked(1), 1)
	res.stored()
	e.nothing(r)
}

func checkNackAmongOthers(e *env) {
	r := e.receive("g", 1, "again.a")
	res := e.send(e.messages("again.a", 3)...)
	d := r.next()
	d.nack(20 * pause)
	e.sameBodies(r.nextAcked(3), 3)
	res.stored()
}

func checkNackElsewhere(e *env) {
	first := e.receive("g", 1, "again.a")
	res := e.send(e.message("again.a", "0"))
	d := first.next()
	second := e.start("g", 1, nil, "again.a")
	d.nack(10 * pause)
	first.stop()
	e.sameBodies(second.nextAcked(1), 1)
	res.stored()
}

func checkLostToAnother(e *env) {
	first := e.receive("g", 5, "again.a")
	res := e.send(e.messages("again.a", 5)...)
	first.nextAcked(2)
	for range 3 {
		first.next()
	}
	second := e.start("g", 5, nil, "again.a")
	first.stop()
	rest := second.nextAcked(3)
	res.stored()
	if rest[0].ID == rest[1].ID || rest[1].ID == rest[2].ID || rest[0].ID == rest[2].ID {
		e.Errorf("a message came twice, so another did not come")
	}
}

func checkLostToNext(e *env) {
	first := e.receive("g", 5, "again.a")
	res := e.send(e.message("again.a", "0"))
	first.next()
	first.stop()
	second := e.start("g", 5, nil, "again.a")
	e.sameBodies(second.nextAcked(1), 1)
	res.stored()
}

func checkAckedIsDone(e *env) {
	first := e.receive("g", 5, "again.a")
	res := e.send(e.messages("again.a", 3)...)
	first.nextAcked(3)
	res.stored()
	first.stop()
	e.nothing(e.receive("g", 5, "again.a"))
}
