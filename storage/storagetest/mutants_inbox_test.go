package storagetest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

// acceptedAs accepts records changed by f, and answers with the originals.
func acceptedAs(f func(*record)) func(b *broken) {
	return func(b *broken) {
		b.accept = func(ctx context.Context, m member, recs records) (records, error) {
			fresh, err := m.Accept(ctx, copies(recs, f)...)
			var out records
			for _, c := range fresh {
				for _, rec := range recs {
					if rec.ID == c.ID {
						out = append(out, rec)
					}
				}
			}
			return out, err
		}
	}
}

func unique(r *record) {
	id := storage.ID(ids.New())
	r.MessageID += id.String()
}

func inboxMutants() []mutant {
	return append(splitMutants(), []mutant{
		{"no dedup", "accept/dedup", acceptedAs(unique)},
		{"no dedup in a call", "accept/dedup-same-call", acceptedAs(unique)},
		{"no dedup of concurrent calls", "accept/concurrent", acceptedAs(unique)},
		{"check, then insert", "accept/concurrent", checkThenInsert},
		{"skipped reported as fresh", "accept/dedup", func(b *broken) {
			b.accept = func(ctx context.Context, m member, recs records) (records, error) {
				_, err := m.Accept(ctx, recs...)
				return recs, err
			}
		}},
	}...)
}

func keyMutants() []mutant {
	return []mutant{
		{"dedup by message id alone", "accept/key", func(b *broken) {
			var mu sync.Mutex
			seen := map[string]bool{}
			b.accept = func(ctx context.Context, m member, recs records) (records, error) {
				mu.Lock()
				defer mu.Unlock()
				var some records
				for _, rec := range recs {
					if !seen[rec.MessageID] {
						some = append(some, rec)
					}
					seen[rec.MessageID] = true
				}
				return m.Accept(ctx, some...)
			}
		}},
		{"ids in any case", "accept/bytes", acceptedAs(func(r *record) { r.MessageID = strings.ToLower(r.MessageID) })},
		{"trailing spaces ignored", "accept/bytes", acceptedAs(func(r *record) { r.Topic = strings.TrimSpace(r.Topic) })},
		{"ids made valid text", "accept/any-bytes", acceptedAs(func(r *record) { r.MessageID = storage.CleanError(r.MessageID) })},
		{"long ids cut", "accept/long-id", acceptedAs(func(r *record) { r.MessageID = r.MessageID[:min(len(r.MessageID), 255)] })},
		{"redelivery becomes another's", "accept/dedup", func(b *broken) {
			b.accept = func(ctx context.Context, m member, recs records) (records, error) {
				fresh, err := m.Accept(ctx, recs...)
				if len(fresh) > 0 {
					return fresh, err
				}
				for _, other := range b.joined(m) {
					if other != m {
						_ = other.Leave(ctx)
					}
				}
				_, _ = m.TakeOver(ctx, allOf("g", "s"))
				return fresh, err
			}
		}},
		{"unmatched rows are owned", "accept/unmatched", func(b *broken) {
			b.accept = func(ctx context.Context, m member, recs records) (records, error) {
				fresh, err := m.Accept(ctx, recs...)
				_, _ = m.TakeOver(ctx, byID(fresh...))
				return fresh, err
			}
		}},
		{"accept without context", "accept/cancelled", func(b *broken) {
			b.accept = func(ctx context.Context, m member, recs records) (records, error) {
				return m.Accept(context.WithoutCancel(ctx), recs...)
			}
		}},
	}
}

func faultMutants() []mutant {
	return []mutant{
		{"fault ignored", "fault/final", acceptedAs(func(r *record) { r.Fault = "" })},
		{"callback of a fault dropped", "fault/callback", acceptedAs(func(r *record) { r.FaultCallback = false })},
		{"callback of a fault always owed", "fault/final", acceptedAs(func(r *record) { r.FaultCallback = true })},
		{"fault text lost", "fault/callback", acceptedAs(func(r *record) {
			if r.Fault != "" {
				r.Fault = "x"
			}
		})},
		{"fault never expires", "fault/expires", acceptedAs(func(r *record) { r.FaultExpires = time.Hour })},
	}
}

