package sqlite_test

import (
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
)

// blocked fills both tables with due rows of one key, whose first one waits.
const blocked = `INSERT INTO "cap_published"
  (id, version, name, ordering_key, status, due_at, owner, added_at, updated_at, headers, body)
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
  SELECT randomblob(16), 'v1', 'old', CAST('blocked' AS BLOB), 0, iif(i = 1, 9e18, 1), ?2, 1, 1, x'', x'' FROM n;
INSERT INTO "cap_received" (id, version, group_name, subscriber, name, message_id, ordering_key, status, due_at, owner,
  added_at, updated_at, headers, body)
  SELECT id, version, 'g', 's', name, hex(id), ordering_key, status, due_at, ?3, 1, 1, x'', x'' FROM "cap_published" LIMIT ?1`

// TestABlockedKeyCostsALookNothing: with many due rows of one key behind one that
// waits, looks by due time, of heads and for orphans take as long as without.
func TestABlockedKeyCostsALookNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	other := outgoing(out.Number())
	other.Key = "other"
	publish(t, s, other)
	look := func() time.Duration {
		best := time.Hour
		for range 20 {
			begun := time.Now()
			due(t, out, outLane(100))
			due(t, in, inLane(100))
			for _, m := range []storage.Member{out, in} {
				q := outLane(100)
				h := storage.HeadQuery{Limit: 100}
				if m == in {
					q = inLane(100)
					h.Group, h.Subscriber = "g", "s"
				}
				_, err := m.TakeOver(t.Context(), q)
				must(t, err)
				_, err = m.Heads(t.Context(), h)
				must(t, err)
				h.Keys = []string{"blocked", "other"}
				_, err = m.Heads(t.Context(), h)
				must(t, err)
			}
			best = min(best, time.Since(begun))
		}
		return best
	}
	before := look()
	sqlDB, err := s.DB().DB()
	must(t, err)
	_, err = sqlDB.ExecContext(t.Context(), blocked, retained, out.Number(), in.Number())
	must(t, err)
	limit, after := 3*before+time.Millisecond, look()
	for i := 0; i < 20 && after > limit; i++ { // the machine has other work, too
		after = min(after, look())
	}
	t.Logf("eight looks take %v without, %v with %d rows of a key that is blocked", before, after, retained)
	if after > limit {
		t.Errorf("eight looks take %v with rows of a blocked key, %v without", after, before)
	}
	heads, err := out.Heads(t.Context(), storage.HeadQuery{Limit: 100})
	must(t, err)
	if len(heads) != 2 || heads[0].Key != "blocked" || heads[0].DueIn < time.Hour || heads[1].ID != other.ID {
		t.Errorf("heads: %+v", heads)
	}
}
