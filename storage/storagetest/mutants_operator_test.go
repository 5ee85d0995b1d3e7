package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

// listing changes what is asked for, or answered.
func listing(ask func(f *storage.Filter, p *storage.Page), answer func(p storage.Page, l *storage.Listing)) func(b *broken) {
	return func(b *broken) {
		b.list = func(ctx context.Context, f storage.Filter, p storage.Page) (storage.Listing, error) {
			asked := p
			if ask != nil {
				ask(&f, &p)
			}
			l, err := b.operator().List(ctx, f, p)
			if answer != nil {
				answer(asked, &l)
			}
			return l, err
		}
	}
}

func eachRow(change func(r *storage.Row)) func(b *broken) {
	return listing(nil, func(_ storage.Page, l *storage.Listing) {
		for _, r := range l.Rows {
			change(r)
		}
	})
}

func operatorMutants() []mutant {
	return []mutant{
		{"content always read", "operator/row", listing(func(_ *storage.Filter, p *storage.Page) { p.Content = true }, nil)},
		{"every owner lives", "operator/row", eachRow(func(r *storage.Row) { r.OwnerLiving = r.Owner != 0 })},
		{"final rows are due", "operator/row", eachRow(func(r *storage.Row) { r.Position.DueAt = r.AddedAt })},
		{"retrying is failed", "operator/states", listing(func(f *storage.Filter, _ *storage.Page) {
			if slices.Contains(f.States, storage.StateRetrying) {
				f.States = append(slices.Clone(f.States), storage.StateFailed)
			}
		}, nil)},
		{"a row is twice", "operator/pages", listing(nil, func(_ storage.Page, l *storage.Listing) {
			if l.Next > 0 {
				l.Next++
			}
		})},
		{"always newest first", "operator/pages", listing(func(_ *storage.Filter, p *storage.Page) { p.Oldest = false }, nil)},
		{"pages by offset", "operator/stable", func(b *broken) {
			b.list = func(ctx context.Context, f storage.Filter, p storage.Page) (storage.Listing, error) {
				offset, limit := int(p.After), p.Limit
				p.After, p.Limit = 0, storage.MaxPage
				l, err := b.operator().List(ctx, f, p)
				l.Rows = l.Rows[min(offset, len(l.Rows)):]
				if l.Next = 0; len(l.Rows) > limit {
					l.Rows, l.Next = l.Rows[:limit], int64(offset+limit)
				}
				return l, err
			}
		}},
		{"topic as prefix", "operator/filter", listing(func(f *storage.Filter, _ *storage.Page) {
			f.Topic, f.TopicPrefix = "", f.Topic+f.TopicPrefix
		}, nil)},
		{"group ignored", "operator/filter", listing(func(f *storage.Filter, _ *storage.Page) { f.Group = "" }, nil)},
		{"message id ignored with others", "operator/message-id", listing(func(f *storage.Filter, _ *storage.Page) {
			if len(f.IDs) > 0 {
				f.MessageID = ""
			}
		}, nil)},
		{"version ignored", "operator/version", listing(func(f *storage.Filter, _ *storage.Page) { f.Version = "" }, nil)},
		{"before is inclusive", "operator/added", listing(func(f *storage.Filter, _ *storage.Page) {
			if !f.AddedBefore.IsZero() {
				f.AddedBefore = f.AddedBefore.Add(time.Nanosecond)
			}
		}, nil)},
		{"pages of any size", "operator/bytes", func(b *broken) {
			b.list = func(ctx context.Context, f storage.Filter, p storage.Page) (storage.Listing, error) {
				l, err := b.operator().List(ctx, f, p)
				for l.Next > 0 && len(l.Rows) < p.Limit {
					q := p
					q.After = l.Next
					more, _ := b.operator().List(ctx, f, q)
					l.Rows, l.Next = append(l.Rows, more.Rows...), more.Next
				}
				return l, err
			}
		}},
		{"counts the other box", "operator/count", counting(func(q *storage.CountQuery) { q.Box = storage.Inbox }, nil)},
		{"counts all versions", "operator/count", counting(func(q *storage.CountQuery) { q.Version = "" }, nil)},
		{"rows with a key not listed", "operator/keys", listing(nil, func(_ storage.Page, l *storage.Listing) {
			l.Rows = slices.DeleteFunc(l.Rows, func(r *storage.Row) bool { return r.Topic == keyedTopic })
		})},
		{"scheduled rows with a key not counted", "operator/keys-count", counting(nil, func(c *storage.Counts) {
			c.States[0].Rows = min(c.States[0].Rows, 1)
		})},
		{"never more", "operator/count", counting(nil, func(c *storage.Counts) {
			for i := range c.States {
				c.States[i].More = false
			}
		})},
		{"any limit", "operator/invalid", listing(func(_ *storage.Filter, p *storage.Page) { p.Limit = min(max(p.Limit, 1), storage.MaxPage) }, nil)},
	}
}

