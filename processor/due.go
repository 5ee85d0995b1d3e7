package processor

import "time"

// duePace is the least time between two looks for what has fallen due: a look for
// each of thousands that wait would take from the others what it costs.
const duePace = 20 * time.Millisecond

// takeDue returns when a row was expected to be due, and whether it is time. If
// so, or if everything is read anyway, it is forgotten: the look says what
// comes next.
func (n *NeedRetry) takeDue(fromStart bool) (was time.Time, timed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was = n.due
	now := time.Now()
	timed = !was.IsZero() && !now.Before(later(was, n.timed.Add(duePace)))
	if fromStart || timed {
		n.due = time.Time{}
	}
	if timed {
		n.timed = now
	}
	return was, timed
}
