package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

// stored changes the outcomes that are stored.
func stored(f func(o *storage.Outcome)) func(b *broken) {
	return func(b *broken) {
		b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
			outcomes = slices.Clone(outcomes)
			for i := range outcomes {
				f(&outcomes[i])
			}
			return m.Settle(ctx, outcomes...)
		}
	}
}

// otherwise settles what was lost in another way.
func otherwise(f func(ctx context.Context, b *broken, m member, o storage.Outcome)) func(b *broken) {
	return func(b *broken) {
		b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
			lost, err := m.Settle(ctx, outcomes...)
			for _, o := range outcomes {
				if slices.Contains(lost, o.ID) {
					f(ctx, b, m, o)
				}
			}
			return lost, err
		}
	}
}

func settleMutants() []mutant {
	return append(outcomeMutants(), []mutant{
		{"owner ignored", "settle/not-owned", otherwise(func(ctx context.Context, b *broken, m member, o storage.Outcome) {
			for _, other := range b.joined(m) {
				_, _ = other.Settle(ctx, o)
			}
		})},
		{"owner ignored after a takeover", "takeover/lost-to-heir", otherwise(func(ctx context.Context, b *broken, m member, o storage.Outcome) {
			for _, other := range b.joined(m) {
				_, _ = other.Settle(ctx, o)
			}
		})},
		{"nothing reported as lost", "settle/mixed-batch", func(b *broken) {
			b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
				_, err := m.Settle(ctx, outcomes...)
				return nil, err
			}
		}},
		{"all reported as lost", "settle/mixed-batch", func(b *broken) {
			b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) (all []storage.ID, err error) {
				if all, err = m.Settle(ctx, outcomes...); len(all) > 0 {
					all = nil
					for _, o := range outcomes {
						all = append(all, o.ID)
					}
				}
				return all, err
			}
		}},
		{"final row settled again", "final/callback-owed", otherwise(func(ctx context.Context, _ *broken, m member, o storage.Outcome) {
			_, _ = m.Settle(ctx, storage.Outcome{ID: o.ID, Kind: storage.CallbackDone})
		})},
		{"callback done ends any row", "final/not-yet", stored(func(o *storage.Outcome) {
			if o.Kind == storage.CallbackDone {
				o.Kind, o.After = storage.Fail, time.Hour
			}
		})},
		{"settled without writing", "settle/succeed", func(b *broken) {
			b.settle = func(context.Context, member, []storage.Outcome) ([]storage.ID, error) { return nil, nil }
		}},
	}...)
}

func claimMutants() []mutant {
	return []mutant{
		{"claim writes nothing", "claim/delayed", func(b *broken) {
			b.claim = func(_ context.Context, _ member, recs records) (records, error) { return recs, nil }
		}},
		{"claim counts in memory only", "claim/takeovers", func(b *broken) {
			b.claim = func(_ context.Context, _ member, recs records) (records, error) {
				return copies(recs, func(r *record) { r.Takeovers++ }), nil
			}
		}},
		{"claim returns unchanged rows", "claim/nothing-to-write", func(b *broken) {
			b.claim = func(ctx context.Context, m member, recs records) (records, error) {
				_, err := m.Claim(ctx, recs...)
				return recs, err
			}
		}},
		{"claim of rows of others", "claim/not-owned", func(b *broken) {
			b.claim = func(ctx context.Context, m member, recs records) (all records, err error) {
				for _, other := range b.joined(m) {
					got, e := other.Claim(ctx, recs...)
					all, err = append(all, got...), e
				}
				return all, err
			}
		}},
		{"claim won by many", "claim/once", func(b *broken) {
			b.claim = func(ctx context.Context, m member, recs records) (records, error) {
				_, err := m.Claim(ctx, recs...)
				return copies(recs, func(r *record) { r.Status = storage.Scheduled }), err
			}
		}},
		{"claim lost by death", "claim/survives-death", func(b *broken) {
			b.claim = func(_ context.Context, _ member, recs records) (records, error) { return recs, nil }
		}},
		{"release takes the first death off", "claim/release-of-first", func(b *broken) {
			b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
				outcomes = slices.Clone(outcomes)
				for i, o := range outcomes {
					for _, r := range b.rows(storage.Outbox) {
						if r.ID == o.ID && o.Claimed && r.Takeovers == 1 {
							outcomes[i].Kind = storage.Postpone
						}
					}
				}
				return m.Settle(ctx, outcomes...)
			}
		}},
		{"release of the second death keeps it", "claim/release-of-first", stored(func(o *storage.Outcome) { o.Claimed = false })},
		{"release keeps the count", "claim/release", stored(func(o *storage.Outcome) { o.Claimed = false })},
		{"release counts as an attempt", "claim/release", stored(func(o *storage.Outcome) {
			if o.Kind == storage.Release {
				o.Kind, o.Attempt = storage.Retry, 1
			}
		})},
	}
}

