package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// pair is a bus on one storage and one transport.
type pair struct {
	storage   storage.Storage
	transport transport.Transport
	bus       *cap.Bus

	seen    journal
	working chan struct{} // a handler of matrix.held has begun
	release chan struct{} // closed: it may end
}

func runMatrix(t *testing.T, s matrixStorage, tr matrixTransport) {
	t.Helper()
	version := "m" + cap.NewID()[24:]
	db, queue := s.place(t), tr.place(t, version)
	p := &pair{working: make(chan struct{}, 1), release: make(chan struct{})}
	store, closeStore, err := s.open(db)
	must(t, err)
	t.Cleanup(func() { must(t, closeStore()) })
	broker, closeBroker, err := tr.open(queue, version)
	must(t, err)
	t.Cleanup(func() { must(t, closeBroker()) })
	p.storage, p.transport = store, broker
	p.bus = made(t, p.storage, p.transport, p.options(version))
	begun(t, p.bus)
	p.listens(t)

	p.transaction(t)
	p.retry(t)
	p.delayed(t)
	p.reply(t)
	p.stop(t)
	if !s.inProcess {
		p.takeover(t, []string{s.name, db, tr.name, queue, version})
	}
	p.check(t)
}

// options are those of the test and of the process that it kills.
func (p *pair) options(version string) func(*cap.Options) {
	return func(o *cap.Options) {
		o.Version, o.DefaultGroupName, o.FallbackWindow = version, matrixGroup, window
		o.Subscriptions = []subscribe.Subscription{
			subscribe.To("matrix.ready", p.handle),
			subscribe.To("matrix.placed", p.handle),
			subscribe.To("matrix.refused", func(ctx context.Context, what string) error {
				info, _ := cap.InfoFromContext(ctx)
				p.seen.add(fmt.Sprintf("%s %d", what, info.Attempt))
				if info.Attempt < 4 { // once in a wait, after what follows at once
					return errors.New("not yet")
				}
				return nil
			}),
			subscribe.Reply("matrix.asked", func(_ context.Context, what string) (string, error) { return "answer to " + what, nil }),
			subscribe.To("matrix.answered", func(ctx context.Context, what string) error {
				info, _ := cap.InfoFromContext(ctx)
				return p.handle(ctx, what+" "+info.Message.Headers[transport.HeaderCorrelationID])
			}),
			subscribe.To("matrix.held", func(ctx context.Context, what string) error {
				p.working <- struct{}{}
				select {
				case <-p.release:
					return p.handle(ctx, what)
				case <-ctx.Done():
					return ctx.Err()
				}
			}),
		}
	}
}

func (p *pair) handle(_ context.Context, what string) error {
	p.seen.add(what)
	return nil
}

func (p *pair) publish(tb testing.TB, topic, what string, opts ...cap.PublishOption) {
	tb.Helper()
	must(tb, p.bus.Publish(tb.Context(), cap.NoTx, topic, what, opts...))
}

// once waits until it is handled.
func (p *pair) once(tb testing.TB, what string) {
	tb.Helper()
	eventually(tb, what, func() bool { return p.seen.count(what) > 0 })
}

// listens waits until the receivers are there: not every transport keeps what
// comes before.
func (p *pair) listens(tb testing.TB) {
	tb.Helper()
	for end := time.Now().Add(patience); p.seen.count("ready") == 0; <-time.After(100 * time.Millisecond) {
		p.publish(tb, "matrix.ready", "ready")
		if time.Now().After(end) {
			tb.Fatal("nothing is received")
		}
	}
}

