package sqlqueue_test

import (
	"errors"
	"testing"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/sqlqueue"
)

// TestTablesThatWereSetBack, as by a backup or by a standby that had not got the
// last commits: what a sender remembers of the groups before is not taken for what
// is so now, however often they have changed since.
func TestTablesThatWereSetBack(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sender := open(t, sqlqueue.Config{DSN: dsn})
	declare(t, sender, "g")
	send(t, sender, newMessage("1", "a.b"))
	run(t, dsn, `DROP TABLE cap_queue_deliveries, cap_queue_bindings, cap_queue_receivers, cap_queue_groups, cap_queue_messages, cap_queue_state`)
	other := open(t, sqlqueue.Config{DSN: dsn})
	must(t, other.Declare(t.Context(), transport.Source{Group: "h", Topics: []string{"b.#"}, Window: 1}))
	if err := sender.Send(t.Context(), messages("2", "a.b", 1))[0]; !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("nobody takes the topic, and Send says %v", err)
	}
	send(t, sender, newMessage("3", "b.c"))
}
