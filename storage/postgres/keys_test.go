package postgres_test

import (
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
)

// blocked fills both tables with due rows of one key, whose first one waits, and
// with the first rows of many other keys.
const blocked = `INSERT INTO cap_published
  (id, version, name, ordering_key, status, due_at, owner, added_at, updated_at, headers, body)
  SELECT gen_random_uuid(), 'v1', 'old', 'blocked', 0, CASE WHEN i = 1 THEN now() + interval '1 day' ELSE now() END, ?::bigint, now(), now(), '', ''
  FROM generate_series(1, 20000) AS i`

const blockedRows = 20_000

const blockedInbox = `INSERT INTO cap_received (id, version, group_name, subscriber, name, message_id, ordering_key, status, due_at, owner,
  added_at, updated_at, headers, body)
  SELECT id, version, 'g', 's', name, uuid_send(id), ordering_key, status, due_at, ?::bigint, now(), now(), '', ''
  FROM cap_published ORDER BY seq`

// TestABlockedKeyCostsALookNothing: with many due rows of one key behind one that
// waits, no look reads them, before and after an ANALYZE. What looks have read is
// counted by the server; clocks tell little on a busy machine.
func TestABlockedKeyCostsALookNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t, postgres.Config{})
	db := s.DB().WithContext(t.Context())
	join := func(s *gormstore.Store, b storage.Box) storage.Member {
		m, err := s.Join(t.Context(), storage.Instance{Box: b, Version: "v1", Lease: time.Hour})
		must(t, err)
		return m
	}
	owner, inOwner := join(s, storage.Outbox), join(s, storage.Inbox)
	must(t, db.Exec(blocked, owner.Number()).Error)
	must(t, db.Exec(blockedInbox, inOwner.Number()).Error)
	for range 200 { // the server counts late, here the copying
		if _, read := rowsRead(t, s); read >= blockedRows {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			must(t, db.Exec("ANALYZE").Error)
		}
		scans, read := rowsRead(t, s)
		looks := looksOf(t, owner, inOwner)
		var now, nowRead int
		for range 200 {
			if now, nowRead = rowsRead(t, s); now >= scans+looks {
				break
			}
			<-time.After(50 * time.Millisecond)
		}
		if now < scans+looks {
			t.Fatalf("the server has counted %d scans of %d", now-scans, looks)
		}
		if n := nowRead - read; n > 100*looks {
			t.Errorf("%d looks have read %d rows with %d of a blocked key (analyzed: %t)", looks, n, blockedRows, analyzed)
		}
	}
}

// rowsRead returns how many scans there were of both tables, and what they read.
func rowsRead(t *testing.T, s *gormstore.Store) (scans, read int) {
	t.Helper()
	row := s.DB().WithContext(t.Context()).Raw(`SELECT
		(SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes WHERE relname IN ('cap_published', 'cap_received')),
		(SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname IN ('cap_published', 'cap_received')) +
		(SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE relname IN ('cap_published', 'cap_received'))`).Row()
	must(t, row.Scan(&scans, &read))
	return scans, read
}

// looksOf looks in every way, and returns how often.
func looksOf(t *testing.T, members ...storage.Member) (looks int) {
	t.Helper()
	for range 5 {
		for i, m := range members {
			q, h := storage.Query{Lanes: []storage.Lane{{Limit: 100}}}, storage.HeadQuery{Limit: 100}
			if i == 1 {
				q.Lanes[0].Group, q.Lanes[0].Subscriber, h.Group, h.Subscriber = "g", "s", "g", "s"
			}
			_, _, err := m.Due(t.Context(), q)
			must(t, err)
			_, err = m.TakeOver(t.Context(), q)
			must(t, err)
			heads, err := m.Heads(t.Context(), h)
			must(t, err)
			if len(heads) != 1 || heads[0].Key != "blocked" || heads[0].DueIn < time.Hour {
				t.Errorf("heads: %+v", heads)
			}
			h.Keys = []string{"blocked", "other"}
			_, err = m.Heads(t.Context(), h)
			must(t, err)
			looks += 4
		}
	}
	return looks
}
