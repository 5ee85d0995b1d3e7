package mysql_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/capbus/gocap/storage"
)

// Heads takes two statements here. A head that is settled between them must not
// make a page short, which would end the scan, nor hide the row behind it.
func TestHeadsBesideThoseWhoSettleThem(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := join(t, s, storage.Outbox)
	const keys, settled, page = 300, 100, 200
	var recs []*storage.Record
	var names []string
	for i := range 2 * keys {
		r := outgoing(m.Number())
		if r.Key = fmt.Sprintf("k%03d", i%keys); i < settled {
			names = append(names, r.Key)
		}
		recs = append(recs, r)
	}
	publish(t, s, recs[:keys]...)
	publish(t, s, recs[keys:]...)
	done := make(chan struct{})
	var settling sync.WaitGroup
	defer settling.Wait()
	settling.Go(func() {
		defer close(done)
		for _, r := range recs[:settled] {
			if _, err := m.Settle(context.WithoutCancel(t.Context()), storage.Outcome{ID: r.ID, Kind: storage.Succeed}); err != nil {
				t.Error(err)
			}
		}
	})
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		for _, q := range []storage.HeadQuery{{Limit: page}, {Keys: names}} {
			heads, err := m.Heads(t.Context(), q)
			must(t, err)
			if want := max(q.Limit, len(q.Keys)); len(heads) != want {
				t.Fatalf("%d heads of %d keys, each of which has some", len(heads), want)
			}
		}
	}
}