// checkThenInsert looks for the records first, and inserts them in a second
// step, whatever has happened in between.
func checkThenInsert(b *broken) {
	var mu sync.Mutex
	seen := map[string]bool{}
	var meeting sync.WaitGroup // two of the callers have looked
	meeting.Add(2)
	calls := 0
	b.accept = func(ctx context.Context, m member, recs records) (records, error) {
		var some records
		mu.Lock()
		for _, rec := range recs {
			if !seen[rec.MessageID] {
				some = append(some, rec)
			}
		}
		calls++
		first := calls <= 2
		mu.Unlock()
		if first {
			meeting.Done()
			meeting.Wait()
		}
		if _, err := m.Accept(ctx, copies(some, unique)...); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rec := range some {
			seen[rec.MessageID] = true
		}
		return some, nil
	}
}

func splitMutants() []mutant {
	return []mutant{
		{"split keeps the row", "split/replaces", func(b *broken) {
			b.split = func(ctx context.Context, m member, _ *record, into records) (records, error) {
				return m.Accept(ctx, into...)
			}
		}},
		{"split twice", "split/once", func(b *broken) {
			b.split = func(ctx context.Context, m member, row *record, into records) (records, error) {
				fresh, err := m.Split(ctx, row, into...)
				if len(fresh) == 0 && err == nil {
					return m.Accept(ctx, copies(into, unique)...)
				}
				return fresh, err
			}
		}},
		{"split of a row that is gone", "split/gone", func(b *broken) {
			b.split = func(ctx context.Context, m member, row *record, into records) (records, error) {
				_, _ = m.Split(ctx, row, into...)
				return m.Accept(ctx, into...)
			}
		}},
		{"split of a failed row", "split/or-failed", func(b *broken) {
			b.split = func(ctx context.Context, m member, row *record, into records) (records, error) {
				_, _ = m.Split(ctx, row, into...)
				return into, nil
			}
			b.settle = func(context.Context, member, []storage.Outcome) ([]storage.ID, error) { return nil, nil }
		}},
	}
}

func splitWrongMutants() []mutant {
	return []mutant{
		{"split of a matched row", "split/matched", func(b *broken) {
			b.split = func(ctx context.Context, m member, row *record, into records) (records, error) {
				_, _ = m.Settle(ctx, storage.Outcome{ID: row.ID, Kind: storage.Succeed, After: -1})
				return m.Accept(ctx, into...)
			}
		}},
		{"split in two transactions", "split/atomic", func(b *broken) {
			b.split = func(ctx context.Context, m member, row *record, into records) (records, error) {
				_, _ = m.TakeOver(context.WithoutCancel(ctx), byID(row))
				_, _ = m.Settle(context.WithoutCancel(ctx), storage.Outcome{ID: row.ID, Kind: storage.Succeed, After: -1})
				return m.Accept(ctx, into...)
			}
		}},
		{"split answers with all", "split/skips", func(b *broken) {
			b.split = func(ctx context.Context, m member, row *record, into records) (records, error) {
				_, err := m.Split(ctx, row, into...)
				return into, err
			}
		}},
	}
}

func unmatchedMutants() []mutant {
	return []mutant{
		{"unmatched from the start", "unmatched/order", func(b *broken) {
			b.unmatched = func(ctx context.Context, m member, groups []string, _ int64, limit int) (records, error) {
				return m.Unmatched(ctx, groups, 0, limit)
			}
		}},
		{"unmatched without limit", "unmatched/order", func(b *broken) {
			b.unmatched = func(ctx context.Context, m member, groups []string, after int64, _ int) (records, error) {
				return m.Unmatched(ctx, groups, after, 1000)
			}
		}},
		{"unmatched of the first group", "unmatched/groups", func(b *broken) {
			b.unmatched = func(ctx context.Context, m member, groups []string, after int64, limit int) (records, error) {
				return m.Unmatched(ctx, groups[:1], after, limit)
			}
		}},
	}
}
