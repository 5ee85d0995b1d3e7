package cap_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// deaf is a transport whose Send never returns for a topic, whatever its context
// says, until release is closed.
type deaf struct {
	*memqueue.Queue

	topic   string // "": every topic
	release chan struct{}
	hung    atomic.Int32
}

func (d *deaf) Send(ctx context.Context, msgs []*transport.Message) []error {
	if d.topic == "" || msgs[0].Topic == d.topic {
		d.hung.Add(1)
		<-d.release
		errs := make([]error, len(msgs))
		for i := range errs {
			errs[i] = transport.ErrUnavailable
		}
		return errs
	}
	return d.Queue.Send(ctx, msgs)
}

// deafStore is a store whose Due never returns in one box while deaf is set.
type deafStore struct {
	*memstore.Store

	box     storage.Box
	deaf    atomic.Bool
	release chan struct{}
}

func (d *deafStore) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	m, err := d.Store.Join(ctx, in)
	if in.Box != d.box {
		return m, err
	}
	return deafMember{m, d}, err
}

// Begin is as that of frozenStore.
func (d *deafStore) Begin(ctx context.Context) (storage.Tx, error) {
	tx, err := d.Store.Begin(ctx)
	return deafTx{tx}, err
}

type deafTx struct{ storage.Tx }

func (t deafTx) Settle(ctx context.Context, m storage.Member, o storage.Outcome) error {
	if d, ok := m.(deafMember); ok {
		m = d.Member
	}
	return t.Tx.Settle(ctx, m, o)
}

type deafMember struct {
	storage.Member

	d *deafStore
}

func (m deafMember) Due(ctx context.Context, q storage.Query) ([]*storage.Record, time.Duration, error) {
	if m.d.deaf.Load() && len(q.IDs) == 0 {
		<-m.d.release
	}
	return m.Member.Due(ctx, q)
}

// slow is a transport that takes its time to send, and a store whose looks do.
type slow struct {
	*memqueue.Queue

	wait time.Duration
}

func (s slow) Send(ctx context.Context, msgs []*transport.Message) []error {
	pause(s.wait)
	return s.Queue.Send(ctx, msgs)
}

type slowStore struct {
	*memstore.Store

	wait time.Duration
}

func (s *slowStore) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	m, err := s.Store.Join(ctx, in)
	return slowMember{m, s.wait}, err
}

type slowMember struct {
	storage.Member

	wait time.Duration
}

func (m slowMember) Due(ctx context.Context, q storage.Query) ([]*storage.Record, time.Duration, error) {
	pause(m.wait)
	return m.Member.Due(ctx, q)
}

func (m slowMember) Settle(ctx context.Context, o ...storage.Outcome) ([]storage.ID, error) {
	pause(m.wait)
	return m.Member.Settle(ctx, o...)
}

// logTo logs warnings and errors.
func logTo(b *lockedBuffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
