package integration

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// everywhere runs a test on a bus for each pair of database and broker.
func everywhere(t *testing.T, f func(t *testing.T, serve func(subs ...subscribe.Subscription) (*cap.Bus, *gorm.DB))) {
	t.Helper()
	for name, c := range map[string]struct {
		make   func(tb testing.TB) *site
		rabbit bool
	}{
		"sqlite, memqueue": {onSQLite, false}, "postgres, rabbitmq": {siteOnPostgres, true}, "mariadb, rabbitmq": {onMariaDB, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := over(memqueue.New(memqueue.Config{}))
			if c.rabbit {
				change = newRabbit(t).options
			}
			s := c.make(t)
			f(t, func(subs ...subscribe.Subscription) (*cap.Bus, *gorm.DB) {
				for i := range subs {
					subscribe.Group("handled")(&subs[i])
				}
				return begun(t, made(t, s.store, nil, change, serving(subs...))), s.store.DB()
			})
		})
	}
}

// TestC126OneCallback: a message that was handled is answered once, by null if
// the handler has nothing to say, and not at all if its handler is not one that
// answers, or has failed.
func TestC126OneCallback(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, serve func(...subscribe.Subscription) (*cap.Bus, *gorm.DB)) {
		t.Helper()
		var j journal
		answers := func(v any, err error) func(context.Context, string) (any, error) {
			return func(context.Context, string) (any, error) { return v, err }
		}
		bus, db := serve(
			subscribe.To("answer.*", func(_ context.Context, m *transport.Message) error {
				j.add(strings.TrimPrefix(m.Topic, "answer.") + " " + string(m.Body))
				return nil
			}),
			subscribe.Reply("value", answers(7, nil)),
			subscribe.Reply("nil", answers(nil, nil)),
			subscribe.Reply("nil pointer", func(context.Context, string) (*order, error) { return nil, nil }),
			subscribe.Reply("empty", answers(struct{}{}, nil)),
			subscribe.Reply("error", answers("wrong", errRollback), subscribe.FailedRetryCount(2)),
			subscribe.Reply("in the transaction", func(ctx context.Context, m string) (v int, err error) {
				return 8, gormstore.Handle(func(_ context.Context, tx *gorm.DB, m string) error {
					return tx.Exec("INSERT INTO orders VALUES (?)", m).Error
				})(ctx, m)
			}),
			subscribe.To("silent", func(context.Context, string) error { return nil }),
			subscribe.To("by itself", func(ctx context.Context, _ string) error { return cap.Publish(ctx, nil, "answer.by itself", "own") }),
		)
		for _, topic := range []string{"value", "nil", "nil pointer", "empty", "error", "in the transaction", "silent", "by itself"} {
			must(t, bus.Publish(t.Context(), cap.NoTx, topic, topic, cap.WithReplyTo("answer."+topic)))
		}
		eventually(t, "everything is handled", func() bool {
			return number(t, db, open) == 0 && number(t, db, "SELECT count(*) FROM cap_received") >= 8+6
		})
		j.exactly(t, []string{"value 7", "nil null", "nil pointer null", "empty {}", "in the transaction 8", `by itself "own"`})
	})
}

// TestC129WhatIsGivenStays: options, headers and values that are used for many
// messages at once are not changed, and each message has its own id.
func TestC129WhatIsGivenStays(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, serve func(...subscribe.Subscription) (*cap.Bus, *gorm.DB)) {
		t.Helper()
		var mu sync.Mutex
		asked, answered := map[string]bool{}, map[string]string{}
		headers := map[string]string{"x": "1"}
		bus, db := serve(
			subscribe.Reply("ask", func(ctx context.Context, o *order) (*order, error) {
				a, _ := subscribe.AnswerFromContext(ctx)
				a.Headers = headers
				info, _ := cap.InfoFromContext(ctx)
				if h := info.Message.Headers; h[transport.HeaderCorrelationID] != info.Message.ID || h[transport.HeaderCorrelation] != "0" {
					t.Errorf("headers %v of %s", h, info.Message.ID)
				}
				mu.Lock()
				defer mu.Unlock()
				asked[info.Message.ID] = true
				return o, nil
			}),
			subscribe.To("answer", func(_ context.Context, m *transport.Message) error {
				mu.Lock()
				defer mu.Unlock()
				if m.Headers["x"] != "1" || string(m.Body) != `{"ID":"all"}` {
					t.Errorf("answer %s with %v", m.Body, m.Headers)
				}
				answered[m.ID] = m.Headers[transport.HeaderCorrelationID]
				return nil
			}))
		const n = 100
		opts := []cap.PublishOption{cap.WithHeader("y", "2"), cap.WithReplyTo("answer")}
		value := &order{"all"}
		crowd(n, n, func(int) {
			if err := bus.Publish(t.Context(), cap.NoTx, "ask", value, opts...); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "everything is answered", func() bool {
			return number(t, db, open) == 0 && number(t, db, "SELECT count(*) FROM cap_received") >= 2*n
		})
		mu.Lock()
		defer mu.Unlock()
		correlated := slices.Sorted(maps.Values(answered))
		if len(asked) != n || len(answered) != n || !slices.Equal(correlated, slices.Sorted(maps.Keys(asked))) {
			t.Errorf("%d messages, %d answers, to %d of them", len(asked), len(answered), len(slices.Compact(correlated)))
		}
		if len(headers) != 1 || *value != (order{"all"}) {
			t.Errorf("what was given has changed: %v, %v", headers, value)
		}
	})
}
