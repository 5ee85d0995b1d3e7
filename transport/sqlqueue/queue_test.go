package sqlqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/sqlqueue"
)

// TestALowerNumberThatCommitsLater is not skipped: it has its number before the
// other one, and is seen when that one has been delivered and acked.
func TestALowerNumberThatCommitsLater(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn})
	declare(t, tr, "g")
	run(t, dsn, `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.topic = 'a.slow' THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN NULL; END $$`,
		`CREATE TRIGGER hold AFTER INSERT ON cap_queue_messages FOR EACH ROW EXECUTE FUNCTION hold()`)
	lock, err := db(t, dsn).BeginTx(t.Context(), nil)
	must(t, err)
	_, err = lock.ExecContext(t.Context(), `SELECT pg_advisory_xact_lock(1)`)
	must(t, err)

	in := receive(t, tr, source("g", 10))
	slow := make(chan []error)
	go func() { slow <- tr.Send(t.Context(), messages("slow", "a.slow", 3)) }()
	eventually(t, "the slow statement waits", func() bool {
		var n int
		must(t, lock.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND
			database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n))
		return n == 1
	})
	for range 3 {
		send(t, tr, messages("quick", "a.quick", 3)...)
		in.ids(3)
	}
	must(t, lock.Rollback())
	for _, err := range <-slow {
		must(t, err)
	}
	if ids := in.ids(3); ids["slow0"]+ids["slow1"]+ids["slow2"] != 3 {
		t.Errorf("got %v", ids)
	}
}

// TestAForeignTransactionStopsNobody: one that writes, here or in another database
// of the server, and one with an old snapshot.
func TestAForeignTransactionStopsNobody(t *testing.T) {
	t.Parallel()
	dsn, other := newDatabase(t), newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn})
	declare(t, tr, "g", "h")
	for _, where := range []string{dsn, other} {
		tx, err := db(t, where).BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), `CREATE TABLE foreign_one (id int)`)
		must(t, err)
		defer tx.Rollback()
	}
	defer oldSnapshot(t, dsn)()
	g, h := receive(t, tr, source("g", 10)), receive(t, tr, source("h", 10))
	send(t, tr, messages("m", "a.b", 20)...)
	g.ids(20)
	h.ids(20)
	eventually(t, "the rows are gone", func() bool { return count(t, db(t, dsn), "cap_queue_messages") == 0 })
}

// TestAHandlerBlocksNobody: while a group has all that its window takes in hand,
// sends go on, and other groups receive.
func TestAHandlerBlocksNobody(t *testing.T) {
	t.Parallel()
	tr := open(t, sqlqueue.Config{DSN: newDatabase(t)})
	declare(t, tr, "busy", "other")
	inside, release := make(chan struct{}, 1), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- tr.Receive(ctx, source("busy", 5), func(context.Context, []transport.Delivery) {
			inside <- struct{}{}
			<-release
		})
	}()
	send(t, tr, messages("first", "a.b", 5)...)
	<-inside
	other := receive(t, tr, source("other", 100))
	for range 20 {
		send(t, tr, messages("m", "a.b", 50)...)
	}
	got := 0
	for got < 1005 {
		must(t, other.next().Ack())
		got++
	}
	stop()
	close(release)
	must(t, <-done)
}

// TestRowsGoWhenAllHaveThem: two groups ack the same messages at once.
func TestRowsGoWhenAllHaveThem(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn, MaxConns: 8})
	declare(t, tr, "g", "h", "i")
	const n = 3000
	send(t, tr, messages("m", "a.b", n)...)
	var all []*inbox
	for _, g := range []string{"g", "h", "i", "g", "h"} {
		all = append(all, receive(t, tr, source(g, 50)))
	}
	acked := make(chan struct{}, 3*n)
	for _, in := range all {
		go func() {
			for {
				select {
				case d := <-in.got:
					_ = d.Ack()
					acked <- struct{}{}
				case <-in.done:
					return
				}
			}
		}()
	}
	for range 3 * n {
		select {
		case <-acked:
		case <-time.After(wait):
			t.Fatal("not all came")
		}
	}
	d := db(t, dsn)
	eventually(t, "the rows are gone", func() bool {
		return count(t, d, "cap_queue_deliveries") == 0 && count(t, d, "cap_queue_messages") == 0
	})
	if n := len(acked); n > 0 {
		t.Errorf("%d came twice", n)
	}
}

