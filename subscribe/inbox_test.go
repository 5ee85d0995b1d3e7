package subscribe_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

func TestARepeatedMessageIsHandledOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a, b tally
		r := running(t, nil, subscribe.To("t", a.handler("")), subscribe.To("#", b.handler("")))
		for range 50 {
			r.send("t", "1", `"m"`)
		}
		elapse(time.Minute)
		for range 50 {
			r.send("t", "1", `"m"`)
		}
		elapse(time.Minute)
		if a.of("m") != 1 || b.of("m") != 1 || len(r.records()) != 2 {
			t.Errorf("handled %d and %d times, %d rows, want once by each of two", a.of("m"), b.of("m"), len(r.records()))
		}
	})
}

func TestARepeatedMessageInOneBatchIsHandledOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		r := running(t, nil, subscribe.To("t", seen.handler("")))
		msgs := make([]*transport.Message, 100)
		for i := range msgs {
			msgs[i] = &transport.Message{ID: "1", Topic: "t", Body: []byte(`"m"`)}
		}
		for _, err := range r.queue.Send(t.Context(), msgs) {
			if err != nil {
				t.Fatal(err)
			}
		}
		elapse(time.Minute)
		if seen.of("m") != 1 || r.consumer.Hand().Len() != 0 {
			t.Errorf("handled %d times; %d rows in hand, want 1 and none", seen.of("m"), r.consumer.Hand().Len())
		}
	})
}

func TestTheSameIDUnderTwoTopicsIsTwoMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		r := running(t, nil, subscribe.To("#", seen.handler("")))
		r.send("a", "1", `"m"`)
		r.send("b", "1", `"m"`)
		elapse(time.Second)
		if seen.of("m") != 2 {
			t.Errorf("handled %d times, want twice", seen.of("m"))
		}
	})
}

func TestForeignMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []*transport.Message
		r := running(t, nil, subscribe.To("#", func(_ context.Context, m *transport.Message) error {
			got = append(got, m)
			return nil
		}, subscribe.Concurrency(1)))
		synctest.Wait()
		longID := strings.Repeat("i", 300)
		for _, m := range []*transport.Message{
			{Topic: "a", Body: []byte("no id and no headers")},
			{Topic: "a", Body: []byte("no id and no headers")}, // cannot be recognised
			{ID: longID, Topic: "b", Body: []byte("long id")},
			{ID: longID, Topic: "b", Body: []byte("long id")},
			{ID: "3", Topic: "c", Headers: map[string]string{"cap-msg-group": "of another", "x": "y\xff"}},
		} {
			if n := r.queue.Inject(m); n != 1 {
				t.Fatalf("%d groups take %s", n, m.Topic)
			}
		}
		elapse(time.Second)
		seen := map[string]int{}
		for _, m := range got {
			seen[m.Topic]++
			if m.ID == "" || m.Headers == nil {
				t.Errorf("message of %s: id %q, headers %v", m.Topic, m.ID, m.Headers)
			}
		}
		if seen["a"] != 2 || seen["b"] != 1 || seen["c"] != 1 {
			t.Errorf("handled %v, want a twice, b and c once", seen)
		}
		for _, rec := range r.records() {
			if rec.Group != "test" || rec.Status != storage.Succeeded {
				t.Errorf("row of %s: group %s, %v", rec.Topic, rec.Group, rec.Status)
			}
		}
	})
}

func TestAMessageWhoseTopicCannotBeIsStoredAsFailed(t *testing.T) {
	t.Parallel()
	for name, topic := range map[string]string{"empty": "", "long": strings.Repeat("t", 256), "NUL": "a\x00", "UTF-8": "\xff", "wildcard": "a.*"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var seen tally
				r := running(t, nil, subscribe.To("#", seen.handler("")))
				synctest.Wait()
				if err := r.queue.InjectTo("test.v1", &transport.Message{ID: "1", Topic: topic, Body: []byte(`"m"`)}); err != nil {
					t.Fatal(err)
				}
				r.send("good", "2", `"good"`)
				elapse(10 * time.Minute)
				if seen.of("good") != 1 || seen.of("m") != 0 {
					t.Errorf("handled %d good and %d bad ones", seen.of("good"), seen.of("m"))
				}
				var bad *storage.Record
				for _, rec := range r.records() {
					if rec.MessageID == "1" {
						bad = rec
					}
				}
				if bad == nil || !bad.Final || bad.Status != storage.Failed || string(bad.Body) != `"m"` || !strings.Contains(bad.LastError, "topic") {
					t.Errorf("row %+v, want it failed for good, with its body", bad)
				}
				if len(r.callbacks()) != 1 || r.callbacks()[0].m.ID != "1" || string(r.callbacks()[0].m.Body) != `"m"` {
					t.Errorf("%d callbacks, want one", len(r.callbacks()))
				}
			})
		})
	}
}

