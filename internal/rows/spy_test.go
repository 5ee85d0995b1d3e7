package rows_test

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

// spy is a storage that notes what its members are asked, and fails or hangs
// where a test wants it to.
type spy struct {
	*memstore.Store
	// Asked before the call goes on; an error is its result.
	onJoin, onBeat, onLeave func(context.Context) error
	onClaim                 func(context.Context, []*storage.Record) error
	onSettle                func(context.Context, []storage.Outcome) error
	// afterClaim is asked when the claim is written.
	afterClaim func() error

	mu      sync.Mutex
	joins   int
	beats   []time.Time
	left    []int64
	claims  [][]storage.ID
	settles [][]storage.Outcome
}

func newSpy() *spy { return &spy{Store: memstore.New(memstore.Config{})} }

func (s *spy) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func ask(f func(context.Context) error, ctx context.Context) error { //nolint:revive // the context is the argument of f
	if f == nil {
		return nil
	}
	return f(ctx)
}

func (s *spy) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	s.note(func() { s.joins++ })
	if err := ask(s.onJoin, ctx); err != nil {
		return nil, err
	}
	m, err := s.Store.Join(ctx, in)
	return &spyMember{Member: m, s: s}, err
}

type spyMember struct {
	storage.Member

	s *spy
}

func (m *spyMember) Beat(ctx context.Context) error {
	m.s.note(func() { m.s.beats = append(m.s.beats, time.Now()) })
	if err := ask(m.s.onBeat, ctx); err != nil {
		return err
	}
	return m.Member.Beat(ctx)
}

func (m *spyMember) Leave(ctx context.Context) error {
	if err := ask(m.s.onLeave, ctx); err != nil {
		return err
	}
	m.s.note(func() { m.s.left = append(m.s.left, m.Number()) })
	return m.Member.Leave(ctx)
}

func (m *spyMember) Claim(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	ids := make([]storage.ID, len(recs))
	for i, rec := range recs {
		ids[i] = rec.ID
	}
	m.s.note(func() { m.s.claims = append(m.s.claims, ids) })
	if m.s.onClaim != nil {
		if err := m.s.onClaim(ctx, recs); err != nil {
			return nil, err
		}
	}
	claimed, err := m.Member.Claim(ctx, recs...)
	if err == nil && m.s.afterClaim != nil {
		err = m.s.afterClaim()
	}
	return claimed, err
}

func (m *spyMember) Settle(ctx context.Context, outcomes ...storage.Outcome) ([]storage.ID, error) {
	m.s.note(func() { m.s.settles = append(m.s.settles, outcomes) })
	if m.s.onSettle != nil {
		if err := m.s.onSettle(ctx, outcomes); err != nil {
			return nil, err
		}
	}
	return m.Member.Settle(ctx, outcomes...)
}

func idOf(n int) (id storage.ID) {
	copy(id[:], strconv.Itoa(n))
	return id
}

// hang waits until the caller's patience ends.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// lines counts the lines of a log.
type lines struct {
	mu sync.Mutex
	n  int
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return len(p), nil
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func quietLog(w io.Writer) *quiet.Logger { return &quiet.Logger{Log: logTo(w)} }
