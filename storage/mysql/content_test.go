package mysql_test

import (
	"bytes"
	"database/sql"
	"strconv"
	"strings"
	"testing"
	"time"

	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// TestTextsOfEverySort in every place, in sessions of other character sets.
func TestTextsOfEverySort(t *testing.T) {
	t.Parallel()
	const text = "🎉 𠜎 שלום e\u0301 ' \" \\ \u0000 ?"
	for _, params := range []string{"charset=utf8mb4", "charset=latin1", "charset=latin1&interpolateParams=false", "sql_mode=%27NO_BACKSLASH_ESCAPES%27"} {
		s := open(t, dsn(t, newDatabase(t, ""), params))
		must(t, s.Migrate(t.Context()))
		m := join(t, s, storage.Inbox)
		rec := incoming(text + "\xff\x00")
		rec.Topic, rec.Group, rec.Subscriber = text, text, text
		rec.Headers, rec.Body = []byte(text+"\x00\xff\xc3"), []byte(text+"\x00\xff\xc3")
		_, err := m.Accept(t.Context(), rec)
		must(t, err)
		_, err = m.Settle(t.Context(), storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: 1, Error: text + "\xff"})
		must(t, err)
		got := due(t, m, storage.Query{Lanes: []storage.Lane{{Group: text, Subscriber: text, Limit: 5}}})
		if len(got) != 1 {
			t.Fatalf("%s: %d rows are due", params, len(got))
		}
		r := got[0]
		if r.Topic != text || r.Group != text || r.Subscriber != text || r.MessageID != rec.MessageID ||
			!bytes.Equal(r.Headers, rec.Headers) || !bytes.Equal(r.Body, rec.Body) || r.LastError != storage.CleanError(text+"\xff") {
			t.Errorf("%s: read %+v", params, *r)
		}
	}
}

// TestNamesThatDoNotFit are refused in a session that would cut them, too.
func TestNamesThatDoNotFit(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sql_mode=%27%27", "sql_mode=%27STRICT_ALL_TABLES%27"} {
		s := open(t, dsn(t, newDatabase(t, ""), mode))
		must(t, s.Migrate(t.Context()))
		m := join(t, s, storage.Inbox)
		long := incoming("1")
		long.Topic = strings.Repeat("x", 256)
		if _, err := m.Accept(t.Context(), long); err == nil {
			t.Errorf("%s: a topic of 256 bytes was stored", mode)
		}
		out := outgoing(0)
		out.Topic = long.Topic
		must(t, s.DB().Transaction(func(tx *gorm.DB) error {
			w, err := s.Bind(tx)
			must(t, err)
			if err := w.Append(t.Context(), out); err == nil {
				t.Errorf("%s: a topic of 256 bytes was published", mode)
			}
			return w.Append(t.Context(), outgoing(0)) // the transaction goes on
		}))
		if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 1 {
			t.Errorf("%s: %d messages were published", mode, n)
		}
	}
}

// packet makes the server take packets of the given size, for connections that
// are opened from now on.
func packet(t *testing.T, db *sql.DB, size int) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "SET GLOBAL max_allowed_packet = "+strconv.Itoa(size))
	must(t, err)
}

// TestLargeBodies has a server of its own, whose settings it changes.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	own := testenv.StartMariaDB(t).DSN
	db := adminOf(t, own)
	packet(t, db, 64<<20)
	for _, params := range []string{"interpolateParams=true", "interpolateParams=false"} {
		s := open(t, dsnOf(t, own, databaseOf(t, db, ""), params))
		must(t, s.Migrate(t.Context()))
		for _, size := range []int{0, 1 << 20, 20 << 20} {
			storesBody(t, s, bytes.Repeat([]byte{'\''}, size)) // each byte takes two in the text
		}
	}
	packet(t, db, 4<<20)
	database := databaseOf(t, db, "")
	must(t, open(t, dsnOf(t, own, database)).Migrate(t.Context()))
	for _, params := range []string{"maxAllowedPacket=0", "maxAllowedPacket=67108864", "interpolateParams=false"} {
		refusesBody(t, open(t, dsnOf(t, own, database, params))) // it has not been asked for anything yet
	}
}