func outcomeMutants() []mutant {
	return []mutant{
		{"retry at once", "settle/retry", stored(func(o *storage.Outcome) { o.After = min(o.After, 0) })},
		{"retry never counted", "settle/retry", stored(func(o *storage.Outcome) { o.Attempt = 0 })},
		{"retry always counted", "settle/retry", stored(func(o *storage.Outcome) { o.Attempt++ })},
		{"attempts added up", "settle/twice", func(b *broken) {
			b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
				outcomes = slices.Clone(outcomes)
				for i, o := range outcomes {
					for _, r := range b.rows(storage.Inbox) {
						if r.ID == o.ID && o.Attempt > 0 {
							outcomes[i].Attempt = r.Retries + 1
						}
					}
				}
				return m.Settle(ctx, outcomes...)
			}
		}},
		{"retry waits too long", "settle/retry-at-once", stored(func(o *storage.Outcome) { o.After += time.Hour })},
		{"postponed is failed", "settle/postpone", stored(func(o *storage.Outcome) {
			if o.Kind == storage.Postpone {
				o.Kind = storage.Retry
			}
		})},
		{"success deletes", "settle/succeed", stored(func(o *storage.Outcome) { o.After = -1 })},
		{"success never deletes", "settle/succeed-deleted", stored(func(o *storage.Outcome) { o.After = time.Hour })},
		{"success expires at once", "settle/succeed", stored(func(o *storage.Outcome) { o.After = 0 })},
		{"failure is retried", "settle/fail", stored(func(o *storage.Outcome) {
			if o.Kind == storage.Fail {
				o.Kind, o.After = storage.Retry, 0
			}
		})},
		{"callback dropped", "settle/fail-callback", stored(func(o *storage.Outcome) { o.Callback = false })},
		{"callback always owed", "settle/fail", stored(func(o *storage.Outcome) { o.Callback = true })},
		{"callback never done", "settle/fail-callback", func(b *broken) {
			b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
				if len(outcomes) == 1 && outcomes[0].Kind == storage.CallbackDone {
					return nil, nil
				}
				return m.Settle(ctx, outcomes...)
			}
		}},
		{"takeovers survive a settle", "settle/takeovers", answered(func(r records, next time.Duration) (records, time.Duration) {
			return copies(r, func(rec *record) { rec.Takeovers = 2 }), next
		})},
		{"error not cleaned", "settle/error-clean", answered(func(r records, next time.Duration) (records, time.Duration) {
			return copies(r, func(rec *record) { rec.LastError += "\x00" }), next
		})},
		{"error cut too early", "settle/error-clean", stored(func(o *storage.Outcome) { o.Error = o.Error[:min(len(o.Error), 4000)] })},
		{"error overwritten by none", "settle/error-kept", stored(func(o *storage.Outcome) {
			if o.Error == "" {
				o.Error = " "
			}
		})},
	}
}
