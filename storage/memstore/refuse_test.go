package memstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

// Every mistake of a caller is an error, never a guess.
func TestMistakesAreRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := memstore.New(memstore.Config{})
	in, out := join(t, s, storage.Inbox), join(t, s, storage.Outbox)
	other := join(t, memstore.New(memstore.Config{}), storage.Inbox)
	rec := accepted(t, in)
	tx := func() *memstore.Tx { return begin(t, s) }
	foreign := *rec
	foreign.Version = "v2"
	sameID := *rec
	sameID.MessageID = "another"
	for name, call := range map[string]func() error{
		"no lease":         func() error { _, err := s.Join(ctx, storage.Instance{Box: storage.Outbox}); return err },
		"no box":           func() error { _, err := s.Join(ctx, storage.Instance{Lease: 1}); return err },
		"purge of no box":  func() error { _, err := s.Purge(ctx, storage.Purge{Limit: 1}); return err },
		"purge of no rows": func() error { _, err := s.Purge(ctx, storage.Purge{Box: storage.Inbox}); return err },
		"due of no rows":   func() error { _, _, err := in.Due(ctx, lane(0)); return err },
		"take no rows":     func() error { _, err := in.TakeOver(ctx, lane(0)); return err },
		"unmatched none":   func() error { _, err := in.Unmatched(ctx, []string{"g"}, 0, 0); return err },
		"no outcome":       func() error { _, err := in.Settle(ctx, storage.Outcome{ID: rec.ID}); return err },
		"unknown outcome":  func() error { _, err := in.Settle(ctx, storage.Outcome{ID: rec.ID, Kind: 99}); return err },
		"accept to outbox": func() error { _, err := out.Accept(ctx, rec); return err },
		"other version":    func() error { _, err := in.Accept(ctx, &foreign); return err },
		"id twice":         func() error { _, err := in.Accept(ctx, &sameID); return err },
		"split to nothing": func() error { _, err := in.Split(ctx, rec); return err },
		"outbox member":    func() error { return tx().Settle(ctx, out, storage.Outcome{ID: rec.ID, Kind: storage.Succeed}) },
		"foreign member": func() error {
			return tx().Settle(ctx, other, storage.Outcome{ID: rec.ID, Kind: storage.Succeed})
		},
		"tx, no outcome": func() error { return tx().Settle(ctx, in, storage.Outcome{ID: rec.ID}) },
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if n := len(s.Records(storage.Inbox)); n != 1 || s.Records(0) != nil {
		t.Errorf("%d rows, want the one accepted", n)
	}
}

// One bad record spoils the whole call: nothing of it is inserted.
func TestSplitKeepsTheRowWhenItCannotInsert(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	m := join(t, s, storage.Inbox)
	there := accepted(t, m)
	row := message(0)
	row.Group, row.MessageID = "g", "m"
	good, bad := *row, *row
	good.ID, good.Subscriber = message(0).ID, "a"
	bad.ID, bad.Subscriber = there.ID, "b"
	if _, err := m.Accept(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Split(t.Context(), row, &good, &bad); err == nil {
		t.Error("split into an id that is there already: no error")
	}
	left, err := m.Unmatched(t.Context(), []string{"g"}, 0, 9)
	if err != nil || len(left) != 1 || len(s.Records(storage.Inbox)) != 2 {
		t.Errorf("after a split that failed: %d unmatched, %d rows, %v", len(left), len(s.Records(storage.Inbox)), err)
	}
}

func TestEndedContextChangesNothing(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	m := join(t, s, storage.Inbox)
	rec := accepted(t, m)
	tx := begin(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, joined := s.Join(ctx, storage.Instance{Box: storage.Inbox, Lease: 1})
	_, purged := s.Purge(ctx, storage.Purge{Box: storage.Inbox, Limit: 1})
	_, begun := s.Begin(ctx)
	_, _, looked := m.Due(ctx, lane(1))
	_, taken := m.TakeOver(ctx, lane(1))
	_, claimed := m.Claim(ctx, rec)
	_, settled := m.Settle(ctx, storage.Outcome{ID: rec.ID, Kind: storage.Succeed})
	_, unmatched := m.Unmatched(ctx, nil, 0, 1)
	_, split := m.Split(ctx, rec, rec)
	_, accepted := m.Accept(ctx, rec)
	for i, err := range []error{
		joined, purged, begun, looked, taken, claimed, settled, unmatched, split, accepted,
		m.Beat(ctx), m.Leave(ctx), s.Check(ctx), tx.Append(ctx, message(0)),
		tx.Settle(ctx, m, storage.Outcome{ID: rec.ID, Kind: storage.Succeed}),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %d: %v, want context.Canceled", i, err)
		}
	}
	if r := s.Records(storage.Inbox)[0]; r.Final || r.Owner != m.Number() || m.Beat(t.Context()) != nil {
		t.Errorf("the row was changed: %+v", *r)
	}
}

// What a caller does with his record, or with one that he got, stays with him.
func TestRecordsAreCopies(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	m := join(t, s, storage.Outbox)
	rec := message(m.Number())
	publish(t, s, rec)
	rec.Body[0], rec.Topic = 'X', "changed"
	for range 2 {
		for _, recs := range [][]*storage.Record{mustDue(t, m), s.Records(storage.Outbox)} {
			if r := recs[0]; string(r.Body) != "body" || r.Topic != "t" || r.Status != storage.Scheduled || r.Retries != 0 {
				t.Errorf("a record was changed from outside: %+v", *r)
			}
			recs[0].Topic, recs[0].Status, recs[0].Retries, recs[0].Body = "changed", storage.Failed, 7, nil
		}
	}
}

func mustDue(t *testing.T, m storage.Member) []*storage.Record {
	t.Helper()
	recs, _, err := m.Due(t.Context(), lane(10))
	if err != nil || len(recs) == 0 {
		t.Fatalf("due: %d rows, %v", len(recs), err)
	}
	return recs
}
