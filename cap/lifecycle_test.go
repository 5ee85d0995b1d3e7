package cap_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

func TestStartAndStopUnderStress(t *testing.T) {
	t.Parallel()
	j := newJournal()
	r := newRig(t, cap.Options{}, subscribe.To("t", j.handler))
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 20 {
				if err := r.Start(t.Context()); err != nil && !errors.Is(err, cap.ErrStarted) {
					t.Errorf("Start: %v", err)
				}
				if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
					t.Errorf("Publish: %v", err)
				}
				r.Wake()
				if err := r.Stop(t.Context()); err != nil {
					t.Errorf("Stop: %v", err)
				}
			}
		})
	}
	all.Wait()
	r.start(t)
	j.wait(t, 200)
}

func TestStartOfARunningBusIsErrStarted(t *testing.T) {
	t.Parallel()
	r := running(t, cap.Options{})
	if err := r.Start(t.Context()); !errors.Is(err, cap.ErrStarted) {
		t.Errorf("Start: %v, want ErrStarted", err)
	}
}

func TestStopOfABusThatDoesNotRunIsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), ended} {
		if err := r.Stop(ctx); err != nil {
			t.Errorf("Stop before Start: %v", err)
		}
	}
	r.start(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := r.Stop(t.Context()); err != nil {
				t.Errorf("Stop by many: %v", err)
			}
		})
	}
	all.Wait()
}

func TestAllStopsReturnWhenItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started, over := make(chan struct{}), false
		r := newRig(t, cap.Options{}, subscribe.To("t", func(context.Context, string) error {
			close(started)
			pause(5 * time.Second)
			over = true
			return nil
		}))
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		<-started
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := r.Stop(t.Context()); err != nil || !over {
					t.Errorf("Stop returned %v before it was over", err)
				}
			})
		}
		all.Wait()
	})
}

func TestRunStartsAndStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{}, subscribe.To("t", j.handler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		j.wait(t, 1)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Run(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Run with a context that has ended: %v, want that of Start", err)
		}
	})
}

// Case C173: the context of Start ends when starting is over.
func TestTheContextOfStartDoesNotEndTheLoops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		var ended error
		r := newRig(t, cap.Options{}, subscribe.To("t", func(ctx context.Context, s string) error {
			_, deadline := ctx.Deadline()
			if ended = context.Cause(ctx); deadline {
				ended = errors.New("it has a deadline")
			}
			return j.handler(ctx, s)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		if err := r.Start(ctx); err != nil {
			t.Fatal(err)
		}
		elapse(20 * time.Second)
		cancel()
		elapse(40 * time.Second)
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		j.wait(t, 1)
		if ended != nil {
			t.Errorf("the context of the handler: %v", ended)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
}

func TestAFailedStartLeavesTheBusAsItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		away := errors.New("database away")
		reg := &subscribe.Registry{}
		u := &unruly{Storage: memstore.New(memstore.Config{})}
		r := newRig(t, cap.Options{Storage: u, Registry: reg}, subscribe.To("t", j.handler))
		failing(&u.check, away)
		if err := r.Start(t.Context()); !errors.Is(err, away) || !strings.HasPrefix(err.Error(), "cap: start: storage: ") {
			t.Errorf("Start: %v, want that of the storage", err)
		}
		failing(&u.check, nil)
		failing(&u.join, away)
		if err := r.Start(t.Context()); !errors.Is(err, away) {
			t.Errorf("Start: %v, want that of the storage", err)
		}
		failing(&u.join, nil)
		if err := reg.Add(subscribe.To("other", j.handler)); err != nil {
			t.Errorf("the registry was not given back: %v", err)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("Stop after a failed Start: %v", err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatalf("Start after a failed one: %v", err)
		}
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		j.wait(t, 1)
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAStartThatIsCutLeavesNoLivingInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		u := &cutting{Storage: store, cut: cancel}
		r := newRig(t, cap.Options{Storage: u})
		if err := r.Start(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("Start: %v, want context.Canceled", err)
		}
		if u.left != 1 {
			t.Errorf("%d instances left, want the one that had joined", u.left)
		}
	})
}

// cutting cancels the context of a Start when its outbox has joined, and counts
// who leaves.
type cutting struct {
	storage.Storage

	cut  func()
	left int
}

type leaver struct {
	storage.Member

	c *cutting
}

func (c *cutting) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	if in.Box == storage.Inbox {
		c.cut()
	}
	m, err := c.Storage.Join(ctx, in)
	return leaver{m, c}, err
}

