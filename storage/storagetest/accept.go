package storagetest

import (
	"context"
	"strings"
	"sync"

	"github.com/capbus/gocap/storage"
)

func acceptCases() []testCase {
	const dedup = "Records that are there already (version, group, subscriber, topic, message id) are skipped. It returns those it inserted."
	return []testCase{
		{"accept/insert", "Accept inserts inbox records, owned by this member.", acceptInsert},
		{"accept/dedup", dedup, acceptDedup},
		{"accept/dedup-same-call", dedup, acceptDedupSameCall},
		{"accept/dedup-repeated", "A call whose answer was lost is repeated with the same records: " + dedup, acceptRepeated},
		{"accept/key", dedup, acceptKey},
		{"accept/bytes", "unique (version, group_name, subscriber, name, message_id), compared as bytes.", acceptBytes},
		{"accept/any-bytes", "unique (version, group_name, subscriber, name, message_id), compared as bytes.", acceptAnyBytes},
		{"accept/long-id", "An id over 255 bytes is kept as sha256: + hex.", acceptLongID},
		{"accept/version", "version isolates services that share tables.", acceptVersion},
		{"accept/concurrent", dedup, acceptConcurrent},
		{"accept/unmatched", `Owned by this member unless the record is unmatched (Subscriber ""; then by nobody).`, acceptUnmatched},
		{"accept/cancelled", "Accept inserts inbox records in one transaction.", acceptCancelled},
	}
}

func acceptInsert(e *env) {
	m := e.join(storage.Inbox)
	recs := e.deliveries(300, "g", "s")
	e.wantSet("fresh", e.accept(m, recs...), recs...)
	got := e.due(m, allOf("g", "s"))
	e.wantSet("due at once", got, recs...)
	for _, r := range got {
		if r.Owner != m.Number() || r.Status != storage.Scheduled {
			e.Errorf("an accepted row is %v, owner %d", r.Status, r.Owner)
		}
	}
}

func acceptDedup(e *env) {
	m, other := e.join(storage.Inbox), e.join(storage.Inbox)
	first := e.accepted(m)
	second, fresh := again(first), e.delivery("g", "s")
	e.wantRows("a message again, and a new one", e.accept(m, second, fresh), fresh)
	e.wantRows("a message again, at another", e.accept(other, again(first)))
	e.wantSet("due", e.due(m, allOf("g", "s")), first, fresh)
	e.wantRows("at the other", e.due(other, allOf("g", "s")))
	if r := e.mustRow(m, first); r.Owner != m.Number() {
		e.Errorf("a redelivery changed the owner to %d", r.Owner)
	}
}

func acceptDedupSameCall(e *env) {
	m := e.join(storage.Inbox)
	first := e.delivery("g", "s")
	fresh := e.accept(m, first, again(first), again(first))
	if len(fresh) != 1 {
		e.Errorf("%d of three equal records were inserted, want 1", len(fresh))
	}
	e.wantSet("due", e.due(m, allOf("g", "s")), fresh...)
}

func acceptRepeated(e *env) {
	m := e.join(storage.Inbox)
	recs := e.deliveries(3, "g", "s")
	e.accept(m, recs...)
	e.wantSet("the same records once more", e.accept(m, recs...))
	e.wantSet("due", e.due(m, allOf("g", "s")), recs...)
}

func acceptKey(e *env) {
	m := e.join(storage.Inbox)
	base := e.delivery("g", "s")
	group, sub, topic, id := again(base), again(base), again(base), again(base)
	group.Group, sub.Subscriber, topic.Topic, id.MessageID = "g2", "s2", "orders.deleted", "another"
	unmatched := again(base)
	unmatched.Subscriber = ""
	all := []*storage.Record{base, group, sub, topic, id, unmatched}
	e.wantSet("records that differ in one part of the key", e.accept(m, all...), all...)
	for _, rec := range all {
		e.wantRows("each of them again", e.accept(m, again(rec)))
	}
}

func acceptBytes(e *env) {
	m := e.join(storage.Inbox)
	var recs []*storage.Record
	for _, id := range []string{"a", "A", "a ", "á", "a\u0301", "ß", "ss", "i", "ı", strings.Repeat("i", 254) + "j", strings.Repeat("i", 255)} {
		rec := e.delivery("g", "s")
		rec.MessageID = id
		recs = append(recs, rec)
	}
	for _, topic := range []string{"Orders.created", "orders.created "} {
		rec := again(recs[0])
		rec.Topic = topic
		recs = append(recs, rec)
	}
	e.wantSet("keys that differ in bytes", e.accept(m, recs...), recs...)
	for _, rec := range recs {
		e.wantRows("each of them again", e.accept(m, again(rec)))
	}
}

