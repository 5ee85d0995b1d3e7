package captest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
)

// drainTime is how long Drain waits, drainStep the longest time between two looks.
const (
	drainTime = time.Minute
	drainStep = 100 * time.Millisecond
)

// Drain returns when all that is due has been done: what was published is sent and
// handled, so is what the handlers have published, and so on. What is due later is
// left: a delayed message, a message whose next attempt has to wait, what waits
// behind that for its turn (cap.WithKey), one that nobody takes. In a testing/synctest bubble, sleep until it is due, and drain
// again.
//
// It ends the test, and says what is not done, when that takes longer than a
// minute, or when the bus does not run.
func Drain(tb testing.TB, bus *cap.Bus) {
	tb.Helper()
	deadline := time.Now().Add(drainTime)
	wait := time.Millisecond
	last := look(tb, bus)
	for {
		now := look(tb, bus)
		// Only two looks alike tell: between the outbox and the inbox, one look may
		// miss what goes round.
		if now.same(last) {
			return
		}
		if wait == drainStep && !bus.Health(context.WithoutCancel(tb.Context())).Running {
			tb.Fatalf("captest: the bus does not run, and this is due:%s", now)
		}
		if time.Now().After(deadline) {
			tb.Fatalf("captest: not done within %s:%s", drainTime, now)
		}
		last = now
		<-time.After(wait)
		wait = min(2*wait, drainStep)
	}
}

// sight is what a look has seen: what is due or in work, and the newest message
// of each box.
type sight struct {
	due    []*operator.Message
	newest [2]string
}

// look reads the outbox first: what is sent meanwhile is in the inbox then.
func look(tb testing.TB, bus *cap.Bus) sight {
	tb.Helper()
	var s sight
	for i, box := range []operator.Box{operator.Published, operator.Received} {
		s.newest[i] = newest(tb, bus, box)
		waits := map[string]bool{} // keys whose first message is due later
		for _, m := range list(tb, bus, operator.Filter{Box: box, States: []operator.State{
			operator.Scheduled, operator.Delayed, operator.Retrying, operator.Failed,
		}}, false) {
			// What is in work is due. A message that has failed for good is, while its
			// callback runs.
			due := !m.DueAt.IsZero() && !m.DueAt.After(time.Now())
			if m.Key != "" && m.State != operator.Failed {
				turn := fmt.Sprintf("%q %q %q %q", m.Version, m.Group, m.Subscriber, m.Key)
				waits[turn] = waits[turn] || !due
				due = !waits[turn]
			}
			if due {
				s.due = append(s.due, m)
			}
		}
	}
	return s
}

func newest(tb testing.TB, bus *cap.Bus, box operator.Box) string {
	tb.Helper()
	op, err := bus.Operator()
	if err != nil {
		tb.Fatalf("captest: %v", err)
	}
	l, err := op.List(context.WithoutCancel(tb.Context()), operator.Filter{Box: box}, operator.Page{Limit: 1})
	if err != nil {
		tb.Fatalf("captest: %v", err)
	}
	if len(l.Messages) == 0 {
		return ""
	}
	return l.Messages[0].ID
}

func (s sight) same(o sight) bool { return len(s.due) == 0 && len(o.due) == 0 && s.newest == o.newest }

func (s sight) String() string {
	var text strings.Builder
	for _, m := range s.due[:min(len(s.due), most)] {
		fmt.Fprintf(&text, "\n\t%s %s of topic %q", m.Box, m.ID, m.Topic)
		if m.Box == operator.Received.String() {
			fmt.Fprintf(&text, " for %q of group %q", m.Subscriber, m.Group)
		}
		fmt.Fprintf(&text, ": %s, %d attempts failed", m.State, m.Attempts)
		if m.LastError != "" {
			fmt.Fprintf(&text, ", the last one: %s", m.LastError)
		}
	}
	if n := len(s.due) - most; n > 0 {
		fmt.Fprintf(&text, "\n\tand %d more", n)
	}
	return text.String()
}
