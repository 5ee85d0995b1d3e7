// Package operator looks after messages: it lists, reads, requeues, cancels,
// deletes and counts them, for people, dashboards and command lines. It works on
// the storage alone, whether a bus runs or not.
//
// Who may do so is for the caller to decide: there is no access control here.
package operator

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/capbus/gocap/internal/wire"
	"github.com/capbus/gocap/storage"
)

type (
	// Box is Published or Received.
	Box = storage.Box
	// State is the state of a message; its text is its name, such as "retrying".
	State = storage.State
	// Filter says which messages are meant.
	Filter = storage.Filter
	// Counts tells how many messages there are.
	Counts = storage.Counts
)

// The boxes and the states.
const (
	Published = storage.Outbox
	Received  = storage.Inbox

	Scheduled = storage.StateScheduled
	Delayed   = storage.StateDelayed
	Retrying  = storage.StateRetrying
	Failed    = storage.StateFailed
	Succeeded = storage.StateSucceeded
)

// Errors that callers can tell apart with errors.Is.
var (
	// ErrUnsupported: the storage is no storage.Operator.
	ErrUnsupported = errors.New("the storage has no operator interface")
	// ErrInvalid: what was asked for cannot be meant.
	ErrInvalid = errors.New("not valid")
	// ErrNotFound: there is no such message, or no longer.
	ErrNotFound = errors.New("no such message; it may have been sent and deleted, or expired")
	// ErrChanged: the message was changed meanwhile; try again.
	ErrChanged = errors.New("it was changed meanwhile; try again")
	// ErrInWork, ErrNotDelayed and ErrNotFinal are those of package storage.
	ErrInWork     = storage.ErrInWork
	ErrNotDelayed = storage.ErrNotDelayed
	ErrNotFinal   = storage.ErrNotFinal
)

// Config configures an Operator. The zero value is good.
type Config struct {
	// Wake is called when messages were requeued, so that they are sent or handled
	// at once: Bus.Wake. Without it whoever runs finds them within its
	// PollInterval. Defaults to nil.
	Wake func()
}

// Operator looks after the messages of a storage. Its methods may be called
// concurrently, and while buses run on the same storage.
type Operator struct {
	store storage.Operator
	wake  func()
}

// New returns the Operator of a storage. It does not connect. ErrUnsupported:
// the storage has none.
func New(store storage.Storage, cfg Config) (*Operator, error) {
	o, ok := store.(storage.Operator)
	if !ok {
		return nil, fmt.Errorf("operator: %T: %w; use one that implements storage.Operator", store, ErrUnsupported)
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	return &Operator{store: o, wake: cfg.Wake}, nil
}

// DefaultLimit is Page.Limit where it is 0.
const DefaultLimit = 100

// Page says which part of a listing is read.
type Page struct {
	// After is Listing.Next of the page before. Defaults to the start.
	After string
	// Limit is the most messages of the page, at most storage.MaxPage. Defaults to
	// DefaultLimit.
	Limit int
	// Oldest lists the oldest first. Defaults to the newest first.
	Oldest bool
	// Content reads headers and bodies, too; a page then ends when it has more
	// than storage.MaxPageBytes of them. Defaults to false.
	Content bool
}

// Listing is a page of messages.
type Listing struct {
	Messages []*Message `json:"messages"`
	// Next is Page.After of the next page; empty: there are no more. A page may be
	// short, or empty, though there are: each looks at a bounded number of rows.
	Next string `json:"next,omitempty"`
}

// List reads a page of the messages that match f, in the order in which they
// were added. It costs a few milliseconds however many messages are kept.
func (o *Operator) List(ctx context.Context, f Filter, p Page) (Listing, error) {
	sp := storage.Page{Limit: p.Limit, Oldest: p.Oldest, Content: p.Content}
	if p.Limit == 0 {
		sp.Limit = DefaultLimit
	}
	if p.After != "" {
		n, err := strconv.ParseInt(p.After, 10, 64)
		if err != nil || n < 1 {
			return Listing{}, fmt.Errorf("operator: list: page %q: %w; give Listing.Next of the page before", p.After, ErrInvalid)
		}
		sp.After = n
	}
	if err := errors.Join(f.Validate(), sp.Validate()); err != nil {
		return Listing{}, fmt.Errorf("operator: list: %w: %w", ErrInvalid, err)
	}
	l, err := o.store.List(ctx, f, sp)
	if err != nil {
		return Listing{}, fmt.Errorf("operator: list: %w", err)
	}
	out := Listing{Messages: make([]*Message, len(l.Rows))}
	for i, r := range l.Rows {
		out.Messages[i] = messageOf(f.Box, r)
	}
	if l.Next > 0 {
		out.Next = strconv.FormatInt(l.Next, 10)
	}
	return out, nil
}

// Read reads a message with its headers and body by the id of its row:
// Message.ID. ErrNotFound: there is none.
func (o *Operator) Read(ctx context.Context, box Box, id string) (*Message, error) {
	ids, err := parsed(id)
	if err != nil {
		return nil, fmt.Errorf("operator: read: %w", err)
	}
	l, err := o.List(ctx, Filter{Box: box, IDs: ids}, Page{Limit: 1, Content: true})
	if err != nil {
		return nil, err
	}
	if len(l.Messages) == 0 {
		return nil, fmt.Errorf("operator: read %s: %w", id, ErrNotFound)
	}
	return l.Messages[0], nil
}

// MostCounted is how many messages of a state Count counts.
const MostCounted = 10_000

// Count counts the messages of a box by state, and those that have not
// succeeded by topic and group as well; version "" counts all versions. It
// counts up to MostCounted of a state, and says where there are more, so that it
// costs some ten milliseconds however many there are.
func (o *Operator) Count(ctx context.Context, box Box, version string) (Counts, error) {
	q := storage.CountQuery{Box: box, Version: version, Most: MostCounted}
	if err := q.Validate(); err != nil {
		return Counts{}, fmt.Errorf("operator: %w: %w", ErrInvalid, err)
	}
	c, err := o.store.Count(ctx, q)
	if err != nil {
		return Counts{}, fmt.Errorf("operator: count: %w", err)
	}
	return c, nil
}

func messageOf(box Box, r *storage.Row) *Message {
	m := &Message{
		ID: r.ID.String(), MessageID: r.MessageID, Box: box.String(), Version: r.Version,
		Topic: r.Topic, Group: r.Group, Subscriber: r.Subscriber, Key: r.Key,
		State: r.State(), Attempts: r.Retries, Deaths: r.Takeovers, LastError: r.LastError,
		AddedAt: r.AddedAt, DueAt: r.Position.DueAt, ExpiresAt: r.ExpiresAt,
		Owned: r.Owner != 0, OwnerLiving: r.OwnerLiving, Bytes: r.Bytes, Body: r.Body,
	}
	if box == Published {
		m.MessageID = m.ID
	}
	if r.Headers != nil {
		h, err := wire.DecodeHeaders(r.Headers)
		if err != nil {
			m.HeadersError = "the stored headers cannot be read: " + err.Error()
		}
		m.Headers = h
	}
	return m
}
