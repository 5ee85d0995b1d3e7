package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC115BrokerKeepsWhatCannotBeStored: while a database cannot store what
// arrives, nothing is acknowledged, and the broker has it all when the process
// stops; the next one handles it.
func TestC115BrokerKeepsWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	for _, db := range databases() {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			r := newRabbit(t)
			sender := begun(t, made(t, opened(t, file(t)), nil, r.options, hurried))
			var j journal
			var log lines
			s := db.make(t)
			one := made(t, s.store, nil, r.options, serving(inHandled("t", j.handle)), logTo(&log, 0))
			must(t, one.Start(t.Context()))
			must(t, s.store.DB().Exec("ALTER TABLE cap_received RENAME TO away").Error)
			want := publishAll(t, sender, "t", 0, 100)
			eventually(t, "storing fails", func() bool { return strings.Contains(log.String(), "cap_received") })
			<-time.After(time.Second) // more tries
			if n := strings.Count(log.String(), "\n"); n > 100 {
				t.Errorf("%d log lines in a second", n)
			}
			must(t, one.Stop(context.WithoutCancel(t.Context())))
			eventually(t, "the broker has all of them", func() bool { return r.ready(t, r.queue("handled")) == len(want) })
			must(t, s.store.DB().Exec("ALTER TABLE away RENAME TO cap_received").Error)
			begun(t, made(t, s.store, nil, r.second(t).options, serving(inHandled("t", j.handle))))
			j.wait(t, len(want))
			settled(t, s.store.DB(), window)
			j.exactly(t, want)
		})
	}
}

// TestC150CaseMatters: topics, groups, names and ids that differ in case, accents
// or spaces at their ends alone are different ones, whatever the database takes
// for equal.
func TestC150CaseMatters(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *gormstore.Store) {
		t.Helper()
		q := memqueue.New(memqueue.Config{})
		words := []string{"order", "Order", "ORDER", "ordér", "i", "I", "ı", "İ", "ss", "ß"}
		var j journal
		var want []string
		var subs []subscribe.Subscription
		for _, group := range words {
			for _, topic := range words {
				subs = append(subs, subscribe.To(topic, func(ctx context.Context, m *cap.Message) error {
					return j.handle(ctx, group+" "+topic+" of "+m.Topic+" "+m.ID)
				}, subscribe.Group(group)))
			}
		}
		begun(t, made(t, store, q, serving(subs...)))
		for _, topic := range words {
			for _, id := range []string{"m", "M", "m ", "ḿ"} {
				if n := q.Inject(&transport.Message{ID: id, Topic: topic, Body: []byte("1")}); n != len(words) {
					t.Errorf("%d groups take topic %s", n, topic)
				}
				for _, group := range words {
					want = append(want, fmt.Sprintf("%s %s of %[2]s %s", group, topic, id))
				}
			}
		}
		j.wait(t, len(want))
		settled(t, store.DB(), window)
		j.exactly(t, want)
	})
}

// TestC149LongestNames: topics of the greatest length arrive whole, over every
// database and broker.
func TestC149LongestNames(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, serve func(...subscribe.Subscription) (*cap.Bus, *gorm.DB)) {
		t.Helper()
		var j journal
		topics := []string{strings.Repeat("t", 255), strings.Repeat("世", 85), strings.Repeat("t.", 127) + "t"}
		var subs []subscribe.Subscription
		for _, topic := range topics {
			subs = append(subs, subscribe.To(topic, func(ctx context.Context, m *cap.Message) error { return j.handle(ctx, m.Topic) }))
		}
		bus, db := serve(subs...)
		for _, topic := range topics {
			must(t, bus.Publish(t.Context(), cap.NoTx, topic, "x"))
			if err := bus.Publish(t.Context(), cap.NoTx, topic+"t", "x"); err == nil || !strings.Contains(err.Error(), "at most 255") {
				t.Errorf("publish to a topic of %d bytes: %v", len(topic)+1, err)
			}
		}
		j.wait(t, len(topics))
		settled(t, db, window)
		j.exactly(t, topics)
	})
}
