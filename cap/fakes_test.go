package cap_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// limited is a transport with narrow limits.
type limited struct{ *memqueue.Queue }

func (limited) Traits() transport.Traits {
	return transport.Traits{Name: "limited", MaxTopic: 10, MaxMessage: 20}
}

// unruly is a storage whose parts can be made to fail.
type unruly struct {
	storage.Storage

	check, join atomic.Pointer[error]
}

// errWaits comes only when ctx has ended.
var errWaits = errors.New("no answer in time")

func failing(p *atomic.Pointer[error], err error) { p.Store(&err) }

func (u *unruly) Check(ctx context.Context) error {
	if err := u.check.Load(); err != nil && *err != nil {
		return *err
	}
	return u.Storage.Check(ctx)
}

// Join fails for the inbox only, so that the outbox has joined before.
func (u *unruly) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	if err := u.join.Load(); in.Box == storage.Inbox && err != nil && *err != nil {
		if errors.Is(*err, errWaits) {
			<-ctx.Done()
		}
		return nil, *err
	}
	return u.Storage.Join(ctx, in)
}

// elsewhere is a transport with another destination.
type elsewhere struct{ *memqueue.Queue }

func (e elsewhere) Traits() transport.Traits {
	t := e.Queue.Traits()
	t.Destination = "elsewhere"
	return t
}

// frozenStore is a memory store whose members' heartbeats can be stopped, as by a
// process that does not get any time.
type frozenStore struct {
	*memstore.Store

	frozen atomic.Bool
}

func (f *frozenStore) freeze() { f.frozen.Store(true) }
func (f *frozenStore) thaw()   { f.frozen.Store(false) }

func (f *frozenStore) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	if f.frozen.Load() {
		return nil, errFrozen
	}
	m, err := f.Store.Join(ctx, in)
	return frozenMember{m, f}, err
}

func (f *frozenStore) Begin(ctx context.Context) (storage.Tx, error) {
	tx, err := f.Store.Begin(ctx)
	return frozenTx{tx}, err
}

type frozenMember struct {
	storage.Member

	f *frozenStore
}

var errFrozen = errors.New("no answer")

func (m frozenMember) Beat(ctx context.Context) error {
	if m.f.frozen.Load() {
		return errFrozen
	}
	return m.Member.Beat(ctx)
}

func (m frozenMember) Leave(ctx context.Context) error {
	if m.f.frozen.Load() {
		return errFrozen
	}
	return m.Member.Leave(ctx)
}

// frozenTx settles for the member behind a frozenMember.
type frozenTx struct{ storage.Tx }

func (t frozenTx) Settle(ctx context.Context, m storage.Member, o storage.Outcome) error {
	return t.Tx.Settle(ctx, m.(frozenMember).Member, o) //nolint:forcetypeassert // the store makes no other
}

// countingStore counts transactions.
type countingStore struct {
	*memstore.Store

	begun atomic.Int32
}

func (c *countingStore) Begin(ctx context.Context) (storage.Tx, error) {
	c.begun.Add(1)
	return c.Store.Begin(ctx)
}
