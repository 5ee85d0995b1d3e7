// Package memqueue is a broker within the process: for services that talk to
// themselves, and for tests.
//
// Several buses of one process may share a [Queue]. It keeps messages in memory
// only, and yet nothing is lost when the process dies, because Send does not
// report a message as stored before every group that takes it has acked it,
// which is when its inbox row is committed. Until then the outbox row of the
// sender stays due.
//
// # Groups
//
// A group is there from its first Receive or Declare until Config.Linger after
// its last receiver has left; its patterns are all those that its receivers
// asked for meanwhile. What that means for a Send:
//
//   - No group takes the topic: ErrUnroutable. A group that is only there later
//     gets the message when it is sent again.
//   - The last receiver of a group leaves: the Sends that wait for this group
//     get ErrUnavailable at once and its copies are dropped, so that stopping a
//     bus never waits for acks that cannot come.
//   - A Send that begins while a group lingers waits for a receiver to come
//     back. When none does, the group is forgotten and the Send gets
//     ErrUnavailable; sent again, the message goes to the groups that are left.
//   - A group does not ack within Config.ConfirmTimeout, such as one with a
//     backlog in front of slow handlers: ErrBusy, so the message waits
//     in its outbox and no attempt is counted.
//   - A group with an ordered Source delivers to the receiver that came first,
//     until that one has left.
//   - A message published while a group is not there is not for that group. A
//     process of several buses that must not miss one calls Declare for all
//     groups first and chooses Linger to cover its start.
//
// # Memory
//
// There is no bound on the length of a queue, because none is needed: a copy
// is kept only as long as its Send waits (or a receiver has it in hand), and
// what may be in flight is bounded by who sends. Only Inject and Disconnect,
// which are for tests, leave copies behind that nobody waits for.
package memqueue

import (
	"context"
	"sync"

	"github.com/capbus/gocap/transport"
)

// Queue is a broker in memory. All methods may be called concurrently. It owns
// no goroutine, so there is nothing to close.
type Queue struct {
	cfg Config

	mu       sync.Mutex
	groups   map[string]*group
	sendings map[*sending]struct{}
	seq      uint64 // of the newest item
	down     bool
	holds    int // HoldConfirms that are not released
	faults   Faults
	record   recorder
}

var (
	_ transport.Transport = (*Queue)(nil)
	_ transport.Declarer  = (*Queue)(nil)
)

// New returns an empty queue. It does not check the configuration; see
// Validate.
func New(cfg Config) *Queue {
	return &Queue{
		cfg:      cfg.withDefaults(),
		groups:   make(map[string]*group),
		sendings: make(map[*sending]struct{}),
	}
}

// Validate returns what is wrong with the configuration, or nil.
func (q *Queue) Validate() error { return q.cfg.validate() }

// Check returns nil, or ErrUnavailable between Disconnect and Reconnect.
func (q *Queue) Check(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down {
		return errDisconnected
	}
	return nil
}

// Traits returns those of every Queue. Its destination is the same in every
// process: a process that starts again after a crash is no stranger to the
// heartbeat it left behind.
func (q *Queue) Traits() transport.Traits {
	return transport.Traits{
		Name:         "memqueue",
		Destination:  "this process",
		Ordered:      true,
		SingleActive: true,
		Routing:      true,
		Wildcards:    true,
	}
}
