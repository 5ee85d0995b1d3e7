package postgres_test

import (
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
)

// A look at a backlog goes on where the last one ended: what is committed later
// with an earlier due time has its turn within two seconds all the same, and
// not when the backlog is at its end.
func TestLateCommitIsTakenWithinABacklog(t *testing.T) {
	t.Parallel()
	s := newStore(t, postgres.Config{})
	m := join(t, s, storage.Outbox)
	late := outgoing(0)
	must(t, s.DB().WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
		w, err := s.Bind(tx)
		if err == nil {
			err = w.Append(t.Context(), late)
		}
		backlog(t, s, 50)
		take(t, m, 10) // leaves a trail behind the row that is not committed
		return err
	}))
	for begun := time.Now(); ; {
		for _, rec := range take(t, m, 1) {
			if rec.ID == late.ID {
				return
			}
		}
		if since := time.Since(begun); since > 10*time.Second {
			t.Fatalf("not taken within %v", since)
		}
		backlog(t, s, 2) // it does not end
	}
}

// A look at a large backlog neither looks for owners anew nor starts at its
// beginning, but once a second: what has been taken is in the index still.
func TestTakingABacklogGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	const page, pages = 50, 100
	rec := &recorder{}
	s := onPool(t, newDatabase(t), gormstore.Config{}, rec.trace)
	must(t, s.Migrate(t.Context()))
	m := join(t, s, storage.Outbox)
	backlog(t, s, page*pages)
	rec.taken()
	begun := time.Now()
	for i := range pages {
		if n := len(take(t, m, page)); n != page {
			t.Fatalf("%d taken by look %d, want %d", n, i, page)
		}
	}
	seconds := int(time.Since(begun)/time.Second) + 2
	looks := 0
	for _, q := range rec.taken() {
		if strings.Contains(q.text, "RECURSIVE living") {
			looks++
		}
	}
	if looks > 2*seconds { // one before the transaction, one in it
		t.Errorf("%d looks for owners in less than %d seconds", looks, seconds)
	}
	if n := len(take(t, m, page)); n != 0 {
		t.Errorf("%d more taken", n)
	}
}

func backlog(tb testing.TB, s *gormstore.Store, rows int) {
	tb.Helper()
	recs := make([]*storage.Record, rows)
	for i := range recs {
		recs[i] = outgoing(0)
	}
	publish(tb, s, recs...)
}

func take(tb testing.TB, m storage.Member, limit int) []*storage.Record {
	tb.Helper()
	recs, err := m.TakeOver(tb.Context(), outLane(limit))
	must(tb, err)
	return recs
}
