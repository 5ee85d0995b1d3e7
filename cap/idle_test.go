package cap_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
)

// askedStore counts what its members are asked of each box.
type askedStore struct {
	*memstore.Store

	mu    sync.Mutex
	asked map[storage.Box]map[string]int
}

func (s *askedStore) note(box storage.Box, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[box] == nil {
		s.asked[box] = map[string]int{}
	}
	s.asked[box][what]++
}

// taken returns what was counted since the last call.
func (s *askedStore) taken() map[storage.Box]map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = map[storage.Box]map[string]int{}
	return asked
}

func (s *askedStore) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	m, err := s.Store.Join(ctx, in)
	return askedMember{m, s, in.Box}, err
}

func (s *askedStore) Purge(ctx context.Context, p storage.Purge) (int, error) {
	s.note(p.Box, "purge")
	return s.Store.Purge(ctx, p)
}

type askedMember struct {
	storage.Member

	s   *askedStore
	box storage.Box
}

func (m askedMember) Glance(ctx context.Context, q storage.GlanceQuery) (storage.Glance, error) {
	m.s.note(m.box, "glance")
	return m.Member.(storage.Glancer).Glance(ctx, q) //nolint:forcetypeassert // that of memstore
}

func (m askedMember) Due(ctx context.Context, q storage.Query) ([]*storage.Record, time.Duration, error) {
	m.s.note(m.box, "due")
	return m.Member.Due(ctx, q)
}

func (m askedMember) TakeOver(ctx context.Context, q storage.Query) ([]*storage.Record, error) {
	m.s.note(m.box, "take over")
	return m.Member.TakeOver(ctx, q)
}

func (m askedMember) Heads(ctx context.Context, q storage.HeadQuery) ([]storage.Head, error) {
	m.s.note(m.box, "heads")
	return m.Member.Heads(ctx, q)
}

func (m askedMember) Unmatched(ctx context.Context, groups []string, after int64, limit int) ([]*storage.Record, error) {
	m.s.note(m.box, "unmatched")
	return m.Member.Unmatched(ctx, groups, after, limit)
}

// TestAnIdleBusAsksOnceAPollInterval: each table, whatever the bus is there for.
func TestAnIdleBusAsksOnceAPollInterval(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]cap.Options{"plain": {}, "locked": {UseStorageLock: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j, s := newJournal(), &askedStore{Store: memstore.New(memstore.Config{})}
				s.taken()
				opts.Storage = s
				r := running(t, opts, subscribe.To("a", j.handler), subscribe.To("b.#", j.handler, subscribe.Group("g")),
					subscribe.To("c", j.handler, subscribe.Group("h"), subscribe.Ordered()))
				if err := r.Publish(t.Context(), cap.NoTx, "b.c", "later", cap.WithDelay(time.Hour)); err != nil {
					t.Fatal(err)
				}
				elapse(5500 * time.Millisecond)
				s.taken()
				elapse(time.Minute)
				asked := s.taken()
				for _, box := range []storage.Box{storage.Outbox, storage.Inbox} {
					n := 0
					for _, times := range asked[box] {
						n += times
					}
					if n > 60 || asked[box]["glance"] < 59 {
						t.Errorf("%v: asked in a minute: %v, want 60 times at most", box, asked[box])
					}
				}
				elapse(time.Hour)
				if got := j.all(); len(got) != 1 {
					t.Errorf("handled %v", got)
				}
			})
		})
	}
}

// TestAnIdleBusFindsWhatNobodyTellsItOf: rows of a program that only publishes,
// and of an instance that has died.
func TestAnIdleBusFindsWhatNobodyTellsItOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		row    func(rec *storage.Record)
		within time.Duration
	}{
		"nobody's":             {func(*storage.Record) {}, time.Second},
		"nobody's, with a key": {func(rec *storage.Record) { rec.Key = "k" }, time.Second},
		"nobody's, delayed":    {func(rec *storage.Record) { rec.Delay = 700 * time.Millisecond }, 1700 * time.Millisecond},
		"of one that dies":     {func(rec *storage.Record) { rec.Owner = 1 }, 17 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				r := running(t, cap.Options{}, subscribe.To("t", j.handler))
				for i := range 20 { // at any moment between two glances
					elapse(10*time.Second + time.Duration(i)*61*time.Millisecond)
					rec := outboxRecord("t", `"x"`)
					c.row(rec)
					if rec.Owner != 0 {
						m, err := r.store.Join(t.Context(), storage.Instance{Box: storage.Outbox, Version: rec.Version, Lease: 15 * time.Second})
						if err != nil {
							t.Fatal(err)
						}
						rec.Owner = m.Number()
					}
					insert(t, r.store, rec)
					elapse(c.within + 2*time.Millisecond)
					if n := len(j.all()); n != i+1 {
						t.Fatalf("row %d is not handled within %s (%d are)", i, c.within, n)
					}
				}
			})
		})
	}
}

// TestAnIdleBusAdoptsWhatMatchedNothing: an unmatched row is split within a third
// of a FallbackWindow, and a PollInterval.
func TestAnIdleBusAdoptsWhatMatchedNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{}, subscribe.To("t", j.handler, subscribe.Group("g")))
		elapse(10 * time.Second)
		m, err := r.store.Join(t.Context(), storage.Instance{Box: storage.Inbox, Version: "v1", Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		rec := outboxRecord("t", `"x"`)
		rec.Group, rec.MessageID = "g", "1"
		if _, err := m.Accept(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		elapse(6 * time.Second)
		if n := len(j.all()); n != 1 {
			t.Errorf("handled %d times, want once", n)
		}
	})
}

func outboxRecord(topic, body string) *storage.Record {
	return &storage.Record{ID: ids.New(), Version: "v1", Topic: topic, Headers: []byte("{}"), Body: []byte(body)}
}

func insert(t *testing.T, s *memstore.Store, rec *storage.Record) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err == nil {
		err = tx.Append(t.Context(), rec)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}
