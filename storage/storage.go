// Package storage is the contract between the engines and a database that
// keeps the outbox and the inbox.
//
// Required of an adapter: [Storage], the [Writer] and [Tx] it hands out, and
// [Member]. Optional, found once when a bus is made: [Migrator], [TxLimiter],
// [Locker] and [Inspector] on the storage; [Glancer] on a Member; [EndProber] or
// [EndNotifier] on a Writer. Optional, for the people who look after the
// messages: [Operator] on the storage. The package depends on the standard
// library alone.
//
// All moments are the database's: a due time or an expiry is given as a
// duration from the database's now, never as this process's clock.
package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Errors that adapters return, wrapped.
var (
	// ErrNoTx: the value given as a transaction is none (nil, or not begun).
	ErrNoTx = errors.New("no transaction")
	// ErrTxDone: the transaction has ended, or is in a failed state.
	ErrTxDone = errors.New("the transaction has already ended")
	// ErrDuplicate: a record with that id is there already; nothing was
	// inserted, and the transaction stays usable.
	ErrDuplicate = errors.New("a message with this id exists already")
	// ErrLost: the instance is no longer the owner; another may have the row.
	ErrLost = errors.New("ownership lost")
	// ErrDestination: a living instance of this version sends elsewhere.
	ErrDestination = errors.New("a living instance of this version has another destination")
)

// Storage keeps both tables. All methods may be called concurrently. The engine
// does not close a storage: who opened it closes it, after the bus has stopped.
type Storage interface {
	// Bind finds the transaction in tx and returns a writer into it, without
	// I/O. A tx it cannot use is refused: ErrNoTx (nil, typed nil, a handle
	// outside a transaction), ErrTxDone, or a *TxTypeError.
	Bind(tx any) (Writer, error)

	// Begin starts a transaction. The context bounds its whole life: when it
	// ends, the transaction is rolled back.
	Begin(ctx context.Context) (Tx, error)

	// Join enters this process as an owner of rows of one box, alive for
	// in.Lease from now on unless it beats. ErrDestination: see Instance.
	Join(ctx context.Context, in Instance) (Member, error)

	// Purge deletes up to p.Limit rows of a box that are final, with nothing
	// more to do, and have expired; and heartbeats that ended over a day ago. It
	// returns the number of rows deleted, so that a full batch is followed by
	// the next at once.
	Purge(ctx context.Context, p Purge) (int, error)

	// Check reports whether the storage can be used now: it is reached, and its
	// tables are there.
	Check(ctx context.Context) error
}

// Migrator is optional: a storage that makes its own tables. Migrate may be
// called by many instances at once and does nothing when there is nothing to do.
type Migrator interface {
	Migrate(ctx context.Context) error
}

// TxLimiter is optional on a Storage: MaxTx is how many transactions of Begin
// can be open at once without waiting for each other. An engine begins no more
// than that, and ends one that is held for long: with one writer, everybody
// waits for it.
type TxLimiter interface {
	MaxTx() int
}

// Locker is optional on a Storage: its members honour Query.Locked.
type Locker interface {
	CanLock()
}

// Writer inserts outbox records into somebody's transaction.
type Writer interface {
	// Append inserts the records with one statement. It sets nothing in them. A
	// record whose GivenID is set may exist already: then nothing of the call is
	// inserted, the error is ErrDuplicate, and the transaction stays usable.
	Append(ctx context.Context, recs ...*Record) error
}

// EndProber is optional on a Writer: it tells, without I/O and from any
// goroutine, whether the transaction has ended (committed or rolled back).
type EndProber interface {
	Ended() bool
	// TxKey identifies the transaction: writers bound to one have equal keys,
	// so that it is probed once however many messages are published in it.
	TxKey() any
}

// EndNotifier is optional on a Writer, and preferred over EndProber: f is
// called once, on any goroutine, soon after the transaction has ended, with
// false only if it is certain that it was rolled back. It need not be called
// when a connection is lost and nothing was committed. f does not block.
type EndNotifier interface {
	OnEnd(f func(committed bool))
	// TxValues is one map for all writers bound to a transaction, which others
	// keep theirs in, so that one f does for however many messages. It lives no
	// longer than the transaction, also when f is never called.
	TxValues() *sync.Map
}

// Tx is a transaction that the engine began. It is used by one goroutine at a
// time.
type Tx interface {
	Writer
	// Value is what application code works with, and what Bind accepts:
	// *gorm.DB in gormstore.
	Value() any
	// Settle stores the outcome of an inbox row of the member as the last
	// statement of the transaction. It first makes sure that the database has
	// not ended the transaction meanwhile (ErrTxDone). ErrLost: the row is not
	// the member's, or is final.
	Settle(ctx context.Context, m Member, o Outcome) error
	Commit() error
	// Rollback after Commit or Rollback does nothing.
	Rollback() error
}

// Instance describes an owner of rows.
type Instance struct {
	Box     Box
	Version string
	// Lease is how long the instance lives without a beat.
	Lease time.Duration
	// Transport and Destination: Join is refused with ErrDestination while a
	// living instance of the same box and version has another pair. Not
	// compared when Destination is empty.
	Transport, Destination string
}