// acceptAnyBytes: a foreign message brings whatever its sender put in.
func acceptAnyBytes(e *env) {
	m := e.join(storage.Inbox)
	var recs []*storage.Record
	for _, id := range []string{"a\x00b", "a\x00c", "a", "\xff", "\xfe", "\xc3\x28", "\uFFFD", "'; --", "\n", " "} {
		rec := e.delivery("g", "s")
		rec.MessageID = id
		recs = append(recs, rec)
	}
	e.wantSet("ids of any bytes", e.accept(m, recs...), recs...)
	for _, rec := range recs {
		e.wantRows("each of them again", e.accept(m, again(rec)))
		e.checkContent(e.mustRow(m, rec), rec)
	}
}

func acceptLongID(e *env) {
	m := e.join(storage.Inbox)
	var recs []*storage.Record
	for _, id := range []string{
		strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 257),
		strings.Repeat("x", 256) + "y", strings.Repeat("é", 4000), strings.Repeat("é", 4001),
	} {
		rec := e.delivery("g", "s")
		rec.MessageID = id
		recs = append(recs, rec)
	}
	e.wantSet("long ids", e.accept(m, recs...), recs...)
	for _, rec := range recs {
		e.wantRows("each of them again", e.accept(m, again(rec)))
	}
	e.wantSet("due", e.due(m, allOf("g", "s")), recs...)
}

func acceptVersion(e *env) {
	foreign := e.other()
	m, fm := e.join(storage.Inbox), foreign.join(storage.Inbox)
	mine := e.accepted(m)
	theirs := again(mine)
	theirs.Version = foreign.version
	e.wantRows("the same message in another version", foreign.accept(fm, theirs), theirs)
	e.wantRows("due in ours", e.due(m, allOf("g", "s")), mine)
	e.wantRows("due in theirs", e.due(fm, allOf("g", "s")), theirs)
}

func acceptConcurrent(e *env) {
	const goroutines, messages = 6, 20
	members := []storage.Member{e.join(storage.Inbox), e.join(storage.Inbox)}
	base := e.deliveries(messages, "g", "s")
	var (
		mu    sync.Mutex
		times = map[string]int{}
		owned = map[storage.Member][]*storage.Record{}
	)
	ctx := e.op()
	together(goroutines, func(i int) {
		m := members[i%len(members)]
		var recs []*storage.Record
		for j := range base {
			recs = append(recs, again(base[(i*7+j)%messages]))
		}
		fresh, err := acceptRetry(ctx, m, recs)
		if err != nil {
			e.Errorf("accept: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rec := range fresh {
			times[rec.MessageID]++
			owned[m] = append(owned[m], rec)
		}
	})
	for _, rec := range base {
		if n := times[rec.MessageID]; n != 1 {
			e.Errorf("a message accepted at once was inserted %d times, want once", n)
		}
	}
	for _, m := range members {
		e.wantSet("what a member has", e.due(m, allOf("g", "s")), owned[m]...)
	}
}

// acceptRetry repeats a call that the database ended for a deadlock, as the
// engines do.
func acceptRetry(ctx context.Context, m storage.Member, recs []*storage.Record) (fresh []*storage.Record, err error) {
	for range 5 {
		if fresh, err = m.Accept(ctx, recs...); err == nil || ctx.Err() != nil {
			break
		}
	}
	return fresh, err
}

func acceptUnmatched(e *env) {
	m, other := e.join(storage.Inbox), e.join(storage.Inbox)
	rec := e.delivery("g", "")
	e.wantRows("fresh", e.accept(m, rec), rec)
	e.wantRows("owned", e.due(m, byID(rec)))
	e.wantRows("the same unmatched message at another", e.accept(other, again(rec)))
	got, err := other.Unmatched(e.op(), []string{"g"}, 0, 10)
	e.must(err, "unmatched")
	e.wantRows("waiting", got, rec)
	for _, r := range got {
		e.checkContent(r, rec)
		if r.Owner != 0 {
			e.Errorf("an unmatched row has owner %d", r.Owner)
		}
	}
}

func acceptCancelled(e *env) {
	m := e.join(storage.Inbox)
	recs := e.deliveries(10, "g", "s")
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	if _, err := m.Accept(ctx, recs...); err == nil {
		e.Errorf("accept with a context that has ended: no error")
	}
	e.wantRows("due", e.due(m, allOf("g", "s")))
}
