package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/capbus/gocap/storage"
)

// Result tells what a call has changed, or, as a dry run, would change.
type Result struct {
	Done    int `json:"done"`
	Refused int `json:"refused"`
	// Refusals are the first of what was refused, and why.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Refusal is a message that was left as it was. Err is ErrInWork, ErrNotFound,
// ErrNotDelayed, ErrNotFinal or ErrChanged.
type Refusal struct {
	ID  string `json:"id"`
	Err error  `json:"-"`
	Why string `json:"why"`
}

// mostRefusals is how many a Result names.
const mostRefusals = 100

// Err joins the refusals; nil: nothing was refused.
func (r Result) Err() error {
	var errs []error
	for _, f := range r.Refusals {
		errs = append(errs, fmt.Errorf("message %s: %w", f.ID, f.Err))
	}
	if more := r.Refused - len(r.Refusals); more > 0 {
		errs = append(errs, fmt.Errorf("%d more messages were refused", more))
	}
	return errors.Join(errs...)
}

func (r *Result) refuse(id storage.ID, why error) {
	if r.Refused++; len(r.Refusals) < mostRefusals {
		r.Refusals = append(r.Refusals, Refusal{ID: id.String(), Err: why, Why: why.Error()})
	}
}

// Requeue makes messages due now that are final, whatever way, or due later: they
// are sent, or handled, as if for the first time, by whoever runs. Messages in
// work are refused. A message that was sent already is sent again with the same
// id, and an inbox that still knows it drops it.
//
// The error is that of the database, or ErrInvalid; what was refused is in the
// Result. After an error a part may be done.
func (o *Operator) Requeue(ctx context.Context, box Box, ids ...string) (Result, error) {
	return o.byID(ctx, storage.Requeue, box, ids)
}

// Cancel deletes delayed messages that are not due yet, for good: what is
// cancelled is never sent, and what is sent cannot be cancelled. Errors are as
// for Requeue.
func (o *Operator) Cancel(ctx context.Context, ids ...string) (Result, error) {
	return o.byID(ctx, storage.Cancel, Published, ids)
}

// Delete deletes messages in a final state. Of a received one, what it is known
// by goes too: if it comes again, it is handled again. Errors are as for Requeue.
func (o *Operator) Delete(ctx context.Context, box Box, ids ...string) (Result, error) {
	return o.byID(ctx, storage.Delete, box, ids)
}

// Bulk says how messages that match a filter are changed.
type Bulk struct {
	// DryRun changes nothing, and tells what would be done. Defaults to false.
	DryRun bool
	// Most is how many are changed at most, oldest first. Defaults to all.
	Most int
}

// RequeueMatching is as Requeue, for the messages that match f. They are changed
// in batches, the oldest first; each only if it still matches then.
func (o *Operator) RequeueMatching(ctx context.Context, f Filter, b Bulk) (Result, error) {
	return o.matching(ctx, storage.Requeue, f, b)
}

// CancelMatching is as Cancel, for the messages that match f, as RequeueMatching.
func (o *Operator) CancelMatching(ctx context.Context, f Filter, b Bulk) (Result, error) {
	return o.matching(ctx, storage.Cancel, f, b)
}

// DeleteMatching is as Delete, for the messages that match f, as RequeueMatching.
func (o *Operator) DeleteMatching(ctx context.Context, f Filter, b Bulk) (Result, error) {
	return o.matching(ctx, storage.Delete, f, b)
}

func (o *Operator) byID(ctx context.Context, a storage.Action, box Box, texts []string) (Result, error) {
	var r Result
	ids, err := parsed(texts...)
	if err != nil {
		return r, fmt.Errorf("operator: %s: %w", a, err)
	}
	for part := range slices.Chunk(ids, storage.MaxPage) {
		f := Filter{Box: box, IDs: part}
		if err := f.Validate(); err != nil {
			return r, fmt.Errorf("operator: %s: %w: %w", a, ErrInvalid, err)
		}
		if err := o.part(ctx, a, f, &r); err != nil {
			return r, fmt.Errorf("operator: %s: %w", a, err)
		}
	}
	return r, nil
}

// part changes the messages of a filter with ids, and says why not.
func (o *Operator) part(ctx context.Context, a storage.Action, f Filter, r *Result) error {
	done, err := o.change(ctx, a, f, r)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(f.IDs), func(id storage.ID) bool { return slices.Contains(done, id) })
	if len(left) == 0 {
		return nil
	}
	l, err := o.store.List(ctx, Filter{Box: f.Box, IDs: left}, storage.Page{Limit: storage.MaxPage})
	if err != nil {
		return err
	}
	for _, id := range left {
		why := ErrNotFound
		for _, row := range l.Rows {
			if row.ID == id {
				if why = row.Refuses(a); why == nil {
					why = ErrChanged
				}
			}
		}
		r.refuse(id, why)
	}
	return nil
}

