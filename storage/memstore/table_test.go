package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

// checkIndexes says whether the indexes of a table hold what they are for.
func checkIndexes(t *testing.T, tb *table) {
	t.Helper()
	var open, unmatched, expiring int
	for _, r := range tb.rows {
		switch {
		case r.open:
			open++
			if n := tb.lanes[r.lane()][r.Owner].behind(pos{r.due, r.seq - 1}); n == nil || n.row != r {
				t.Errorf("row %d is not in its lane", r.seq)
			}
		case r.Final:
			expiring++
			if n := tb.expiring[r.Version].behind(pos{r.expires, r.seq - 1}); n == nil || n.row != r || r.Owner != 0 {
				t.Errorf("row %d does not expire, or is owned", r.seq)
			}
		default:
			t.Errorf("row %d is neither final nor has it something to do", r.seq)
		}
		if tb.unmatched(r) {
			unmatched++
			if n := tb.waiting[r.group()].behind(pos{seq: r.seq - 1}); n == nil || n.row != r {
				t.Errorf("row %d does not wait", r.seq)
			}
		}
		if tb.inbox && tb.keys[r.key()] != r {
			t.Errorf("row %d is not found by its key", r.seq)
		}
	}
	for _, owners := range tb.lanes {
		for _, o := range owners {
			open -= o.count
		}
	}
	unmatched -= counted(tb.waiting)
	expiring -= counted(tb.expiring)
	if open != 0 || unmatched != 0 || expiring != 0 || tb.inbox && len(tb.keys) != len(tb.rows) {
		t.Errorf("rows missing in (or left in, if negative) lanes %d, waiting %d, expiring %d", open, unmatched, expiring)
	}
}

func counted[K comparable](m map[K]*order) (n int) {
	for _, o := range m {
		n += o.count
	}
	return n
}

// churn does random things with the rows of a box.
type churn struct {
	t   *testing.T
	s   *Store
	box storage.Box
	rnd *rand.Rand
	m   []storage.Member
}

func (c *churn) step() {
	kinds := []storage.OutcomeKind{storage.Succeed, storage.Retry, storage.Postpone, storage.Fail, storage.CallbackDone, storage.Release}
	ctx := c.t.Context()
	m := c.m[c.rnd.IntN(len(c.m))]
	lanes := []storage.Lane{{Limit: 5}}
	if c.box == storage.Inbox {
		lanes = []storage.Lane{{Group: "g", Subscriber: "a", Limit: 5}, {Group: "g", Subscriber: "b", Limit: 5}}
	}
	recs, _, err := m.Due(ctx, storage.Query{Lanes: lanes})
	c.must(err)
	switch c.rnd.IntN(8) {
	case 0, 1, 2:
		c.must(c.write(ctx, m))
	case 3:
		q := storage.Query{Lanes: lanes}
		if c.rnd.IntN(4) == 0 {
			q.Stale = 1
		}
		_, _ = m.TakeOver(ctx, q)
	case 4:
		_, err = m.Claim(ctx, recs...)
	case 5, 6:
		for _, r := range recs {
			kind := kinds[c.rnd.IntN(len(kinds))]
			_, err := m.Settle(ctx, storage.Outcome{ID: r.ID, Kind: kind, After: time.Duration(c.rnd.IntN(3) - 1), Callback: c.rnd.IntN(2) == 0, Claimed: true})
			c.must(err)
		}
	case 7:
		if c.rnd.IntN(5) == 0 {
			c.must(m.Leave(ctx))
			c.join(c.rnd.IntN(len(c.m)))
		}
		_, err = c.s.Purge(ctx, storage.Purge{Box: c.box, Version: "v1", Limit: 10})
	}
	c.must(err)
}

func (c *churn) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *churn) join(i int) {
	m, err := c.s.Join(c.t.Context(), storage.Instance{Box: c.box, Version: "v1", Lease: time.Duration(1+c.rnd.IntN(20)) * time.Millisecond})
	c.must(err)
	c.m[i] = m
}

func (c *churn) write(ctx context.Context, m storage.Member) error {
	rec := &storage.Record{ID: ids.New(), Version: "v1", Topic: "t", Owner: m.Number()}
	if c.box == storage.Outbox {
		rec.Delay = time.Duration(c.rnd.IntN(3))
		tx, err := c.s.Begin(ctx)
		if err != nil {
			return err
		}
		if err := tx.Append(ctx, rec); err != nil {
			return err
		}
		if c.rnd.IntN(4) == 0 {
			return tx.Rollback()
		}
		return tx.Commit()
	}
	rec.Group, rec.Subscriber, rec.MessageID = "g", []string{"a", "b", ""}[c.rnd.IntN(3)], fmt.Sprint(c.rnd.IntN(500))
	if c.rnd.IntN(10) == 0 {
		rec.Fault, rec.FaultCallback = "x", c.rnd.IntN(2) == 0
	}
	if _, err := m.Accept(ctx, rec); err != nil {
		return err
	}
	waiting, err := m.Unmatched(ctx, []string{"g"}, 0, 1)
	if err != nil || len(waiting) == 0 || c.rnd.IntN(2) == 0 {
		return err
	}
	into := *waiting[0]
	into.ID, into.Subscriber = ids.New(), "a"
	_, err = m.Split(ctx, waiting[0], &into)
	return err
}

func TestIndexesHoldThroughRandomWork(t *testing.T) {
	t.Parallel()
	for _, box := range []storage.Box{storage.Outbox, storage.Inbox} {
		t.Run(box.String(), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64() //nolint:gosec // no secret
			s := New(Config{})
			c := &churn{t: t, s: s, box: box, rnd: seeded(seed), m: make([]storage.Member, 4)}
			for i := range c.m {
				c.join(i)
			}
			tb, err := s.table(box)
			c.must(err)
			for i := range 4000 {
				c.step()
				if i%100 == 0 {
					checkIndexes(t, tb)
				}
				if t.Failed() {
					t.Fatalf("seed %d, step %d", seed, i)
				}
			}
			checkIndexes(t, tb)
		})
	}
}

// TestNothingIsLeftBehind: once every row is purged, no index has an entry.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(Config{})
	for i := range 50 {
		m, err := s.Join(ctx, storage.Instance{Box: storage.Inbox, Version: fmt.Sprint("v", i%3), Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for j := range 10 {
			rec := &storage.Record{ID: ids.New(), Topic: "t", Group: fmt.Sprint("g", i), Subscriber: "s", MessageID: fmt.Sprint(i, j)}
			if _, err := m.Accept(ctx, rec); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Settle(ctx, storage.Outcome{ID: rec.ID, Kind: storage.Succeed}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, version := range []string{"v0", "v1", "v2"} {
		if _, err := s.Purge(ctx, storage.Purge{Box: storage.Inbox, Version: version, Limit: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	if tb := s.inbox; len(tb.rows)+len(tb.keys)+len(tb.lanes)+len(tb.waiting)+len(tb.expiring) != 0 {
		t.Errorf("left behind: %d rows, %d keys, %d lanes, %d waiting, %d expiring",
			len(tb.rows), len(tb.keys), len(tb.lanes), len(tb.waiting), len(tb.expiring))
	}
}
