package storagetest

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// copies applies f to copies of records.
func copies(recs records, f func(*record)) records {
	out := make(records, len(recs))
	for i, rec := range recs {
		c := *rec
		f(&c)
		out[i] = &c
	}
	return out
}

// rewritten appends records changed by f.
func rewritten(f func(*record)) func(b *broken) {
	return func(b *broken) {
		b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error {
			return tx.Append(ctx, copies(recs, f)...)
		}
	}
}

// aside appends in a transaction of its own.
func (b *broken) aside(ctx context.Context, recs records) error {
	tx, err := b.Storage.Begin(ctx)
	if err != nil {
		return err
	}
	if err := tx.Append(ctx, recs...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

type asideWriter struct{ b *broken }

func (w asideWriter) Append(ctx context.Context, recs ...*record) error { return w.b.aside(ctx, recs) }

type liar struct{ storage.Writer }

func (l liar) OnEnd(f func(bool)) {
	l.Writer.(storage.EndNotifier).OnEnd(func(bool) { f(true) })
}

func (l liar) TxValues() *sync.Map { return l.Writer.(storage.EndNotifier).TxValues() }

func txMutants() []mutant {
	return append(appendMutants(), []mutant{
		{"append commits at once", "tx/invisible", func(b *broken) {
			b.appendTx = func(ctx context.Context, _ storage.Tx, recs records) error { return b.aside(ctx, recs) }
		}},
		{"rollback commits", "tx/rollback", func(b *broken) { b.rollback = storage.Tx.Commit }},
		{"rollback undoes a commit", "tx/rollback-after-commit", func(b *broken) {
			b.commit = func(storage.Tx) error { return nil }
		}},
		{"commit after the end", "tx/ended", func(b *broken) {
			b.commit = func(tx storage.Tx) error { _ = tx.Commit(); return nil }
		}},
		{"append after the end", "tx/ended", func(b *broken) {
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error {
				if err := tx.Append(ctx, recs...); errors.Is(err, storage.ErrTxDone) {
					return nil
				}
				return nil
			}
		}},
		{"context ignored", "tx/context", func(b *broken) {
			b.begin = func(ctx context.Context) (storage.Tx, error) { return b.Storage.Begin(context.WithoutCancel(ctx)) }
		}},
	}...)
}

func bindMutants() []mutant {
	return []mutant{
		{"foreign type accepted", "bind/foreign", func(b *broken) {
			b.bind = func(any) (storage.Writer, error) { return asideWriter{b}, nil }
		}},
		{"nil accepted", "bind/nil", func(b *broken) {
			b.bind = func(tx any) (storage.Writer, error) {
				if tx == nil || reflect.ValueOf(tx).IsNil() {
					return asideWriter{b}, nil
				}
				return b.Storage.Bind(tx)
			}
		}},
		{"ended transaction accepted", "bind/ended", func(b *broken) {
			b.bind = func(tx any) (storage.Writer, error) {
				w, err := b.Storage.Bind(tx)
				if errors.Is(err, storage.ErrTxDone) {
					return asideWriter{b}, nil
				}
				return w, err
			}
		}},
		{"bound writer beside the transaction", "bind/value", func(b *broken) {
			b.bind = func(any) (storage.Writer, error) { return asideWriter{b}, nil }
		}},
		{"rollback reported as commit", "bind/end", func(b *broken) {
			b.bind = func(tx any) (storage.Writer, error) {
				w, err := b.Storage.Bind(tx)
				return liar{w}, err
			}
		}},
	}
}

func appendMutants() []mutant {
	return []mutant{
		{"append changes the records", "append/many", func(b *broken) {
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error {
				for _, rec := range recs {
					rec.Position.Seq = 1
				}
				return tx.Append(ctx, recs...)
			}
		}},
		{"only the first record", "append/many", func(b *broken) {
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error { return tx.Append(ctx, recs[:1]...) }
		}},
		{"due at the time of the day", "append/due-at", rewritten(func(r *record) {
			if !r.DueAt.IsZero() {
				r.DueAt = time.Date(r.DueAt.Year(), r.DueAt.Month(), r.DueAt.Day(), r.DueAt.Hour(), r.DueAt.Minute(), r.DueAt.Second(), r.DueAt.Nanosecond(), time.UTC)
			}
		})},
		{"delay ignored", "append/delay", rewritten(func(r *record) { r.Delay = 0 })},
		{"due time ignored", "append/delay", rewritten(func(r *record) { r.DueAt = r.DueAt.AddDate(-9, 0, 0) })},
		{"owner ignored", "append/owner", rewritten(func(r *record) { r.Owner = 0 })},
		{"version ignored", "due/version", func(b *broken) {
			rewritten(func(r *record) { r.Version = "v" })(b)
			b.join = func(ctx context.Context, in storage.Instance) (member, error) {
				in.Version = "v"
				return b.Storage.Join(ctx, in)
			}
		}},
		{"body cut at a zero byte", "content/bytes", rewritten(func(r *record) {
			for i, c := range r.Body {
				if c == 0 {
					r.Body = r.Body[:i]
					return
				}
			}
		})},
		{"body cut at 64 KiB", "content/bytes", rewritten(func(r *record) { r.Body = r.Body[:min(len(r.Body), 1<<16)] })},
		{"headers lost", "content/fields", rewritten(func(r *record) { r.Headers = nil })},
		{"names cut", "content/names", rewritten(func(r *record) { r.Topic = r.Topic[:min(len(r.Topic), 200)] })},
	}
}

func duplicateMutants() []mutant {
	return []mutant{
		{"duplicate swallowed", "append/duplicate-committed", func(b *broken) {
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error {
				if err := tx.Append(ctx, recs...); !errors.Is(err, storage.ErrDuplicate) {
					return err
				}
				return nil
			}
		}},
		{"duplicate ends the transaction", "append/duplicate-own", func(b *broken) {
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error {
				err := tx.Append(ctx, recs...)
				if errors.Is(err, storage.ErrDuplicate) {
					_ = tx.Rollback()
				}
				return err
			}
		}},
		{"rest inserted beside a duplicate", "append/duplicate-committed", func(b *broken) {
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) (err error) {
				for _, rec := range recs {
					err = errors.Join(err, tx.Append(ctx, rec))
				}
				return err
			}
		}},
		{"ids never given twice are refused", "append/duplicate-after-rollback", func(b *broken) {
			seen := map[storage.ID]bool{}
			b.appendTx = func(ctx context.Context, tx storage.Tx, recs records) error {
				for _, rec := range recs {
					if seen[rec.ID] {
						return storage.ErrDuplicate
					}
					seen[rec.ID] = true
				}
				return tx.Append(ctx, recs...)
			}
		}},
	}
}
