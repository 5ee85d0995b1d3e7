package mysql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// looksOfOperators are the filters that each have a way of their own.
func looksOfOperators(b storage.Box, id storage.ID) []storage.Filter {
	list := []storage.Filter{
		{},
		{IDs: []storage.ID{id}},
		{MessageID: id.String()},
		{Version: version, TopicPrefix: "o"},
		{States: []storage.State{storage.StateFailed}},
		{States: []storage.State{storage.StateDelayed, storage.StateRetrying}, Version: version},
		{States: []storage.State{storage.StateScheduled}},
		{States: []storage.State{storage.StateScheduled}, Version: version},
		{AddedFrom: time.UnixMicro(1), AddedBefore: time.Now()},
	}
	for i := range list {
		list[i].Box = b
	}
	return list
}

// TestOperatorsReadFewRows of much history, which no filter of this test matches
// but those for all.
func TestOperatorsReadFewRows(t *testing.T) {
	t.Parallel()
	s, pool, rec := plans(t)
	inboxHistory(t, pool)
	id := incoming("1").ID
	publish(t, s, outgoing(1), outgoing(0))
	_, err := join(t, s, storage.Inbox).Accept(t.Context(), incoming("1"))
	must(t, err)
	rec.forget()
	for _, b := range []storage.Box{storage.Outbox, storage.Inbox} {
		for i, f := range looksOfOperators(b, id) {
			for _, oldest := range []bool{false, true} {
				reads(t, pool, fmt.Sprint("list ", b, i), 9*512, func() error {
					_, err := s.List(t.Context(), f, storage.Page{Limit: 3, Oldest: oldest, Content: true})
					return err
				})
			}
		}
		for a := storage.Requeue; a <= storage.Delete; a++ {
			reads(t, pool, fmt.Sprint(a, b), 20, func() error {
				_, err := s.Change(t.Context(), a, storage.Filter{Box: b, IDs: []storage.ID{id}})
				return err
			})
		}
		inspects(t, s, pool, b)
	}
	checkPlans(t, pool, rec.forget())
}

// inspects counts rows, and asks for the health.
func inspects(t *testing.T, s *gormstore.Store, pool *sql.DB, b storage.Box) {
	t.Helper()
	for _, v := range []string{"", version} {
		reads(t, pool, fmt.Sprint("count ", b, v), 200, func() error {
			_, err := s.Count(t.Context(), storage.CountQuery{Box: b, Version: v, Most: 10})
			return err
		})
	}
	reads(t, pool, fmt.Sprint("waiting ", b), 50, func() error {
		_, err := s.Waiting(t.Context(), b, version, 100)
		return err
	})
	reads(t, pool, fmt.Sprint("versions ", b), 50, func() error {
		_, err := s.Versions(t.Context(), b, 100)
		return err
	})
}

// reads checks how many rows the server reads for f.
func reads(t *testing.T, pool *sql.DB, what string, most int, f func() error) {
	t.Helper()
	before := rowsRead(t, pool)
	must(t, f())
	if n := rowsRead(t, pool) - before; n > most {
		t.Errorf("%s: %d rows were read, at most %d are well", what, n, most)
	}
}
