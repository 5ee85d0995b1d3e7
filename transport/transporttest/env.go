package transporttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/transport"
)

// pause lies between two tries of a thing that may need some.
const pause = 10 * time.Millisecond

// env is what a case works with.
type env struct {
	TB

	tr   transport.Transport
	wait time.Duration
	unit string // unique, the prefix of group names
	cut  func() // see Suite.Cut

	probes sync.Map // group and id to chan struct{}, closed when the group gets it
}

func newEnv(tb TB, tr transport.Transport, wait time.Duration) *env {
	return &env{TB: tb, tr: tr, wait: wait, unit: newID()}
}

func newID() string {
	id := ids.New()
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// message returns one with the headers that the engine sets.
func (e *env) message(topic, body string) *transport.Message {
	id := newID()
	return &transport.Message{
		ID:    id,
		Topic: topic,
		Body:  []byte(body),
		Headers: map[string]string{
			transport.HeaderID:       id,
			transport.HeaderTopic:    topic,
			transport.HeaderType:     "string",
			transport.HeaderSentTime: "2026-01-02T03:04:05.678Z",
		},
	}
}

func (e *env) messages(topic string, n int) []*transport.Message {
	msgs := make([]*transport.Message, n)
	for i := range msgs {
		msgs[i] = e.message(topic, fmt.Sprint(i))
	}
	return msgs
}

func (e *env) group(name string) string { return e.unit + "." + name }

// try calls Send once, in the background, and checks the shape of its answer.
func (e *env) try(ctx context.Context, msgs ...*transport.Message) *result {
	r := &result{e: e, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.errs = e.tr.Send(ctx, msgs)
		if len(r.errs) != len(msgs) {
			e.Errorf("send of %d messages returned %d errors", len(msgs), len(r.errs))
			r.errs = make([]error, len(msgs))
		}
	}()
	e.Cleanup(func() { r.wait() })
	return r
}

// send sends in the background until all is stored, as the engine does: again
// after any error but a rejection.
func (e *env) send(msgs ...*transport.Message) *result {
	r := &result{e: e, done: make(chan struct{}), errs: make([]error, len(msgs))}
	go func() {
		defer close(r.done)
		left := msgs
		for len(left) > 0 && e.Context().Err() == nil {
			left = e.sendOnce(left)
			if len(left) > 0 {
				e.pause()
			}
		}
	}()
	e.Cleanup(func() { r.wait() })
	return r
}

func (e *env) sendOnce(msgs []*transport.Message) (left []*transport.Message) {
	errs := e.tr.Send(e.Context(), msgs)
	if len(errs) != len(msgs) {
		e.Errorf("send of %d messages returned %d errors", len(msgs), len(errs))
		return nil
	}
	for i, m := range msgs {
		switch err := errs[i]; {
		case err == nil:
		case errors.Is(err, transport.ErrRejected):
			e.Errorf("message on topic %q was rejected: %v", m.Topic, err)
		default:
			left = append(left, m)
		}
	}
	return left
}

// pause waits a moment, or until the test ends.
func (e *env) pause() {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.Context().Done():
	}
}

// result is a Send that runs.
type result struct {
	e    *env
	done chan struct{}
	errs []error
}

// wait returns the errors, or fails the case if Send does not end.
func (r *result) wait() []error {
	if !r.e.closed(r.done) {
		r.e.Errorf("send did not return within %v", r.e.wait)
		return nil
	}
	return r.errs
}

// stored fails the case unless all messages were stored.
func (r *result) stored() {
	r.e.Helper()
	if !r.e.closed(r.done) {
		r.e.Fatalf("send did not return within %v", r.e.wait)
	}
	for i, err := range r.errs {
		if err != nil {
			r.e.Fatalf("message %d was not stored: %v", i, err)
		}
	}
}

// after fires when an event is overdue.
func (e *env) after() <-chan time.Time { return time.After(e.wait) }

// closed waits for a channel to close.
func (e *env) closed(c <-chan struct{}) bool {
	t := time.NewTimer(e.wait)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}
