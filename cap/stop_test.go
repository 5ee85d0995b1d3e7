package cap_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// working is a started bus whose only handler is at work on a message.
func working(t *testing.T, opts cap.Options, handler func(context.Context, string) error) *rig {
	t.Helper()
	started := make(chan struct{})
	first := true
	r := newRig(t, opts, subscribe.To("t", func(ctx context.Context, s string) error {
		if first {
			first = false
			close(started)
		}
		return handler(ctx, s)
	}, subscribe.Concurrency(1)))
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
		t.Fatal(err)
	}
	<-started
	return r
}

func TestStopWaitsForRunningHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := false
		r := working(t, cap.Options{}, func(ctx context.Context, _ string) error {
			pause(20 * time.Second)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			over = true
			return nil
		})
		if err := r.Stop(t.Context()); err != nil || !over {
			t.Errorf("Stop: %v, handler finished: %t", err, over)
		}
		if rec := r.row(t, storage.Inbox); rec.Status != storage.Succeeded {
			t.Errorf("the row is %v, want succeeded", rec.Status)
		}
	})
}

func TestStopLetsNothingNewBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := working(t, cap.Options{}, func(context.Context, string) error {
			runs++
			pause(5 * time.Second)
			return nil
		})
		for range 100 {
			if err := r.Publish(t.Context(), cap.NoTx, "t", "more"); err != nil {
				t.Fatal(err)
			}
		}
		elapse(time.Second) // they are in memory, and wait for the only worker
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if runs != 1 {
			t.Errorf("%d runs, want the one that was under way", runs)
		}
		elapse(time.Minute)
		for _, rec := range r.store.Records(storage.Inbox) {
			if rec.Retries != 0 || rec.Takeovers != 0 {
				t.Errorf("%d retries, %d takeovers counted by a stop", rec.Retries, rec.Takeovers)
			}
		}
	})
}

func TestStopEndsTheContextsOfHandlersAndCountsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var causes []error
		var attempts []int
		callbacks := 0
		opts := cap.Options{StopTimeout: 10 * time.Second, FailedRetryCount: 1, FailedThresholdCallback: func(context.Context, cap.FailedInfo) { callbacks++ }}
		r := working(t, opts, func(ctx context.Context, _ string) error {
			info, _ := cap.InfoFromContext(ctx)
			attempts = append(attempts, info.Attempt)
			if len(attempts) == 3 {
				return nil
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return errors.New("the query was cancelled") // whatever it makes of it
		})
		for round := range 2 {
			begun := time.Now()
			err := r.Stop(t.Context())
			if err == nil || !strings.Contains(err.Error(), "1 messages were in work") {
				t.Errorf("Stop: %v, want what was cut", err)
			}
			if d := time.Since(begun); d < 7*time.Second || d > 10*time.Second {
				t.Errorf("Stop took %s, want the 10 s of StopTimeout less its reserve of 2 s", d)
			}
			if len(causes) != round+1 || !errors.Is(causes[round], cap.ErrStopping) {
				t.Errorf("the context of the handler ended with %v, want ErrStopping", causes)
			}
			if rec := r.row(t, storage.Inbox); rec.Retries != 0 || rec.Takeovers != 0 || rec.Final {
				t.Errorf("a stop counted: %d retries, %d takeovers, final %t", rec.Retries, rec.Takeovers, rec.Final)
			}
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			elapse(5 * time.Second)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if callbacks > 0 || len(attempts) != 3 || attempts[0] != 1 || attempts[2] != 1 {
			t.Errorf("attempts %v, %d callbacks, want three times attempt 1 and none", attempts, callbacks)
		}
		if rec := r.row(t, storage.Inbox); rec.Status != storage.Succeeded {
			t.Errorf("the row is %v, want succeeded", rec.Status)
		}
	})
}

