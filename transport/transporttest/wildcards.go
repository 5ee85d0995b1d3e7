package transporttest

import (
	"context"
	"fmt"
	"slices"

	"github.com/capbus/gocap/transport"
)

const whyMatch = "Match: in a pattern the word * stands for exactly one word and # for none or more. " +
	"Everything else is literal and compared as bytes. The meaning is the same on every transport."

func wildcardCases() []testCase {
	return []testCase{
		{
			name:  "wildcards",
			why:   whyMatch,
			needs: claimsWildcards,
			run:   func(e *env) { checkMatching(e, wildcardPatterns()) },
		},
		{
			name: "topics without wildcards are literal",
			why:  whyMatch,
			run: func(e *env) {
				topics := literalTopics()
				if e.tr.Traits().HoldsUp { // each group holds up all others
					topics = topics[len(topics)-4:]
				}
				checkMatching(e, topics)
			},
		},
		{
			name:  "a pattern means the same in every group",
			why:   whyMatch,
			needs: claimsWildcards,
			run: func(e *env) {
				a, b := e.receive("a", 10, "*.key"), e.receive("b", 10, "*.key")
				for range 3 {
					res := e.send(e.message("x.key", "0"), e.message("y.key", "1"))
					e.sameBodies(a.nextAcked(2), 2)
					e.sameBodies(b.nextAcked(2), 2)
					res.stored()
				}
			},
		},
	}
}

func wildcardPatterns() []string {
	return []string{
		"#", "*", "*.key", "a.#", "a.*", "a.*.c", "#.c", "*.*", "#.#", "#.*", "*.#", "a.#.c", "a.#.#.c",
		"a.*.#", "#.b.#", "*.*.*", ".*", "*.", "*..*", "a_b.*", "*.a-b", "grün.*", "*.日本", "1.*",
		"a+.*", "(a|b).*", "[a-c].*", "^a.*", "a$.*", "a*.*", "#a.*", `a\.*`, ".#", "#.",
	}
}

// literalTopics is sent to by both cases, so that every pattern meets every
// oddity.
func literalTopics() []string {
	return []string{
		"a", "b", "x.key", "a.key.key", "a.b", "a.c", "a.b.c", "a.b.b.c", "a.b.c.d", "abc", "A.B.C",
		".", "..", "a.", ".a", "a..c", ".a.", "a.b.", ".key",
		"a_b.c", "c.a-b", "a-b.c", "c.a_b", "1.2", "1", "grün.blau", "grün.日本", "日本",
		"a+c", "a+.c", "(a|b).c", "a(b", "[a-c].c", "^a.c", "a$.c", "a*", "a*.c", "#a.c", "a#", `a\.c`, "a c", "a?",
	}
}

// checkMatching gives each pattern a group and compares what arrives with Match.
// Each topic is sent twice: a cache may be wrong only the second time.
func checkMatching(e *env, patterns []string) {
	groups := make([]*receiver, len(patterns))
	for i, p := range patterns {
		groups[i] = e.receive(fmt.Sprintf("g%d", i), 100, p)
	}
	all := e.receive("all", 100, literalTopics()...) // so that every topic is taken
	var msgs []*transport.Message
	for range 2 {
		for _, topic := range literalTopics() {
			msgs = append(msgs, e.message(topic, ""))
		}
	}
	res := e.send(msgs...)
	ctx, cancel := context.WithTimeout(e.Context(), e.wait)
	defer cancel()
	e.compareWithMatch(ctx.Done(), all, literalTopics(), msgs)
	for i, p := range patterns {
		e.compareWithMatch(ctx.Done(), groups[i], []string{p}, msgs)
	}
	if !e.Failed() {
		res.stored()
	}
}

// compareWithMatch takes from the receiver what is due to the patterns, and
// then what has come beyond that.
func (e *env) compareWithMatch(overdue <-chan struct{}, r *receiver, patterns []string, msgs []*transport.Message) {
	e.Helper()
	missing := make(map[string]string) // topic by id
	for _, m := range msgs {
		if slices.ContainsFunc(patterns, func(p string) bool { return transport.Match(p, m.Topic) }) {
			missing[m.ID] = m.Topic
		}
	}
	due := len(missing)
	if due == len(msgs) {
		patterns = []string{"any of them"}
	}
	for n := 0; ; n++ {
		d := r.poll()
		if d == nil && n < due {
			d = r.nextUntil(overdue)
		}
		if d == nil && n >= due {
			r.sync()
			d = r.poll()
		}
		if d == nil {
			break
		}
		d.ack()
		if _, ok := missing[d.msg.ID]; !ok {
			e.Errorf("pattern %q: topic %q arrived, but should not, or came twice", patterns, d.msg.Topic)
		}
		delete(missing, d.msg.ID)
	}
	for _, topic := range missing {
		e.Errorf("pattern %q: topic %q did not arrive", patterns, topic)
	}
}
