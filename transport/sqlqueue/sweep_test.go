package sqlqueue_test

import (
	"bytes"
	"log/slog"
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
