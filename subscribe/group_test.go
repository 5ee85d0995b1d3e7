package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// gauge measures how many runs are under way at once.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

func (g *gauge) handler(context.Context, string) error {
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.mu.Unlock()
	pause(time.Second)
	g.mu.Lock()
	g.now--
	g.mu.Unlock()
	return nil
}

func (r *rig) sendMany(topic string, n int) {
	r.t.Helper()
	msgs := make([]*transport.Message, n)
	for i := range msgs {
		msgs[i] = &transport.Message{ID: fmt.Sprint(topic, i), Topic: topic, Body: []byte(fmt.Sprintf(`"%d"`, i))}
	}
	for _, err := range r.queue.Send(r.t.Context(), msgs) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// Case C120: the workers are those of the group, whatever the number of topics
// and receivers, and they are all used.
func TestConcurrencyIsThatOfTheGroup(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var one, two gauge
				r := running(t, func(c *subscribe.ConsumerConfig) { c.Concurrency, c.Receivers = n, 4 },
					subscribe.To("a", one.handler, subscribe.Group("one")),
					subscribe.To("b", one.handler, subscribe.Group("one")),
					subscribe.To("c", one.handler, subscribe.Group("one")),
					subscribe.To("a", two.handler, subscribe.Group("two")))
				for _, topic := range []string{"a", "b", "c"} {
					r.sendMany(topic, 30)
				}
				elapse(5 * time.Minute)
				if one.most != n || two.most != n {
					t.Errorf("at most %d and %d at once, want %d in each group", one.most, two.most, n)
				}
			})
		})
	}
}

func TestConcurrencyOfASubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var single, free, many gauge
		r := running(t, func(c *subscribe.ConsumerConfig) { c.Concurrency = 4 },
			subscribe.To("single", single.handler, subscribe.Concurrency(1)),
			subscribe.To("free", free.handler, subscribe.Group("free")),
			subscribe.To("many", many.handler, subscribe.Group("other"), subscribe.Concurrency(9)))
		for _, topic := range []string{"single", "free", "many"} {
			r.sendMany(topic, 60)
		}
		elapse(5 * time.Minute)
		if single.most != 1 || free.most != 4 || many.most != 9 {
			t.Errorf("at most %d, %d and %d at once, want 1, 4 and 9", single.most, free.most, many.most)
		}
	})
}

func TestEveryGroupGetsItsCopyAndInstancesOfAGroupCompete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a, b tally
		subs := []subscribe.Subscription{
			subscribe.To("t", a.handler(""), subscribe.Group("a")),
			subscribe.To("t", b.handler(""), subscribe.Group("b")),
		}
		r := running(t, nil, subs...)
		newRig(t, shared{r.store, r.queue}, nil, subs...).start() // a second instance of both
		synctest.Wait()
		r.sendMany("t", 200)
		elapse(time.Minute)
		for i := range 200 {
			if body := fmt.Sprint(i); a.of(body) != 1 || b.of(body) != 1 {
				t.Fatalf("message %d handled %d and %d times, want once by each group", i, a.of(body), b.of(body))
			}
		}
	})
}

func TestAFailureOfOneSubscriptionDoesNotRunAnotherAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, bad := 0, 0
		r := running(t, nil,
			subscribe.To("order.#", func(context.Context, string) error { good++; return nil }),
			subscribe.To("order.placed", func(context.Context, string) error {
				if bad++; bad < 6 {
					return errors.New("no")
				}
				return nil
			}),
			subscribe.To("order.cancelled", func(context.Context, string) error { t.Error("another topic"); return nil }))
		r.send("order.placed", "1", `"m"`)
		elapse(10 * time.Minute)
		if good != 1 || bad != 6 {
			t.Errorf("%d and %d runs, want 1 and 6", good, bad)
		}
		for _, rec := range r.records() {
			want := map[string]int{"order.#": 0, "order.placed": 5}[rec.Subscriber]
			if rec.Status != storage.Succeeded || rec.Retries != want || rec.MessageID != "1" {
				t.Errorf("row of %s: %v, %d failed attempts, message %s", rec.Subscriber, rec.Status, rec.Retries, rec.MessageID)
			}
		}
	})
}

func TestOverlappingWildcardsEachHandleTheMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		var subs []subscribe.Subscription
		for _, pattern := range []string{"#", "order.#", "order.*", "*.placed", "order.placed", "order.placed.#", "*", "order"} {
			subs = append(subs, subscribe.To(pattern, seen.handler(pattern+" ")))
		}
		r := running(t, nil, subs...)
		r.send("order.placed", "1", `"x"`)
		r.send("order", "2", `"y"`)
		r.send("order.placed_at-night", "3", `"z"`)
		elapse(time.Second)
		want := map[string]bool{
			"# x": true, "order.# x": true, "order.* x": true, "*.placed x": true, "order.placed x": true, "order.placed.# x": true,
			"# y": true, "order.# y": true, "* y": true, "order y": true,
			"# z": true, "order.# z": true, "order.* z": true,
		}
		for what := range want {
			if n := seen.of(what); n != 1 {
				t.Errorf("%s: handled %d times, want once", what, n)
			}
		}
		if seen.kinds() != len(want) {
			t.Errorf("%d kinds of runs, want %d", seen.kinds(), len(want))
		}
	})
}

func TestPrefixesAndVersionNameTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		r := running(t, func(c *subscribe.ConsumerConfig) { c.GroupPrefix, c.TopicPrefix, c.Version = "gp", "tp", "v7" },
			subscribe.To("t", seen.handler("")))
		src := r.consumer.Sources()
		if len(src) != 1 || src[0].Group != "gp.test.v7" || len(src[0].Topics) != 1 || src[0].Topics[0] != "tp.t" {
			t.Fatalf("sources %+v", src)
		}
		r.send("tp.t", "1", `"m"`)
		elapse(time.Second)
		if rec := r.record(); seen.of("m") != 1 || rec.Group != "gp.test" || rec.Subscriber != "t" || rec.Version != "v7" {
			t.Errorf("row: group %s, subscriber %s, version %s", rec.Group, rec.Subscriber, rec.Version)
		}
	})
}

func TestWhatCannotBeServedIsRefusedAllAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared{}, nil)
	cfg := r.cfg
	cfg.DefaultGroup, cfg.Version = "", "v1"
	cfg.Subscriptions = []subscribe.Subscription{
		subscribe.To("no.group", nothing),
		{},
		subscribe.To("a", nothing, subscribe.Group(strings.Repeat("g", 253))),
		subscribe.To("b", nothing, subscribe.Group("g")),
		subscribe.To("b", nothing, subscribe.Group("g")),
	}
	_, err := subscribe.NewConsumer(cfg)
	if err == nil {
		t.Fatal("no error")
	}
	for _, text := range []string{"no.group", "has no group", "subscribe.Group", "has 256 bytes", "is there already", "group_test.go:"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
	cfg.TopicPrefix, cfg.DefaultGroup = strings.Repeat("p", 250), "d"
	cfg.Subscriptions = []subscribe.Subscription{subscribe.To("topic", nothing)}
	if _, err := subscribe.NewConsumer(cfg); err == nil || !strings.Contains(err.Error(), "topic has 256 bytes") {
		t.Errorf("a topic that is too long with its prefix: %v", err)
	}
}
