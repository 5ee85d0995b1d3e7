package cap_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// turn is a message of the tests: the n-th of its key.
type turn struct {
	Key string
	N   int
}

// turns notes which messages were handled, and whether one went before another.
type turns struct {
	mu      sync.Mutex
	last    map[string]int
	handled int
	wrong   []string
	running map[string]bool
}

func newTurns() *turns { return &turns{last: map[string]int{}, running: map[string]bool{}} }

// begin notes that a run begins; its result is called at its end.
func (s *turns) begin(m turn) func(done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[m.Key] {
		s.wrong = append(s.wrong, fmt.Sprintf("%s %d runs beside another", m.Key, m.N))
	}
	if m.N != s.last[m.Key]+1 {
		s.wrong = append(s.wrong, fmt.Sprintf("%s %d runs after %d", m.Key, m.N, s.last[m.Key]))
	}
	s.running[m.Key] = true
	return func(done bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[m.Key] = false
		if done {
			s.last[m.Key] = m.N
			s.handled++
		}
	}
}

func (s *turns) check(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handled != want {
		t.Errorf("%d were handled, want %d", s.handled, want)
	}
	if len(s.wrong) > 0 {
		t.Errorf("%d inversions, such as %s", len(s.wrong), s.wrong[0])
	}
}

func (r *rig) say(t *testing.T, topic string, m turn) {
	t.Helper()
	if err := r.Publish(t.Context(), cap.NoTx, topic, m, cap.WithKey(m.Key)); err != nil {
		t.Fatal(err)
	}
}

func TestKeysAreHandledInOrderThroughFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable on purpose
		var mu sync.Mutex
		r := running(t, cap.Options{FailedRetryCount: 100, Concurrency: 8}, subscribe.To("t", func(_ context.Context, m turn) (err error) {
			end := s.begin(m)
			mu.Lock()
			fails, wait := rng.IntN(4) == 0, time.Duration(rng.IntN(20))*time.Millisecond
			mu.Unlock()
			pause(wait)
			if fails {
				err = errors.New("not now")
			}
			end(err == nil)
			return err
		}, subscribe.Ordered(), subscribe.FailedRetryInterval(50*time.Millisecond)))
		const keys, each = 20, 25
		for n := 1; n <= each; n++ {
			for k := range keys {
				r.say(t, "t", turn{fmt.Sprint("k", k), n})
			}
		}
		elapse(5 * time.Minute)
		s.check(t, keys*each)
	})
}

// TestAKeyThatWaitsHoldsUpNoOther, neither in the outbox nor in the inbox, and
// goes on when its first message has failed for good.
func TestAKeyThatWaitsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{FailedRetryCount: 4, FailedRetryInterval: time.Hour, SendWindow: 8, Concurrency: 2},
			subscribe.To("t", func(_ context.Context, m turn) error {
				if m.N == 1 && m.Key == "blocked" {
					return errors.New("no")
				}
				j.add(fmt.Sprint(m.Key, m.N))
				return nil
			}, subscribe.Ordered()))
		for n := 1; n <= 50; n++ {
			r.say(t, "t", turn{"blocked", n})
		}
		for n := 1; n <= 5; n++ {
			r.say(t, "t", turn{"free", n})
		}
		if err := r.Publish(t.Context(), cap.NoTx, "t", turn{N: 7}); err != nil {
			t.Fatal(err)
		}
		elapse(2 * time.Second)
		if got := len(j.all()); got != 6 {
			t.Errorf("%d were handled beside the key that waits, want 6: %v", got, j.all())
		}
		elapse(90 * time.Minute) // three tries at once, and one more in an hour
		if got := j.all(); len(got) != 55 || got[6] != "blocked2" || got[54] != "blocked50" {
			t.Errorf("after the first has failed for good: %v", got)
		}
	})
}

// TestAMessageThatCannotBeSentHoldsUpItsKey, whatever the topic.
func TestAMessageThatCannotBeSentHoldsUpItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		h := func(_ context.Context, m turn) error { s.begin(m)(true); return nil }
		r := running(t, cap.Options{}, subscribe.To("there", h, subscribe.Ordered()))
		r.say(t, "nowhere", turn{"a", 1})
		r.say(t, "there", turn{"a", 2})
		r.say(t, "there", turn{"b", 1})
		elapse(10 * time.Second)
		s.check(t, 1)
		s.last["a"] = 1
		err := r.queue.Declare(t.Context(), transport.Source{Group: "other", Topics: []string{"nowhere"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			_ = r.queue.Receive(ctx, transport.Source{Group: "other", Topics: []string{"nowhere"}, Window: 1}, func(_ context.Context, batch []transport.Delivery) {
				for _, d := range batch {
					_ = d.Ack()
				}
			})
		}()
		elapse(3 * time.Minute)
		s.check(t, 2)
	})
}

