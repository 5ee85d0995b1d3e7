package captest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/transport"
)

// RequirePublished returns the one message that was published to the topic, and
// ends the test if there is none, or more than one. What a transaction that has
// not committed has published does not count; what waits for its time
// (cap.WithDelay) does. The topic is the whole one, Options.TopicNamePrefix
// included. The body is decoded as JSON; T = *cap.Message is the message itself,
// with its headers, for bodies of another codec.
//
// It does not wait: what a handler publishes is there after Drain.
func RequirePublished[T any](tb testing.TB, bus *cap.Bus, topic string) T {
	tb.Helper()
	rows := published(tb, bus, topic)
	switch len(rows) {
	case 1:
		return decode[T](tb, rows[0])
	case 0:
		tb.Fatalf("captest: nothing was published to %q; %s", topic, instead(tb, bus))
	}
	tb.Fatalf("captest: %d messages were published to %q, and one is required (captest.Published returns all):%s", len(rows), topic, quote(rows))
	panic("unreachable")
}

// Published is as RequirePublished, but returns all messages of the topic in the
// order in which they were published; none is well, too.
func Published[T any](tb testing.TB, bus *cap.Bus, topic string) []T {
	tb.Helper()
	var values []T
	for _, r := range published(tb, bus, topic) {
		values = append(values, decode[T](tb, r))
	}
	return values
}

func published(tb testing.TB, bus *cap.Bus, topic string) []*operator.Message {
	tb.Helper()
	return list(tb, bus, operator.Filter{Box: operator.Published, Topic: topic}, true)
}

// list reads all messages that match.
func list(tb testing.TB, bus *cap.Bus, f operator.Filter, content bool) []*operator.Message {
	tb.Helper()
	op, err := bus.Operator()
	if err != nil {
		tb.Fatalf("captest: %v", err)
	}
	var all []*operator.Message
	page := operator.Page{Limit: 1000, Oldest: true, Content: content}
	for {
		l, err := op.List(context.WithoutCancel(tb.Context()), f, page)
		if err != nil {
			tb.Fatalf("captest: %v", err)
		}
		all = append(all, l.Messages...)
		if l.Next == "" {
			return all
		}
		page.After = l.Next
	}
}

func decode[T any](tb testing.TB, r *operator.Message) T {
	tb.Helper()
	var v T
	if m, ok := any(&v).(**cap.Message); ok {
		*m = &cap.Message{ID: r.MessageID, Topic: r.Topic, Headers: r.Headers, Body: r.Body}
		return v
	}
	if err := transport.JSON.Decode(r.Body, &v); err != nil {
		tb.Fatalf("captest: message %s of topic %q cannot be decoded as %T: %v; its body: %s", r.MessageID, r.Topic, v, err, cut(r.Body))
	}
	return v
}

// instead names the topics of what was published.
func instead(tb testing.TB, bus *cap.Bus) string {
	tb.Helper()
	topics := map[string]int{}
	for _, r := range list(tb, bus, operator.Filter{Box: operator.Published}, false) {
		topics[r.Topic]++
	}
	if len(topics) == 0 {
		return "nor to any other topic (is the transaction committed?)"
	}
	var words []string
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		words = append(words, fmt.Sprintf("%q (%d)", topic, topics[topic]))
	}
	return "published were: " + strings.Join(words, ", ")
}

// most is how many messages a failure quotes.
const most = 10

func quote(rows []*operator.Message) string {
	var text strings.Builder
	for _, r := range rows[:min(len(rows), most)] {
		fmt.Fprintf(&text, "\n\t%s: %s", r.MessageID, cut(r.Body))
	}
	if n := len(rows) - most; n > 0 {
		fmt.Fprintf(&text, "\n\tand %d more", n)
	}
	return text.String()
}

func cut(body []byte) string {
	const limit = 500
	if len(body) > limit {
		return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(body[:limit]), ""), len(body))
	}
	return string(body)
}