// Case C115: what the inbox cannot take is not acked, is tried again at a walk,
// and is handled in the end.
func TestWhatCannotBeStoredIsNotAcked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		store := &stubborn{Store: memstore.New(memstore.Config{})}
		queue := &watched{Queue: memqueue.New(memqueue.Config{})}
		r := newRig(t, shared{store.Store, queue.Queue}, func(c *subscribe.ConsumerConfig) { c.Storage, c.Transport = store, queue },
			subscribe.To("t", seen.handler(""))).start()
		synctest.Wait()
		store.refuse.Store(true)
		for i := range 100 {
			r.queue.Inject(&transport.Message{ID: fmt.Sprint(i), Topic: "t", Body: []byte(fmt.Sprintf(`"%d"`, i))})
		}
		elapse(30 * time.Second)
		if acks, nacks := queue.acks.Load(), queue.nacks.Load(); acks != 0 || nacks != 0 {
			t.Errorf("%d acks and %d nacks while nothing could be stored", acks, nacks)
		}
		if n := store.tries.Load(); n < 50 || n > 120 {
			t.Errorf("%d tries in 30 s", n)
		}
		store.refuse.Store(false)
		elapse(10 * time.Second)
		for i := range 100 {
			if n := seen.of(fmt.Sprint(i)); n != 1 {
				t.Fatalf("message %d handled %d times, want once", i, n)
			}
		}
		if n := queue.acks.Load(); n != 100 {
			t.Errorf("%d acks, want 100", n)
		}
	})
}

func TestWhatCannotBeStoredGoesBackAtTheStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		store := &stubborn{Store: memstore.New(memstore.Config{})}
		queue := &watched{Queue: memqueue.New(memqueue.Config{})}
		r := newRig(t, shared{store.Store, queue.Queue}, func(c *subscribe.ConsumerConfig) { c.Storage, c.Transport = store, queue },
			subscribe.To("t", seen.handler("")))
		stop := r.startUntil()
		synctest.Wait()
		store.refuse.Store(true)
		r.queue.Inject(&transport.Message{ID: "1", Topic: "t", Body: []byte(`"m"`)})
		elapse(time.Second)
		stop()
		if queue.acks.Load() != 0 || queue.nacks.Load() != 1 {
			t.Errorf("%d acks and %d nacks, want it given back", queue.acks.Load(), queue.nacks.Load())
		}
		newRig(t, shared{r.store, r.queue}, nil, subscribe.To("t", seen.handler(""))).start()
		elapse(time.Second)
		if seen.of("m") != 1 {
			t.Error("the next instance did not get it")
		}
	})
}

func TestAnInsertWhoseOutcomeIsUnknownIsHandledOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		store := &slowStore{Store: memstore.New(memstore.Config{})}
		r := newRig(t, shared{store: store.Store}, func(c *subscribe.ConsumerConfig) { c.Storage = store },
			subscribe.To("t", seen.handler(""))).start()
		for i := range 5 {
			r.send("t", fmt.Sprint(i), fmt.Sprintf(`"%d"`, i))
		}
		elapse(time.Minute)
		for i := range 5 {
			if n := seen.of(fmt.Sprint(i)); n != 1 {
				t.Errorf("message %d handled %d times, want once", i, n)
			}
		}
	})
}

func TestReceivingPausesWhileTheWorkersAreFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		release := make(chan struct{})
		r := running(t, func(c *subscribe.ConsumerConfig) { c.BatchSize = 50 }, subscribe.To("t", func(ctx context.Context, s string) error {
			<-release
			return seen.handler("")(ctx, s)
		}))
		synctest.Wait()
		const all = 5000
		for i := range all {
			r.queue.Inject(&transport.Message{ID: fmt.Sprint(i), Topic: "t", Body: []byte(fmt.Sprintf(`"%d"`, i))})
		}
		elapse(5 * time.Second)
		if n := len(r.records()); n < 4 || n > 600 {
			t.Errorf("%d rows while the workers are full, want a window of 512 and a batch at most", n)
		}
		if n := r.consumer.Hand().Len(); n > 600 {
			t.Errorf("%d rows in hand while the workers are full", n)
		}
		close(release)
		elapse(30 * time.Second)
		if n := seen.kinds(); n != all {
			t.Errorf("%d of %d handled", n, all)
		}
	})
}

func TestReceivingGoesOnAfterTheBrokerWasAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		r := running(t, nil, subscribe.To("t", seen.handler("")))
		for i := range 3 {
			r.queue.Disconnect()
			elapse(time.Minute)
			r.queue.Reconnect()
			elapse(2 * time.Second)
			r.send("t", fmt.Sprint(i), `"m"`)
		}
		elapse(time.Second)
		if seen.of("m") != 3 {
			t.Errorf("handled %d, want 3", seen.of("m"))
		}
	})
}

func TestAPanicOfTheTransportIsContained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		queue := &wild{Queue: memqueue.New(memqueue.Config{})}
		r := newRig(t, shared{queue: queue.Queue}, func(c *subscribe.ConsumerConfig) { c.Transport = queue }, subscribe.To("t", seen.handler(""))).start()
		r.send("t", "1", `"m"`)
		elapse(time.Second)
		if seen.of("m") != 1 {
			t.Error("the message was not handled")
		}
	})
}
