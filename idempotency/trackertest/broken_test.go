package trackertest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/memtracker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fnc = func(ctx context.Context) error

// broken is a sound tracker whose methods can be replaced.
type broken struct {
	idempotency.Tracker

	has  func(ctx context.Context, key string) (bool, error)
	mark func(ctx context.Context, key string) error
	once func(ctx context.Context, key string, fn fnc) error
}

func (b *broken) HasProcessed(ctx context.Context, key string) (bool, error) {
	if b.has != nil {
		return b.has(ctx, key)
	}
	return b.Tracker.HasProcessed(ctx, key)
}

func (b *broken) MarkAsProcessed(ctx context.Context, key string) error {
	if b.mark != nil {
		return b.mark(ctx, key)
	}
	return b.Tracker.MarkAsProcessed(ctx, key)
}

func (b *broken) Once(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	if b.once != nil {
		return b.once(ctx, key, fn)
	}
	return b.Tracker.Once(ctx, key, fn)
}

// mutant is a tracker that breaks one rule, and the case that must see it.
type mutant struct {
	name   string
	caught string
	spoil  func(b *broken)
}

// mapped replaces the keys of all methods.
func mapped(f func(key string) string) func(b *broken) {
	return func(b *broken) {
		sound := b.Tracker
		b.has = func(ctx context.Context, key string) (bool, error) { return sound.HasProcessed(ctx, f(key)) }
		b.mark = func(ctx context.Context, key string) error { return sound.MarkAsProcessed(ctx, f(key)) }
		b.once = func(ctx context.Context, key string, fn fnc) error { return sound.Once(ctx, f(key), fn) }
	}
}

func mutants() []mutant {
	return append([]mutant{
		{"case does not count", "bytes", mapped(strings.ToLower)},
		{"spaces at the end do not count", "bytes", mapped(func(key string) string { return strings.TrimRight(key, " ") })},
		{"ends at a zero byte", "bytes", mapped(func(key string) string { key, _, _ = strings.Cut(key, "\x00"); return key })},
		{"255 bytes", "bytes", mapped(func(key string) string { return key[:min(len(key), 255)] })},
		{"replaces what is not UTF-8", "bytes", mapped(func(key string) string { return strings.ToValidUTF8(key, "\ufffd") })},
		{"an empty key is one", "no key", mapped(func(key string) string { return key + "!" })},
		{"forgets", "once", func(b *broken) {
			b.once = func(ctx context.Context, _ string, fn fnc) error { return fn(ctx) }
		}},
		{"forgets what is marked", "marked", func(b *broken) {
			b.mark = func(context.Context, string) error { return nil }
		}},
		{"marks twice with an error", "marked", func(b *broken) {
			b.mark = func(ctx context.Context, key string) error {
				if done, _ := b.Tracker.HasProcessed(ctx, key); done {
					return idempotency.ErrInProgress
				}
				return b.Tracker.MarkAsProcessed(ctx, key)
			}
		}},
		{"never runs fn", "once", func(b *broken) {
			b.once = func(ctx context.Context, key string, _ fnc) error { return b.Tracker.MarkAsProcessed(ctx, key) }
		}},
		{"looks at no context", "ended context", func(b *broken) {
			b.once = func(ctx context.Context, key string, fn fnc) error {
				return b.Tracker.Once(context.WithoutCancel(ctx), key, fn)
			}
		}},
	}, onceMutants()...)
}

func onceMutants() []mutant {
	return []mutant{
		{"marks before fn", "error", func(b *broken) {
			b.once = func(ctx context.Context, key string, fn fnc) error {
				if err := b.Tracker.MarkAsProcessed(ctx, key); err != nil {
					return err
				}
				return fn(ctx)
			}
		}},
		{"swallows fn's error", "error", func(b *broken) {
			b.once = func(ctx context.Context, key string, fn fnc) error {
				_ = b.Tracker.Once(ctx, key, fn)
				return nil
			}
		}},
		{"a panic is success", "panic", func(b *broken) { b.once = finally(b) }},
		{"a goroutine's end is success", "goexit", func(b *broken) { b.once = finally(b) }},
		{"keeps the key of what was cut", "cut and failed", func(b *broken) {
			b.once = func(ctx context.Context, key string, fn fnc) error {
				err := b.Tracker.Once(ctx, key, fn)
				if ctx.Err() != nil {
					_ = b.Tracker.MarkAsProcessed(context.WithoutCancel(ctx), key)
				}
				return err
			}
		}},
		{"an error after success", "cut", func(b *broken) {
			b.once = func(ctx context.Context, key string, fn fnc) error {
				if err := b.Tracker.Once(ctx, key, fn); err != nil {
					return err
				}
				return ctx.Err()
			}
		}},
		{"looks, then marks", "many", lookThenMark},
		{"looks, then marks, while another is in progress", "in progress", lookThenMark},
		{"in progress is done", "in progress", inProgressIsNil},
		{"in progress is done, although it fails", "in progress and failing", inProgressIsNil},
		{"nested is done", "nested", inProgressIsNil},
		{"one at a time for good", "others", oneForGood},
	}
}

