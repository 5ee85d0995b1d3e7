package subscribe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// stubborn is a storage whose inbox takes nothing for a while.
type stubborn struct {
	*memstore.Store

	refuse atomic.Bool
	tries  atomic.Int32
}

var errFull = errors.New("disk full")

type stubbornMember struct {
	storage.Member

	s *stubborn
}

func (s *stubborn) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	m, err := s.Store.Join(ctx, in)
	return stubbornMember{m, s}, err
}

func (m stubbornMember) Accept(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	if m.s.refuse.Load() {
		m.s.tries.Add(1)
		return nil, errFull
	}
	return m.Member.Accept(ctx, recs...)
}

// watched is a transport that counts acks.
type watched struct {
	*memqueue.Queue

	acks, nacks atomic.Int32
}

func (w *watched) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	return w.Queue.Receive(ctx, src, func(ctx context.Context, batch []transport.Delivery) {
		for i, d := range batch {
			batch[i] = watchedDelivery{d, w}
		}
		deliver(ctx, batch)
	})
}

type watchedDelivery struct {
	transport.Delivery

	w *watched
}

func (d watchedDelivery) Ack() error { d.w.acks.Add(1); return d.Delivery.Ack() }

func (d watchedDelivery) Nack(after time.Duration) error {
	d.w.nacks.Add(1)
	return d.Delivery.Nack(after)
}

// slowStore answers its inserts late, some of them with an error though they are
// done: their outcome is unknown.
type slowStore struct {
	*memstore.Store

	n atomic.Int32
}

type slowMember struct {
	storage.Member

	s *slowStore
}

func (s *slowStore) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	m, err := s.Store.Join(ctx, in)
	return slowMember{m, s}, err
}

func (m slowMember) Accept(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	fresh, err := m.Member.Accept(ctx, recs...)
	if m.s.n.Add(1)%2 == 1 {
		<-ctx.Done() // longer than anybody waits
		return nil, ctx.Err()
	}
	return fresh, err
}

// thinStore has an inbox that takes a MiB a second.
type thinStore struct{ *memstore.Store }

type thinMember struct{ storage.Member }

func (s *thinStore) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	m, err := s.Store.Join(ctx, in)
	return thinMember{m}, err
}

func (m thinMember) Accept(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	bytes := time.Duration(0)
	for _, r := range recs {
		bytes += time.Duration(len(r.Body))
	}
	select {
	case <-time.After(bytes * time.Second >> 20):
		return m.Member.Accept(ctx, recs...)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wild is a transport whose Receive panics at first.
type wild struct {
	*memqueue.Queue

	calls atomic.Int32
}

func (w *wild) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	if w.calls.Add(1) <= 3 {
		panic("driver")
	}
	return w.Queue.Receive(ctx, src, deliver)
}
