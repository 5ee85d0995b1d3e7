package transporttest

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHealthyBrokerPasses(t *testing.T) {
	t.Parallel()
	Suite{
		Open: func(*testing.T) transport.Transport { return newBroker(wrong{}) },
		Cut:  func(_ *testing.T, tr transport.Transport) { tr.(*broker).cut() },
	}.Run(t)
}

func TestCasesHaveNamesAndReasons(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, c := range cases() {
		if c.name == "" || c.why == "" || seen[c.name] {
			t.Errorf("case %q: no name, no reason, or twice", c.name)
		}
		seen[c.name] = true
	}
}

// TestLimitsLeaveOutCases: a transport is not asked for what its traits say that it
// cannot do, and for nothing less.
func TestLimitsLeaveOutCases(t *testing.T) {
	t.Parallel()
	needs := claims(claimsQueue, claimsInFlight(3))
	for _, test := range []struct {
		traits transport.Traits
		asked  bool
	}{
		{transport.Traits{}, true},
		{transport.Traits{InFlight: 3}, true},
		{transport.Traits{InFlight: 2}, false},
		{transport.Traits{NoQueue: true}, false},
		{transport.Traits{HoldsUp: true}, true},
	} {
		if asked := needs(withTraits{newBroker(wrong{}), test.traits}); asked != test.asked {
			t.Errorf("%+v: asked %t, want %t", test.traits, asked, test.asked)
		}
	}
}

type withTraits struct {
	transport.Transport

	traits transport.Traits
}

func (w withTraits) Traits() transport.Traits { return w.traits }

// TestBrokenTransportsAreRejected breaks one thing at a time: the case that is
// there for it must see it, and say so.
func TestBrokenTransportsAreRejected(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		broken, rejectedBy, saying string
		wrong                      wrong
	}{
		{"sick", "check finds a healthy broker", "check:", wrong{sick: true}},
		{"results in one", "each message of a batch has its own outcome", "want", wrong{result: worst}},
		{"a result missing", "what is sent arrives", "returned 24 errors", wrong{result: cut}},
		{"unroutable is stored", "a topic that nobody takes is unroutable", "want no queue takes", wrong{unroutable: true}},
		{"send ignores its context", "a send ends with its context", "ErrUnavailable was due", wrong{sendIgnores: true}},
		{"all groups compete", "every group gets its copy", "no delivery|gets no messages", wrong{oneQueue: true}},
		{"a copy for each pattern", "patterns that overlap give one copy", "arrived", wrong{perPattern: true}},
		{"shared messages", "nobody shares a message", "was", wrong{shared: true}},
		{"no window", "the window bounds what is unanswered", "the window is 3", wrong{noWindow: true}},
		{"nacked is dropped", "a nack without a wait delivers again", "no delivery", wrong{nackDrops: true}},
		{"nacked comes at once", "a nack delivers again after the wait", "it came again after", wrong{nackAtOnce: true}},
		{"a lost receiver's are dropped", "the next receiver gets what the last one had in hand", "no delivery", wrong{lostDrops: true}},
		{"a lost receiver's are dropped", "another consumer gets what a lost one had in hand", "no delivery", wrong{lostDrops: true}},
		{"acked comes again", "what was acked does not come again", "also got message", wrong{ackAgain: true}},
		{"a late ack is ignored", "what is answered while receive ends counts", "came again", wrong{lateAck: true}},
		{"two acks are an error", "the first answer counts", "unknown delivery", wrong{twoAcks: true}},
		{"newest first", "order is kept", "in place", wrong{backwards: true}},
		{"receive hangs", "receive ends with its context", "did not return", wrong{receiveHangs: true}},
		{"receive fails at its end", "receive ends with its context", "nil was due", wrong{receiveFails: true}},
		{"declare does nothing", "a declared group misses nothing", "no delivery", wrong{noDeclare: true}},
		{"an ordered source is as any other", "an ordered group delivers to one receiver", "no delivery|in place|second receiver", wrong{notSingle: true}},
		{"what was lost comes last", "the next receiver goes on in order", "in place", wrong{lostAtEnd: true}},
		{"wildcards as a regular expression", "wildcards", "pattern", wrong{matching: matchRegexp()}},
		{"# is one word or more", "wildcards", "did not arrive", wrong{matching: matchSomeWords}},
		{"topics without case", "topics without wildcards are literal", "should not", wrong{matching: matchFold}},
		{"no empty headers", "headers arrive as they were", `header "empty"`, wrong{change: dropEmptyHeaders}},
		{"header names in lower case", "headers arrive as they were", `header "Mixed-Case"`, wrong{change: lowerHeaders}},
		{"body trimmed", "bodies arrive as they were", "body has", wrong{change: trimBody}},
		{"body cut", "large bodies", "body has", wrong{change: cutBody}},
		{"topic trimmed", "odd topics", "topic is", wrong{change: trimTopic}},
		{"a cut drops what is in hand", "what was in hand at a cut comes again", "no delivery", wrong{cutDrops: true}},
		{"a cut is for good", "sending and receiving go on after a cut", "no delivery", wrong{cutDeaf: true}},
		{"late answers count for others", "an answer from before a cut harms nothing", "no delivery", wrong{cutMixes: true}},
		{"failed comes at once", "a failed attempt comes again after the wait, to its group alone", "it came again after", wrong{failAtOnce: true}},
		{"failed comes to all groups", "a failed attempt comes again after the wait, to its group alone", "also got message", wrong{failToAll: true}},
		{"nothing is parked", "after the last attempt a message is parked", "want true", wrong{failForever: true}},
		{"what is parked comes again", "a message can be parked at its first attempt", "also got message", wrong{parkTries: true}},
		{"a nack is an attempt", "a nack is no attempt", "attempt 2, want 1", wrong{nackCounts: true}},
		{"no id", "the same id may be sent twice", "not", wrong{change: newIDs}},
	} {
		t.Run(test.broken, func(t *testing.T) {
			t.Parallel()
			s := watch(t, test.rejectedBy, test.wrong)
			got := strings.Join(s.failures, "\n")
			if !slices.ContainsFunc(strings.Split(test.saying, "|"), func(s string) bool { return strings.Contains(got, s) }) {
				t.Errorf("the case %q should say %q; it said %q", test.rejectedBy, test.saying, got)
			}
		})
	}
}

