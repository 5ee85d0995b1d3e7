package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

func quick() subscribe.Option { return subscribe.BrokerRetry(3, time.Minute) }

func TestWithoutAnInboxAMessageIsAckedWhenItIsHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		release := make(chan struct{})
		var info subscribe.Info
		var txErr error
		r := running(t, onBroker(b), subscribe.To("t", func(ctx context.Context, _ string) error {
			info, _ = subscribe.InfoFromContext(ctx)
			_, txErr = storage.TxFromContext(ctx)
			<-release
			return nil
		}, quick(), subscribe.Name("n")))
		b.send("t", "1", `"body"`)
		elapse(time.Second)
		if acked, _ := b.ended(); len(acked) != 0 || r.consumer.InWork() != 1 {
			t.Errorf("acked %v while the handler runs, %d in work", acked, r.consumer.InWork())
		}
		close(release)
		elapse(time.Second)
		if acked, _ := b.ended(); len(acked) != 1 || len(r.records()) != 0 || r.consumer.InWork() != 0 {
			t.Errorf("acked %v, %d rows in the inbox, %d in work", acked, len(r.records()), r.consumer.InWork())
		}
		if info.Attempt != 1 || info.Group != "test" || info.Subscriber != "n" || info.Message.ID != "1" {
			t.Errorf("info %+v", info)
		}
		if !errors.Is(txErr, storage.ErrNoTx) || !strings.Contains(txErr.Error(), "no inbox") {
			t.Errorf("inbox transaction: %v", txErr)
		}
	})
}

func TestTheBrokerTriesAgainAndParks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		var at []time.Duration
		var attempts []int
		begun := time.Now()
		r := running(t, onBroker(b), subscribe.To("t", func(ctx context.Context, m *transport.Message) error {
			info, _ := subscribe.InfoFromContext(ctx)
			at, attempts = append(at, time.Since(begun)), append(attempts, info.Attempt)
			m.Topic, m.Body = "changed", nil // its own copy
			return errors.New("no such product")
		}, quick()))
		b.send("t", "1", `"body"`)
		elapse(time.Hour)
		if fmt.Sprint(at, attempts) != "[0s 1m0s 2m0s] [1 2 3]" {
			t.Errorf("attempts %v at %v", attempts, at)
		}
		_, parked := b.ended()
		if len(parked) != 1 || parked[0].reason != "no such product" || string(parked[0].msg.Body) != `"body"` {
			t.Errorf("parked %+v", parked)
		}
		calls := r.callbacks()
		if len(calls) != 1 || calls[0].rec.Retries != 3 || calls[0].rec.LastError != "no such product" || calls[0].m.Topic != "t" {
			t.Errorf("callbacks %+v", calls)
		}
		if len(r.records()) != 0 {
			t.Errorf("%d rows in the inbox", len(r.records()))
		}
	})
}

func TestWithoutAnInboxHowAnAttemptEnds(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		handler  func(ctx context.Context) error
		body     string
		attempts int // until it is parked
		reason   string
	}{
		"reject":      {func(context.Context) error { return subscribe.Reject(cause) }, `""`, 1, "cause"},
		"undecodable": {nil, `{`, 0, "cannot be decoded"},
		"panic":       {func(context.Context) error { panic("ouch") }, `""`, 3, "panicked: ouch"},
		"goexit":      {func(context.Context) error { runtime.Goexit(); return nil }, `""`, 3, "Goexit"},
		"retry after": {func(context.Context) error { return subscribe.RetryAfter(time.Hour, cause) }, `""`, 3, "cause"},
		"timeout":     {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, `""`, 3, "longer than 5s"},
		"wrapped":     {func(context.Context) error { return fmt.Errorf("stock: %w", subscribe.Reject(cause)) }, `""`, 1, "stock: cause"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newRetryBroker()
				runs := 0
				r := running(t, onBroker(b), subscribe.To("t", func(ctx context.Context, _ string) error {
					runs++
					return c.handler(ctx)
				}, quick(), subscribe.Timeout(5*time.Second)))
				b.send("t", "1", c.body)
				elapse(10 * time.Minute)
				if _, parked := b.ended(); len(parked) != 1 || !strings.Contains(parked[0].reason, c.reason) || runs != c.attempts {
					t.Errorf("%d runs, parked %+v", runs, parked)
				}
				if calls := r.callbacks(); len(calls) != 1 || calls[0].rec.Retries != max(1, c.attempts) {
					t.Errorf("callbacks %+v", calls)
				}
			})
		})
	}
}

func TestSnoozeWithoutAnInboxIsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		var attempts []int
		running(t, onBroker(b), subscribe.To("t", func(ctx context.Context, _ string) error {
			info, _ := subscribe.InfoFromContext(ctx)
			if attempts = append(attempts, info.Attempt); len(attempts) < 6 {
				return subscribe.Snooze(time.Hour) // a minute, that is
			}
			return nil
		}, quick()))
		b.send("t", "1", `""`)
		elapse(5*time.Minute + time.Second)
		if acked, _ := b.ended(); len(acked) != 1 || fmt.Sprint(attempts) != "[1 1 1 1 1 1]" {
			t.Errorf("acked %v after attempts %v", acked, attempts)
		}
	})
}

func TestWhatNobodyTakesIsParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		r := running(t, onBroker(b), subscribe.To("t", func(context.Context, string) error { return nil }, quick()))
		b.send("other", "1", `""`)
		b.send("", "2", `""`)
		elapse(time.Second)
		if _, parked := b.ended(); len(parked) != 1 || parked[0].msg.ID != "2" {
			t.Errorf("at once parked: %v", parked)
		}
		elapse(10 * time.Minute)
		if _, parked := b.ended(); len(parked) != 2 || parked[1].reason != "no subscription takes it" || len(r.callbacks()) != 2 {
			t.Errorf("parked %v, %d callbacks", parked, len(r.callbacks()))
		}
	})
}

func TestAFailureThatTheBrokerDoesNotHearIsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		b.refuse = errors.New("full")
		runs := 0
		r := running(t, onBroker(b), subscribe.To("t", func(ctx context.Context, _ string) error {
			if info, _ := subscribe.InfoFromContext(ctx); info.Attempt != 1 {
				t.Errorf("attempt %d", info.Attempt)
			}
			runs++
			return errors.New("no")
		}, subscribe.BrokerRetry(1, time.Minute)))
		b.send("t", "1", `""`)
		elapse(10*time.Second + time.Millisecond)
		if _, parked := b.ended(); len(parked) != 0 || runs != 11 || len(r.callbacks()) != 0 {
			t.Errorf("parked %v after %d runs, %d callbacks", parked, runs, len(r.callbacks()))
		}
	})
}

func TestHandleTraceWithoutAnInbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		var saw []string
		trace := &subscribe.Trace{Handle: func(ctx context.Context, info subscribe.Info) (context.Context, func(error)) {
			return ctx, func(err error) { saw = append(saw, fmt.Sprint(info.Message.ID, info.Attempt, err)) }
		}}
		running(t, func(cfg *subscribe.ConsumerConfig) { cfg.Transport, cfg.Trace = b, trace },
			subscribe.To("t", func(context.Context, string) error { return errors.New("no") }, subscribe.BrokerRetry(2, time.Minute)))
		b.send("t", "a", `""`)
		elapse(10 * time.Minute)
		if fmt.Sprint(saw) != "[a1 no a2 no]" {
			t.Errorf("hooks saw %v", saw)
		}
	})
}

