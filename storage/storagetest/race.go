package storagetest

import (
	"context"
	"errors"
	"time"

	"github.com/capbus/gocap/storage"
)

func raceCases() []testCase {
	const why = "Every change is conditional (id, owner, not final)."
	return []testCase{
		{"race/settle-or-takeover", why + " A row is settled by its old owner or taken over, never both.", raceSettleTakeOver},
		{"race/settle-or-settle", why + " Of two final outcomes one is stored.", raceSettleSettle},
		{"race/tx-or-takeover", why + " A handler's transaction takes effect, or another has the row, never both.", raceTxTakeOver},
	}
}

const rounds = 20

func raceSettleTakeOver(e *env) {
	heir := e.join(storage.Inbox)
	for range rounds {
		m := e.join(storage.Inbox)
		rec := e.accepted(m)
		e.leave(m)
		var taken []*storage.Record
		var lost []storage.ID
		ctx := e.op()
		together(2, func(i int) {
			var err error
			if i == 0 {
				taken, err = heir.TakeOver(ctx, byID(rec))
			} else {
				lost, err = m.Settle(ctx, succeed(rec))
			}
			if err != nil {
				e.Errorf("take over or settle: %v", err)
			}
		})
		settled, moved := len(lost) == 0, len(taken) == 1
		if settled == moved {
			e.Errorf("settled: %t, taken over: %t, want one of them", settled, moved)
		}
		e.wantSet("what the heir has", e.due(heir, byID(rec)), taken...)
	}
}

func raceSettleSettle(e *env) {
	m := e.join(storage.Inbox)
	for range rounds {
		rec := e.accepted(m)
		outcomes := []storage.Outcome{
			succeed(rec),
			{ID: rec.ID, Kind: storage.Fail, After: time.Hour, Callback: true},
			{ID: rec.ID, Kind: storage.Succeed, After: 2 * time.Hour},
		}
		lost := make([][]storage.ID, len(outcomes))
		ctx := e.op()
		together(len(outcomes), func(i int) {
			var err error
			if lost[i], err = m.Settle(ctx, outcomes[i]); err != nil {
				e.Errorf("settle: %v", err)
			}
		})
		winner, stored := -1, 0
		for i := range outcomes {
			if len(lost[i]) == 0 {
				winner = i
				stored++
			}
		}
		if stored != 1 {
			e.Errorf("%d final outcomes were stored, want one", stored)
		}
		if owed := e.row(m, rec) != nil; owed != (winner == 1) {
			e.Errorf("outcome %d was stored, a callback is owed: %t", winner, owed)
		}
	}
}

func raceTxTakeOver(e *env) {
	heir, out := e.join(storage.Inbox), e.join(storage.Outbox)
	for range rounds {
		m := e.join(storage.Inbox)
		rec, msg := e.accepted(m), e.message(out)
		e.leave(m)
		var taken []*storage.Record
		var handled error
		ctx := e.op()
		together(2, func(i int) {
			if i == 1 {
				handled = e.handle(ctx, m, rec, msg)
				return
			}
			var err error
			if taken, err = heir.TakeOver(ctx, byID(rec)); err != nil {
				e.Errorf("take over: %v", err)
			}
		})
		if handled != nil && !errors.Is(handled, storage.ErrLost) {
			e.Errorf("settle in a transaction: %v, want ErrLost or none", handled)
		}
		if (handled == nil) == (len(taken) == 1) {
			e.Errorf("the transaction ended with %v, taken over: %t, want one of them", handled, len(taken) == 1)
		}
		if effect := e.row(out, msg) != nil; effect != (handled == nil) {
			e.Errorf("the transaction ended with %v, its writes are there: %t", handled, effect)
		}
	}
}

// handle is a transactional handler that publishes msg.
func (e *env) handle(ctx context.Context, m storage.Member, rec, msg *storage.Record) error {
	tx, err := e.store.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.Append(ctx, msg); err != nil {
		return err
	}
	if err := tx.Settle(ctx, m, succeed(rec)); err != nil {
		return err
	}
	return tx.Commit()
}
