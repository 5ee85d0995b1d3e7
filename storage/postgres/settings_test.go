package postgres_test

import (
	"bytes"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
)

// TestNoSettingOfTheSessionShiftsAMoment, or changes a byte: writer and reader
// have different ones.
func TestNoSettingOfTheSessionShiftsAMoment(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	must(t, open(t, dsn, quiet()).Migrate(t.Context()))
	sessions := []string{
		"timezone=Etc/GMT+12", "timezone=Pacific/Kiritimati", "timezone=America/St_Johns", "datestyle=SQL, DMY",
		"intervalstyle=sql_standard", "extra_float_digits=-15", "lc_messages=C",
		"default_transaction_isolation=serializable", "enable_indexscan=off", "xmlbinary=hex",
	}
	for _, session := range sessions {
		t.Run(session, func(t *testing.T) {
			t.Parallel()
			s := open(t, with(t, dsn, session), quiet())
			other := open(t, dsn, quiet())
			m := join(t, s, storage.Outbox)
			at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
			now, wait, moment := outgoing(m.Number()), outgoing(m.Number()), outgoing(m.Number())
			wait.Delay, moment.DueAt = time.Hour, at
			now.Body = []byte("\x00\x01\\ \\x27\xff'")
			publish(t, s, now, wait, moment)
			got, next, err := m.Due(t.Context(), outLane(5))
			must(t, err)
			if len(got) != 1 || next > time.Hour || next < time.Hour-time.Minute {
				t.Fatalf("%d rows, the next in %v", len(got), next)
			}
			if !bytes.Equal(got[0].Body, now.Body) || got[0].Age > time.Minute || time.Since(got[0].Position.DueAt).Abs() > time.Minute {
				t.Errorf("read: %+v", got[0])
			}
			off := count(t, other, `SELECT count(*) FROM cap_published WHERE id = ? AND due_at <> ?`, moment.ID.String(), at)
			if off != 0 {
				t.Errorf("a moment has been shifted")
			}
			// What a look says of a row is where the next one starts.
			q := outLane(5)
			q.Lanes[0].After = got[0].Position
			if got := due(t, m, q); len(got) != 0 {
				t.Errorf("the row is behind itself: %+v", got[0])
			}
		})
	}
}

// with adds a parameter to a DSN.
func with(t *testing.T, dsn, param string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	key, value, _ := strings.Cut(param, "=")
	q := u.Query()
	q.Set(key, value)
	// A space of a query is no plus in a DSN.
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String()
}

// TestTheDatabasesClockDecides: a process whose clock is an hour off sends a
// message that has a delay no sooner, and no later.
func TestTheDatabasesClockDecides(t *testing.T) {
	t.Parallel()
	s := newStore(t, quiet())
	m := join(t, s, storage.Outbox)
	r := outgoing(m.Number())
	r.Delay = time.Minute
	publish(t, s, r)
	var wait float64
	must(t, s.DB().Raw(`SELECT extract(epoch FROM due_at - clock_timestamp()) FROM cap_published`).Row().Scan(&wait))
	if wait > 60 || wait < 30 {
		t.Errorf("due in %v s", wait)
	}
}

// TestContentComesBackAsItWas.
func TestContentComesBackAsItWas(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*gormstore.Store{
		"opened": newStore(t, quiet()),
		"simple": newStore(t, quiet(), "default_query_exec_mode=simple_protocol"),
		"ordinary": func() *gormstore.Store {
			s := onPool(t, newDatabase(t), gormstore.Config{})
			must(t, s.Migrate(t.Context()))
			return s
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
			sent := outgoing(out.Number())
			sent.Topic = "заказ.🚚.𠮷"
			sent.Headers, sent.Body = []byte("{\"ключ 🔑\":\"\x00\xff\"}"), []byte("🚚\x00\xff\\u0000\\ud800")
			publish(t, s, sent)
			got := due(t, out, outLane(1))
			if len(got) != 1 || got[0].Topic != sent.Topic || !bytes.Equal(got[0].Headers, sent.Headers) || !bytes.Equal(got[0].Body, sent.Body) {
				t.Errorf("read %+v", got)
			}
			_, err := out.Settle(t.Context(), storage.Outcome{ID: sent.ID, Kind: storage.Retry, Attempt: 1, Error: "🚚\x00\xff " + strings.Repeat("€", 2000)})
			must(t, err)
			foreign(t, in)
		})
	}
}

