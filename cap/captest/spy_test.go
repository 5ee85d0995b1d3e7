package captest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// spy stands in for a user's test, so that its failure can be seen.
type spy struct {
	testing.TB
	ctx context.Context //nolint:containedctx // what testing.TB.Context returns

	mu       sync.Mutex
	failed   bool
	ended    bool // by Fatalf
	text     []string
	out      bytes.Buffer
	cleanups []func()
}

// observe runs a test and returns when its clean-up is done.
func observe(t *testing.T, test func(tb testing.TB)) *spy {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &spy{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			cancel()
			for _, f := range slices.Backward(s.cleanups) {
				f()
			}
		}()
		test(s)
	}()
	<-done
	return s
}

func (s *spy) Helper()                  {}
func (s *spy) Context() context.Context { return s.ctx }
func (s *spy) Cleanup(f func())         { s.cleanups = append(s.cleanups, f) }
func (s *spy) Output() io.Writer        { return s }

func (s *spy) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}

func (s *spy) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = true
	s.text = append(s.text, fmt.Sprintf(format, args...))
}

func (s *spy) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	s.ended = true
	runtime.Goexit()
}

func (s *spy) output() string { return strings.Join(s.text, "\n") }

// wantFatal checks that the test was ended, with a message that says all this.
func (s *spy) wantFatal(t *testing.T, words ...string) {
	t.Helper()
	if !s.ended {
		t.Errorf("the test was not ended; it said: %s", s.output())
	}
	for _, w := range words {
		if !strings.Contains(s.output(), w) {
			t.Errorf("the failure does not say %q: %s", w, s.output())
		}
	}
}

// inTest runs a test outside of one, for the examples.
func inTest(test func(t testing.TB)) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &spy{ctx: ctx}
	test(s)
	cancel()
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}
