package gormstore

import (
	"context"
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
	err := m.s.inOne(ctx, len(list) <= rowsPer, func(ctx context.Context, tx conn) error {
		r = reader{next: -1}
		return batches(unique(list), rowsPer, func(part []storage.ID) error {
			return m.s.d.claim(ctx, tx, &r, m.box, m.number, part)
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
	err := m.s.inOne(ctx, inOneStatement(outcomes), func(ctx context.Context, tx conn) (err error) {
		lost, err = m.s.settleIn(ctx, tx, settling{box: m.box, number: m.number}, outcomes)
		return err
	})
	if err != nil {
		return nil, m.failed("settle", err)
	}
	return lost, nil
}

// inOneStatement tells that settleIn takes a single statement: successes that
// expire equally late.
func inOneStatement(outcomes []storage.Outcome) bool {
	first := outcomes[0]
	return len(outcomes) <= rowsPer && (len(outcomes) == 1 || first.Kind == storage.Succeed &&
		!slices.ContainsFunc(outcomes, func(o storage.Outcome) bool { return o.Kind != first.Kind || o.After != first.After }))
}

// settleIn stores outcomes in a transaction: one statement for the successes
// that expire equally late, one for those deleted at once, one for the rest.
func (s *Store) settleIn(
	ctx context.Context, tx conn, to settling, outcomes []storage.Outcome,
) ([]storage.ID, error) {
	to.done = make(idSet, len(outcomes))
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
		err := batches(unique(list), rowsPer, func(part []storage.ID) error {
			return s.d.succeed(ctx, tx, to, part, microsUp(after))
		})
		if err != nil {
			return nil, err
		}
	}
	err := batches(unique(gone), rowsPer, func(part []storage.ID) error {
		return s.d.remove(ctx, tx, to, part)
	})
	if err != nil {
		return nil, err
	}
	err = s.byOutcomes(rest, func(part []storage.Outcome) error { return s.settleRest(ctx, tx, to, part) })
	if err != nil {
		return nil, err
	}
	return missing(outcomes, to.done), nil
}

// byOutcomes calls f with parts in which no id is twice: what is stored of one
// row goes by its own order.
func (s *Store) byOutcomes(rest []storage.Outcome, f func(part []storage.Outcome) error) error {
	for len(rest) > 0 {
		seen := make(idSet, len(rest))
		n := 0
		for n < min(len(rest), rowsPer) && !seen[rest[n].ID] {
			seen[rest[n].ID] = true
			n++
		}
		if err := f(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// settleRest halves a batch that is refused for its data, and stores the
// culprit without its error text.
func (s *Store) settleRest(ctx context.Context, tx conn, to settling, part []storage.Outcome) error {
	list := make([]outcomeRow, len(part))
	for i, o := range part {
		list[i] = outcomeRow{Outcome: o, wait: microsUp(o.After)}
		if o.Kind == storage.Retry || o.Kind == storage.Fail {
			list[i].text = storage.CleanError(o.Error)
		} else {
			list[i].Attempt = 0
		}
	}
	err := s.part(ctx, tx, func() error { return s.d.settle(ctx, tx, to, list) })
	switch {
	case err == nil || !s.d.badData(err):
		return err
	case len(part) > 1:
		half := len(part) / 2
		if err := s.settleRest(ctx, tx, to, part[:half]); err != nil {
			return err
		}
		return s.settleRest(ctx, tx, to, part[half:])
	case part[0].Error == "":
		return err
	}
	bare := part[0]
	bare.Error = ""
	return s.settleRest(ctx, tx, to, []storage.Outcome{bare})
}

// missing returns the ids that no statement has changed, in their order.
func missing(outcomes []storage.Outcome, done idSet) []storage.ID {
	var lost []storage.ID
	for _, o := range outcomes {
		if !done[o.ID] {
			lost = append(lost, o.ID)
		}
	}
	return lost
}