// foreign accepts what a broker may deliver: any bytes in a topic, or a message
// id, however long. None holds up the others.
func foreign(t *testing.T, in storage.Member) {
	t.Helper()
	noise := make([]byte, 6000) // that no compression makes small
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = '0' + byte(x>>24)%72
	}
	var recs []*storage.Record
	for _, v := range []string{"", "🚚", "a\x00b", "a\xffb", "\xed\xa0\x80", "'; --", strings.Repeat("x", 300), string(noise)} {
		topic, id := incoming("topic "+v[:min(len(v), 9)]), incoming(v)
		topic.Topic = v
		recs = append(recs, topic, id)
	}
	fresh, err := in.Accept(t.Context(), recs...)
	must(t, err)
	if len(fresh) != len(recs) {
		t.Errorf("%d of %d are new", len(fresh), len(recs))
	}
	again, err := in.Accept(t.Context(), recs...)
	must(t, err)
	if len(again) != 0 {
		t.Errorf("%d are new again", len(again))
	}
	got := due(t, in, inLane(100))
	if len(got) != len(recs) {
		t.Errorf("%d of %d are due", len(got), len(recs))
	}
}

// TestBodiesOfEverySize come back as they were.
func TestBodiesOfEverySize(t *testing.T) {
	t.Parallel()
	s := newStore(t, quiet())
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	for _, size := range []int{0, 1, 1 << 20, 20 << 20} {
		a, b := outgoing(out.Number()), incoming(strings.Repeat("i", size%7))
		a.Body = bytes.Repeat([]byte{0xfe, 0x00, 0x5c}, size/3+1)[:size]
		b.Body = a.Body
		publish(t, s, a)
		_, err := in.Accept(t.Context(), b)
		must(t, err)
		for box, got := range map[storage.Member][]*storage.Record{out: due(t, out, outLane(1)), in: due(t, in, inLane(1))} {
			if len(got) != 1 || !bytes.Equal(got[0].Body, a.Body) {
				t.Fatalf("%d B: %d rows", size, len(got))
			}
			_, err := box.Settle(t.Context(), storage.Outcome{ID: got[0].ID, Kind: storage.Succeed, After: -1})
			must(t, err)
		}
	}
}

// TestOtherEncodingsAreRefused: not every text would fit into the database, or
// come out of it as it went in.
func TestOtherEncodingsAreRefused(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s := open(t, with(t, dsn, "client_encoding=LATIN1"), quiet())
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("of the client: %v", err)
	}
	c, err := pgx.ParseConfig(dsn)
	must(t, err)
	onServer(t, serverDSN(), `DROP DATABASE `+c.Database+` WITH (FORCE)`, `CREATE DATABASE `+c.Database+` TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'`)
	s = open(t, dsn, quiet())
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("of the database: %v", err)
	}
}

// TestBytesAsEscapesAreRefused where answers come as text, and are well where
// they do not.
func TestBytesAsEscapesAreRefused(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	c, err := pgx.ParseConfig(dsn)
	must(t, err)
	onServer(t, dsn, `ALTER DATABASE `+c.Database+` SET bytea_output = 'escape'`)
	s := open(t, dsn, quiet())
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "bytea_output") {
		t.Error(err)
	}
	for _, s := range []*gormstore.Store{open(t, with(t, dsn, "bytea_output=hex"), quiet()), onPool(t, dsn, gormstore.Config{})} {
		must(t, s.Migrate(t.Context()))
		everything(t, s)
		run(t, s, `TRUNCATE cap_published, cap_received`)
	}
}

// TestNoPasswordIsTold, whatever is wrong with the DSN or the server.
func TestNoPasswordIsTold(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://u:geheim@127.0.0.1:1/x", "host=127.0.0.1 port=1 password=geheim", "postgres://u:geheim@[::1/x",
		"postgres://u:geheim@127.0.0.1:5432/nowhere?sslmode=maybe", "password=geheim sslmode=maybe", "postgres://u:geh%zzeim@h/x",
	} {
		s, err := postgres.Open(dsn, quiet())
		if err == nil {
			err = s.Check(t.Context())
			must(t, s.Close())
		}
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v", err)
		}
	}
}

// TestOneConnectionIsEnough: nothing of the store takes a second one.
func TestOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		cfg := quiet()
		cfg.MaxConns, cfg.GORM.PrepareStmt = 1, prepare
		s := newStore(t, cfg)
		if n := s.MaxTx(); n != 1 {
			t.Errorf("%d transactions at once", n)
		}
		everything(t, s)
		for _, op := range operations(t, s) {
			if err := op.run(t.Context()); err != nil {
				t.Errorf("%s: %v", op.name, err)
			}
		}
	}
}