// finally marks whatever becomes of fn.
func finally(b *broken) func(ctx context.Context, key string, fn fnc) error {
	return func(ctx context.Context, key string, fn fnc) error {
		failed := false
		defer func() {
			if !failed {
				_ = b.Tracker.MarkAsProcessed(ctx, key)
			}
		}()
		err := fn(ctx)
		failed = err != nil
		return err
	}
}

// lookThenMark is Once made of the other two.
func lookThenMark(b *broken) {
	b.once = func(ctx context.Context, key string, fn fnc) error {
		if done, err := b.Tracker.HasProcessed(ctx, key); done || err != nil {
			return err
		}
		if err := fn(ctx); err != nil {
			return err
		}
		<-time.After(time.Millisecond)
		return b.Tracker.MarkAsProcessed(ctx, key)
	}
}

func inProgressIsNil(b *broken) {
	b.once = func(ctx context.Context, key string, fn fnc) error {
		ran := false
		err := b.Tracker.Once(ctx, key, func(ctx context.Context) error { ran = true; return fn(ctx) })
		if !ran {
			return nil
		}
		return err
	}
}

// oneForGood never lets a second key in.
func oneForGood(b *broken) {
	var mu sync.Mutex
	first := ""
	b.once = func(ctx context.Context, key string, fn fnc) error {
		mu.Lock()
		if first == "" {
			first = key
		}
		mine := first == key
		mu.Unlock()
		if !mine {
			return idempotency.ErrInProgress
		}
		return b.Tracker.Once(ctx, key, fn)
	}
}

// quick lets a case that waits for what never comes give up soon.
func quick() config { return config{patience: 500 * time.Millisecond, moment: 20 * time.Millisecond} }

func newBroken() *broken { return &broken{Tracker: memtracker.New(memtracker.Config{})} }

func TestBrokenTrackersAreRejected(t *testing.T) {
	t.Parallel()
	byName := map[string]testCase{}
	for _, c := range cases() {
		byName[c.name] = c
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			c, ok := byName[m.caught]
			if !ok {
				t.Fatalf("there is no case %q", m.caught)
			}
			s := observe(t, c, func(testing.TB) idempotency.Tracker {
				b := newBroken()
				m.spoil(b)
				return b
			}, quick())
			if !s.Failed() {
				t.Errorf("case %s passes with a tracker that breaks the rule", c.name)
			} else if !strings.Contains(s.output(), c.why) {
				t.Errorf("the contract is not quoted in\n%s", s.output())
			}
		})
	}
}

// TestSoundTrackersAreAccepted: the wrapper alone makes no case fail, and a
// tracker may wait instead of answering ErrInProgress.
func TestSoundTrackersAreAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range cases() {
		for name, open := range map[string]Opener{
			"answers": func(testing.TB) idempotency.Tracker { return newBroken() },
			"waits":   func(testing.TB) idempotency.Tracker { return waiting() },
		} {
			if name == "waits" && c.name == "nested" {
				continue // it would wait for itself
			}
			t.Run(c.name+", "+name, func(t *testing.T) {
				t.Parallel()
				if s := observe(t, c, open, configOf([]Option{WithPatience(20 * time.Second)})); s.Failed() {
					t.Error(s.output())
				}
			})
		}
	}
}

// waiting waits for the end of the other instead of answering ErrInProgress.
func waiting() *broken {
	b := newBroken()
	b.once = func(ctx context.Context, key string, fn fnc) error {
		for {
			err := b.Tracker.Once(ctx, key, fn)
			if err != idempotency.ErrInProgress { //nolint:errorlint // the memtracker's own, not one of fn
				return err
			}
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return b
}

func TestCasesAreNamedOnceAndSayWhy(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	caught := map[string]bool{}
	for _, m := range mutants() {
		caught[m.caught] = true
	}
	for _, c := range cases() {
		if c.why == "" || seen[c.name] {
			t.Errorf("case %q says no reason, or is there twice", c.name)
		}
		if !caught[c.name] {
			t.Errorf("no broken tracker is caught by case %q", c.name)
		}
		seen[c.name] = true
	}
}
