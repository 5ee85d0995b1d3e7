package memqueue

import (
	"context"
	"sync"
	"time"

	"github.com/capbus/gocap/transport"
)

// Faults make a Queue misbehave, for tests. The zero value is a healthy broker.
type Faults struct {
	// Refuse is asked for every message of a Send; what it returns is the
	// message's result, and nil lets it through. It may wait; it must not
	// change the message.
	Refuse func(m *transport.Message) error
	// SendDelay passes before the messages of a Send reach their groups.
	SendDelay time.Duration
	// ConfirmDelay passes between the last ack of a message and its
	// confirmation. A Send that ends meanwhile does not know the outcome.
	ConfirmDelay time.Duration
}

// SetFaults replaces the faults of all Sends that begin from now on.
func (q *Queue) SetFaults(f Faults) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.faults = f
}

// beforeRouting applies the faults that come before the groups see anything,
// and returns one error a message.
func (f Faults) beforeRouting(ctx context.Context, s *sending, msgs []*transport.Message) []error {
	refused := make([]error, len(msgs))
	if f.SendDelay > 0 {
		t := time.NewTimer(f.SendDelay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.done:
		case <-ctx.Done():
		}
	}
	if f.Refuse != nil {
		for i, m := range msgs {
			refused[i] = f.Refuse(m)
		}
	}
	return refused
}

// HoldConfirms withholds the confirmation of every message that is acked from
// now on, until release is called: the messages are delivered and stored, but
// their senders do not learn it.
func (q *Queue) HoldConfirms() (release func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holds++
	return sync.OnceFunc(q.releaseConfirms)
}

func (q *Queue) releaseConfirms() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holds--
	if q.holds > 0 {
		return
	}
	for s := range q.sendings {
		for _, m := range s.msgs {
			if len(m.items) > 0 && m.open == 0 {
				m.answer(nil)
			}
		}
	}
}

// Disconnect cuts everyone off, until Reconnect. Sends end with ErrUnavailable
// for what is unanswered; Receives return it; an Ack or Nack fails. Groups and
// the copies in them are kept as by a real broker, so what a sender does not
// know may be delivered all the same, and what was in hand is delivered again.
func (q *Queue) Disconnect() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down {
		return
	}
	q.down = true
	for s := range q.sendings {
		for _, m := range s.msgs {
			m.keep()
		}
		s.answerAll(errDisconnected)
	}
	for _, g := range q.groups {
		g.stopLinger()
		for r := range g.receivers {
			delete(g.receivers, r)
			r.group = nil
			r.giveBack()
			r.lose(errDisconnected)
		}
	}
}

// keep makes the copies of an unanswered message outlive its Send.
func (m *sent) keep() {
	if m.answered {
		return
	}
	for _, it := range m.items {
		it.kept = true
	}
}

// Reconnect ends what Disconnect began. Receivers come back when their owners
// call Receive again, however long that takes: the groups that were there at
// Disconnect do not end before they have had a receiver.
func (q *Queue) Reconnect() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.down = false
}