// TestOneConnection is enough: nothing waits for a second one while it has one.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	tr := open(t, sqlqueue.Config{DSN: newDatabase(t), MaxConns: 1})
	declare(t, tr, "g", "h")
	var all []*inbox
	for _, g := range []string{"g", "g", "h"} {
		all = append(all, receive(t, tr, source(g, 7)))
	}
	inParallel(4, func(i int) { send(t, tr, messages(fmt.Sprint(i, "."), "a.b", 25)...) })
	all[2].ids(100)
	got := map[string]bool{}
	for len(got) < 100 {
		var d transport.Delivery
		select {
		case d = <-all[0].got:
		case d = <-all[1].got:
		case <-time.After(wait):
			t.Fatalf("%d of 100 came", len(got))
		}
		must(t, d.Ack())
		got[d.Message().ID] = true
	}
}

func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	bouncer := testenv.StartPgBouncer(t, dsn)
	tr := open(t, sqlqueue.Config{DSN: bouncer.DSN})
	declare(t, tr, "g", "h")
	g, h := receive(t, tr, source("g", 10)), receive(t, tr, source("h", 10))
	for range 5 {
		inParallel(3, func(i int) { send(t, tr, messages(fmt.Sprint(i, "."), "a.b", 10)...) })
		g.ids(30)
		h.ids(30)
	}
}

func TestWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	tr := open(t, sqlqueue.Config{DSN: newDatabase(t), MaxMessageBytes: 100})
	declare(t, tr, "g")
	bad := map[string]*transport.Message{
		"id":     newMessage("a\x00", "a.b"),
		"header": {ID: "1", Topic: "a.b", Headers: map[string]string{"k": "\xff"}},
		"key":    {ID: "1", Topic: "a.b", Headers: map[string]string{"\x00": ""}},
		"topic":  newMessage("1", "a.*"),
		"body":   {ID: "1", Topic: "a.b", Body: make([]byte, 101)},
	}
	for name, m := range bad {
		errs := tr.Send(t.Context(), []*transport.Message{newMessage("1", "a.b"), m, newMessage("2", "a.b")})
		if errs[0] != nil || errs[2] != nil {
			t.Errorf("%s: the messages beside it got %v and %v", name, errs[0], errs[2])
		}
		if !errors.Is(errs[1], transport.ErrRejected) || !errors.Is(errs[1], transport.ErrPermanent) {
			t.Errorf("%s: %v", name, errs[1])
		}
	}
	if err := tr.Receive(t.Context(), source("g", 0), nil); err == nil {
		t.Error("a window of 0 was not refused")
	}
	src := source("g", 1)
	src.Retry = &transport.BrokerRetry{}
	if err := tr.Declare(t.Context(), src); err == nil {
		t.Error("broker retry was not refused")
	}
}

// TestARowOfAnotherHand, with headers that cannot be read, stops nobody.
func TestARowOfAnotherHand(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn})
	declare(t, tr, "g")
	run(t, dsn, `WITH m AS (INSERT INTO cap_queue_messages (topic, message_id, headers, body, groups)
		SELECT 'a.b', 'foreign', 'no json', 'body', ARRAY[id] FROM cap_queue_groups RETURNING seq, groups)
		INSERT INTO cap_queue_deliveries (group_id, seq, size) SELECT groups[1], seq, 4 FROM m`)
	send(t, tr, newMessage("own", "a.b"))
	ids := receive(t, tr, source("g", 10)).ids(2)
	if ids["foreign"] != 1 || ids["own"] != 1 {
		t.Errorf("got %v", ids)
	}
}

// TestPublish is the Transport as a Publisher of Watermill.
func TestPublish(t *testing.T) {
	t.Parallel()
	tr := open(t, sqlqueue.Config{DSN: newDatabase(t)})
	declare(t, tr, "g")
	must(t, tr.Publish("a.b"))
	m := message.NewMessage("1", []byte("body"))
	m.Metadata.Set("k", "v")
	must(t, tr.Publish("a.b", m))
	d := receive(t, tr, source("g", 10)).next()
	if got := d.Message(); got.ID != "1" || got.Topic != "a.b" || string(got.Body) != "body" || got.Headers["k"] != "v" {
		t.Errorf("got %+v", got)
	}
	must(t, d.Ack())
	if err := tr.Publish("nobody", m); !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("nobody takes the topic, and Publish says %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.SetContext(ctx)
	if err := tr.Publish("a.b", m); !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("with a context that has ended: %v", err)
	}
}
