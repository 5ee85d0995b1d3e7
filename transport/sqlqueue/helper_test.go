package sqlqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/sqlqueue"
)

func source(group string, window int) transport.Source {
	return transport.Source{Group: group, Topics: []string{"a.#"}, Window: window}
}

func newMessage(id, topic string) *transport.Message {
	return &transport.Message{ID: id, Topic: topic, Headers: map[string]string{transport.HeaderID: id}, Body: []byte(id)}
}

func messages(prefix, topic string, n int) []*transport.Message {
	msgs := make([]*transport.Message, n)
	for i := range msgs {
		msgs[i] = newMessage(fmt.Sprint(prefix, i), topic)
	}
	return msgs
}

func send(tb testing.TB, tr transport.Transport, msgs ...*transport.Message) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), wait)
	defer cancel()
	for _, err := range tr.Send(ctx, msgs) {
		must(tb, err)
	}
}

// inbox is a receiver that keeps what it gets.
type inbox struct {
	tb   testing.TB
	got  chan transport.Delivery
	stop context.CancelFunc
	done chan struct{}
	errs chan error // of Receives that ended by themselves
}

// receive starts a receiver that asks again when it is lost, as the engine does,
// and stops it after the test.
func receive(tb testing.TB, tr transport.Transport, src transport.Source) *inbox {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	in := &inbox{
		tb: tb, got: make(chan transport.Delivery, 100_000), stop: cancel, done: make(chan struct{}), errs: make(chan error, 1000),
	}
	go func() {
		defer close(in.done)
		for ctx.Err() == nil {
			err := tr.Receive(ctx, src, func(_ context.Context, batch []transport.Delivery) {
				for _, d := range batch {
					in.got <- d
				}
			})
			if ctx.Err() == nil && !errors.Is(err, transport.ErrUnavailable) {
				tb.Errorf("receive: %v", err)
			}
			if err != nil {
				in.errs <- err
				again := time.NewTimer(20 * time.Millisecond)
				select {
				case <-again.C:
				case <-ctx.Done():
				}
			}
		}
	}()
	tb.Cleanup(in.end)
	return in
}

func (in *inbox) end() {
	in.tb.Helper()
	in.stop()
	select {
	case <-in.done:
	case <-time.After(wait):
		in.tb.Errorf("receive did not end within %v", wait)
	}
}

// next returns the next delivery.
func (in *inbox) next() transport.Delivery {
	in.tb.Helper()
	select {
	case d := <-in.got:
		return d
	case <-time.After(wait):
		in.tb.Fatalf("no delivery within %v", wait)
		return nil
	}
}

// lost waits until a Receive has ended with an error.
func (in *inbox) lost() error {
	in.tb.Helper()
	select {
	case err := <-in.errs:
		return err
	case <-time.After(wait):
		in.tb.Fatalf("receive was not lost within %v", wait)
		return nil
	}
}

// ids acks deliveries until n different messages have come.
func (in *inbox) ids(n int) map[string]int {
	in.tb.Helper()
	ids := map[string]int{}
	for len(ids) < n {
		d := in.next()
		_ = d.Ack()
		ids[d.Message().ID]++
	}
	return ids
}

// inParallel runs f n times at once.
func inParallel(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

func declare(tb testing.TB, tr *sqlqueue.Transport, groups ...string) {
	tb.Helper()
	for _, g := range groups {
		must(tb, tr.Declare(tb.Context(), source(g, 1)))
	}
}
