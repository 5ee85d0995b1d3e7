package sqlqueue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/sqlqueue"
)

func TestTwentyStartersOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	var all []*sqlqueue.Transport
	for range 20 {
		all = append(all, open(t, sqlqueue.Config{DSN: dsn, MaxConns: 1}))
	}
	inParallel(len(all), func(i int) {
		if err := all[i].Declare(t.Context(), source("g", 1)); err != nil {
			t.Errorf("starter %d: %v", i, err)
		}
	})
	if n := count(t, db(t, dsn), "cap_queue_groups"); n != 1 {
		t.Errorf("there are %d groups", n)
	}
}

// TestARightlessUser works on tables that another has made, with the rights that
// SetupSQL names.
func TestARightlessUser(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	role := "gocap_" + newID()[20:]
	cfg := sqlqueue.Config{DSN: with(t, dsn, "", "options=-crole="+role), Schema: `My-"` + "queue"}
	if err := sqlqueue.New(cfg).Validate(); err == nil {
		t.Error("a schema with a quote was not refused")
	}
	cfg.Schema = "My-Queue"
	run(t, dsn, `CREATE ROLE `+role, `CREATE SCHEMA "My-Queue"`, `REVOKE ALL ON SCHEMA public FROM PUBLIC`)
	t.Cleanup(func() { run(t, dsn, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	if err := open(t, cfg).Check(t.Context()); err == nil || errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("without any right, Check says %v; somebody has to do something about that", err)
	}
	cfg.SkipSetup = true
	if err := open(t, cfg).Check(t.Context()); err == nil || errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("without tables, Check says %v; somebody has to do something about that", err)
	}
	run(t, dsn, sqlqueue.SetupSQL(cfg), sqlqueue.SetupSQL(cfg), `GRANT USAGE ON SCHEMA "My-Queue" TO `+role,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "My-Queue" TO `+role)
	for _, skip := range []bool{false, true} {
		cfg.SkipSetup = skip
		tr := open(t, cfg)
		in := receive(t, tr, source("g", 1))
		declare(t, tr, "g")
		send(t, tr, newMessage("1", "a.b"))
		in.ids(1)
		in.end()
	}
}

// TestTablesThatWereDropped come again, as an empty database does.
func TestTablesThatWereDropped(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn, Lease: time.Second})
	declare(t, tr, "g")
	in := receive(t, tr, source("g", 10))
	send(t, tr, newMessage("1", "a.b"))
	in.ids(1)
	for _, table := range []string{"deliveries", "bindings", "receivers", "groups", "messages", "state"} {
		run(t, dsn, `DROP TABLE IF EXISTS cap_queue_`+table+` CASCADE`)
	}
	if !strings.Contains(in.lost().Error(), "cap_queue") {
		t.Error("the error does not name the table")
	}
	eventually(t, "a message is sent", func() bool { return tr.Send(t.Context(), messages("2", "a.b", 1))[0] == nil })
	in.ids(1)
}

func TestVersionsAreApart(t *testing.T) {
	t.Parallel()
	v1 := open(t, sqlqueue.Config{DSN: newDatabase(t)})
	v2 := v1.ForVersion("v2")
	if v1.Traits().Destination == v2.Traits().Destination {
		t.Error("both versions have the same destination")
	}
	declare(t, v1, "g")
	if err := v2.Send(t.Context(), messages("x", "a.b", 1))[0]; !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("a message of v2 went to v1: %v", err)
	}
	one, two := receive(t, v1, source("g", 1)), receive(t, v2, source("g", 1))
	must(t, v2.(transport.Declarer).Declare(t.Context(), source("g", 1)))
	send(t, v1, newMessage("1", "a.b"))
	send(t, v2, newMessage("2", "a.b"))
	if ids := one.ids(1); ids["1"] != 1 {
		t.Errorf("v1 got %v", ids)
	}
	if ids := two.ids(1); ids["2"] != 1 {
		t.Errorf("v2 got %v", ids)
	}
}

func TestUnbindAndDrop(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn})
	declare(t, tr, "g", "h")
	must(t, tr.Unbind(t.Context(), "g", "a.#", "not.there"))
	send(t, tr, newMessage("1", "a.b"))
	d := db(t, dsn)
	if n := count(t, d, "cap_queue_deliveries"); n != 1 {
		t.Errorf("%d deliveries, only h takes the topic", n)
	}
	must(t, tr.DropGroup(t.Context(), "h"))
	must(t, tr.DropGroup(t.Context(), "h"))
	if err := tr.Send(t.Context(), messages("2", "a.b", 1))[0]; !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("nobody takes the topic, and Send says %v", err)
	}
}

// TestADroppedGroupComesAgain while its receiver runs.
func TestADroppedGroupComesAgain(t *testing.T) {
	t.Parallel()
	tr := open(t, sqlqueue.Config{DSN: newDatabase(t), Lease: time.Second})
	declare(t, tr, "g")
	in := receive(t, tr, source("g", 1))
	send(t, tr, newMessage("1", "a.b"))
	in.ids(1)
	must(t, tr.DropGroup(t.Context(), "g"))
	t.Log(in.lost())
	eventually(t, "a message is sent", func() bool { return tr.Send(t.Context(), messages("2", "a.b", 1))[0] == nil })
	in.ids(1)
}

// TestAnAddressThatTheServerRefuses is no fault of the messages, though the server
// calls it an invalid value, as it does with those of columns.
func TestAnAddressThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	wrong := with(t, dsn, "", "timezone=Mars")
	err := open(t, sqlqueue.Config{DSN: wrong}).Send(t.Context(), messages("1", "a.b", 1))[0]
	if !errors.Is(err, transport.ErrUnavailable) || errors.Is(err, transport.ErrRejected) {
		t.Errorf("Send says %v", err)
	}
}
