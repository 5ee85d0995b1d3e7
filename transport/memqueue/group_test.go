package memqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

func TestLastReceiverLeavingFreesTheSends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a, b := receive(t, q, "a", "t"), receive(t, q, "b", "t")
		res := send(t.Context(), q, message("t", "1"))
		onlyA := send(t.Context(), q, message("t", "2"))
		ack(t, a.next(t))
		held := b.next(t)
		if err := b.end(); err != nil {
			t.Errorf("receive: %v", err)
		}
		(<-res).want(t, 0, transport.ErrUnavailable)
		(<-onlyA).want(t, 0, transport.ErrUnavailable)
		if held.Ack() == nil {
			t.Error("an ack after receive had returned was accepted")
		}
		receive(t, q, "b", "t").nothing(t)
	})
}

func TestOneOfTwoReceiversLeavingFreesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		first := receive(t, q, "a", "t")
		res := send(t.Context(), q, message("t", "1"))
		lost := first.next(t)
		second := receive(t, q, "a", "t")
		if err := first.end(); err != nil {
			t.Errorf("receive: %v", err)
		}
		pending(t, res)
		again := second.next(t)
		if lost.Ack() == nil || lost.Nack(0) == nil {
			t.Error("an answer to a delivery that is in other hands was accepted")
		}
		pending(t, res)
		ack(t, again)
		(<-res).want(t, 0, nil)
	})
}

func TestSendsWaitForAGroupThatRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a := receive(t, q, "a", "t", "u")
		b := receive(t, q, "b", "t")
		_ = a.end()
		res := send(t.Context(), q, message("t", "1"))
		ack(t, b.next(t))
		pass(4 * time.Second)
		pending(t, res)
		a = receive(t, q, "a", "t")
		ack(t, a.next(t))
		(<-res).want(t, 4*time.Second, nil)

		pass(time.Minute) // its receiver is back: it lives on, with all its patterns
		res = send(t.Context(), q, message("u", "2"))
		ack(t, a.next(t))
		(<-res).want(t, 0, nil)
	})
}

func TestGroupIsForgottenAfterLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a, b := receive(t, q, "a", "t", "u"), receive(t, q, "b", "t")
		_ = a.end()
		pass(2 * time.Second)
		res := send(t.Context(), q, message("t", "1"), message("u", "2"))
		ack(t, b.next(t))
		(<-res).want(t, 3*time.Second, transport.ErrUnavailable, transport.ErrUnavailable)
		res = send(t.Context(), q, message("t", "1"), message("u", "2"))
		ack(t, b.next(t))
		(<-res).want(t, 0, nil, transport.ErrUnroutable)
		receive(t, q, "a", "t", "u").nothing(t)
	})
}

func TestNegativeLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{Linger: -1})
		src := transport.Source{Group: "a", Topics: []string{"t"}}
		if err := q.Declare(t.Context(), src); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		res := send(t.Context(), q, message("t", "1"))
		a := receive(t, q, "a", "t")
		ack(t, a.next(t))
		(<-res).want(t, 0, nil)
		_ = a.end()
		(<-send(t.Context(), q, message("t", "2"))).want(t, 0, transport.ErrUnroutable)
	})
}

func TestDeclaredGroupWithoutReceiverCostsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{Linger: time.Hour})
		if err := q.Declare(t.Context(), transport.Source{Group: "a", Topics: []string{"t"}}); err != nil {
			t.Fatal(err)
		}
		(<-send(t.Context(), q, message("t", "1"))).want(t, 30*time.Second, transport.ErrBusy)
		receive(t, q, "a", "t").nothing(t)
	})
}

func TestInjectedWaitsForARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		a := receive(t, q, "a", "t")
		if n := q.Inject(&transport.Message{Topic: "t", Body: []byte("raw")}); n != 1 {
			t.Errorf("%d groups took it", n)
		}
		if n := q.Inject(&transport.Message{Topic: "nobody"}); n != 0 {
			t.Errorf("%d groups took a topic of nobody", n)
		}
		if err := q.InjectTo("a", &transport.Message{Topic: "other"}); err != nil {
			t.Error(err)
		}
		if err := q.InjectTo("b", &transport.Message{}); err == nil {
			t.Error("there is no group b")
		}
		a.next(t)
		_ = a.end()
		a = receive(t, q, "a", "t")
		m := a.next(t)
		if got := m.Message(); got.ID != "" || got.Headers != nil || string(got.Body) != "raw" {
			t.Errorf("got %+v", got)
		}
		ack(t, m)
		other := a.next(t)
		if topic := other.Message().Topic; topic != "other" {
			t.Errorf("topic is %q", topic)
		}
		_ = a.end()
		pass(time.Minute)
		receive(t, q, "a", "t").nothing(t)
	})
}
