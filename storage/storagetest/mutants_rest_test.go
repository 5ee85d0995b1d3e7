package storagetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// stored returns the rows of a box that are asked for, whoever owns them.
func (b *broken) stored(box storage.Box, ids []storage.ID) records {
	return slices.DeleteFunc(b.rows(box), func(r *record) bool { return !slices.Contains(ids, r.ID) })
}

func restMutants() []mutant {
	return []mutant{
		{"later ones first", "append/order", func(b *broken) {
			at := time.Now()
			rewritten(func(r *record) {
				at = at.Add(-time.Hour)
				r.DueAt = at
			})(b)
		}},
		{"only one of a call inserted", "append/duplicate-same-call", func(b *broken) {
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error {
				return tx.Append(ctx, slices.CompactFunc(slices.Clone(recs), func(a, b *record) bool { return a.ID == b.ID })...)
			}
		}},
		{"concurrent duplicate reported as published", "append/duplicate-concurrent", func(b *broken) {
			hide := func(err error) error {
				if errors.Is(err, storage.ErrDuplicate) {
					return nil
				}
				return err
			}
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error { return hide(tx.Append(ctx, recs...)) }
			b.commit = func(tx storage.Tx) error { return hide(tx.Commit()) }
		}},
		{"duplicate ends the handler's transaction", "inboxtx/duplicate", func(b *broken) {
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error {
				if err := tx.Append(ctx, recs...); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				return nil
			}
		}},
	}
}

func restLifeMutants() []mutant {
	return []mutant{
		{"cursor by row", "limits/after-moves-on", func(b *broken) {
			b.due = func(ctx context.Context, m member, q query) (records, time.Duration, error) {
				recs, next, err := m.Due(ctx, q)
				all, _, _ := m.Due(ctx, allOf("", ""))
				if len(q.Lanes) == 1 && q.Lanes[0].After.Seq > 0 &&
					!slices.ContainsFunc(all, func(r *record) bool { return r.Position.Seq == q.Lanes[0].After.Seq }) {
					recs = nil // the row of the cursor is not due any more
				}
				return recs, next, err
			}
		}},
		{"settle refused after leave", "members/settle-after-leave", func(b *broken) {
			var mu sync.Mutex
			gone := map[int64]bool{}
			b.leave = func(ctx context.Context, m member) error {
				mu.Lock()
				defer mu.Unlock()
				gone[m.Number()] = true
				return m.Leave(ctx)
			}
			b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
				mu.Lock()
				defer mu.Unlock()
				if gone[m.Number()] {
					return nil, storage.ErrLost
				}
				return m.Settle(ctx, outcomes...)
			}
		}},
	}
}

func restTakeOverMutants() []mutant {
	// unconditional returns rows of a box that are asked for by id, too.
	unconditional := func(box storage.Box) func(b *broken) {
		return func(b *broken) {
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				recs, err := m.TakeOver(ctx, q)
				if len(recs) == 0 {
					recs = b.stored(box, q.IDs)
				}
				return recs, err
			}
		}
	}
	return []mutant{
		{"final row taken over", "takeover/final", unconditional(storage.Inbox)},
		{"row of another version taken over", "takeover/version", unconditional(storage.Outbox)},
		{"callback lost with its owner", "takeover/callback-owed", func(b *broken) {
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				recs, err := m.TakeOver(ctx, q)
				return slices.DeleteFunc(recs, func(r *record) bool { return r.Final }), err
			}
		}},
		{"loss of a succeeded row not reported", "final/succeeded", func(b *broken) {
			b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
				_, err := m.Settle(ctx, outcomes...)
				return nil, err
			}
		}},
		{"failed row gone", "final/failed", stored(func(o *storage.Outcome) {
			if o.Kind == storage.Fail {
				o.Kind, o.After = storage.Succeed, -1
			}
		})},
	}
}

func restInboxMutants() []mutant {
	return []mutant{
		{"only the first record", "accept/insert", func(b *broken) {
			b.accept = func(ctx context.Context, m member, recs records) (records, error) { return m.Accept(ctx, recs[:1]...) }
		}},
		{"repeated call refused", "accept/dedup-repeated", func(b *broken) {
			b.accept = func(ctx context.Context, m member, recs records) (records, error) {
				if len(recs) > 0 && len(b.stored(storage.Inbox, idsOf(recs))) > 0 {
					return nil, storage.ErrDuplicate
				}
				return m.Accept(ctx, recs...)
			}
		}},
		{"dedup over versions", "accept/version", func(b *broken) {
			joining(func(in *storage.Instance) { in.Version = "v" })(b)
			acceptedAs(func(r *record) { r.Version = "v" })(b)
		}},
		{"faulty redelivery inserted", "fault/dedup", acceptedAs(func(r *record) {
			if r.Fault != "" {
				unique(r)
			}
		})},
		{"faulty row waits for a subscription", "fault/unmatched", acceptedAs(func(r *record) {
			if r.Subscriber == "" {
				r.Fault = ""
			}
		})},
		{"faulty row is nobody's", "fault/unmatched", func(b *broken) {
			b.due = func(ctx context.Context, m member, q query) (records, time.Duration, error) {
				recs, next, err := m.Due(ctx, q)
				return slices.DeleteFunc(recs, func(r *record) bool { return r.Subscriber == "" }), next, err
			}
		}},
		{"matched rows read as unmatched", "unmatched/only", func(b *broken) {
			b.unmatched = func(ctx context.Context, m member, groups []string, after int64, limit int) (records, error) {
				recs, err := m.Unmatched(ctx, groups, after, limit)
				more, _, _ := m.Due(ctx, allOf(groups[0], "s"))
				return append(recs, more...), err
			}
		}},
	}
}
