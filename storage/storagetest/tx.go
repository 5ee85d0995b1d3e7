package storagetest

import (
	"context"
	"errors"
	"time"

	"github.com/capbus/gocap/storage"
)

func txCases() []testCase {
	return []testCase{
		{"tx/invisible", "A committed message leaves, one that is not committed never does: rows of an open transaction are seen by nobody.", txInvisible},
		{"tx/rollback", "A message never leaves although the transaction rolled back.", txRollback},
		{"tx/rollback-after-commit", "Rollback after Commit or Rollback does nothing.", txRollbackAfterCommit},
		{"tx/ended", "ErrTxDone: the transaction has ended.", txEnded},
		{"tx/context", "The context bounds its whole life: when it ends, the transaction is rolled back.", txContext},
		{"tx/concurrent", "All methods may be called concurrently.", txConcurrent},
	}
}

func txInvisible(e *env) {
	m := e.join(storage.Outbox)
	rec := e.message(m)
	tx := e.begin()
	e.must(tx.Append(e.op(), rec), "append")
	// A storage may let readers wait for a writer, but not for ever: the
	// transaction does not end before they do.
	ctx, cancel := context.WithTimeout(e.Context(), time.Second)
	defer cancel()
	for _, q := range []storage.Query{allOf("", ""), byID(rec)} {
		if recs, _, err := m.Due(ctx, q); err == nil {
			e.wantRows("seen before the commit", recs)
		}
	}
	e.must(tx.Commit(), "commit")
	e.wantRows("seen after the commit", e.due(m, allOf("", "")), rec)
}

func txRollback(e *env) {
	m := e.join(storage.Outbox)
	mine, free := e.message(m), e.message(nil)
	tx := e.begin()
	e.must(tx.Append(e.op(), mine, free), "append")
	e.must(tx.Rollback(), "rollback")
	e.wantRows("due after the rollback", e.due(m, allOf("", "")))
	e.wantRows("by id after the rollback", e.due(m, byID(mine, free)))
	e.wantRows("taken over after the rollback", e.takeOver(m, byID(mine, free)))
}

func txRollbackAfterCommit(e *env) {
	m := e.join(storage.Outbox)
	rec := e.message(m)
	tx := e.begin()
	e.must(tx.Append(e.op(), rec), "append")
	e.must(tx.Commit(), "commit")
	e.must(tx.Rollback(), "rollback after commit")
	e.must(tx.Rollback(), "rollback once more")
	e.wantRows("after commit and rollback", e.due(m, allOf("", "")), rec)
}

func txEnded(e *env) {
	m := e.join(storage.Outbox)
	for _, commit := range []bool{true, false} {
		tx := e.begin()
		if commit {
			e.must(tx.Commit(), "commit")
		} else {
			e.must(tx.Rollback(), "rollback")
		}
		if err := tx.Append(e.op(), e.message(m)); !errors.Is(err, storage.ErrTxDone) {
			e.Errorf("append after the end: %v, want ErrTxDone", err)
		}
		if err := tx.Commit(); err == nil {
			e.Errorf("commit after the end: no error")
		}
	}
	e.wantRows("appended after the end", e.due(m, allOf("", "")))
}

func txContext(e *env) {
	m := e.join(storage.Outbox)
	rec := e.message(m)
	ctx, cancel := context.WithCancel(e.op())
	defer cancel()
	tx, err := e.store.Begin(ctx)
	e.must(err, "begin")
	e.must(tx.Append(e.op(), rec), "append")
	cancel()
	if err := tx.Commit(); err == nil {
		e.Errorf("commit after the end of the context: no error")
	}
	e.must(tx.Rollback(), "rollback after the end of the context")
	e.wantRows("seen after the end of the context", e.due(m, byID(rec)))
	if _, err := e.store.Begin(ctx); err == nil {
		e.Errorf("begin with a context that has ended: no error")
	}
}

func txConcurrent(e *env) {
	m := e.join(storage.Outbox)
	const n, each = 8, 5
	var committed []*storage.Record
	recs := make([][]*storage.Record, n)
	for i := range recs {
		recs[i] = e.messages(each, m)
		if i%2 == 0 {
			committed = append(committed, recs[i]...)
		}
	}
	errs := make([]error, n)
	ctx := e.op()
	together(n, func(i int) {
		tx, err := e.store.Begin(ctx)
		if err != nil {
			errs[i] = err
			return
		}
		defer func() { _ = tx.Rollback() }()
		for _, rec := range recs[i] {
			errs[i] = errors.Join(errs[i], tx.Append(ctx, rec))
		}
		if i%2 == 0 {
			errs[i] = errors.Join(errs[i], tx.Commit())
		}
	})
	e.must(errors.Join(errs...), "concurrent transactions")
	e.wantSet("of transactions of which every other was committed", e.due(m, allOf("", "")), committed...)
}