func (o *Operator) change(ctx context.Context, a storage.Action, f Filter, r *Result) ([]storage.ID, error) {
	done, err := o.store.Change(ctx, a, f)
	r.Done += len(done)
	if a == storage.Requeue && len(done) > 0 {
		o.wake()
	}
	return done, err
}

// bulkPage is how many messages are changed by one statement.
const bulkPage = 500

func (o *Operator) matching(ctx context.Context, a storage.Action, f Filter, b Bulk) (Result, error) {
	var r Result
	if err := errors.Join(f.Validate(), b.validate(f)); err != nil {
		return r, fmt.Errorf("operator: %s: %w: %w", a, ErrInvalid, err)
	}
	for p := (storage.Page{Limit: bulkPage, Oldest: true}); ; {
		l, err := o.store.List(ctx, f, p)
		if err == nil {
			err = o.bulk(ctx, a, f, b, l.Rows, &r)
		}
		switch {
		case err != nil:
			return r, fmt.Errorf("operator: %s: after %d messages: %w", a, r.Done, err)
		case l.Next == 0, b.Most > 0 && r.Done >= b.Most:
			return r, nil
		}
		p.After = l.Next
	}
}

// validate refuses a filter that matches all there is: it is rather forgotten
// than meant.
func (b Bulk) validate(f Filter) error {
	switch {
	case b.Most < 0:
		return fmt.Errorf("Bulk.Most is %d; 0 is no bound", b.Most)
	case len(f.IDs)+len(f.States) == 0 && f.Version+f.Topic+f.TopicPrefix+f.Group+f.Subscriber+f.MessageID == "" &&
		f.AddedFrom.IsZero() && f.AddedBefore.IsZero():
		return errors.New("the filter matches every message; name at least the states")
	}
	return nil
}

// bulk changes a page of messages, each only if it still matches.
func (o *Operator) bulk(ctx context.Context, a storage.Action, f Filter, b Bulk, rows []*storage.Row, r *Result) error {
	var ids []storage.ID
	for _, row := range rows {
		why := row.Refuses(a)
		switch {
		case b.Most > 0 && r.Done+len(ids) >= b.Most:
		case why != nil:
			r.refuse(row.ID, why)
		default:
			ids = append(ids, row.ID)
		}
	}
	if b.DryRun || len(ids) == 0 {
		r.Done += len(ids)
		return nil
	}
	f.IDs = ids
	done, err := o.change(ctx, a, f, r)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !slices.Contains(done, id) {
			r.refuse(id, ErrChanged)
		}
	}
	return nil
}

// parsed reads ids, each once.
func parsed(texts ...string) ([]storage.ID, error) {
	ids := make([]storage.ID, 0, len(texts))
	seen := make(map[storage.ID]bool, len(texts))
	for _, text := range texts {
		id, err := storage.ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("id %q: %w: %w", text, ErrInvalid, err)
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}
