package subscribe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

func TestMiddlewareOfAllIsOutsideThatOfASubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var trace []string
		r := running(t, func(c *subscribe.ConsumerConfig) {
			c.Middleware = []subscribe.Middleware{tracing(&trace, "a"), tracing(&trace, "b")}
		}, subscribe.To("t", nothing, subscribe.With(tracing(&trace, "c"))), subscribe.To("u", nothing))
		r.send("t", "1", `"m"`)
		elapse(time.Second)
		r.send("u", "2", `"m"`)
		elapse(time.Second)
		if want := []string{"a in", "b in", "c in", "c out", "b out", "a out", "a in", "b in", "b out", "a out"}; !slices.Equal(trace, want) {
			t.Errorf("order %v, want %v", trace, want)
		}
	})
}

// TestMiddlewareMayChangeTheBodyInPlace, such as decrypt it: the next attempt, and
// other subscriptions, have it as it came.
func TestMiddlewareMayChangeTheBodyInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var bodies []string
		decrypt := func(next subscribe.Handler) subscribe.Handler {
			return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error {
				for i := range m.Body {
					m.Body[i] ^= 1
				}
				return next.Handle(ctx, m)
			})
		}
		handle := func(_ context.Context, m *transport.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if bodies = append(bodies, string(m.Body)); len(bodies) < 5 {
				return errors.New("not yet")
			}
			return nil
		}
		r := running(t, nil, subscribe.To("t", handle, subscribe.Name("a"), subscribe.With(decrypt)), subscribe.To("t", handle, subscribe.Name("b"), subscribe.With(decrypt)))
		r.send("t", "1", "l")
		elapse(time.Hour)
		if slices.Sort(bodies); len(bodies) < 6 || bodies[0] != "m" || bodies[len(bodies)-1] != "m" {
			t.Errorf("bodies %q, want m alone", bodies)
		}
		for _, rec := range r.records() {
			if string(rec.Body) != "l" {
				t.Errorf("body of a row: %s", rec.Body)
			}
		}
	})
}

func TestMiddlewareWithoutAHandlerIsRefused(t *testing.T) {
	t.Parallel()
	none := func(subscribe.Handler) subscribe.Handler { return nil }
	r := newRig(t, shared{}, nil)
	cfg := r.cfg
	cfg.Middleware = []subscribe.Middleware{func(next subscribe.Handler) subscribe.Handler { return next }}
	cfg.Subscriptions = []subscribe.Subscription{subscribe.To("t", nothing, subscribe.With(none))}
	if _, err := subscribe.NewConsumer(cfg); err == nil || !strings.Contains(err.Error(), "middleware_test.go:") || !strings.Contains(err.Error(), "middleware 2") {
		t.Errorf("%v, want an error that names the subscription and the middleware", err)
	}
}

var (
	errGone = errors.New("gone")
	errSkip = errors.New("skip")
)

type busyError struct{ wait time.Duration }

func (e *busyError) Error() string { return "busy" }

func policy(_ context.Context, err error) error {
	var busy *busyError
	switch {
	case errors.Is(err, errGone):
		return subscribe.Reject(err)
	case errors.As(err, &busy):
		return subscribe.RetryAfter(busy.wait, err)
	case errors.Is(err, errSkip):
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return subscribe.Snooze(30 * time.Second)
	}
	return err
}

func TestAPolicyByErrors(t *testing.T) {
	t.Parallel()
	type waits = []time.Duration
	for name, c := range map[string]struct {
		err     error
		status  storage.Status
		retries int
		want    waits
	}{
		"gone":            {fmt.Errorf("product 7: %w", errGone), storage.Failed, 1, nil},
		"busy":            {&busyError{7 * time.Second}, storage.Failed, 3, waits{7 * time.Second, 7 * time.Second}},
		"skipped":         {errSkip, storage.Succeeded, 0, nil},
		"any other":       {errors.New("no"), storage.Failed, 3, waits{0, 0}},
		"over a rejected": {subscribe.Reject(&busyError{5 * time.Second}), storage.Failed, 3, waits{5 * time.Second, 5 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got, rec := schedule(t, func(c *subscribe.ConsumerConfig) { c.Policy.Count = 3 }, 10*time.Minute,
					func(int) error { return c.err }, subscribe.With(subscribe.OnError(policy)))
				if !slices.Equal(got, c.want) || rec.Status != c.status || rec.Retries != c.retries || !rec.Final {
					t.Errorf("waits %v, row %v, final %t, %d failed attempts; want %v, %v, %d", got, rec.Status, rec.Final, rec.Retries, c.want, c.status, c.retries)
				}
			})
		})
	}
}