func (l leaver) Leave(ctx context.Context) error {
	err := l.Member.Leave(ctx)
	if err == nil {
		l.c.left++
	}
	return err
}

func TestNewReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := cap.New(cap.Options{FailedRetryCount: -1, Version: "a b", Registry: &subscribe.Registry{}})
	var field *cap.FieldError
	if !errors.As(err, &field) || !strings.HasPrefix(err.Error(), "cap: ") {
		t.Fatalf("New: %v, want *cap.FieldError", err)
	}
	for _, name := range []string{"Options.Storage", "Options.Version", "Options.FailedRetryCount"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}

func TestStartRefusesSubscriptionsThatCannotBeServedNamingThemAll(t *testing.T) {
	t.Parallel()
	j := newJournal()
	reg := &subscribe.Registry{}
	if err := reg.Add(subscribe.To("a", j.handler)); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, cap.Options{Registry: reg},
		subscribe.To("a", j.handler, subscribe.Group("test")), // the default group
		subscribe.To("b", j.handler, subscribe.Group(strings.Repeat("g", 253))),
		subscribe.To("c.*", j.handler))
	noWildcards := r.again(t, cap.Options{Transport: limited{r.queue}}, subscribe.To("c.*", j.handler))
	err := r.Start(t.Context())
	if err == nil {
		t.Fatal("Start: no error")
	}
	for _, text := range []string{"is there already", "lifecycle_test.go:", "has 256 bytes; at most 255"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
	if n := strings.Count(err.Error(), "lifecycle_test.go:"); n < 3 {
		t.Errorf("%v names %d places, want those of both duplicates and of the long name", err, n)
	}
	if err := noWildcards.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "transport limited has no wildcards") {
		t.Errorf("Start on a transport without wildcards: %v", err)
	}
}

func TestOnlyOneDestinationAVersion(t *testing.T) {
	t.Parallel()
	r := running(t, cap.Options{})
	other := r.again(t, cap.Options{Transport: elsewhere{r.queue}})
	if err := other.Start(t.Context()); !errors.Is(err, storage.ErrDestination) {
		t.Errorf("Start beside an instance with another destination: %v, want storage.ErrDestination", err)
	}
	v2 := r.again(t, cap.Options{Transport: elsewhere{r.queue}, Version: "v2"})
	v2.start(t)
}

func TestStartAndStopAreLogged(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	j := newJournal()
	r := newRig(t, cap.Options{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))},
		subscribe.To("t", j.handler, subscribe.Group("files")))
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), cap.NoTx, "t", "a payload"); err != nil {
		t.Fatal(err)
	}
	j.wait(t, 1)
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"level=INFO", "bus started", "version=v1", "storage=*memstore.Store", "transport=memqueue", "files"},
		{"level=DEBUG", "bus options", "options.FailedRetryCount=50"},
		{"level=INFO", "bus stopped", "clean=true"},
	} {
		if !slices.ContainsFunc(strings.Split(out.String(), "\n"), func(l string) bool {
			return !slices.ContainsFunc(line, func(part string) bool { return !strings.Contains(l, part) })
		}) {
			t.Errorf("no log line has all of %q:\n%s", line, out.String())
		}
	}
	if strings.Contains(out.String(), "a payload") {
		t.Errorf("a payload is logged:\n%s", out.String())
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// versions is a transport whose destination depends on the version.
type versions map[string]*memqueue.Queue

func (v versions) ForVersion(version string) transport.Transport { return v[version] }

func (versions) Send(context.Context, []*transport.Message) []error { panic("of no version") }

func (versions) Receive(context.Context, transport.Source, func(context.Context, []transport.Delivery)) error {
	panic("of no version")
}
func (versions) Check(context.Context) error { panic("of no version") }
func (versions) Traits() transport.Traits    { return transport.Traits{Name: "versions"} }

func TestTransportLearnsTheVersion(t *testing.T) {
	t.Parallel()
	v := versions{"v1": memqueue.New(memqueue.Config{}), "v2": memqueue.New(memqueue.Config{})}
	j := newJournal()
	r := running(t, cap.Options{Transport: v, Version: "v2"}, subscribe.To("t", j.handler))
	v["v2"].Record(1)
	if err := r.Publish(t.Context(), cap.NoTx, "t", "x"); err != nil {
		t.Fatal(err)
	}
	j.wait(t, 1)
	if n := len(v["v2"].Sent()); n != 1 {
		t.Errorf("%d messages went to the transport of version v2, want 1", n)
	}
}
