package sqlqueue_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/transport/sqlqueue"
)

// TestOldMessagesAreDeleted: a group that nobody serves keeps no message for longer
// than MaxAge, and the log says so.
func TestOldMessagesAreDeleted(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	var log safeBuffer
	tr := open(t, sqlqueue.Config{DSN: dsn, MaxAge: time.Second, Lease: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	declare(t, tr, "served", "deserted")
	in := receive(t, tr, source("served", 100))
	send(t, tr, messages("m", "a.b", 50)...)
	in.ids(50)
	d := db(t, dsn)
	if n := count(t, d, "cap_queue_deliveries"); n == 0 {
		t.Error("the messages of the other group are gone too early")
	}
	eventually(t, "the rows are gone", func() bool {
		return count(t, d, "cap_queue_deliveries") == 0 && count(t, d, "cap_queue_messages") == 0
	})
	if said := log.String(); !strings.Contains(said, "MaxAge") || !strings.Contains(said, "count=") {
		t.Errorf("the log says %q", said)
	}
}

// TestLeftoversAreDeleted, of a group that was dropped, and of a receiver that was
// killed between its two looks, long before they are too old.
func TestLeftoversAreDeleted(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn, MaxAge: 40 * time.Second, Lease: time.Second})
	declare(t, tr, "g", "dropped", "kept")
	send(t, tr, messages("m", "a.b", 2500)...)
	d := db(t, dsn)
	run(t, dsn, `DELETE FROM cap_queue_deliveries WHERE seq <= 2000`) // as killed ones would leave them
	must(t, tr.DropGroup(t.Context(), "dropped"))
	in := receive(t, tr, source("g", 100))
	in.ids(500)
	eventually(t, "only what the last group has to get is there", func() bool {
		return count(t, d, "cap_queue_deliveries") == 1000 && count(t, d, "cap_queue_messages") == 500
	})
	kept := receive(t, tr, source("kept", 100))
	kept.ids(500)
	eventually(t, "the rows are gone", func() bool {
		return count(t, d, "cap_queue_deliveries") == 0 && count(t, d, "cap_queue_messages") == 0
	})
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestASweepThatIsHeldUp, here by a foreign transaction, costs no receiver its lease.
func TestASweepThatIsHeldUp(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn, MaxAge: time.Second, Lease: time.Second})
	declare(t, tr, "served", "deserted")
	send(t, tr, newMessage("1", "a.b"))
	d := db(t, dsn)
	tx, err := d.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), `SELECT FROM cap_queue_deliveries WHERE group_id = 2 FOR UPDATE`)
	must(t, err)
	in := receive(t, tr, source("served", 1))
	in.ids(1)
	eventually(t, "a sweep waits for the transaction", func() bool {
		var n int
		must(t, d.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND state_change < clock_timestamp() - interval '2 s'`).Scan(&n))
		return n > 0
	})
	send(t, tr, newMessage("2", "a.b"))
	in.ids(1)
	select {
	case err := <-in.errs:
		t.Errorf("the receiver was lost: %v", err)
	default:
	}
	must(t, tx.Rollback())
	eventually(t, "the rows are gone", func() bool { return count(t, d, "cap_queue_messages") == 0 })
}

// TestManyOldMessages are deleted by one sweep, so that they are bounded by MaxAge
// however fast they come.
func TestManyOldMessages(t *testing.T) {
	t.Parallel()
	const n = 25_000
	dsn := newDatabase(t)
	var log safeBuffer
	tr := open(t, sqlqueue.Config{DSN: dsn, MaxAge: 8 * time.Second, Lease: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	declare(t, tr, "deserted", "served")
	run(t, dsn, `INSERT INTO cap_queue_messages (topic, message_id, headers, body, groups, added_at)
		SELECT 'a.b', n::text, '', '', '{1}', clock_timestamp() - interval '1 hour' FROM generate_series(1, `+strconv.Itoa(n)+`) AS n`,
		`INSERT INTO cap_queue_deliveries (group_id, seq, size) SELECT 1, seq, 0 FROM cap_queue_messages`)
	receive(t, tr, source("served", 1))
	eventually(t, "the log says how many are deleted", func() bool { return strings.Contains(log.String(), "count=") })
	if said := log.String(); !strings.Contains(said, "count=25000") {
		t.Errorf("the log says %q", said)
	}
}