func TestBrokerRetryIsRefused(t *testing.T) {
	t.Parallel()
	h := func(context.Context, string) error { return nil }
	g := subscribe.Group("g")
	for name, c := range map[string]struct {
		subs []subscribe.Subscription
		want []string
	}{
		"half a group": {
			[]subscribe.Subscription{subscribe.To("a.one", h, g), subscribe.To("b.two", h, g, quick())},
			[]string{`"b.two" of group "g"`, "has BrokerRetry, and", `"a.one" of group "g"`, "has not", "brokerretry_test.go:"},
		},
		"two values": {
			[]subscribe.Subscription{subscribe.To("a.one", h, g, quick()), subscribe.To("b.two", h, g, subscribe.BrokerRetry(4, time.Second))},
			[]string{`"a.one"`, "BrokerRetry(3, 1m0s)", `"b.two"`, "BrokerRetry(4, 1s)"},
		},
		"overlap": {
			[]subscribe.Subscription{subscribe.To("a.*", h, g, quick()), subscribe.To("#.b", h, g, quick())},
			[]string{`"a.*"`, `"#.b"`, "overlap"},
		},
		"ordered":  {[]subscribe.Subscription{subscribe.To("a", h, quick(), subscribe.Ordered())}, []string{"Ordered and BrokerRetry"}},
		"count":    {[]subscribe.Subscription{subscribe.To("a", h, quick(), subscribe.FailedRetryCount(5))}, []string{"leave out FailedRetryCount"}},
		"negative": {[]subscribe.Subscription{subscribe.To("a", h, subscribe.BrokerRetry(-1, -1))}, []string{"-1 attempts", "ttl of -1ns"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := refused(t, newRetryBroker(), c.subs...)
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want it to name %s", err, want)
				}
			}
		})
	}
	if err := refused(t, nil, subscribe.To("a", h, quick())); !strings.Contains(err.Error(), "transport memqueue cannot try a message again") {
		t.Errorf("on a transport that cannot: %v", err)
	}
}

func TestOneSourceIsAskedForWithTheDefaults(t *testing.T) {
	t.Parallel()
	h := func(context.Context, string) error { return nil }
	r := newRig(t, shared{}, func(cfg *subscribe.ConsumerConfig) {
		cfg.Transport, cfg.Concurrency, cfg.Receivers = newRetryBroker(), 4, 3
	},
		subscribe.To("a", h, subscribe.BrokerRetry(0, 0)), subscribe.To("b", h, quick()))
	srcs := r.consumer.Sources()
	if len(srcs) != 1 || srcs[0].Retry == nil || *srcs[0].Retry != (transport.BrokerRetry{Attempts: 3, Wait: time.Minute}) || srcs[0].Window != 3 {
		t.Errorf("sources %+v", srcs)
	}
}

// TestOverlappingTopicsAreFound: patterns for which a topic is found that both
// match are refused, and those that are refused have one.
func TestOverlappingTopicsAreFound(t *testing.T) {
	t.Parallel()
	words := []string{"a", "b", "*", "#"}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same ones each time
	pattern := func() string {
		var p []string
		for range 1 + random.IntN(3) {
			p = append(p, words[random.IntN(len(words))])
		}
		return strings.Join(p, ".")
	}
	var topics []string
	for last, length := []string{""}, 0; length < 5; length++ {
		var next []string
		for _, head := range last {
			for _, w := range []string{"a", "b", "c"} {
				next = append(next, strings.TrimPrefix(head+"."+w, "."))
			}
		}
		topics, last = append(topics, next...), next
	}
	h := func(context.Context, string) error { return nil }
	keeper := rows.NewKeeper(memstore.New(memstore.Config{}), storage.Instance{Lease: time.Second}, slog.New(slog.DiscardHandler))
	for range 500 {
		p, q := pattern(), pattern()
		want := false
		for _, topic := range topics {
			want = want || transport.Match(p, topic) && transport.Match(q, topic)
		}
		_, err := subscribe.NewConsumer(subscribe.ConsumerConfig{
			Transport: newRetryBroker(), Keeper: keeper, Codec: transport.JSON, Version: "v1", DefaultGroup: "g",
			Subscriptions: []subscribe.Subscription{subscribe.To(p, h, quick()), subscribe.To(q, h, quick(), subscribe.Name("other"))},
		})
		if got := err != nil && strings.Contains(err.Error(), "overlap"); got != want {
			t.Errorf("%s and %s: overlap %t, want %t", p, q, got, want)
		}
	}
}
