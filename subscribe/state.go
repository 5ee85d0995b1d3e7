package subscribe

import (
	"slices"
	"time"

	"github.com/capbus/gocap/internal/rows"
)

// GroupState is how a group fares at the moment.
type GroupState struct {
	Name      string
	Receivers int       // that receive at the moment
	Paused    time.Time // since then; zero: it is not paused
	Failing   time.Time // nothing is received since then; zero: all is well
	LastError string    // of the transport, while Failing
	Run       Run       // the handler that has run for longest; zero: none runs
	Running   int       // handlers that run
}

// Run is a handler that runs.
type Run struct {
	Topic, Group, Subscriber, MessageID string
	Since                               time.Time
}

// settled is how long a receiver must have received nothing but silence until it
// counts as well again after an error: a broker that is away may be waited for,
// too.
const settled = 10 * time.Second

// receiving is how the receivers of a group fare. The group's mutex guards it.
type receiving struct {
	begun   map[*receiver]struct{} // those that are in Receive
	failing time.Time
	err     string
}

// receiver is a call of Receive.
type receiver struct{ since time.Time }

// States tells how the groups fare.
func (c *Consumer) States() []GroupState {
	now := time.Now()
	states := make([]GroupState, len(c.groups))
	for i, g := range c.groups {
		states[i] = g.state(now)
	}
	return states
}

func (g *group) state(now time.Time) GroupState {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recoverLocked(now)
	s := GroupState{
		Name: g.name, Receivers: len(g.receivers.begun), Running: len(g.runs),
		Paused: g.pause.since, Failing: g.receivers.failing, LastError: g.receivers.err,
	}
	for run := range g.runs {
		if s.Run.Since.IsZero() || run.Since.Before(s.Run.Since) {
			s.Run = *run
		}
	}
	return s
}

// recoverLocked forgets an error when a receiver has been at it for a while.
func (g *group) recoverLocked(now time.Time) {
	for r := range g.receivers.begun {
		if now.Sub(r.since) >= settled {
			g.receivers.failing, g.receivers.err = time.Time{}, ""
		}
	}
}

// receiverBegins notes a call of Receive; the function that it returns notes its
// end, with the error.
func (g *group) receiverBegins() (ends func(err error)) {
	r := &receiver{since: time.Now()}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.receivers.begun[r] = struct{}{}
	return func(err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.recoverLocked(time.Now())
		delete(g.receivers.begun, r)
		if err == nil {
			return
		}
		if g.receivers.failing.IsZero() {
			g.receivers.failing = time.Now()
		}
		g.receivers.err = err.Error()
	}
}

// received tells that the transport has delivered: it works.
func (g *group) received() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.receivers.failing, g.receivers.err = time.Time{}, ""
}

// beginRun notes a handler that is about to start; nil: the group is paused, and
// it must not.
func (g *group) beginRun(r *rows.Row) *Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.pause.since.IsZero() {
		return nil
	}
	run := &Run{Topic: r.Topic, Group: r.Group, Subscriber: r.Subscriber, MessageID: r.MessageID, Since: time.Now()}
	g.runs[run] = r.Tenure != nil
	return run
}

func (g *group) endRun(run *Run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.runs, run)
}

// busy reports whether a handler of a row runs.
func (c *Consumer) busy() bool { return slices.ContainsFunc(c.groups, (*group).busy) }

func (g *group) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, row := range g.runs {
		if row {
			return true
		}
	}
	return false
}
