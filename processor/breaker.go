package processor

import (
	"context"
	"log/slog"
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
	onClose func()

	mu      sync.Mutex
	open    bool
	tripped chan struct{}
	wait    backoff.Backoff
}

func newBreaker(check func(context.Context) error, log *slog.Logger, onClose func()) *breaker {
	return &breaker{
		check: check, log: log, onClose: onClose, tripped: make(chan struct{}, 1),
		wait: backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second},
	}
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// trip opens the breaker.
func (b *breaker) trip(ctx context.Context, err error) {
	b.mu.Lock()
	was := b.open
	b.open = true
	b.mu.Unlock()
	if was {
		return
	}
	b.log.LogAttrs(ctx, slog.LevelWarn, "broker unavailable, sending paused", slog.Any("err", err))
	select {
	case b.tripped <- struct{}{}:
	default:
	}
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
		b.open = false
		b.mu.Unlock()
		b.onClose()
	}
}

// probe waits until the transport can be used; false: ctx has ended.
func (b *breaker) probe(ctx context.Context) bool {
	for {
		b.mu.Lock()
		d := b.wait.Next()
		b.mu.Unlock()
		if !backoff.Sleep(ctx, d) {
			return false
		}
		pctx, cancel := context.WithTimeout(ctx, probeTimeout)
		err := b.check(pctx)
		cancel()
		if err == nil {
			return true
		}
	}
}
