package storagetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// asked changes what Due is asked for.
func asked(f func(q *query)) func(b *broken) {
	return func(b *broken) {
		b.due = func(ctx context.Context, m member, q query) (records, time.Duration, error) {
			q.Lanes = slices.Clone(q.Lanes)
			f(&q)
			return m.Due(ctx, q)
		}
	}
}

// taking changes what TakeOver is asked for.
func taking(f func(q *query)) func(b *broken) {
	return func(b *broken) {
		b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
			q.Lanes = slices.Clone(q.Lanes)
			f(&q)
			return m.TakeOver(ctx, q)
		}
	}
}

func eachLane(f func(l *storage.Lane)) func(q *query) {
	return func(q *query) {
		for i := range q.Lanes {
			f(&q.Lanes[i])
		}
	}
}

// answered changes what Due answers.
func answered(f func(recs records, next time.Duration) (records, time.Duration)) func(b *broken) {
	return func(b *broken) {
		b.due = func(ctx context.Context, m member, q query) (records, time.Duration, error) {
			recs, next, err := m.Due(ctx, q)
			recs, next = f(recs, next)
			return recs, next, err
		}
	}
}

func noLimit(l *storage.Lane) { l.Limit = 1000 }

func noCursor(l *storage.Lane) { l.After = storage.Position{} }

func lookMutants() []mutant {
	return append(takeOverMutants(), []mutant{
		{"due in reverse order", "due/order", answered(func(r records, next time.Duration) (records, time.Duration) {
			slices.Reverse(r)
			return r, next
		})},
		{"due without limit", "limits/lane", asked(eachLane(noLimit))},
		{"limit of the first lane for all", "limits/lane", asked(func(q *query) {
			for i := range q.Lanes {
				q.Lanes[i].Limit = q.Lanes[0].Limit
			}
		})},
		{"cursor ignored", "limits/after", asked(eachLane(noCursor))},
		{"cursor without seq", "limits/after", asked(eachLane(func(l *storage.Lane) {
			if l.After.Seq > 0 {
				l.After.Seq = 1 << 62
			}
		}))},
		{"size ignored", "limits/bytes", asked(func(q *query) { q.MaxBytes = 0 })},
		{"size of no row exceeded", "limits/bytes", answered(func(r records, next time.Duration) (records, time.Duration) {
			if len(r) > 0 && size(r) > maxBytes {
				r = r[:len(r)-1]
			}
			return r, next
		})},
	}...)
}

func nextMutants() []mutant {
	return []mutant{
		{"next always negative", "due/next", answered(func(r records, _ time.Duration) (records, time.Duration) { return r, -1 })},
		{"next zero for none", "due/next-none", answered(func(r records, next time.Duration) (records, time.Duration) { return r, max(next, 0) })},
		{"next of the last lane", "due/next-of-lanes", func(b *broken) {
			b.due = func(ctx context.Context, m member, q query) (records, time.Duration, error) {
				recs, next, err := m.Due(ctx, q)
				if len(q.Lanes) > 0 {
					_, next, _ = m.Due(ctx, query{Lanes: q.Lanes[:1]})
				}
				return recs, next, err
			}
		}},
	}
}

func idMutants() []mutant {
	return []mutant{
		{"by id only what is due", "due/ids", answered(func(r records, next time.Duration) (records, time.Duration) {
			return slices.DeleteFunc(r, func(rec *record) bool { return time.Until(rec.Position.DueAt) > 0 }), next
		})},
		{"ids ignored", "due/ids", asked(func(q *query) {
			if len(q.IDs) > 0 {
				*q = allOf("", "")
			}
		})},
		{"rows of others", "due/own", func(b *broken) {
			b.due = func(ctx context.Context, m member, q query) (all records, next time.Duration, err error) {
				for _, other := range b.joined(m) {
					recs, n, e := other.Due(ctx, q)
					all, next, err = append(all, recs...), n, e
				}
				return all, next, err
			}
		}},
		{"lane in lower case", "due/lanes", asked(eachLane(func(l *storage.Lane) {
			if l.Group == "G1" {
				l.Group = "g1"
			}
		}))},
		{"look changes the row", "due/unchanged", func(b *broken) {
			b.due = func(ctx context.Context, m member, q query) (records, time.Duration, error) {
				recs, next, err := m.Due(ctx, q)
				for _, r := range recs {
					_, _ = m.Settle(ctx, storage.Outcome{ID: r.ID, Kind: storage.Retry})
				}
				return recs, next, err
			}
		}},
	}
}

