package processor_test

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

// look is one call of Due or TakeOver.
type look struct {
	at       time.Time
	takeOver bool
	query    storage.Query
	found    int
}

func (l look) fromStart() bool {
	return len(l.query.Lanes) > 0 && l.query.Lanes[0].After == storage.Position{}
}

// spy is a storage that notes what its members are asked, and fails or hangs
// where a test wants it to.
type spy struct {
	*memstore.Store
	// Asked before the call goes on; an error is its result.
	onLook  func(context.Context, storage.Query) error
	onPurge func(context.Context, storage.Purge) (int, error)

	mu      sync.Mutex
	looks   []look
	claimed int // rows
	members []storage.Member
}

func (s *spy) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	m, err := s.Store.Join(ctx, in)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
	return &spyMember{Member: m, s: s}, nil
}

func (s *spy) Purge(ctx context.Context, p storage.Purge) (int, error) {
	if s.onPurge != nil {
		return s.onPurge(ctx, p)
	}
	return s.Store.Purge(ctx, p)
}

type spyMember struct {
	storage.Member

	s *spy
}

func (m *spyMember) Due(ctx context.Context, q storage.Query) ([]*storage.Record, time.Duration, error) {
	if err := m.s.asked(ctx, q); err != nil {
		return nil, 0, err
	}
	recs, next, err := m.Member.Due(ctx, q)
	m.s.note(look{at: time.Now(), query: q, found: len(recs)})
	return recs, next, err
}

func (m *spyMember) TakeOver(ctx context.Context, q storage.Query) ([]*storage.Record, error) {
	if err := m.s.asked(ctx, q); err != nil {
		return nil, err
	}
	recs, err := m.Member.TakeOver(ctx, q)
	m.s.note(look{at: time.Now(), takeOver: true, query: q, found: len(recs)})
	return recs, err
}

func (m *spyMember) Claim(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	m.s.mu.Lock()
	m.s.claimed += len(recs)
	m.s.mu.Unlock()
	return m.Member.Claim(ctx, recs...)
}

func (s *spy) asked(ctx context.Context, q storage.Query) error {
	s.mu.Lock()
	f := s.onLook
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, q)
}

// fail lets every look fail with what f says, from now on.
func (s *spy) fail(f func(context.Context, storage.Query) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onLook = f
}

func (s *spy) note(l look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = append(s.looks, l)
}

// seen returns the looks since the last call.
func (s *spy) seen() []look {
	s.mu.Lock()
	defer s.mu.Unlock()
	looks := s.looks
	s.looks = nil
	return looks
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

func quietLog(w io.Writer) *quiet.Logger {
	return &quiet.Logger{Log: slog.New(slog.NewTextHandler(w, nil))}
}