// transaction: nothing leaves before the commit, or after a rollback.
func (p *pair) transaction(t *testing.T) {
	t.Helper()
	changed := errors.New("changed my mind")
	for what, end := range map[string]error{"committed": nil, "rolled back": changed} {
		err := p.bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
			must(t, p.bus.Publish(ctx, tx, "matrix.placed", what))
			<-time.After(300 * time.Millisecond) // three looks
			if p.seen.count(what) > 0 {
				t.Errorf("%s was handled before its transaction has ended", what)
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.once(t, "committed")
}

func (p *pair) retry(t *testing.T) {
	t.Helper()
	p.publish(t, "matrix.refused", "refused")
	p.once(t, "refused 4")
}

func (p *pair) delayed(t *testing.T) {
	t.Helper()
	began := time.Now()
	p.publish(t, "matrix.placed", "delayed", cap.WithDelay(time.Second))
	p.once(t, "delayed")
	if took := time.Since(began); took < 900*time.Millisecond { // by another clock
		t.Errorf("handled after %v, want a second", took)
	}
}

func (p *pair) reply(t *testing.T) {
	t.Helper()
	id := cap.NewID()
	p.publish(t, "matrix.asked", "question", cap.WithID(id), cap.WithReplyTo("matrix.answered"))
	p.once(t, "answer to question "+id)
}

// stop: a Stop waits for the handler that runs, what is published meanwhile is
// kept, and the next start sends it.
func (p *pair) stop(t *testing.T) {
	t.Helper()
	p.publish(t, "matrix.held", "held")
	<-p.working
	stopped := make(chan error)
	go func() { stopped <- p.bus.Stop(t.Context()) }()
	select {
	case err := <-stopped:
		t.Errorf("Stop has not waited for the handler: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	p.publish(t, "matrix.placed", "published while stopping")
	close(p.release)
	must(t, <-stopped)
	if p.seen.count("held") != 1 {
		t.Error("Stop has returned, and the handler has not finished")
	}
	before := p.seen.len()
	p.publish(t, "matrix.placed", "published when stopped")
	<-time.After(300 * time.Millisecond)
	if n := p.seen.len(); n != before {
		t.Errorf("%d messages were handled after Stop", n-before)
	}
	must(t, p.bus.Start(t.Context()))
	p.once(t, "published while stopping")
	p.once(t, "published when stopped")
}

// takeover: another process is killed with one message in a handler and one
// that it has not sent.
func (p *pair) takeover(t *testing.T, args []string) {
	t.Helper()
	must(t, p.bus.Stop(t.Context())) // or it would take the other's messages from the broker
	kill := startMatrixChild(t, args)
	ready := time.Now()
	must(t, p.bus.Start(t.Context()))
	p.publish(t, "matrix.placed", "by the living") // it may come before the others
	<-time.After(time.Second)
	if n := p.seen.count("in work") + p.seen.count("not sent"); n > 0 && time.Since(ready) < window {
		t.Errorf("%d messages of a living process were taken", n)
	}
	kill()
	killed := time.Now()
	p.once(t, "in work")
	p.once(t, "not sent")
	took, limit := time.Since(killed), window+2*time.Second
	t.Logf("taken over within %v", took)
	if os.Getenv("GOCAP_MATRIX") != "all" {
		limit = patience // beside other tests, everything takes longer
	}
	if took > limit {
		t.Errorf("taken over within %v, want %v", took, limit)
	}
}

// check: everything was handled once, and nothing is left to do or has failed.
func (p *pair) check(t *testing.T) {
	t.Helper()
	op, err := p.bus.Operator()
	must(t, err)
	open := func() (n int) {
		for _, box := range []operator.Box{operator.Published, operator.Received} {
			page, err := op.List(t.Context(), operator.Filter{Box: box, States: []operator.State{
				operator.Scheduled, operator.Delayed, operator.Retrying, operator.Failed,
			}}, operator.Page{Limit: 100})
			must(t, err)
			n += len(page.Messages)
		}
		return n
	}
	eventually(t, "nothing is left to do", func() bool { return open() == 0 })
	p.seen.mu.Lock()
	defer p.seen.mu.Unlock()
	seen := slices.DeleteFunc(slices.Clone(p.seen.seen), func(s string) bool { return s == "ready" })
	slices.Sort(seen)
	if once := slices.Compact(slices.Clone(seen)); len(once) != len(seen) || slices.Contains(seen, "rolled back") {
		t.Errorf("handled: %q, want each once, and nothing that was rolled back", seen)
	}
}