// Member is this process as a living owner of rows of one box. Its methods may
// be called concurrently. Every change is conditional on the member owning the
// row, and on the row not being final.
type Member interface {
	// Number identifies the member: positive and random, so that a restarted
	// process is another one. Publishers put it into Record.Owner.
	Number() int64

	// Accept inserts inbox records, owned by this member unless the record is
	// unmatched (Subscriber ""; then by nobody), in one transaction. Records that
	// are there already (version, group, subscriber, topic, message id) are
	// skipped. Records of one lane with a key get their seq in the order given. It returns those it inserted, as they were given. Record.Fault set:
	// the record is inserted final failed, with that text as its error; it waits
	// for no subscription, so that a callback it owes is always this member's.
	Accept(ctx context.Context, recs ...*Record) (fresh []*Record, err error)

	// Due reads rows of this member that are due, in order of due time, without
	// changing them. By lanes, unfinished rows with a key are left out: see Heads. next is the wait until the earliest row of the queried
	// lanes that is not due yet; negative when there is none. Rows that the
	// caller has in hand are returned too.
	Due(ctx context.Context, q Query) (recs []*Record, next time.Duration, err error)

	// TakeOver makes rows that are due and have no living owner this member's,
	// and returns them as they then are. By lanes, unfinished rows with a key are
	// left out, unless Stale is set. Taken from an instance that died,
	// Takeovers 0 becomes 1. It declares instances dead whose lease has run out.
	// A member that has ended, or finds that its own lease has run out, takes
	// nothing: ErrLost, when there was something to take.
	TakeOver(ctx context.Context, q Query) ([]*Record, error)

	// Heads reads, of each key of a lane, the first unfinished row: of all rows
	// with that key, whoever owns them, the one with the smallest seq that is not
	// final. A key without unfinished rows has none. It changes nothing.
	Heads(ctx context.Context, q HeadQuery) ([]Head, error)

	// Claim writes, before a row is tried, what must be known if this process
	// dies: a delayed row that is due becomes scheduled; a row with Takeovers of
	// 1 or more gets one more. It returns the rows changed, as they then are.
	Claim(ctx context.Context, recs ...*Record) ([]*Record, error)

	// Settle stores outcomes. It returns the ids whose row was not this member's
	// any more, or was final already.
	Settle(ctx context.Context, outcomes ...Outcome) (lost []ID, err error)

	// Unmatched reads rows of the groups that matched no subscription when they
	// came, in order of seq, starting behind after.
	Unmatched(ctx context.Context, groups []string, after int64, limit int) ([]*Record, error)

	// Split replaces an unmatched row by rows for its subscriptions, owned by
	// this member, in one transaction; rows that are there already are skipped.
	// It returns those it inserted; none when the row was gone.
	Split(ctx context.Context, row *Record, into ...*Record) ([]*Record, error)

	// Beat renews the lease. ErrLost: the member was declared dead or has left;
	// join again.
	Beat(ctx context.Context) error

	// Leave ends the member: what it still owns is anyone's, and nothing is
	// counted as a death. It rewrites no row.
	Leave(ctx context.Context) error
}

// Query says what Due and TakeOver look for: either rows by their id, or due
// rows by lane.
type Query struct {
	// IDs, when set, asks for just these rows, due or not; the rest is ignored.
	// TakeOver by ids takes rows that have no living owner.
	IDs []ID
	// Lanes are looked through independently, each by its own limit.
	Lanes []Lane
	// MaxBytes ends the reading of rows with the one that makes the sum of their
	// headers and bodies exceed it; 0: no limit. So a caller that sums up sees
	// that there may be more, as with a full lane.
	MaxBytes int
	// Stale, in TakeOver, restricts to rows that have been due for so long, and
	// lets a lane match every subscriber of its group, unmatched rows included. A
	// subscription of which another living member owns rows is served, and left
	// alone. Of the rows with a key, the first unfinished one of each key is taken.
	Stale time.Duration
	// Locked, in TakeOver by lanes, takes from a lane only while the member holds
	// the lock of the lane (of its version and box), which TakeOver takes when it
	// is free and renews. A lock is held for a lease from the database's now, ends
	// when the member leaves, and is looked at again in the transaction that
	// takes rows.
	Locked bool
}

// Lane is an independent line of due rows: the outbox has one, the zero Lane;
// in the inbox each subscription is one.
type Lane struct {
	Group, Subscriber string
	After             Position // start behind this one; zero: from the start
	Limit             int      // at most this many rows; at least 1
}

// Position is a place in the order of taking.
type Position struct {
	DueAt time.Time
	Seq   int64
}

// Purge says what to delete.
type Purge struct {
	Box     Box
	Version string
	Limit   int
}

// TxTypeError says that a value given as a transaction cannot be used.
type TxTypeError struct {
	Got      any      // what was given; only its type is shown
	Accepted []string // types that can be used, such as "*sql.Tx"
	Hint     string   // what is wrong with it and what to do; may be empty
}

func (e *TxTypeError) Error() string {
	msg := fmt.Sprintf("%T cannot be used as a transaction; accepted: %s", e.Got, joinOr(e.Accepted))
	if e.Hint != "" {
		msg += " (" + e.Hint + ")"
	}
	return msg
}

// Execer is what a TxBinder finds in a transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// TxBinder teaches a SQL storage a further type of transaction. It reports
// false for a type that it does not know, and an error for a value of its type
// that cannot be used.
//
// The Execer may implement [EndNotifier] or [EndProber] too: then the Writer
// that the storage's Bind returns implements it.
type TxBinder func(tx any) (e Execer, ok bool, err error)