func storesBody(t *testing.T, s *gormstore.Store, body []byte) {
	t.Helper()
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	sent, received := outgoing(out.Number()), incoming(strconv.Itoa(len(body)))
	sent.Body, received.Body = body, body
	publish(t, s, sent)
	_, err := in.Accept(t.Context(), received)
	must(t, err)
	for _, got := range [][]*storage.Record{due(t, out, outLane(1)), due(t, in, inLane(1))} {
		if len(got) != 1 || !bytes.Equal(got[0].Body, body) {
			t.Fatalf("a body of %d bytes was changed", len(body))
		}
	}
	for m, rec := range map[storage.Member]*storage.Record{out: sent, in: received} {
		_, err := m.Settle(t.Context(), storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Hour})
		must(t, err)
	}
}

// refusesBody: a message that the server would not take is refused before it is
// sent, and the transaction goes on.
func refusesBody(t *testing.T, s *gormstore.Store) {
	t.Helper()
	large, small := outgoing(0), outgoing(0)
	large.Body = bytes.Repeat([]byte{0}, 2<<20)
	must(t, s.DB().Transaction(func(tx *gorm.DB) error {
		w, err := s.Bind(tx)
		must(t, err)
		if err := w.Append(t.Context(), large); err == nil || !strings.Contains(err.Error(), "max_allowed_packet") {
			t.Errorf("append of a large body: %v", err)
		}
		return w.Append(t.Context(), small)
	}))
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	got, err := out.TakeOver(t.Context(), outLane(5))
	must(t, err)
	if len(got) != 1 || got[0].ID != small.ID {
		t.Errorf("%d messages were published, want the small one", len(got))
	}
	refused, good := incoming("large"), incoming("small")
	refused.Body = large.Body
	fresh, err := in.Accept(t.Context(), good, refused)
	must(t, err)
	if len(fresh) != 1 || fresh[0].ID != good.ID {
		t.Errorf("%d rows are fresh, want the small one", len(fresh))
	}
	for _, r := range due(t, in, inLane(5)) {
		if r.ID == refused.ID && (!r.Final || r.Status != storage.Failed || len(r.Body) > 0 || !strings.Contains(r.LastError, "max_allowed_packet")) {
			t.Errorf("a large row: final %t, %v, %d bytes, %q", r.Final, r.Status, len(r.Body), r.LastError)
		}
	}
	_, err = in.Settle(t.Context(), storage.Outcome{ID: good.ID, Kind: storage.Succeed, After: -1},
		storage.Outcome{ID: refused.ID, Kind: storage.CallbackDone})
	must(t, err)
	must(t, s.DB().Exec("DELETE FROM cap_received").Error)
}

// TestManyLongErrors are stored in as many statements as it takes.
func TestManyLongErrors(t *testing.T) {
	t.Parallel()
	db, err := gorm.Open(gormmysql.Open(dsn(t, newDatabase(t, ""))), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	t.Cleanup(func() { must(t, pool.Close()) })
	s := gormstore.New(db, gormstore.Config{})
	must(t, s.Migrate(t.Context()))
	m := join(t, s, storage.Inbox)
	var recs []*storage.Record
	var outcomes []storage.Outcome
	for i := range 1200 {
		rec := incoming(strconv.Itoa(i))
		recs = append(recs, rec)
		outcomes = append(outcomes, storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: 1, Error: strings.Repeat("é'", 2000)})
	}
	_, err = m.Accept(t.Context(), recs...)
	must(t, err)
	lost, err := m.Settle(t.Context(), outcomes...)
	must(t, err)
	if len(lost) > 0 {
		t.Errorf("%d rows were lost", len(lost))
	}
	if n := count(t, s, "SELECT count(*) FROM cap_received WHERE OCTET_LENGTH(last_error) > 4090"); n != len(recs) {
		t.Errorf("%d rows have their error", n)
	}
}