func worst(errs []error) []error {
	err := errors.Join(errs...)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func cut(errs []error) []error {
	if len(errs) > 1 {
		return errs[1:]
	}
	return errs
}

// matchRegexp makes an expression of a pattern, and forgets to quote it.
func matchRegexp() func(pattern, topic string) bool {
	compiled := make(map[string]*regexp.Regexp)
	words := strings.NewReplacer("*", "[0-9a-zA-Z]+", "#", "[0-9a-zA-Z.]+")
	return func(pattern, topic string) bool {
		re, ok := compiled[pattern]
		if !ok {
			re, _ = regexp.Compile("^" + words.Replace(pattern) + "$")
			compiled[pattern] = re
		}
		return re != nil && re.MatchString(topic) || pattern == topic
	}
}

func matchSomeWords(pattern, topic string) bool {
	return transport.Match(strings.ReplaceAll(pattern, "#", "*.#"), topic)
}

func matchFold(pattern, topic string) bool {
	return transport.Match(strings.ToLower(pattern), strings.ToLower(topic))
}

func dropEmptyHeaders(m *transport.Message) {
	for k, v := range m.Headers {
		if v == "" {
			delete(m.Headers, k)
		}
	}
}

func lowerHeaders(m *transport.Message) {
	for k, v := range m.Headers {
		delete(m.Headers, k)
		m.Headers[strings.ToLower(k)] = v
	}
}

func trimBody(m *transport.Message) { m.Body = []byte(strings.TrimSpace(string(m.Body))) }

func cutBody(m *transport.Message) { m.Body = m.Body[:min(len(m.Body), 1<<17)] }

func trimTopic(m *transport.Message) { m.Topic = strings.TrimSpace(m.Topic) }

func newIDs(m *transport.Message) {
	if !strings.HasPrefix(m.Topic, probePrefix) {
		m.ID = newID()
	}
}
