package storagetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// joining changes how members join.
func joining(f func(in *storage.Instance)) func(b *broken) {
	return func(b *broken) {
		b.join = func(ctx context.Context, in storage.Instance) (member, error) {
			f(&in)
			return b.Storage.Join(ctx, in)
		}
	}
}

// settlingTx replaces Settle of a transaction.
func settlingTx(f func(ctx context.Context, tx storage.Tx, m member, o storage.Outcome) error) func(b *broken) {
	return func(b *broken) { b.settleTx = f }
}

func lifeMutants() []mutant {
	return append(purgeMutants(), []mutant{
		{"beat renews nothing", "takeover/beating", func(b *broken) { b.beat = func(context.Context, member) error { return nil } }},
		{"the left may beat", "members/beat-after-leave", func(b *broken) {
			b.beat = func(context.Context, member) error { return nil }
		}},
		{"the dead may beat", "members/beat-after-death", func(b *broken) {
			b.beat = func(ctx context.Context, m member) error { _ = m.Beat(ctx); return nil }
		}},
		{"leave does nothing", "takeover/left", func(b *broken) { b.leave = func(context.Context, member) error { return nil } }},
		{"leave gives rows away", "members/leave", func(b *broken) {
			b.leave = func(ctx context.Context, m member) error {
				heir, err := b.Storage.Join(ctx, storage.Instance{Box: storage.Inbox, Version: b.version(ctx, m), Lease: time.Second})
				if err != nil {
					return err
				}
				if err := m.Leave(ctx); err != nil {
					return err
				}
				_, _ = heir.TakeOver(ctx, allOf("g", "s"))
				return nil
			}
		}},
	}...)
}

func destinationMutants() []mutant {
	return []mutant{
		{"destination ignored", "members/destination", joining(func(in *storage.Instance) { in.Destination = "" })},
		{"destination without transport", "members/destination", joining(func(in *storage.Instance) { in.Transport = "any" })},
		{"destination of the dead", "members/destination-after-death", joining(func(in *storage.Instance) { in.Lease = longLease })},
		{"empty destination compared", "members/destination-empty", joining(func(in *storage.Instance) {
			if in.Destination == "" {
				in.Destination = "none"
			}
		})},
	}
}

func handlerMutants() []mutant {
	return []mutant{
		{"handler's settle outside", "inboxtx/rollback", settlingTx(func(ctx context.Context, _ storage.Tx, m member, o storage.Outcome) error {
			_, err := m.Settle(ctx, o)
			return err
		})},
		{"handler's settle forgotten", "inboxtx/commit", settlingTx(func(context.Context, storage.Tx, member, storage.Outcome) error { return nil })},
		{"handler's loss not noticed", "inboxtx/lost", settlingTx(func(ctx context.Context, tx storage.Tx, m member, o storage.Outcome) error {
			_ = tx.Settle(ctx, m, o)
			return nil
		})},
		{"handler settles a final row", "inboxtx/final", settlingTx(func(ctx context.Context, tx storage.Tx, m member, o storage.Outcome) error {
			_ = tx.Settle(ctx, m, o)
			return nil
		})},
		{"handler settles after the end", "inboxtx/ended", settlingTx(func(ctx context.Context, tx storage.Tx, m member, o storage.Outcome) error {
			_ = tx.Settle(ctx, m, o)
			return nil
		})},
		{"handler's outcome always success", "inboxtx/outcomes", settlingTx(func(ctx context.Context, tx storage.Tx, m member, o storage.Outcome) error {
			o.Kind = storage.Succeed
			return tx.Settle(ctx, m, o)
		})},
		{"handler's publish outside", "inboxtx/bound", func(b *broken) {
			b.bind = func(any) (storage.Writer, error) { return asideWriter{b}, nil }
		}},
	}
}

func raceMutants() []mutant {
	return []mutant{
		{"settle and take over both", "race/settle-or-takeover", func(b *broken) {
			b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
				_, err := m.Settle(ctx, outcomes...)
				return nil, err
			}
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				recs, err := m.TakeOver(ctx, q)
				for _, r := range b.rows(storage.Inbox) {
					if len(recs) == 0 && slices.Contains(q.IDs, r.ID) {
						recs = records{r}
					}
				}
				return recs, err
			}
		}},
		{"every settle succeeds", "race/settle-or-settle", func(b *broken) {
			b.settle = func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error) {
				_, err := m.Settle(ctx, outcomes...)
				return nil, err
			}
		}},
		{"handler's writes without its settle", "race/tx-or-takeover", settlingTx(func(context.Context, storage.Tx, member, storage.Outcome) error { return nil })},
	}
}

func purgeMutants() []mutant {
	return []mutant{
		{"purge of unfinished rows", "purge/exactly", func(b *broken) {
			b.purge = func(ctx context.Context, p storage.Purge) (int, error) {
				b.endAll(ctx, storage.Outcome{Kind: storage.Succeed, After: -1})
				return b.Storage.Purge(ctx, p)
			}
		}},
		{"purge before the callback", "purge/callback-owed", func(b *broken) {
			b.purge = func(ctx context.Context, p storage.Purge) (int, error) {
				b.endAll(ctx, storage.Outcome{Kind: storage.CallbackDone})
				return b.Storage.Purge(ctx, p)
			}
		}},
		{"purge without limit", "purge/limit", func(b *broken) {
			b.purge = func(ctx context.Context, p storage.Purge) (int, error) {
				p.Limit = 1000
				return b.Storage.Purge(ctx, p)
			}
		}},
		{"purge counts wrong", "purge/limit", func(b *broken) {
			b.purge = func(ctx context.Context, p storage.Purge) (int, error) {
				n, err := b.Storage.Purge(ctx, p)
				return min(n, 1), err
			}
		}},
	}
}

func purgeScopeMutants() []mutant {
	return []mutant{
		{"purge before expiry", "purge/exactly", stored(func(o *storage.Outcome) { o.After = min(o.After, time.Millisecond) })},
		{"purge of the other box", "purge/box-and-version", func(b *broken) {
			b.purge = func(ctx context.Context, p storage.Purge) (int, error) {
				n, err := b.Storage.Purge(ctx, p)
				p.Box = storage.Outbox + storage.Inbox - p.Box
				_, _ = b.Storage.Purge(ctx, p)
				return n, err
			}
		}},
		{"purge of every version", "purge/box-and-version", func(b *broken) {
			var mu sync.Mutex
			versions := map[string]bool{}
			joining(func(in *storage.Instance) {
				mu.Lock()
				defer mu.Unlock()
				versions[in.Version] = true
			})(b)
			b.purge = func(ctx context.Context, p storage.Purge) (n int, err error) {
				mu.Lock()
				defer mu.Unlock()
				for p.Version = range versions {
					k, e := b.Storage.Purge(ctx, p)
					n, err = n+k, e
				}
				return n, err
			}
		}},
	}
}

// endAll settles every row of every member.
func (b *broken) endAll(ctx context.Context, o storage.Outcome) {
	for _, m := range b.joined(nil) {
		if m == nil {
			continue
		}
		for _, q := range []query{allOf("", ""), allOf("g", "s")} {
			recs, _, _ := m.Due(ctx, q)
			for _, r := range recs {
				o.ID = r.ID
				_, _ = m.Settle(ctx, o)
			}
		}
	}
}

// version returns that of a member's rows.
func (b *broken) version(ctx context.Context, m member) string {
	recs, _, _ := m.Due(ctx, allOf("g", "s"))
	if len(recs) == 0 {
		return ""
	}
	return recs[0].Version
}