func takeOverMutants() []mutant {
	return append(countMutants(), []mutant{
		{"taken from the living", "takeover/living", func(b *broken) {
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				for _, other := range b.joined(m) {
					if other != m {
						_ = other.Leave(ctx)
					}
				}
				return m.TakeOver(ctx, q)
			}
		}},
		{"taken by the dead", "takeover/by-the-ended", func(b *broken) {
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				recs, err := m.TakeOver(ctx, q)
				if errors.Is(err, storage.ErrLost) {
					return b.joined(m)[1].TakeOver(ctx, q)
				}
				return recs, err
			}
		}},
		{"dead never declared", "takeover/dead", func(b *broken) {
			b.join = func(ctx context.Context, in storage.Instance) (member, error) {
				in.Lease = longLease
				return b.Storage.Join(ctx, in)
			}
		}},
	}...)
}

func takeOverLimitMutants() []mutant {
	return []mutant{
		{"take over without limit", "limits/takeover-lane", taking(eachLane(noLimit))},
		{"take over without cursor", "limits/takeover-after", taking(eachLane(noCursor))},
		{"take over without size", "limits/takeover-bytes", taking(func(q *query) { q.MaxBytes = 0 })},
		{"more taken than returned", "limits/takeover-bytes", func(b *broken) {
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				most := q.MaxBytes
				q.MaxBytes = 0
				recs, err := m.TakeOver(ctx, q)
				for n := range recs {
					if most > 0 && size(recs[:n]) > most {
						return recs[:n], err
					}
				}
				return recs, err
			}
		}},
		{"age ignored", "stale/age", taking(func(q *query) { q.Stale = 0 })},
		{"age ignored, all taken", "stale/group", taking(func(q *query) { q.Stale = min(q.Stale, 1) })},
		{"every subscriber always", "stale/lane-without", taking(func(q *query) { q.Stale = max(q.Stale, 1) })},
		{"by id only what is due", "takeover/by-id", taking(func(q *query) {
			if len(q.IDs) > 0 {
				*q = allOf("", "")
			}
		})},
		{"one row for two", "takeover/shared", func(b *broken) {
			var mu sync.Mutex
			var before records
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				recs, err := m.TakeOver(ctx, q)
				mu.Lock()
				defer mu.Unlock()
				if before == nil && len(recs) > 0 {
					before = recs
					return recs, err
				}
				return append(recs, before...), err
			}
		}},
	}
}

func countMutants() []mutant {
	// counted changes the takeovers of the rows that are taken over.
	counted := func(f func(ctx context.Context, m member, r *record)) func(b *broken) {
		return func(b *broken) {
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				recs, err := m.TakeOver(ctx, q)
				for _, r := range recs {
					f(ctx, m, r)
				}
				return recs, err
			}
		}
	}
	more := counted(func(ctx context.Context, m member, r *record) {
		_, _ = m.Claim(ctx, r)
		r.Takeovers++
	})
	return []mutant{
		{"death not counted", "takeover/dead", counted(func(ctx context.Context, m member, r *record) {
			_, _ = m.Settle(ctx, storage.Outcome{ID: r.ID, Kind: storage.Postpone})
			r.Takeovers = 0
		})},
		{"every takeover counted", "takeover/dead-again", more},
		{"leaving counted as a death", "takeover/left", more},
		{"unknown owner counted as dead", "takeover/never-known", more},
		{"no owner counted as dead", "takeover/owner-null", more},
		{"count returned and not stored", "takeover/dead", counted(func(ctx context.Context, m member, r *record) {
			_, _ = m.Settle(ctx, storage.Outcome{ID: r.ID, Kind: storage.Postpone})
		})},
		{"taking over resets the row", "takeover/unchanged", counted(func(ctx context.Context, m member, r *record) {
			_, _ = m.Settle(ctx, storage.Outcome{ID: r.ID, Kind: storage.Retry, Attempt: 1, Error: "taken"})
		})},
	}
}