func TestStopReturnsInTimeWhateverAHandlerDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts  cap.Options
		ctx   func(t *testing.T) (context.Context, context.CancelFunc)
		least time.Duration
		most  time.Duration
	}{
		"StopTimeout": {
			cap.Options{StopTimeout: 10 * time.Second},
			func(t *testing.T) (context.Context, context.CancelFunc) { t.Helper(); return t.Context(), func() {} },
			8 * time.Second, 10 * time.Second,
		},
		"default": {
			cap.Options{},
			func(t *testing.T) (context.Context, context.CancelFunc) { t.Helper(); return t.Context(), func() {} },
			22 * time.Second, 25 * time.Second,
		},
		"deadline": {
			cap.Options{},
			func(t *testing.T) (context.Context, context.CancelFunc) {
				t.Helper()
				return context.WithTimeout(t.Context(), 5*time.Second)
			},
			4 * time.Second, 5 * time.Second,
		},
		"ended": {
			cap.Options{},
			func(t *testing.T) (context.Context, context.CancelFunc) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return ctx, cancel
			},
			0, time.Second,
		},
		"ends meanwhile": {
			cap.Options{},
			func(t *testing.T) (context.Context, context.CancelFunc) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3*time.Second, cancel)
				return ctx, cancel
			},
			3 * time.Second, 4 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				r := working(t, c.opts, func(context.Context, string) error {
					<-release // ignores its context
					return nil
				})
				ctx, cancel := c.ctx(t)
				defer cancel()
				begun := time.Now()
				err := r.Stop(ctx)
				if d := time.Since(begun); d < c.least || d > c.most {
					t.Errorf("Stop took %s, want %s to %s", d, c.least, c.most)
				}
				if err == nil || !strings.Contains(err.Error(), "1 messages were in work") || !strings.Contains(err.Error(), "did not return when its context ended") {
					t.Errorf("Stop: %v, want what was cut", err)
				}
				close(release)
				synctest.Wait()
				if rec := r.row(t, storage.Inbox); rec.Retries != 0 || rec.Takeovers != 0 {
					t.Errorf("a stop counted: %d retries, %d takeovers", rec.Retries, rec.Takeovers)
				}
				// Nobody has settled the row: it is handled again, and found at once.
				j := newJournal()
				r.again(t, cap.Options{}, subscribe.To("t", j.handler)).start(t)
				elapse(2 * time.Second)
				if got := j.all(); len(got) != 1 {
					t.Errorf("the next bus handled %v, want the message", got)
				}
			})
		})
	}
}

func TestStopOfAnIdleBusIsQuick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{}, subscribe.To("t", j.handler))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{t.Context(), ended} {
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			elapse(time.Minute)
			begun := time.Now()
			if err := r.Stop(ctx); err != nil {
				t.Errorf("Stop: %v", err)
			}
			if d := time.Since(begun); d > 100*time.Millisecond {
				t.Errorf("Stop took %s", d)
			}
		}
	})
}

func TestStopWhileTheBrokerIsAwayLeavesTheRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{}, subscribe.To("t", j.handler))
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.queue.Disconnect()
		for range 10 {
			if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
				t.Fatal(err)
			}
		}
		elapse(time.Second)
		begun := time.Now()
		if err := r.Stop(t.Context()); err != nil || time.Since(begun) > time.Second {
			t.Errorf("Stop: %v after %s", err, time.Since(begun))
		}
		r.queue.Reconnect()
		r.start(t)
		elapse(2 * time.Second)
		if got := j.all(); len(got) != 10 {
			t.Errorf("the next start handled %d, want 10", len(got))
		}
	})
}

func TestStopWaitsForTheCallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, over := 0, 0
		r := working(t, cap.Options{FailedRetryCount: 1, FailedThresholdCallback: func(ctx context.Context, _ cap.FailedInfo) {
			calls++
			select {
			case <-time.After(3 * time.Second):
				over++
			case <-ctx.Done():
			}
		}}, func(context.Context, string) error { return errors.New("no") })
		elapse(time.Second)
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if calls != 1 || over != 1 {
			t.Errorf("%d callbacks begun, %d over, want one", calls, over)
		}
		r.start(t)
		elapse(time.Minute)
		if calls != 1 {
			t.Errorf("%d callbacks after a restart, want one", calls)
		}
	})
}

// In process, a send waits for the acks of this bus's own receivers: they must
// not go before it.
func TestStopReceivesUntilNothingIsBeingSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{}, subscribe.To("t", j.handler))
		r.queue.SetFaults(memqueue.Faults{SendDelay: 100 * time.Millisecond})
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(50 * time.Millisecond)
		begun := time.Now()
		if err := r.Stop(t.Context()); err != nil || time.Since(begun) > 200*time.Millisecond {
			t.Errorf("Stop: %v after %s", err, time.Since(begun))
		}
		if rec := r.row(t, storage.Outbox); rec.Status != storage.Succeeded {
			t.Errorf("the row is %v, want succeeded: its send was under way", rec.Status)
		}
		if rec := r.row(t, storage.Inbox); rec.Status != storage.Scheduled || len(j.all()) > 0 {
			t.Errorf("the received row is %v, handled %v: want it stored and left", rec.Status, j.all())
		}
		r.start(t)
		elapse(2 * time.Second)
		if got := j.all(); len(got) != 1 {
			t.Errorf("the next start handled %v", got)
		}
	})
}
