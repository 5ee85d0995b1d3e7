package gormstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

// Claim implements storage.Member.
func (m *member) Claim(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	if len(recs) == 0 {
		return nil, nil
	}
	list := make([]storage.ID, len(recs))
	for i, r := range recs {
		list[i] = r.ID
	}
	var r reader
	err := m.s.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		r = reader{next: -1}
		return batches(unique(list), sqliteRows, func(part []storage.ID) error {
			rows, err := tx.QueryContext(ctx, m.s.text.claim(m.box, len(part)), append(idArgs(part), m.number)...)
			if err != nil {
				return err
			}
			return r.read(rows)
		})
	})
	if err != nil {
		return nil, m.failed("claim", err)
	}
	byPlace(r.recs)
	return r.recs, nil
}

// Settle implements storage.Member: all outcomes in one transaction.
func (m *member) Settle(ctx context.Context, outcomes ...storage.Outcome) ([]storage.ID, error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	var lost []storage.ID
	err := m.s.inTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		lost, err = m.s.settleIn(ctx, tx, m.box, m.number, outcomes)
		return err
	})
	if err != nil {
		return nil, m.failed("settle", err)
	}
	return lost, nil
}

// settleIn stores outcomes in a transaction: one statement for the successes
// that expire equally late, one for those deleted at once, one for the rest.
func (s *Store) settleIn(
	ctx context.Context, tx querier, b storage.Box, number int64, outcomes []storage.Outcome,
) ([]storage.ID, error) {
	done := make(map[storage.ID]bool, len(outcomes))
	kept := make(map[time.Duration][]storage.ID)
	var gone []storage.ID
	var rest []storage.Outcome
	for _, o := range outcomes {
		switch {
		case o.Kind < storage.Succeed || o.Kind > storage.Release:
			return nil, fmt.Errorf("outcome of %s has the unknown kind %d", o.ID, o.Kind)
		case o.Kind != storage.Succeed:
			rest = append(rest, o)
		case o.After < 0:
			gone = append(gone, o.ID)
		default:
			kept[o.After] = append(kept[o.After], o.ID)
		}
	}
	for after, list := range kept {
		err := batches(list, sqliteRows, func(part []storage.ID) error {
			args := append([]any{microsUp(after)}, append(idArgs(part), number)...)
			return s.settled(ctx, tx, done, s.text.succeed(b, len(part)), args)
		})
		if err != nil {
			return nil, err
		}
	}
	err := batches(gone, sqliteRows, func(part []storage.ID) error {
		return s.settled(ctx, tx, done, s.text.remove(b, len(part)), append(idArgs(part), number))
	})
	if err != nil {
		return nil, err
	}
	err = batches(rest, sqliteRows, func(part []storage.Outcome) error {
		return s.settleRest(ctx, tx, b, number, part, done)
	})
	if err != nil {
		return nil, err
	}
	return missing(outcomes, done), nil
}

// settleRest halves a batch that is refused for its data, and stores the
// culprit without its error text.
func (s *Store) settleRest(
	ctx context.Context, tx querier, b storage.Box, number int64, part []storage.Outcome, done map[storage.ID]bool,
) error {
	args := make([]any, 0, 8*len(part)+1)
	for _, o := range part {
		args = append(args, outcomeValues(o)...)
	}
	for _, o := range part {
		args = append(args, slices.Clone(o.ID[:]))
	}
	err := s.settled(ctx, tx, done, s.text.settle(b, len(part)), append(args, number))
	switch {
	case err == nil || !badData(err):
		return err
	case len(part) > 1:
		half := len(part) / 2
		if err := s.settleRest(ctx, tx, b, number, part[:half], done); err != nil {
			return err
		}
		return s.settleRest(ctx, tx, b, number, part[half:], done)
	case part[0].Error == "":
		return err
	}
	bare := part[0]
	bare.Error = ""
	return s.settleRest(ctx, tx, b, number, []storage.Outcome{bare}, done)
}

// outcomeValues are the values of an outcome, in the order of settle.
func outcomeValues(o storage.Outcome) []any {
	attempt, text := 0, ""
	if o.Kind == storage.Retry || o.Kind == storage.Fail {
		attempt, text = o.Attempt, storage.CleanError(o.Error)
	}
	return []any{
		slices.Clone(o.ID[:]), int64(o.Kind), attempt, microsUp(o.After), o.Callback, o.Claimed, text,
	}
}

func (s *Store) settled(ctx context.Context, tx querier, done map[storage.ID]bool, query string, args []any) error {
	rows, err := s.hot.query(ctx, tx, query, args...)
	if err != nil {
		return err
	}
	return readIDs(rows, done)
}

// missing returns the ids that no statement has changed, in their order.
func missing(outcomes []storage.Outcome, done map[storage.ID]bool) []storage.ID {
	var lost []storage.ID
	for _, o := range outcomes {
		if !done[o.ID] {
			lost = append(lost, o.ID)
		}
	}
	return lost
}
