package storage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxPage is the most rows, or ids, of one call of an Operator.
const MaxPage = 1000

// MaxPageBytes bounds the headers and bodies of a page: it ends with the row
// that makes their sum exceed it.
const MaxPageBytes = 16 << 20

// Operator is optional on a Storage: it is what people who look after the
// messages need. Its methods may be called concurrently, and beside running
// engines.
type Operator interface {
	// List reads rows that match f, in order of seq, newest first unless p says
	// otherwise. A call looks at a bounded number of rows, so a page may have
	// fewer rows than its limit, or none, though more follow: Next tells. Rows
	// that are added meanwhile change no later page of a listing that is newest
	// first. Rows with IDs are read whatever else is in the table.
	List(ctx context.Context, f Filter, p Page) (Listing, error)

	// Change does a to the rows f.IDs that match f and allow it, each of them in
	// one conditional step, and returns their ids. The others stay as they were;
	// see Row.Refuses.
	Change(ctx context.Context, a Action, f Filter) ([]ID, error)

	// Count counts rows by state. It looks at a bounded number of rows, however
	// many there are.
	Count(ctx context.Context, q CountQuery) (Counts, error)
}

// State is what an operator calls the state of a row: its status, and whether
// it is final.
type State uint8

// The states.
const (
	StateScheduled State = iota + 1 // to be tried, or being tried
	StateDelayed                    // not to be tried before its due time
	StateRetrying                   // its last attempt failed; there will be another
	StateFailed                     // failed for good
	StateSucceeded                  // sent, or handled
)

