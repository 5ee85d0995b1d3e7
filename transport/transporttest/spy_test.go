package transporttest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// spy is a TB that keeps to itself what fails.
type spy struct {
	ctx context.Context //nolint:containedctx // as testing.T has one

	mu       sync.Mutex
	failures []string
	logs     []string
	cleanups []func()
}

func (s *spy) Helper()                  {}
func (s *spy) Context() context.Context { return s.ctx }

func (s *spy) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *spy) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failures) > 0
}

func (s *spy) Logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs = append(s.logs, fmt.Sprintf(format, args...))
}

func (s *spy) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

func (s *spy) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

// watch runs one case on a broker in a bubble, where waiting costs nothing.
func watch(t *testing.T, name string, w wrong) *spy {
	t.Helper()
	all := cases()
	i := slices.IndexFunc(all, func(c testCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("no case is called %q", name)
	}
	var s *spy
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s = &spy{ctx: ctx}
		b := newBroker(w)
		var wg sync.WaitGroup
		wg.Go(func() { all[i].check(s, b, DefaultWait, b.cut) })
		wg.Wait()
		cancel()
		for _, f := range slices.Backward(s.cleanups) {
			f()
		}
		close(b.quit)
	})
	if s.Failed() && !strings.Contains(strings.Join(s.logs, "\n"), all[i].why) {
		t.Errorf("the case failed without quoting the contract: %q", s.logs)
	}
	return s
}
