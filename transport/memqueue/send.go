package memqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/transport"
)

// sending is one call of Send; guarded by the Queue's mutex, but for done.
type sending struct {
	msgs []*sent
	left int           // messages without an answer
	done chan struct{} // closed when none is left
}

// sent is one message of a Send.
type sent struct {
	sending  *sending
	items    []*item // its copies, one a group
	open     int     // copies that are not acked
	answered bool
	err      error
	timer    *time.Timer // a late confirmation
}

// Send routes messages to their groups and waits until each group has acked
// its copy, at most Config.ConfirmTimeout. See the package comment for a group
// that has no receiver. A message that a group has not acked by then gets
// ErrBusy, which costs no attempt. The same id sent
// twice is two messages.
func (q *Queue) Send(ctx context.Context, msgs []*transport.Message) []error {
	wait, cancel := context.WithTimeoutCause(ctx, q.cfg.ConfirmTimeout, errNotConfirmed)
	defer cancel()

	s, faults := q.open(len(msgs))
	refused := faults.beforeRouting(wait, s, msgs)
	if wait.Err() == nil {
		q.route(s, msgs, refused)
	}
	select {
	case <-s.done:
	case <-wait.Done():
	}
	return q.close(s, unansweredError(ctx, wait))
}

func (q *Queue) open(n int) (*sending, Faults) {
	s := &sending{msgs: make([]*sent, n), left: n, done: make(chan struct{})}
	for i := range s.msgs {
		s.msgs[i] = &sent{sending: s}
	}
	if n == 0 {
		close(s.done)
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	q.sendings[s] = struct{}{}
	if q.down {
		s.answerAll(errDisconnected)
	}
	return s, q.faults
}

// route gives each group its copy of the messages that are not answered yet.
func (q *Queue) route(s *sending, msgs []*transport.Message, refused []error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range s.msgs {
		if m.answered {
			continue // disconnected meanwhile
		}
		q.record.add(msgs[i])
		err := refused[i]
		if err == nil {
			err = checkMessage(msgs[i])
		}
		if err != nil {
			m.answer(err)
			continue
		}
		q.fanOut(m, msgs[i])
	}
}

func (q *Queue) fanOut(m *sent, msg *transport.Message) {
	msg = msg.Clone()
	for _, g := range q.groups {
		if !g.takes(msg.Topic) {
			continue
		}
		it := &item{msg: msg, sent: m}
		m.items = append(m.items, it)
		m.open++
		q.add(g, it)
	}
	if m.open == 0 {
		m.answer(errUnroutable(msg.Topic))
	}
}

// unansweredError says what became of messages without an answer; nil when the
// Send ended because there are none.
func unansweredError(ctx, wait context.Context) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("memqueue: %w: %w", transport.ErrUnavailable, context.Cause(ctx))
	case wait.Err() != nil:
		return errNotConfirmed
	}
	return nil
}

// close ends a Send: what has no answer gets one, and its copies are withdrawn.
func (q *Queue) close(s *sending, unanswered error) []error {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.sendings, s)
	errs := make([]error, len(s.msgs))
	for i, m := range s.msgs {
		if !m.answered {
			m.answer(m.explain(unanswered))
		}
		errs[i] = m.err
	}
	return errs
}

// explain tells a time-out because a group has not acked from one because the
// confirmation is withheld.
func (m *sent) explain(err error) error {
	if !errors.Is(err, errNotConfirmed) {
		return err
	}
	for _, it := range m.items {
		if it.place != gone {
			return errBusy(it.group.name)
		}
	}
	return err
}

// answer settles a message once; copies that nobody has in hand are withdrawn.
func (m *sent) answer(err error) {
	if m.answered {
		return
	}
	m.answered, m.err = true, err
	if m.timer != nil {
		m.timer.Stop()
	}
	for _, it := range m.items {
		if it.place != inHand && !it.wanted() {
			it.detach()
		}
	}
	m.sending.left--
	if m.sending.left == 0 {
		close(m.sending.done)
	}
}

func (s *sending) answerAll(err error) {
	for _, m := range s.msgs {
		m.answer(err)
	}
}

// acked counts the ack of one copy.
func (q *Queue) acked(m *sent) {
	m.open--
	if m.open > 0 || m.answered || q.holds > 0 {
		return
	}
	if d := q.faults.ConfirmDelay; d > 0 {
		m.timer = time.AfterFunc(d, func() { q.confirm(m) })
		return
	}
	m.answer(nil)
}

func (q *Queue) confirm(m *sent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m.answer(nil)
}

func checkMessage(m *transport.Message) error {
	if err := transport.CheckTopic(m.Topic); err != nil {
		return errInvalid(err)
	}
	return nil
}
