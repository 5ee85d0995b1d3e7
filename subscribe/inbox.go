package subscribe

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/internal/wire"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// acceptTimeout bounds one insert into the inbox.
const acceptTimeout = 10 * time.Second

// deliver stores a batch in the inbox, acks it, and starts its handlers. What is
// more than a database can be relied on to take within acceptTimeout goes in
// parts: the broker would send the same window again and again, and none of it
// would ever be stored.
func (g *group) deliver(ctx, work context.Context, batch []transport.Delivery) {
	g.received()
	for len(batch) > 0 {
		recs, n := g.records(batch)
		g.store(ctx, work, batch[:n], recs)
		batch = batch[n:]
	}
}

// store stores the records of deliveries. While the inbox cannot take them the
// deliveries stay unanswered, so the broker sends no more; when ctx ends before,
// they go back.
func (g *group) store(ctx, work context.Context, batch []transport.Delivery, recs []*storage.Record) {
	if !g.waitRoom(ctx) {
		nack(batch)
		return
	}
	held := make([]storage.ID, 0, len(recs))
	for _, rec := range recs {
		if !inOrder(rec) { // those are found by a look
			held = append(held, rec.ID)
		}
	}
	hand := &g.c.desk.Hand
	hand.Hold(held...) // before the insert: a look must not start them too
	t, fresh := g.accept(ctx, work, recs)
	if t == nil {
		hand.Leave(held...)
		nack(batch)
		return
	}
	for _, d := range batch {
		if err := d.Ack(); err != nil { // delivered again, and dropped as known
			g.c.cfg.Log.Warn(ctx, "delivery not acked", g.name, slog.String("group", g.name), slog.Any("err", err))
		}
	}
	g.c.cfg.Trace.stored(ctx, g.c.cfg.Log, g.name, len(batch), len(fresh))
	g.admitFresh(t, held, fresh)
}

// accept inserts the records; a nil tenure: ctx has ended before it could.
func (g *group) accept(ctx, work context.Context, recs []*storage.Record) (*rows.Tenure, []*storage.Record) {
	wait := backoff.Backoff{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		t, err := g.c.cfg.Keeper.Wait(ctx)
		if err != nil {
			return nil, nil
		}
		actx, cancel := context.WithTimeout(work, acceptTimeout)
		fresh, err := t.Accept(actx, recs...)
		cancel()
		if err == nil {
			return t, fresh
		}
		g.c.cfg.Log.Warn(ctx, "messages not stored, receiving paused", g.name, slog.String("group", g.name), slog.Any("err", err))
		if !wait.Sleep(ctx) {
			return nil, nil
		}
	}
}

// admitFresh starts the rows that the insert created. The others are known
// already, or wait for a subscription: they leave the hand.
func (g *group) admitFresh(t *rows.Tenure, held []storage.ID, fresh []*storage.Record) {
	mine := map[storage.ID]bool{}
	for _, rec := range fresh {
		switch {
		case inOrder(rec):
		case rec.Fault != "":
			rec.Final, rec.Status, rec.LastError = true, storage.Failed, rec.Fault
			mine[rec.ID] = rec.FaultCallback
		default:
			mine[rec.ID] = rec.Subscriber != ""
		}
	}
	for _, id := range held {
		if !mine[id] {
			g.c.desk.Hand.Leave(id)
		}
	}
	for _, rec := range fresh {
		if !mine[rec.ID] {
			continue
		}
		if rec.Subscriber != "" {
			g.addFresh(rec)
		}
		g.c.desk.Admit(t, true, rec)
	}
	g.c.ask(fresh)
}

// records makes one record for each delivery and matching subscription, or one
// for nobody, of the first n deliveries: those that end with the one that makes
// the sum of headers and bodies exceed rows.MaxLookBytes.
func (g *group) records(batch []transport.Delivery) (recs []*storage.Record, n int) {
	var bytes int64
	for _, d := range batch {
		m := d.Message()
		base := g.record(m)
		matched := false
		for _, rt := range g.routes {
			if base.Fault == "" && transport.Match(rt.topic, base.Topic) {
				matched = true
				bytes += rows.Size(base)
				recs = append(recs, rt.record(base, m.Headers[transport.HeaderKey]))
			}
		}
		if !matched {
			recs = append(recs, base)
			bytes += rows.Size(base)
		}
		if n++; bytes > rows.MaxLookBytes {
			break
		}
	}
	return recs, n
}

// record is the mapping from what arrived to a row of the inbox. A message
// without an id gets a fresh one: its redelivery cannot be recognised.
func (g *group) record(m *transport.Message) *storage.Record {
	rec := &storage.Record{
		ID: ids.New(), Version: g.c.cfg.Version, Group: g.name,
		Topic: m.Topic, MessageID: m.ID, Headers: wire.EncodeHeaders(m.Headers), Body: m.Body,
	}
	if rec.MessageID == "" {
		rec.MessageID = storage.ID(ids.New()).String()
	}
	if err := transport.CheckTopic(m.Topic); err != nil {
		rec.Topic, rec.Fault = "", "message cannot be handled: "+err.Error()
		rec.FaultExpires = g.c.cfg.Policy.KeepFailed
		rec.FaultCallback = g.c.cfg.Policy.OweCallback
	}
	return rec
}

// record is the row of one subscription; key is what the message was ordered by.
func (rt *route) record(base *storage.Record, key string) *storage.Record {
	rec := *base
	rec.ID, rec.Subscriber = ids.New(), rt.name
	if rt.ordered {
		rec.Key = orderingKey(key)
	}
	return &rec
}

// message is the mapping from a row of the inbox to what a handler gets. The body
// is a copy: middleware may change it in place, and the row is for later attempts
// and, as it came, for other subscriptions.
func message(rec *storage.Record) *transport.Message {
	h, err := wire.DecodeHeaders(rec.Headers)
	if err != nil {
		h = map[string]string{} // written by us; the body still can be handled
	}
	return &transport.Message{ID: rec.MessageID, Topic: rec.Topic, Headers: h, Body: bytes.Clone(rec.Body)}
}

func nack(batch []transport.Delivery) {
	for _, d := range batch {
		_ = d.Nack(0) // the receiver ends: what is not answered is delivered again
	}
}
