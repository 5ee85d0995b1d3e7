package quiet_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/quiet"
)

func newLogger(every time.Duration) (*quiet.Logger, *bytes.Buffer) {
	var buf bytes.Buffer // slog's handler locks it
	return &quiet.Logger{Log: slog.New(slog.NewTextHandler(&buf, nil)), Every: every}, &buf
}

func count(buf *bytes.Buffer) int { return strings.Count(buf.String(), "\n") }

func TestALineOfOneKindComesOnceAnInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, buf := newLogger(0)
		for range 300 { // 30 s
			log.Warn(t.Context(), "away", "a", slog.Int("n", 1))
			<-time.After(100 * time.Millisecond)
		}
		if n := count(buf); n != 3 {
			t.Errorf("%d lines in 30 s, want one in 10 s", n)
		}
		if !strings.Contains(buf.String(), "left_out=99") || !strings.Contains(buf.String(), "level=WARN") {
			t.Errorf("lines do not say how many were left out:\n%s", buf)
		}
	})
}

func TestKindsDoNotHideEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, buf := newLogger(time.Minute)
		log.Warn(t.Context(), "away", "a")
		log.Warn(t.Context(), "away", "b")
		log.Warn(t.Context(), "back", "a")
		log.Warn(t.Context(), "away", "a")
		if n := count(buf); n != 3 {
			t.Errorf("%d lines, want 3:\n%s", n, buf)
		}
	})
}

// TestManyKindsAreBounded: a topic of its own for every message must neither
// fill the log nor the memory.
func TestManyKindsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, buf := newLogger(10 * time.Second)
		for i := range 20000 {
			log.Warn(t.Context(), "away", fmt.Sprint(i%5000))
		}
		if n := count(buf); n > 1001 {
			t.Errorf("%d lines at one moment, want at most 1001", n)
		}
		<-time.After(10 * time.Second)
		before := count(buf)
		log.Warn(t.Context(), "away", "new")
		if count(buf) != before+1 {
			t.Error("after the interval a new kind is not logged")
		}
	})
}

func TestManyMayLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, buf := newLogger(time.Second)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 100 {
					log.Warn(t.Context(), "away", "a")
				}
			})
		}
		wg.Wait()
		if n := count(buf); n != 1 {
			t.Errorf("%d lines, want 1", n)
		}
	})
}