func TestAPolicyIsAskedAboutATimeoutAndABodyThatIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		runs := 0
		r := running(t, nil, subscribe.To("t", func(ctx context.Context, _ string) error {
			if runs++; runs > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, subscribe.Timeout(time.Second), subscribe.With(subscribe.OnError(func(ctx context.Context, err error) error {
			asked = append(asked, err.Error())
			return policy(ctx, context.Cause(ctx))
		}))), subscribe.To("u", number, subscribe.With(subscribe.OnError(func(_ context.Context, err error) error {
			asked = append(asked, err.Error())
			return nil // it is not wanted
		}))))
		r.send("t", "1", `"m"`)
		r.send("u", "2", `"m"`)
		elapse(time.Minute)
		if len(asked) != 2 || !strings.Contains(strings.Join(asked, "|"), "decoded as int") {
			t.Errorf("asked about %q", asked)
		}
		for _, rec := range r.records() {
			if rec.Status != storage.Succeeded || rec.Retries != 0 {
				t.Errorf("row of %s: %v, %d failed attempts", rec.Topic, rec.Status, rec.Retries)
			}
		}
	})
}

// A policy that takes every error for a success must not make one of a stop.
func TestAPolicyIsNotAskedAboutAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, shared{}, nil, subscribe.To("t", func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return fmt.Errorf("call: %w", ctx.Err())
		}, subscribe.With(subscribe.OnError(func(context.Context, error) error { return nil }))))
		stop := r.startUntil()
		r.send("t", "1", `"m"`)
		elapse(time.Second)
		stop()
		if rec := r.record(); rec.Final || rec.Retries != 0 {
			t.Errorf("row: %v, final %t, %d failed attempts; want it as it was", rec.Status, rec.Final, rec.Retries)
		}
	})
}

// A group without an inbox has the same middleware: what a policy rejects is set
// apart at once, what it takes for a success is acked.
func TestAPolicyWithoutAnInbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		running(t, func(c *subscribe.ConsumerConfig) {
			c.Transport, c.Middleware = b, []subscribe.Middleware{subscribe.OnError(policy)}
		}, subscribe.To("t", func(_ context.Context, s string) error {
			if s == "skip" {
				return errSkip
			}
			return errGone
		}, quick()))
		b.send("t", "1", `"skip"`)
		b.send("t", "2", `"gone"`)
		elapse(time.Second)
		if acked, parked := b.ended(); !slices.Equal(acked, []string{"1"}) || len(parked) != 1 || parked[0].failed != 0 || parked[0].reason != "gone" {
			t.Errorf("acked %v, parked %+v", acked, parked)
		}
	})
}

type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.b.String()), "\n")
}

func TestLoggingWritesALineForEachRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out logged
		log := slog.New(slog.NewTextHandler(&out, nil))
		runs := 0
		r := running(t, nil, subscribe.To("t", func(context.Context, string) error {
			pause(20 * time.Millisecond)
			switch runs++; runs {
			case 1:
				return errors.New("no")
			case 2:
				panic("on purpose")
			case 3:
				runtime.Goexit()
			}
			return nil
		}, subscribe.Name("n"), subscribe.With(subscribe.Logging(log, slog.LevelInfo), subscribe.Logging(log, slog.LevelDebug))))
		r.send("t", "1", `"secret"`)
		elapse(10 * time.Minute)
		const common = `level=INFO msg="handler has run" topic=t group=test subscriber=n msg_id=1 attempt=`
		for i, end := range []string{`1 took=20ms err=no`, `2 took=20ms err="the handler did not return`, `3 took=20ms err="the handler did not return`, `4 took=20ms err=<nil>`} {
			if lines := out.lines(); len(lines) != 4 || !strings.Contains(lines[i], common+end) || strings.Contains(lines[i], "secret") {
				t.Errorf("line %d of\n%s\nis not like %s", i+1, strings.Join(lines, "\n"), common+end)
			}
		}
	})
}

// upper is a codec of its own.
type upper struct{ transport.Codec }

func (upper) Decode(body []byte, v any) error {
	return transport.Bytes.Decode(bytes.ToUpper(body), v)
}

func TestTheCodecOfASubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		r := running(t, nil,
			subscribe.To("t", seen.handler("json "), subscribe.FailedRetryCount(1)),
			subscribe.To("t", seen.handler("bytes "), subscribe.Name("bytes"), subscribe.Codec(transport.Bytes)),
			subscribe.To("t", seen.handler("upper "), subscribe.Name("upper"), subscribe.Codec(upper{})))
		r.send("t", "1", `"a"`)
		r.send("t", "2", "no json")
		elapse(time.Second)
		want := []string{"json a", `bytes "a"`, `upper "A"`, "bytes no json", "upper NO JSON"}
		for _, what := range want {
			if seen.of(what) != 1 {
				t.Errorf("%q handled %d times", what, seen.of(what))
			}
		}
		if seen.kinds() != len(want) {
			t.Errorf("%d kinds of runs, want %d", seen.kinds(), len(want))
		}
	})
	if err := subscribe.To("t", nothing, subscribe.Codec(nil)).Validate(); err == nil || !strings.Contains(err.Error(), "Codec: the codec is nil") {
		t.Errorf("a nil codec: %v", err)
	}
	if err := subscribe.To("t", nothing, subscribe.With(subscribe.OnError(nil))).Validate(); err == nil || !strings.Contains(err.Error(), "a middleware is nil") {
		t.Errorf("OnError(nil): %v", err)
	}
}
