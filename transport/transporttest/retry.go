package transporttest

import (
	"errors"
	"time"

	"github.com/capbus/gocap/transport"
)

func retryCases() []testCase {
	const whyFail = "Fail ends the attempt: the message comes again after the wait, to this group alone, or, after the last attempt, is parked."
	return []testCase{
		{
			name:  "a failed attempt comes again after the wait, to its group alone",
			why:   whyFail,
			needs: claimsRetry,
			run:   checkFailWaits,
		},
		{
			name:  "after the last attempt a message is parked",
			why:   whyFail,
			needs: claimsRetry,
			run:   checkParks,
		},
		{
			name:  "a message can be parked at its first attempt",
			why:   "Park is as Fail after the last attempt, whichever it is.",
			needs: claimsRetry,
			run:   checkParksAtOnce,
		},
		{
			name:  "a nack is no attempt",
			why:   "A Nack says that the attempt was none (the consumer stops).",
			needs: claimsRetry,
			run: func(e *env) {
				r := e.receiveRetry("g", transport.BrokerRetry{Attempts: 2, Wait: pause}, "retry.a")
				res := e.send(e.message("retry.a", "0"))
				for range 3 {
					d := r.next()
					d.attempt(1)
					d.nack(0)
				}
				r.next().fail(false)
				last := r.next()
				last.attempt(2)
				last.ack()
				res.stored()
				e.nothing(r)
			},
		},
	}
}

// receiveRetry is as receive, for a group without an inbox.
func (e *env) receiveRetry(group string, retry transport.BrokerRetry, topics ...string) *receiver {
	r := e.prepare(group, 10, topics...)
	r.src.Retry = &retry
	r.run()
	r.sync()
	return r
}

// attempt checks which one this is, as the broker counts.
func (d *delivery) attempt(want int) {
	d.r.e.Helper()
	rd, ok := d.Delivery.(transport.Retrier)
	if !ok {
		d.r.e.Fatalf("a delivery of a Source with Retry is no Retrier")
	}
	if got := rd.Attempt(); got != want {
		d.r.e.Errorf("attempt %d, want %d", got, want)
	}
}

func (d *delivery) fail(wantParked bool) {
	d.r.e.Helper()
	rd, ok := d.Delivery.(transport.Retrier)
	if !ok {
		d.r.e.Fatalf("a delivery of a Source with Retry is no Retrier")
	}
	d.answered()
	if parked, err := rd.Fail(d.r.e.Context(), errors.New("handler failed")); err != nil || parked != wantParked {
		d.r.e.Errorf("fail: parked %t, %v; want %t", parked, err, wantParked)
	}
}

func (d *delivery) park() {
	d.r.e.Helper()
	rd, ok := d.Delivery.(transport.Retrier)
	if !ok {
		d.r.e.Fatalf("a delivery of a Source with Retry is no Retrier")
	}
	d.answered()
	if err := rd.Park(d.r.e.Context(), errors.New("handler refused")); err != nil {
		d.r.e.Errorf("park: %v", err)
	}
}

func checkFailWaits(e *env) {
	const wait = 15 * pause
	r := e.receiveRetry("g", transport.BrokerRetry{Attempts: 3, Wait: wait}, "retry.a")
	other := e.receive("other", 10, "retry.a")
	m := e.message("retry.a", "0")
	res := e.send(m)
	e.sameBodies(other.nextAcked(1), 1)
	for attempt := 1; attempt < 3; attempt++ {
		d := r.next()
		d.attempt(attempt)
		e.sameMessage(d.msg, m)
		failed := time.Now()
		d.fail(false)
		next := r.next()
		if took := time.Since(failed); took < wait {
			e.Errorf("failed with a wait of %v, it came again after %v", wait, took)
		}
		next.attempt(attempt + 1)
		next.nack(0) // to be looked at again
	}
	last := r.next()
	last.ack()
	res.stored()
	e.nothing(r)
	e.nothing(other)
}

func checkParksAtOnce(e *env) {
	r := e.receiveRetry("g", transport.BrokerRetry{Attempts: 3, Wait: pause}, "retry.a")
	res := e.send(e.message("retry.a", "0"))
	d := r.next()
	d.attempt(1)
	d.park()
	res.stored()
	e.nothing(r)
}

func checkParks(e *env) {
	r := e.receiveRetry("g", transport.BrokerRetry{Attempts: 2, Wait: pause}, "retry.a")
	res := e.send(e.message("retry.a", "0"))
	r.next().fail(false)
	r.next().fail(true)
	res.stored()
	ok := e.send(e.message("retry.a", "1"))
	d := r.next()
	if string(d.msg.Body) != "1" {
		e.Errorf("a parked message came again")
	}
	d.ack()
	ok.stored()
	e.nothing(r)
}
