package trackertest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// spy stands in for the test of an adapter, so that its failure can be seen.
type spy struct {
	testing.TB
	ctx context.Context //nolint:containedctx // what testing.TB.Context returns

	mu       sync.Mutex
	failed   bool
	text     []string
	cleanups []func()
}

// observe runs a case and returns when its clean-up is done.
func observe(t *testing.T, c testCase, open Opener, cfg config) *spy {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &spy{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			cancel()
			s.mu.Lock()
			cleanups := s.cleanups
			s.mu.Unlock()
			for _, f := range slices.Backward(cleanups) {
				f()
			}
		}()
		c.check(s, open, cfg)
	}()
	<-done
	return s
}

func (s *spy) Helper()                  {}
func (s *spy) Context() context.Context { return s.ctx }
func (s *spy) Log(args ...any)          { s.add(false, fmt.Sprint(args...)) }
func (s *spy) Error(args ...any)        { s.add(true, fmt.Sprint(args...)) }
func (s *spy) Fail()                    { s.add(true, "") }

func (s *spy) Logf(format string, args ...any) { s.add(false, fmt.Sprintf(format, args...)) }

func (s *spy) Errorf(format string, args ...any) { s.add(true, fmt.Sprintf(format, args...)) }

func (s *spy) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

func (s *spy) Fatal(args ...any) {
	s.Error(args...)
	runtime.Goexit()
}

func (s *spy) FailNow() {
	s.Fail()
	runtime.Goexit()
}

func (s *spy) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *spy) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *spy) add(failed bool, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = s.failed || failed
	s.text = append(s.text, text)
}

func (s *spy) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.text, "\n")
}
