package processor

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/backoff"
)

// probeTimeout bounds one probe of a broker that is away.
const probeTimeout = 5 * time.Second

// breaker is open while the broker cannot be reached: nothing is sent, and the
// transport is probed, at most a second apart.
type breaker struct {
	check   func(context.Context) error
	log     *slog.Logger
	onDown  func(time.Duration) // after each probe that fails: how long it is open
	onClose func(context.Context)
	tripped chan struct{}

	mu    sync.Mutex
	since time.Time // open since then; zero: closed
	wait  backoff.Backoff
}

func newBreaker(check func(context.Context) error, log *slog.Logger, onDown func(time.Duration), onClose func(context.Context)) *breaker {
	return &breaker{
		check: check, log: log, onDown: onDown, onClose: onClose, tripped: make(chan struct{}, 1),
		wait: backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second},
	}
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.since.IsZero()
}

// trip opens the breaker, and reports whether it was closed.
func (b *breaker) trip(ctx context.Context, err error) bool {
	b.mu.Lock()
	was := b.since
	if was.IsZero() {
		b.since = time.Now()
	}
	b.mu.Unlock()
	if !was.IsZero() {
		return false
	}
	b.log.LogAttrs(ctx, slog.LevelWarn, "broker unavailable, sending paused", slog.Any("err", err))
	select {
	case b.tripped <- struct{}{}:
	default:
	}
	return true
}

// sent tells that the broker took a message: the next outage starts with the
// shortest wait again.
func (b *breaker) sent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wait.Reset()
}

func (b *breaker) run(ctx context.Context) {
	for {
		select {
		case <-b.tripped:
		case <-ctx.Done():
			return
		}
		if !b.probe(ctx) {
			return
		}
		b.mu.Lock()
		b.since = time.Time{}
		b.mu.Unlock()
		b.onClose(ctx)
	}
}

// probe waits until the transport can be used; false: ctx has ended.
func (b *breaker) probe(ctx context.Context) bool {
	for {
		b.mu.Lock()
		d, since := b.wait.Next(), b.since
		b.mu.Unlock()
		if !backoff.Sleep(ctx, d) {
			return false
		}
		if b.usable(ctx) {
			return true
		}
		b.onDown(time.Since(since))
	}
}

func (b *breaker) usable(ctx context.Context) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			ok = false
			b.log.LogAttrs(ctx, slog.LevelError, "transport panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return b.check(ctx) == nil
}