func (s State) String() string {
	switch s {
	case StateScheduled:
		return "scheduled"
	case StateDelayed:
		return "delayed"
	case StateRetrying:
		return "retrying"
	case StateFailed:
		return "failed"
	case StateSucceeded:
		return "succeeded"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText returns the name of the state.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name of a state.
func (s *State) UnmarshalText(text []byte) error {
	for st := StateScheduled; st <= StateSucceeded; st++ {
		if st.String() == string(text) {
			*s = st
			return nil
		}
	}
	return fmt.Errorf("there is no state %q; there are scheduled, delayed, retrying, failed and succeeded", text)
}

// State returns what an operator calls the state of the record.
func (r *Record) State() State {
	switch {
	case r.Status == Failed && r.Final:
		return StateFailed
	case r.Status == Failed:
		return StateRetrying
	case r.Status == Succeeded:
		return StateSucceeded
	case r.Status == Delayed:
		return StateDelayed
	}
	return StateScheduled
}

// Filter says which rows are meant: those for which all that is set holds. Box
// is required.
type Filter struct {
	Box     Box
	IDs     []ID    // just these, at most MaxPage
	Version string  // Options.Version; "": all
	States  []State // any of these
	Topic   string
	// TopicPrefix is the beginning of the topic; not together with Topic.
	TopicPrefix       string
	Group, Subscriber string // inbox
	MessageID         string // of an outbox row it is the id
	// AddedFrom and AddedBefore bound the moment at which the row was added, by
	// the database's clock: from, inclusive, and before. What was added before is
	// taken to have a smaller seq, give or take a minute.
	AddedFrom, AddedBefore time.Time
}

// Validate reports what is wrong with the filter.
func (f *Filter) Validate() error {
	var errs []error
	if f.Box != Outbox && f.Box != Inbox {
		errs = append(errs, errors.New("filter: Box must be operator.Published (storage.Outbox) or operator.Received (storage.Inbox)"))
	}
	if len(f.IDs) > MaxPage {
		errs = append(errs, fmt.Errorf("filter: %d ids; give at most %d at once", len(f.IDs), MaxPage))
	}
	if f.Topic != "" && f.TopicPrefix != "" {
		errs = append(errs, errors.New("filter: Topic and TopicPrefix exclude each other"))
	}
	if f.Box == Outbox && (f.Group != "" || f.Subscriber != "") {
		errs = append(errs, errors.New("filter: rows of the outbox have no group and no subscriber"))
	}
	for _, s := range f.States {
		if s < StateScheduled || s > StateSucceeded {
			errs = append(errs, fmt.Errorf("filter: there is no state %d", s))
		}
	}
	return errors.Join(errs...)
}

// Page says which part of a listing is read.
type Page struct {
	After  int64 // Listing.Next of the page before; 0: from the start
	Limit  int   // at most so many rows; 1 to MaxPage
	Oldest bool  // oldest first
	// Content asks for headers and bodies, too. Then the page is bounded by
	// MaxPageBytes.
	Content bool
}

// Validate reports what is wrong with the page.
func (p *Page) Validate() error {
	switch {
	case p.Limit < 1 || p.Limit > MaxPage:
		return fmt.Errorf("page: the limit is %d; 1 to %d are allowed", p.Limit, MaxPage)
	case p.After < 0:
		return fmt.Errorf("page: there is no place %d", p.After)
	}
	return nil
}

// Listing is a page of rows.
type Listing struct {
	Rows []*Row
	Next int64 // Page.After of the next page; 0: there are no more
}

// Row is a row as an operator sees it. Its Record has Headers and Body only when
// they were asked for, and Position.DueAt is zero when nothing is due.
type Row struct {
	*Record
	Bytes       int64         // size of headers and body
	AddedAt     time.Time     //
	DueIn       time.Duration // from the database's now, negative when it is due; 0 when nothing is
	ExpiresAt   time.Time     // zero unless final
	OwnerLiving bool          // an instance that lives has it
}

// Action is what an operator does to a row.
type Action uint8

// The actions.
const (
	// Requeue makes a row that is final, or due in the future, due now, for
	// anyone, as if it had never been tried: scheduled, retries and takeovers 0.
	Requeue Action = iota + 1
	// Cancel deletes a delayed row that is not due yet.
	Cancel
	// Delete deletes a final row with nothing more to do.
	Delete
)

func (a Action) String() string {
	switch a {
	case Requeue:
		return "requeue"
	case Cancel:
		return "cancel"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Errors of Row.Refuses.
var (
	// ErrInWork: the row is due or in hand, or its callback is; wait until it is
	// final, or due later.
	ErrInWork = errors.New("in work")
	// ErrNotDelayed: only a delayed row can be cancelled.
	ErrNotDelayed = errors.New("not delayed, so there is nothing to cancel")
	// ErrNotFinal: only a final row can be deleted.
	ErrNotFinal = errors.New("not final, and will be tried again; a delayed message can be cancelled")
)

// RequeueMargin is how far ahead a row that is not delayed must be due to be
// requeued: a look that began before may still hand it to its owner.
const RequeueMargin = time.Second

// Refuses says why the row, as it was read, does not allow the action; nil: it
// does. What an adapter's Change does is conditional on the same.
func (r *Row) Refuses(a Action) error {
	idle := r.Position.DueAt.IsZero()
	switch {
	case r.Final && !idle:
		return ErrInWork
	case a == Delete && !r.Final:
		return ErrNotFinal
	case a == Delete, a == Requeue && r.Final:
		return nil
	case a == Cancel && r.Status != Delayed:
		return ErrNotDelayed
	case r.Status == Delayed && r.DueIn > 0, a == Requeue && r.DueIn > RequeueMargin:
		return nil
	}
	return ErrInWork
}

// CountQuery says what is counted.
type CountQuery struct {
	Box     Box
	Version string // Options.Version; "": all
	Most    int    // of each state; 1 to 100,000
}

// MaxCount is the greatest CountQuery.Most.
const MaxCount = 100_000

// Validate reports what is wrong with the query.
func (q *CountQuery) Validate() error {
	switch {
	case q.Box != Outbox && q.Box != Inbox:
		return errors.New("count: Box must be operator.Published (storage.Outbox) or operator.Received (storage.Inbox)")
	case q.Most < 1 || q.Most > MaxCount:
		return fmt.Errorf("count: Most is %d; 1 to %d are allowed", q.Most, MaxCount)
	}
	return nil
}

// Counts tells how many rows there are. Where there are more than were looked
// at, it says so.
type Counts struct {
	States []StateCount // every state, in order
	// Lines has the same by topic, and group in the inbox, but for succeeded
	// rows.
	Lines []LineCount
}

// StateCount is the number of rows in a state.
type StateCount struct {
	State State
	Rows  int
	More  bool // there may be more than Rows
}

// LineCount is the number of rows of a topic, and group, in a state.
type LineCount struct {
	State        State
	Group, Topic string
	Rows         int
}