// TestOrderOverInstances: several buses on one storage and one queue, which come
// and go; each message of a key is published by another one.
func TestOrderOverInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		sub := func() subscribe.Subscription {
			return subscribe.To("t", func(ctx context.Context, m turn) error {
				end := s.begin(m)
				pause(time.Millisecond)
				info, _ := cap.InfoFromContext(ctx)
				if info.Message.Headers[transport.HeaderKey] != m.Key {
					t.Errorf("the key in the header is %q", info.Message.Headers[transport.HeaderKey])
				}
				fails := m.N%7 == 0 && info.Attempt == 1
				end(!fails)
				if fails {
					return errors.New("once")
				}
				return nil
			}, subscribe.Ordered(), subscribe.Group("g"))
		}
		first := newRig(t, cap.Options{}, sub())
		buses := []*rig{first, first.again(t, cap.Options{}, sub()), first.again(t, cap.Options{}, sub())}
		for _, b := range buses {
			b.start(t)
		}
		const keys, each = 10, 60
		for n := 1; n <= each; n++ {
			for k := range keys {
				buses[(n+k)%len(buses)].say(t, "t", turn{fmt.Sprint("k", k), n})
			}
			if n%20 == 0 {
				b := buses[n/20%len(buses)]
				if err := b.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				elapse(100 * time.Millisecond)
				b.start(t)
			}
		}
		elapse(2 * time.Minute)
		s.check(t, keys*each)
	})
}

// TestKeyedMessagesAreSentAtOnce: without waiting for the next look.
func TestKeyedMessagesAreSentAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{PollInterval: 14 * time.Second}, subscribe.To("t", func(context.Context, turn) error {
			j.add("x")
			return nil
		}, subscribe.Ordered()))
		elapse(29 * time.Second) // the next looks are 13 s away
		for n := 1; n <= 20; n++ {
			r.say(t, "t", turn{"k", n})
		}
		elapse(50 * time.Millisecond)
		if got := len(j.all()); got != 20 {
			t.Errorf("%d of 20 were handled within 50 ms", got)
		}
	})
}

// TestASuccessInTheInboxTransactionLetsTheNextOfItsKeyGo at once, as any other
// success does.
func TestASuccessInTheInboxTransactionLetsTheNextOfItsKeyGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{PollInterval: 14 * time.Second}, subscribe.To("t", func(ctx context.Context, _ turn) error {
			_, err := cap.TxFromContext(ctx)
			j.add("x")
			return err
		}, subscribe.Ordered()))
		elapse(29 * time.Second) // the next looks are 13 s away
		for n := 1; n <= 20; n++ {
			r.say(t, "t", turn{"k", n})
		}
		elapse(50 * time.Millisecond)
		if got := len(j.all()); got != 20 {
			t.Errorf("%d of 20 were handled within 50 ms", got)
		}
	})
}

// TestRowsWithAKeyAreServedWithoutOrdered: those that came while the
// subscription was ordered.
func TestRowsWithAKeyAreServedWithoutOrdered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		h := func(_ context.Context, m turn) error {
			j.add(fmt.Sprint(m.N))
			return nil
		}
		r := running(t, cap.Options{}, subscribe.To("t", func(context.Context, turn) error { return subscribe.Snooze(time.Second) }, subscribe.Ordered()))
		for n := 1; n <= 3; n++ {
			r.say(t, "t", turn{"k", n})
		}
		elapse(time.Second)
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.again(t, cap.Options{}, subscribe.To("t", h)).start(t)
		elapse(30 * time.Second)
		if got := strings.Join(j.all(), " "); got != "1 2 3" {
			t.Errorf("handled: %q", got)
		}
	})
}

func TestWhatWithKeyRefuses(t *testing.T) {
	t.Parallel()
	b := newRig(t, cap.Options{})
	for name, opts := range map[string][]cap.PublishOption{
		"has 0 bytes":            {cap.WithKey("")},
		"has 256 bytes":          {cap.WithKey(strings.Repeat("k", 256))},
		"UTF-8":                  {cap.WithKey("\xff")},
		"without NUL":            {cap.WithKey("a\x00")},
		"excludes WithDelay":     {cap.WithKey("k"), cap.WithDelay(time.Second)},
		"WithDueAt":              {cap.WithDueAt(time.Now().Add(time.Hour)), cap.WithKey("k")},
		"framework; use WithKey": {cap.WithHeader(transport.HeaderKey, "k")},
	} {
		if err := b.Publish(t.Context(), cap.NoTx, "t", 1, opts...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	key := strings.Repeat("k", 255)
	if err := b.Publish(t.Context(), cap.NoTx, "t", 1, cap.WithKey(key)); err != nil {
		t.Fatal(err)
	}
	rec := b.row(t, storage.Outbox)
	if rec.Key != key || headersOf(t, rec)[transport.HeaderKey] != key {
		t.Errorf("the row's key is %q, the header %q", rec.Key, headersOf(t, rec)[transport.HeaderKey])
	}
}

func TestOrderedNeedsATransportThatCan(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{Transport: limited{memqueue.New(memqueue.Config{})}}, subscribe.To("t", func(context.Context, int) error { return nil }, subscribe.Ordered()))
	if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "Ordered needs a queue") {
		t.Errorf("Start: %v", err)
	}
}
