package memqueue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

func TestDisconnectCutsEveryoneOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a, b := receive(t, q, "a", "t"), receive(t, q, "b", "t")
		stored := send(t.Context(), q, message("t", "1"))
		ack(t, a.next(t))
		ack(t, b.next(t))
		(<-stored).want(t, 0, nil)
		second := message("t", "2")
		res := send(t.Context(), q, second)
		ack(t, a.next(t))
		held := b.next(t)

		q.Disconnect()
		q.Disconnect()
		(<-res).want(t, 0, transport.ErrUnavailable)
		second.Body[0] = '!' // it is the sender's again
		for _, c := range []*consumer{a, b} {
			if err := <-c.done; !errors.Is(err, transport.ErrUnavailable) {
				t.Errorf("receive returned %v", err)
			}
		}
		if held.Ack() == nil || held.Nack(0) == nil {
			t.Error("an answer without a connection was accepted")
		}
		wantCutOff(t, q)

		pass(time.Hour)
		q.Reconnect()
		q.Reconnect()
		if err := q.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
		pass(20 * time.Second) // the groups wait for their receivers
		after := send(t.Context(), q, message("t", "4"))
		a, b = receive(t, q, "a", "t"), receive(t, q, "b", "t")
		again := b.next(t)
		if body := string(again.Message().Body); body != "2" {
			t.Errorf("message %s came, not the one that was in hand", body)
		}
		ack(t, again)
		ack(t, b.next(t))
		ack(t, a.next(t))
		(<-after).want(t, 0, nil)
		a.nothing(t)
		b.nothing(t)
	})
}

func wantCutOff(t *testing.T, q *memqueue.Queue) {
	t.Helper()
	src := transport.Source{Group: "a", Topics: []string{"t"}, Window: 1}
	for name, err := range map[string]error{
		"check":   q.Check(t.Context()),
		"send":    (<-send(t.Context(), q, message("t", "3"))).errs[0],
		"receive": q.Receive(t.Context(), src, nil),
		"declare": q.Declare(t.Context(), src),
	} {
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("%s returned %v", name, err)
		}
	}
}

func TestGroupsDoNotEndWhileDisconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		_ = receive(t, q, "a", "t").end()
		q.Disconnect()
		pass(time.Minute)
		q.Reconnect()
		res := send(t.Context(), q, message("t", "1"))
		a := receive(t, q, "a", "t")
		ack(t, a.next(t))
		(<-res).want(t, 0, nil)
	})
}

func TestDisconnectEndsADelayedSendAndADeliver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		done := make(chan error)
		go func() {
			done <- q.Receive(t.Context(), transport.Source{Group: "a", Topics: []string{"t"}, Window: 1},
				func(ctx context.Context, _ []transport.Delivery) { <-ctx.Done() })
		}()
		synctest.Wait()
		waits := send(t.Context(), q, message("t", "1"))
		q.SetFaults(memqueue.Faults{SendDelay: time.Minute})
		delayed := send(t.Context(), q, message("t", "2"))
		pass(time.Second)
		q.Disconnect()
		(<-waits).want(t, time.Second, transport.ErrUnavailable)
		(<-delayed).want(t, time.Second, transport.ErrUnavailable)
		if err := <-done; !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("receive returned %v", err)
		}
	})
}

func TestRefuseDecidesByMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a := receive(t, q, "a", "t")
		q.SetFaults(memqueue.Faults{SendDelay: time.Second, Refuse: func(m *transport.Message) error {
			if m.ID == "2" {
				return transport.ErrRejected
			}
			return nil
		}})
		res := send(t.Context(), q, message("t", "1"), message("t", "2"), message("t", "3"))
		a.nothing(t)
		pass(time.Second)
		ack(t, a.next(t))
		ack(t, a.next(t))
		(<-res).want(t, time.Second, nil, transport.ErrRejected, nil)
	})
}

func TestHeldConfirms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a := receive(t, q, "a", "t")
		release, other := q.HoldConfirms(), q.HoldConfirms()
		res := send(t.Context(), q, message("t", "1"), message("nobody", "2"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lost := send(ctx, q, message("t", "3"))
		slow := send(t.Context(), q, message("t", "4"))
		ack(t, a.next(t))
		ack(t, a.next(t))
		(<-lost).want(t, time.Second, transport.ErrUnavailable)
		pass(time.Second)
		release()
		release()
		pending(t, res)
		other()
		(<-res).want(t, 2*time.Second, nil, transport.ErrUnroutable)
		pending(t, slow) // it was not acked
		ack(t, a.next(t))
		(<-slow).want(t, 2*time.Second, nil)
		a.nothing(t)
	})
}

func TestLateConfirms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{ConfirmTimeout: 3 * time.Second})
		a := receive(t, q, "a", "t")
		q.SetFaults(memqueue.Faults{ConfirmDelay: 2 * time.Second})
		res := send(t.Context(), q, message("t", "1"))
		tooLate := send(t.Context(), q, message("t", "2"))
		cut := send(t.Context(), q, message("t", "3"))
		ack(t, a.next(t))
		second, third := a.next(t), a.next(t)
		pass(1500 * time.Millisecond)
		ack(t, second)
		(<-res).want(t, 2*time.Second, nil)
		ack(t, third)
		wantUnknown(t, (<-tooLate).errs[0])
		wantUnknown(t, (<-cut).errs[0])
		q.SetFaults(memqueue.Faults{SendDelay: time.Minute})
		wantUnknown(t, (<-send(t.Context(), q, message("t", "4"))).errs[0])
	})
}

func TestRecordKeepsTheNewest(t *testing.T) {
	t.Parallel()
	q := memqueue.New(memqueue.Config{})
	sendIDs := func(ids ...string) {
		for _, id := range ids {
			q.Send(t.Context(), []*transport.Message{message("nobody", id)})
		}
	}
	recorded := func(want string) {
		t.Helper()
		got := ""
		for _, m := range q.Sent() {
			got += m.ID
			m.Headers[transport.HeaderID] = "changed"
		}
		if got != want {
			t.Errorf("recorded %q, want %q", got, want)
		}
	}
	sendIDs("0")
	recorded("")
	q.Record(3)
	sendIDs("1", "2")
	recorded("12")
	for i := range 20 {
		sendIDs(string(rune('a' + i)))
	}
	recorded("rst")
	if q.Sent()[0].Headers[transport.HeaderID] != "r" {
		t.Error("a caller can change the record")
	}
	q.Disconnect()
	sendIDs("x")
	recorded("rst")
	q.Record(0)
	recorded("")
}
