package transporttest

import (
	"context"
	"time"

	"github.com/capbus/gocap/transport"
)

func groupCases() []testCase {
	return []testCase{
		{
			name: "every group gets its copy",
			why:  "Source: one queue a group, which takes every message whose topic matches one of the patterns.",
			run:  checkFanOut,
		},
		{
			name: "patterns that overlap give one copy",
			why:  "Source: one queue a group, which takes every message whose topic matches one of the patterns.",
			run:  checkOverlap,
		},
		{
			name:  "instances of a group compete",
			why:   "Source names what a consumer wants: one queue a group.",
			needs: claims(claimsQueue, claimsInFlight(2)),
			run:   checkCompeting,
		},
		{
			name: "instances add to the topics of their group",
			why:  "Source: one queue a group, which takes every message whose topic matches one of the patterns.",
			run:  checkUnion,
		},
		{
			name: "a group that does not answer stops no other",
			why:  "Source: one queue a group.",
			run:  checkSlowGroup,
		},
		{
			name: "nobody shares a message",
			why:  "Send keeps no reference to msgs. Delivery: Message belongs to the receiver.",
			run:  checkAliasing,
		},
	}
}

// nothing fails the case if the receiver has got anything else.
func (e *env) nothing(r *receiver) {
	e.Helper()
	for _, m := range r.rest() {
		e.Errorf("group %q also got message %q on topic %q", r.src.Group, m.Body, m.Topic)
	}
}

// nextOfBoth returns n messages that came to either receiver, acked.
func (e *env) nextOfBoth(a, b *receiver, n int) []*transport.Message {
	e.Helper()
	var msgs []*transport.Message
	timeout := time.NewTimer(e.wait)
	defer timeout.Stop()
	for len(msgs) < n {
		d := a.poll()
		if d == nil {
			d = b.poll()
		}
		if d != nil {
			d.ack()
			msgs = append(msgs, d.msg)
			continue
		}
		select {
		case <-a.arrive:
		case <-b.arrive:
		case <-timeout.C:
			e.Fatalf("%d of %d messages arrived", len(msgs), n)
		}
	}
	return msgs
}

func checkCompeting(e *env) {
	first := e.receive("g", 1, "group.x")
	second := e.start("g", 1, nil, "group.x")
	res := e.send(e.messages("group.x", 6)...)
	// With a window of one, both are needed: neither answers before both have
	// a message.
	a, b := first.next(), second.next()
	a.ack()
	b.ack()
	got := append(e.nextOfBoth(first, second, 4), a.msg, b.msg)
	e.sameBodies(got, 6)
	res.stored()
}

// checkAliasing has everyone write into what he holds.
func checkAliasing(e *env) {
	a, b := e.receive("a", 10, "group.x"), e.receive("b", 10, "group.x")
	m := e.message("group.x", "body")
	m.Headers["k"] = "v"
	want := m.Clone()
	spoil := func(m *transport.Message) {
		for k := range m.Headers {
			m.Headers[k] = "spoilt"
		}
		m.Headers["spoilt"] = "spoilt"
		for i := range m.Body {
			m.Body[i] = '!'
		}
	}

	res := e.send(m)
	first := a.next()
	e.sameMessage(first.msg, want)
	spoil(first.msg)
	first.nack(0)
	again := a.next()
	e.sameMessage(again.msg, want)
	spoil(again.msg)
	again.ack()

	other := b.next()
	e.sameMessage(other.msg, want)
	other.ack()
	res.stored()
	e.sameMessage(m, want)

	e.nothing(b)
	checkSenderLetsGo(e, a, spoil)
}

// checkSenderLetsGo changes a message after its Send has returned.
func checkSenderLetsGo(e *env, r *receiver, spoil func(*transport.Message)) {
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	m := e.message("group.x", "body")
	want := m.Clone()
	res := e.try(ctx, m)
	d := r.next()
	cancel()
	errs := res.wait()
	spoil(m)
	e.sameMessage(d.msg, want)
	if len(errs) == 1 && errs[0] == nil {
		d.nack(0)
		d = r.next()
		e.sameMessage(d.msg, want)
	}
	d.ack()
}

func checkFanOut(e *env) {
	a, b := e.receive("a", 10, "group.x"), e.receive("b", 10, "group.x")
	other := e.receive("other", 10, "group.y")
	res := e.send(e.messages("group.x", 5)...)
	e.sameBodies(a.nextAcked(5), 5)
	e.sameBodies(b.nextAcked(5), 5)
	res.stored()
	for _, r := range []*receiver{a, b, other} {
		e.nothing(r)
	}
}

func checkOverlap(e *env) {
	topics := []string{"group.x", "group.y"}
	if claimsWildcards(e.tr) {
		topics = append(topics, "group.*", "#", "*.x", "group.#")
	}
	r := e.receive("g", 10, topics...)
	res := e.send(e.message("group.x", "0"), e.message("group.y", "1"))
	e.sameBodies(r.nextAcked(2), 2)
	res.stored()
	e.nothing(r)
}

func checkUnion(e *env) {
	first := e.receive("g", 10, "group.x")
	second := e.receive("g", 10, "group.y")
	res := e.send(e.message("group.x", "0"), e.message("group.y", "1"))
	e.sameBodies(e.nextOfBoth(first, second, 2), 2)
	res.stored()
}

func checkSlowGroup(e *env) {
	slow, quick := e.receive("slow", 1, "group.x"), e.receive("quick", 10, "group.x")
	res := e.send(e.messages("group.x", 4)...)
	d := slow.next()
	e.sameBodies(quick.nextAcked(4), 4)
	d.ack()
	slow.nextAcked(3)
	res.stored()
}
