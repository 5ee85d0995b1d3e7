package memqueue

import (
	"fmt"
	"slices"

	"github.com/capbus/gocap/transport"
)

// recorder remembers the newest messages.
type recorder struct {
	max  int
	msgs []*transport.Message
}

func (r *recorder) add(m *transport.Message) {
	if r.max <= 0 {
		return
	}
	if len(r.msgs) == 2*r.max {
		r.msgs = slices.Clone(r.newest())
	}
	r.msgs = append(r.msgs, m.Clone())
}

func (r *recorder) newest() []*transport.Message {
	return r.msgs[len(r.msgs)-min(len(r.msgs), r.max):]
}

// Record makes the queue remember the last n messages that reach it, and
// forgets those before; 0 turns it off, as it is at first. For tests.
func (q *Queue) Record(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.record = recorder{max: n}
}

// Sent returns the recorded messages in the order in which Send brought them,
// a repeated one each time; also those that were refused or unroutable, but
// none that met a disconnected queue.
func (q *Queue) Sent() []*transport.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	newest := q.record.newest()
	msgs := make([]*transport.Message, len(newest))
	for i, m := range newest {
		msgs[i] = m.Clone()
	}
	return msgs
}

// Inject brings a message as a foreign producer would, without any check: it
// may have no id and no headers. Each group that takes its topic gets a copy,
// which stays until it is acked or the group is forgotten; their number is
// returned. Nobody waits for it. For tests.
func (q *Queue) Inject(m *transport.Message) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	m = m.Clone()
	n := 0
	for _, g := range q.groups {
		if g.takes(m.Topic) {
			q.add(g, &item{msg: m, kept: true})
			n++
		}
	}
	return n
}

// InjectTo is as Inject, but puts the message straight into one group's queue,
// whatever its topic. An unknown group is an error.
func (q *Queue) InjectTo(group string, m *transport.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.groups[group]
	if g == nil {
		return fmt.Errorf("memqueue: no group %q", group)
	}
	q.add(g, &item{msg: m.Clone(), kept: true})
	return nil
}
