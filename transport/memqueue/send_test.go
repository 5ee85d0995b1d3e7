package memqueue_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

func TestStoredMeansAckedByEveryGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a, b := receive(t, q, "a", "t.*"), receive(t, q, "b", "t.x")
		res := send(t.Context(), q, message("t.x", "1"))
		ack(t, a.next(t))
		pending(t, res)
		pass(time.Second)
		ack(t, b.next(t))
		(<-res).want(t, time.Second, nil)
	})
}

func TestBatchWaitsForItsSlowestAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a := receive(t, q, "a", "t.#")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		res := send(ctx, q, message("t.x", "1"), message("other", "2"), message("t.y", "3"))
		ack(t, a.next(t))
		held := a.next(t)
		(<-res).want(t, 3*time.Second, nil, transport.ErrUnroutable, transport.ErrUnavailable)
		// Too late for the Send, but the delivery is valid: it is stored here.
		ack(t, held)
	})
}

func TestBusyGroupCostsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a := receive(t, q, "a", "t")
		for range 11 { // the window is 10: one stays in the queue
			send(t.Context(), q, message("t", "old"))
		}
		last := send(t.Context(), q, message("t", "last"))
		(<-last).want(t, 30*time.Second, transport.ErrBusy)
		// What nobody waits for is withdrawn from the queue, and dropped when it
		// is given back.
		for range 10 {
			if err := a.next(t).Nack(0); err != nil {
				t.Errorf("nack: %v", err)
			}
		}
		a.nothing(t)
	})
}

func TestNackedIsDroppedOnceItsSendHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{ConfirmTimeout: time.Second})
		a := receive(t, q, "a", "t")
		res := send(t.Context(), q, message("t", "1"))
		if err := a.next(t).Nack(2 * time.Second); err != nil {
			t.Errorf("nack: %v", err)
		}
		(<-res).want(t, time.Second, transport.ErrBusy)
		pass(5 * time.Second)
		a.nothing(t)
	})
}

func TestNackWaitsExactly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a := receive(t, q, "a", "t")
		res := send(t.Context(), q, message("t", "1"), message("t", "2"))
		if err := a.next(t).Nack(time.Second); err != nil {
			t.Errorf("nack: %v", err)
		}
		ack(t, a.next(t))
		pass(time.Second - 1)
		a.nothing(t)
		pass(1)
		ack(t, a.next(t))
		(<-res).want(t, time.Second, nil, nil)
	})
}

func TestGivenBackGoesToItsOldPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		first := receive(t, q, "a", "t")
		var msgs []*transport.Message
		for _, id := range strings.Split("abcdefghijklmno", "") { // more than the window
			msgs = append(msgs, message("t", id))
		}
		res := send(t.Context(), q, msgs...)
		for range 5 {
			ack(t, first.next(t))
		}
		if err := first.next(t).Nack(0); err != nil {
			t.Errorf("nack: %v", err)
		}
		second := receive(t, q, "a", "t")
		if err := first.end(); err != nil {
			t.Errorf("receive: %v", err)
		}
		var order strings.Builder
		for range 10 {
			d := second.next(t)
			order.WriteString(d.Message().ID)
			ack(t, d)
		}
		if order.String() != "fghijklmno" {
			t.Errorf("they came as %s", order.String())
		}
		<-res
	})
}

func TestSendRefusesBadTopicsForGood(t *testing.T) {
	t.Parallel()
	q := memqueue.New(memqueue.Config{})
	for _, topic := range []string{"", "a.*", "#", strings.Repeat("x", 256), "a\x00", "\xff"} {
		err := q.Send(t.Context(), []*transport.Message{message(topic, "1")})[0]
		answer{errs: []error{err}}.want(t, 0, transport.ErrPermanent)
		answer{errs: []error{err}}.want(t, 0, transport.ErrRejected)
	}
}

func TestReceiveRefusesBadSources(t *testing.T) {
	t.Parallel()
	q := memqueue.New(memqueue.Config{})
	for _, src := range []transport.Source{
		{Topics: []string{"t"}, Window: 1},
		{Group: "g", Topics: []string{"t"}},
		{Group: "g", Topics: []string{""}, Window: 1},
	} {
		if err := q.Receive(t.Context(), src, nil); err == nil {
			t.Errorf("source %+v was accepted", src)
		}
	}
	if err := q.Declare(t.Context(), transport.Source{}); err == nil {
		t.Error("a source without a group was declared")
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := memqueue.New(memqueue.Config{}).Validate(); err != nil {
		t.Errorf("the zero configuration: %v", err)
	}
	if err := memqueue.New(memqueue.Config{ConfirmTimeout: -1}).Validate(); err == nil {
		t.Error("a negative ConfirmTimeout was accepted")
	}
}
