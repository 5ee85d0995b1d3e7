package subscribe

import (
	"context"
	"log/slog"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

const (
	adoptBatch = 20  // unmatched rows read at once; they are read whole
	adoptPages = 100 // reads in one round
	staleLooks = 60  // for what nobody serves, in an UnhandledAfter
)

// askGlances lets the glances of the keepers see what is looked for here.
func (c *Consumer) askGlances() {
	var keys []storage.Lane
	for lane := range c.lanes {
		keys = append(keys, storage.Lane{Group: lane.group, Subscriber: lane.subscriber})
	}
	groups := c.Groups()
	c.cfg.Keeper.Ask(keys, groups)
	for _, k := range c.cfg.Also {
		k.Ask(keys, groups)
	}
}

// adopt looks for rows of its groups that matched no subscription when they
// came, or whose subscription is gone: it serves those that match now, and ends
// those that nobody has served for UnhandledAfter.
func (c *Consumer) adopt(ctx context.Context, k *rows.Keeper) {
	stale := time.Now().Add(c.cfg.UnhandledAfter)
	var after int64
	for {
		if t, err := k.Wait(ctx); err == nil {
			if after, err = c.adoptUnmatched(ctx, t, after); err == nil && !time.Now().Before(stale) {
				var some bool
				if some, err = c.endStale(ctx, t); err == nil && !some {
					stale = time.Now().Add(c.cfg.UnhandledAfter / staleLooks)
				}
			}
			if err != nil && ctx.Err() == nil {
				c.cfg.Log.Warn(ctx, "rows without a subscription not read", "", slog.Any("err", err))
			}
		}
		if !backoff.Sleep(ctx, c.cfg.AdoptInterval) {
			return
		}
	}
}

// adoptUnmatched reads some pages behind after, and returns where to go on; 0:
// from the start.
func (c *Consumer) adoptUnmatched(ctx context.Context, t *rows.Tenure, after int64) (int64, error) {
	for range adoptPages {
		groups := c.active()
		if len(groups) == 0 || t.NoUnmatched(groups) {
			return 0, nil
		}
		recs, err := unmatched(ctx, t, groups, after)
		if err != nil {
			return after, err
		}
		for _, rec := range recs {
			if g := c.group(rec.Group); g != nil && g.full() {
				return after, nil // the next round goes on here
			}
			after = rec.Position.Seq
			if _, err := c.split(ctx, t, rec); err != nil {
				return after, err
			}
		}
		if len(recs) < adoptBatch {
			return 0, nil
		}
	}
	return after, nil
}

// adoptTimeout bounds one statement: a database that hangs must not hang the
// loop.
const adoptTimeout = 10 * time.Second

func unmatched(ctx context.Context, t *rows.Tenure, groups []string, after int64) ([]*storage.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	return t.Unmatched(ctx, groups, after, adoptBatch)
}

// split turns an unmatched row into rows of the subscriptions that match it; it
// reports false when none does.
func (c *Consumer) split(ctx context.Context, t *rows.Tenure, rec *storage.Record) (bool, error) {
	g := c.group(rec.Group)
	if g == nil {
		return false, nil
	}
	var into []*storage.Record
	var held []storage.ID
	for _, rt := range g.routes {
		if transport.Match(rt.topic, rec.Topic) {
			r := rt.record(&storage.Record{
				Version: rec.Version, Group: rec.Group, Topic: rec.Topic, MessageID: rec.MessageID,
				Headers: rec.Headers, Body: rec.Body,
			}, message(rec).Headers[transport.HeaderKey])
			if into = append(into, r); !inOrder(r) {
				held = append(held, r.ID)
			}
		}
	}
	if len(into) == 0 {
		return false, nil
	}
	g.c.desk.Hand.Hold(held...)
	sctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	fresh, err := t.Split(sctx, rec, into...)
	cancel()
	if err != nil {
		g.c.desk.Hand.Leave(held...)
		return true, err
	}
	g.admitFresh(t, held, fresh)
	return true, nil
}

func (c *Consumer) group(name string) *group {
	for _, g := range c.groups {
		if g.name == name {
			return g
		}
	}
	return nil
}

// endStale takes over rows of its groups that have been due for UnhandledAfter
// and have no living owner, and reports whether there were some.
func (c *Consumer) endStale(ctx context.Context, t *rows.Tenure) (some bool, err error) {
	var lanes []storage.Lane
	for _, name := range c.active() {
		lanes = append(lanes, storage.Lane{Group: name, Limit: adoptBatch})
	}
	if len(lanes) == 0 {
		return false, nil
	}
	look := c.desk.Hand.Begin()
	defer look.End()
	tctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	recs, err := t.TakeOver(tctx, storage.Query{Lanes: lanes, Stale: c.cfg.UnhandledAfter, MaxBytes: c.cfg.MaxBytes, Locked: c.cfg.Locked})
	cancel()
	if err != nil {
		return false, err
	}
	var admitted []*storage.Record
	for _, rec := range recs {
		if rec.Subscriber == "" && !rec.Final { // its turn to be adopted had not come yet
			ours, err := c.split(ctx, t, rec)
			for wait := (backoff.Backoff{Min: 100 * time.Millisecond, Max: time.Second}); err != nil && wait.Sleep(ctx); {
				_, err = c.split(ctx, t, rec) // no look finds it, now that it has an owner
			}
			if ours {
				continue
			}
		}
		if inOrder(rec) && c.lanes[laneKey{rec.Group, rec.Subscriber}] != nil {
			c.ask([]*storage.Record{rec}) // it is served here, in its turn
			continue
		}
		if look.Take(rec.ID) {
			admitted = append(admitted, rec)
		}
	}
	c.Admit(t, admitted) //nolint:contextcheck // what it starts outlives the look
	return len(recs) > 0, nil
}

// unserved ends a row whose subscription nobody has.
func (c *Consumer) unserved(t *rows.Tenure, rec *storage.Record) {
	c.cfg.Log.Log.LogAttrs(t.Context(), slog.LevelError, "message not handled, no subscription takes it",
		slog.String("topic", rec.Topic), slog.String("group", rec.Group), slog.String("subscriber", rec.Subscriber), slog.String("msg_id", rec.MessageID))
	r := &rows.Row{Record: rec, Tenure: t}
	c.desk.Settle(r, c.cfg.Policy.Final(rec, "no subscription takes it", false))
}
