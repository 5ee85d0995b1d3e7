package sqlite_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// operating runs each look of an operator.
func operating(t *testing.T, s *gormstore.Store) {
	t.Helper()
	id := incoming("1").ID
	for _, b := range []storage.Box{storage.Outbox, storage.Inbox} {
		for _, f := range []storage.Filter{
			{},
			{IDs: []storage.ID{id}},
			{MessageID: id.String()},
			{Version: version, TopicPrefix: "o"},
			{States: []storage.State{storage.StateFailed}},
			{States: []storage.State{storage.StateDelayed, storage.StateRetrying}, Version: version},
			{States: []storage.State{storage.StateScheduled}},
			{States: []storage.State{storage.StateScheduled}, Version: version},
			{AddedFrom: time.UnixMicro(1), AddedBefore: time.Now()},
		} {
			for _, oldest := range []bool{false, true} {
				f.Box = b
				_, err := s.List(t.Context(), f, storage.Page{Limit: 3, Oldest: oldest, Content: true})
				must(t, err)
			}
		}
		for _, v := range []string{"", version} {
			_, err := s.Count(t.Context(), storage.CountQuery{Box: b, Version: v, Most: 10})
			must(t, err)
		}
		for a := storage.Requeue; a <= storage.Delete; a++ {
			_, err := s.Change(t.Context(), a, storage.Filter{Box: b, IDs: []storage.ID{id}, States: []storage.State{storage.StateFailed}})
			must(t, err)
		}
	}
}

// scanned: what an operator looks at is bounded, so all may be in order of an
// index from its start, but no table without a bound.
var scanned = regexp.MustCompile(`(?m)^\s*SCAN ("?cap_(published|received)"?|r)( USING (COVERING )?INDEX \S+_(due|expiry|key))?$`)

func TestNoLookOfAnOperatorScansATable(t *testing.T) {
	t.Parallel()
	rec, pool, s := recorded(t)
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	publish(t, s, outgoing(out.Number()))
	_, err := in.Accept(t.Context(), incoming("1"))
	must(t, err)
	rec.texts = make(map[string]bool)
	operating(t, s)
	texts := rec.texts
	_, err = pool.ExecContext(t.Context(), history, retained)
	must(t, err)
	for _, analyze := range []string{"SELECT 1", "ANALYZE"} {
		_, err = pool.ExecContext(t.Context(), analyze)
		must(t, err)
		for text := range texts {
			if !regexp.MustCompile(`^(SELECT|WITH|UPDATE|DELETE)`).MatchString(text) {
				continue
			}
			plan := planOf(t, pool, text)
			if strings.Contains(plan, "TERMS OF ORDER BY") {
				t.Errorf("a part of an index is sorted by %s:\n  %s", text, plan)
			}
			for _, line := range scanned.FindAllStringSubmatch(plan, -1) {
				if line[3] == "" {
					t.Errorf("plan of %s:\n  %s", text, plan)
				}
			}
		}
	}
}
