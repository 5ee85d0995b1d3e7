package postgres_test

import (
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/postgres"
)

// TestInboxKeepsWhatAnArrayWouldRead: the values of a batch travel in arrays, in
// whose text quotes, commas, braces, backslashes and the word NULL mean
// something.
func TestInboxKeepsWhatAnArrayWouldRead(t *testing.T) {
	t.Parallel()
	m := join(t, newStore(t, postgres.Config{}), storage.Inbox)
	for _, odd := range []string{`NULL`, `a"b`, `a\b`, `\x61`, `{a,b}`, "a\n b ", `\"`} {
		a, b := incoming(odd), incoming(odd+"2")
		for _, r := range []*storage.Record{a, b} {
			r.Group, r.Subscriber, r.Topic, r.Body = odd, odd, odd, []byte(odd)
		}
		b.Key = odd
		added, err := m.Accept(t.Context(), a, b)
		must(t, err)
		if len(added) != 2 {
			t.Fatalf("%q: %d added, want 2", odd, len(added))
		}
		got, _, err := m.Due(t.Context(), storage.Query{IDs: []storage.ID{a.ID, b.ID}})
		must(t, err)
		if len(got) != 2 {
			t.Fatalf("%q: %d due, want 2", odd, len(got))
		}
		for i, want := range []*storage.Record{a, b} {
			g := got[i]
			if g.Group != odd || g.Subscriber != odd || g.Topic != odd || string(g.Body) != odd || g.MessageID != want.MessageID || g.Key != want.Key {
				t.Errorf("%q: got %q %q %q %q %q %q", odd, g.Group, g.Subscriber, g.Topic, g.Body, g.MessageID, g.Key)
			}
		}
		again := incoming(odd)
		again.Group, again.Subscriber, again.Topic, again.Fault, again.FaultExpires = odd, odd, odd, odd, time.Hour // the fault travels too
		if added, err = m.Accept(t.Context(), again); err != nil || len(added) != 0 {
			t.Errorf("%q: the same again: %d added, error %v", odd, len(added), err)
		}
	}
}
