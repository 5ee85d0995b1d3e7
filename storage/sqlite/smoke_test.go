package sqlite_test

import (
	"errors"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

func TestOutboxRowLivesFromAppendToPurge(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.Check(t.Context()))
	must(t, s.Migrate(t.Context()))
	m := join(t, s, storage.Outbox)
	a, b := outgoing(m.Number()), outgoing(m.Number())
	b.Delay = time.Hour
	publish(t, s, a, b)
	recs, next, err := m.Due(t.Context(), outLane(10))
	must(t, err)
	if len(recs) != 1 || recs[0].ID != a.ID || next < 59*time.Minute || next > time.Hour {
		t.Fatalf("recs %v, next %v", recs, next)
	}
	r := recs[0]
	if r.Topic != a.Topic || string(r.Body) != string(a.Body) || string(r.Headers) != string(a.Headers) ||
		r.Owner != m.Number() || r.Position.Seq == 0 || r.Final || r.Status != storage.Scheduled || r.Version != version {
		t.Fatalf("read %+v", r)
	}
	if got := due(t, m, storage.Query{Lanes: []storage.Lane{{Limit: 9, After: r.Position}}}); len(got) != 0 {
		t.Fatalf("behind the last: %v", got)
	}
	lost, err := m.Settle(t.Context(), storage.Outcome{ID: a.ID, Kind: storage.Succeed})
	must(t, err)
	if len(lost) != 0 {
		t.Fatal(lost)
	}
	if lost, err = m.Settle(t.Context(), storage.Outcome{ID: a.ID, Kind: storage.Retry}); len(lost) != 1 || err != nil {
		t.Fatal("a final row was settled", lost, err)
	}
	n, err := s.Purge(t.Context(), storage.Purge{Box: storage.Outbox, Version: version, Limit: 10})
	must(t, err)
	if n != 1 || count(t, s, "SELECT count(*) FROM cap_published") != 1 {
		t.Fatal(n)
	}
}

func TestInboxRowIsSettledInItsTransaction(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := join(t, s, storage.Inbox)
	in := incoming("1")
	fresh, err := m.Accept(t.Context(), in, incoming("1"))
	must(t, err)
	if len(fresh) != 1 || fresh[0] != in {
		t.Fatal(fresh)
	}
	if got := due(t, m, inLane(5)); len(got) != 1 || got[0].MessageID != "1" {
		t.Fatal(got)
	}
	tx, err := s.Begin(t.Context())
	must(t, err)
	db := tx.Value().(*gorm.DB)
	must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Exec("CREATE TABLE x (a)").Error }))
	must(t, tx.Settle(t.Context(), m, storage.Outcome{ID: in.ID, Kind: storage.Succeed, After: time.Hour}))
	must(t, tx.Commit())
	must(t, tx.Rollback())
	if got := due(t, m, inLane(5)); len(got) != 0 {
		t.Fatal(got)
	}
	tx, err = s.Begin(t.Context())
	must(t, err)
	err = tx.Settle(t.Context(), m, storage.Outcome{ID: in.ID, Kind: storage.Succeed, After: time.Hour})
	if !errors.Is(err, storage.ErrLost) {
		t.Fatal(err)
	}
	must(t, tx.Rollback())
}

func TestRowsOfALeftMemberAreTakenOver(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	a, b := join(t, s, storage.Outbox), join(t, s, storage.Outbox)
	publish(t, s, outgoing(a.Number()), outgoing(0), outgoing(b.Number()))
	recs, err := b.TakeOver(t.Context(), outLane(10))
	must(t, err)
	if len(recs) != 1 {
		t.Fatal(recs)
	}
	must(t, a.Leave(t.Context()))
	if err := a.Beat(t.Context()); !errors.Is(err, storage.ErrLost) {
		t.Fatal(err)
	}
	recs, err = b.TakeOver(t.Context(), outLane(10))
	must(t, err)
	if len(recs) != 1 || recs[0].Takeovers != 0 || recs[0].Owner != b.Number() {
		t.Fatal(recs)
	}
	if got := due(t, b, outLane(10)); len(got) != 3 {
		t.Fatal(got)
	}
}
