package gormstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

// member is this process as an owner of rows of one box.
type member struct {
	s       *Store
	number  int64
	box     storage.Box
	version string
	lease   time.Duration
	left    sync.Once
	trails  trails
	known   known
}

// Join implements storage.Storage.
func (s *Store) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	if s.err != nil {
		return nil, s.err
	}
	if in.Box != storage.Outbox && in.Box != storage.Inbox {
		return nil, fmt.Errorf("gormstore: join: there is no box %s", in.Box)
	}
	if in.Lease < time.Millisecond {
		return nil, fmt.Errorf("gormstore: join: a lease of %v is too short", in.Lease)
	}
	m := &member{s: s, number: ids.Number(), box: in.Box, version: in.Version, lease: in.Lease}
	if err := s.ready(ctx); err != nil {
		return nil, fmt.Errorf("gormstore: join: %w", err)
	}
	err := s.inTx(s.urgent(ctx), func(ctx context.Context, tx conn) error {
		if _, err := s.d.lockJoin().changed(ctx, tx); err != nil {
			return err
		}
		if err := s.checkRivals(ctx, tx, in); err != nil {
			return err
		}
		_, err := s.d.join(m.number, in).changed(ctx, tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("gormstore: join: %w", err)
	}
	s.prepareHot(ctx, in.Box)
	s.heart.join()
	return m, nil
}

// prepareHot prepares what runs for every message; not to have it costs time
// alone.
func (s *Store) prepareHot(ctx context.Context, b storage.Box) {
	if !s.d.prepares() {
		return
	}
	hot := []query{s.d.insertOutbox([]*storage.Record{{}}), s.d.insertOutbox([]*storage.Record{{GivenID: true}}), s.d.insertOutbox([]*storage.Record{{Key: "k"}})}
	if b == storage.Inbox {
		hot = append(hot, s.d.lock(), s.d.guard(), s.d.release())
	}
	for _, q := range hot {
		_, _ = q.exec(ctx, preparing{s.hot})
	}
	_ = s.d.succeed(ctx, preparing{s.hot}, settling{box: b}, make([]storage.ID, 1), 0)
}

// checkRivals looks for a living instance that sends elsewhere.
func (s *Store) checkRivals(ctx context.Context, tx conn, in storage.Instance) error {
	if in.Destination == "" {
		return nil
	}
	var transport, destination string
	err := s.d.rivals(in).each(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&transport, &destination) })
	if err != nil || destination == "" {
		return err
	}
	return fmt.Errorf("%w: version %q sends to %s %q, this one to %s %q", storage.ErrDestination,
		in.Version, transport, destination, in.Transport, in.Destination)
}

// urgent marks a context for what must not wait behind the application.
func (s *Store) urgent(ctx context.Context) context.Context {
	if u, ok := s.writer.(Urgenter); ok {
		return u.Urgent(ctx)
	}
	return ctx
}

// Number implements storage.Member.
func (m *member) Number() int64 { return m.number }

// Beat implements storage.Member.
func (m *member) Beat(ctx context.Context) error {
	n, err := m.s.beat(ctx, m.s.d.beat(m.number))
	if err != nil {
		return m.failed("beat", err)
	}
	if n == 0 {
		m.left.Do(func() { err = m.s.heart.leave() })
		return m.failed("beat", errors.Join(storage.ErrLost, err))
	}
	return nil
}

func (s *Store) beat(ctx context.Context, q query) (n int64, err error) {
	if !s.heart.apart() {
		return s.execOne(s.urgent(ctx), q)
	}
	err = s.untilFree(ctx, func() (err error) {
		n, err = s.heart.beat(ctx, q)
		return err
	})
	return n, err
}

// Leave implements storage.Member. A member that was declared dead stays so.
func (m *member) Leave(ctx context.Context) error {
	err := m.s.inTx(m.s.urgent(ctx), func(ctx context.Context, tx conn) error {
		for _, q := range []query{m.s.d.leave(m.number), m.s.d.unlock(m.number)} {
			if _, err := q.changed(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	m.left.Do(func() { err = errors.Join(err, m.s.heart.leave()) })
	if err != nil {
		return m.failed("leave", err)
	}
	return nil
}

func (m *member) failed(what string, err error) error {
	return fmt.Errorf("gormstore: %s %s: %w", what, m.box, err)
}

// messageKey is the form of a message id that is stored: at most 255 bytes.
func messageKey(id string) string {
	if len(id) <= 255 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// batches calls f with parts of s of at most n.
func batches[T any](s []T, n int, f func(part []T) error) error {
	for len(s) > 0 {
		k := min(len(s), n)
		if err := f(s[:k]); err != nil {
			return err
		}
		s = s[k:]
	}
	return nil
}