func counting(ask func(q *storage.CountQuery), answer func(c *storage.Counts)) func(b *broken) {
	return func(b *broken) {
		b.count = func(ctx context.Context, q storage.CountQuery) (storage.Counts, error) {
			if ask != nil {
				ask(&q)
			}
			c, err := b.operator().Count(ctx, q)
			if answer != nil {
				answer(&c)
			}
			return c, err
		}
	}
}

// changing changes what is done, or said of it.
func changing(f func(b *broken, a storage.Action, f *storage.Filter) (done []storage.ID, instead bool)) func(b *broken) {
	return func(b *broken) {
		b.change = func(ctx context.Context, a storage.Action, filter storage.Filter) ([]storage.ID, error) {
			if done, instead := f(b, a, &filter); instead {
				return done, nil
			}
			return b.operator().Change(ctx, a, filter)
		}
	}
}

// lying says of what it has not done that it has.
func lying(when func(a storage.Action, f *storage.Filter) bool) func(b *broken) {
	return changing(func(_ *broken, a storage.Action, f *storage.Filter) ([]storage.ID, bool) { return f.IDs, when(a, f) })
}

func operateMutants() []mutant {
	is := func(a storage.Action) func(storage.Action, *storage.Filter) bool {
		return func(b storage.Action, _ *storage.Filter) bool { return a == b }
	}
	return []mutant{
		{"requeue does nothing", "operate/requeue", lying(is(storage.Requeue))},
		{"requeue does nothing in the inbox", "operate/requeue-inbox", lying(is(storage.Requeue))},
		{"requeued unmatched rows are lost", "operate/requeue-unmatched", lying(is(storage.Requeue))},
		{"a row that waits is refused", "operate/requeue-waiting", changing(func(_ *broken, _ storage.Action, f *storage.Filter) ([]storage.ID, bool) {
			f.States = []storage.State{storage.StateFailed, storage.StateSucceeded}
			return nil, false
		})},
		{"a requeued row has its owner still", "operate/requeued-settle", lying(is(storage.Requeue))},
		{"in work is requeued", "operate/in-work", lying(is(storage.Requeue))},
		{"in work is deleted", "operate/in-work", lying(is(storage.Delete))},
		{"cancel requeues", "operate/cancel", func(b *broken) {
			b.change = func(ctx context.Context, a storage.Action, f storage.Filter) ([]storage.ID, error) {
				if a == storage.Cancel {
					a, f.States = storage.Requeue, []storage.State{storage.StateDelayed}
				}
				return b.operator().Change(ctx, a, f)
			}
		}},
		{"cancel without looking again", "operate/cancel-race", lying(is(storage.Cancel))},
		{"delete marks only", "operate/delete", lying(is(storage.Delete))},
		{"delete in both boxes", "operate/delete", func(b *broken) {
			b.change = func(ctx context.Context, a storage.Action, f storage.Filter) ([]storage.ID, error) {
				done, err := b.operator().Change(ctx, a, f)
				f.Box = storage.Outbox + storage.Inbox - f.Box
				more, _ := b.operator().Change(ctx, a, f)
				return append(done, more...), err
			}
		}},
		{"filter ignored", "operate/filter", changing(func(_ *broken, _ storage.Action, f *storage.Filter) ([]storage.ID, bool) {
			*f = storage.Filter{Box: f.Box, IDs: f.IDs}
			return nil, false
		})},
		{"no ids are all", "operate/filter", changing(func(b *broken, _ storage.Action, f *storage.Filter) ([]storage.ID, bool) {
			if f.IDs == nil {
				f.IDs = idsOf(b.rows(f.Box))
			}
			return nil, false
		})},
		{"never requeues what is delayed", "operate/refuses", changing(func(_ *broken, a storage.Action, f *storage.Filter) ([]storage.ID, bool) {
			if a == storage.Requeue {
				f.States = []storage.State{storage.StateRetrying, storage.StateFailed, storage.StateSucceeded}
			}
			return nil, false
		})},
	}
}
