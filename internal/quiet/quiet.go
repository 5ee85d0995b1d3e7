// Package quiet bounds the rate of log lines.
package quiet

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Logger writes a line of one kind at most once an interval, and says how many
// it left out. Safe for concurrent use.
type Logger struct {
	Log   *slog.Logger
	Every time.Duration // 0: 10 s

	mu    sync.Mutex
	kinds map[string]*kind
	swept time.Time
}

type kind struct {
	last    time.Time
	dropped int
}

// maxKinds bounds the memory, and the number of lines in an interval: what is
// beyond is one kind.
const maxKinds = 1000

// Warn logs msg at level Warn, unless a line of the same msg and key was logged
// less than an interval ago.
func (l *Logger) Warn(ctx context.Context, msg, key string, attrs ...slog.Attr) {
	dropped, ok := l.take(msg + "\x00" + key)
	if !ok {
		return
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("left_out", dropped))
	}
	l.Log.LogAttrs(ctx, slog.LevelWarn, msg, attrs...)
}

// Guard calls a hook of the application, and logs a panic in it.
func (l *Logger) Guard(ctx context.Context, hook string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			l.Warn(ctx, "trace hook panicked", hook, slog.String("hook", hook), slog.Any("panic", p))
		}
	}()
	f()
}

func (l *Logger) take(key string) (dropped int, ok bool) {
	every := l.Every
	if every == 0 {
		every = 10 * time.Second
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = map[string]*kind{}
	}
	if len(l.kinds) >= maxKinds && now.Sub(l.swept) >= every {
		maps.DeleteFunc(l.kinds, func(_ string, k *kind) bool { return now.Sub(k.last) >= every })
		l.swept = now
	}
	if len(l.kinds) >= maxKinds && l.kinds[key] == nil {
		key = ""
	}
	k := l.kinds[key]
	switch {
	case k == nil:
		l.kinds[key] = &kind{last: now}
	case now.Sub(k.last) < every:
		k.dropped++
		return 0, false
	default:
		dropped = k.dropped
		*k = kind{last: now}
	}
	return dropped, true
}
