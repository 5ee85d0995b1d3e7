package processor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// always answers every message with err.
func always(err error) func(context.Context, *transport.Message) error {
	return func(context.Context, *transport.Message) error { return err }
}

// TestOutcomesOfASend: one row each, as it stands after the first answer. The
// interval is 10 s, three attempts are made in all.
func TestOutcomesOfASend(t *testing.T) {
	t.Parallel()
	type want struct {
		status   storage.Status
		final    bool
		retries  int
		attempts int // sends within 5 minutes
		end      storage.Status
		callback bool
	}
	rejected := fmt.Errorf("%w: queue is full", transport.ErrRejected)
	panics := func(context.Context, []*transport.Message) []error { panic("on purpose") }
	for _, c := range []struct {
		name   string
		broker func(*broker)
		adjust func(*processor.DispatcherConfig)
		want   want
	}{
		{"stored", func(*broker) {}, nil, want{storage.Succeeded, true, 0, 1, storage.Succeeded, false}},
		{"rejected", func(b *broker) { b.answer = always(rejected) }, nil, want{storage.Failed, false, 1, 3, storage.Failed, true}},
		{
			"permanent", func(b *broker) { b.answer = always(errors.Join(rejected, transport.ErrPermanent)) }, nil,
			want{storage.Failed, true, 1, 1, storage.Failed, true},
		},
		{"unknown", func(b *broker) { b.answer = always(errors.New("no confirmation")) }, nil, want{storage.Failed, false, 1, 3, storage.Failed, true}},
		{"panic", func(b *broker) { b.send = panics }, nil, want{storage.Failed, false, 1, 3, storage.Failed, true}},
		{
			"too few answers", func(b *broker) { b.send = func(context.Context, []*transport.Message) []error { return nil } }, nil,
			want{storage.Failed, false, 1, 3, storage.Failed, true},
		},
		{
			"too many answers", func(b *broker) {
				b.send = func(_ context.Context, msgs []*transport.Message) []error { return make([]error, len(msgs)+1) }
			}, nil, want{storage.Failed, false, 1, 3, storage.Failed, true},
		},
		{
			"allowed to be unroutable", func(b *broker) { b.answer = always(transport.ErrUnroutable) },
			func(cfg *processor.DispatcherConfig) { cfg.AllowUnroutable = true },
			want{storage.Succeeded, true, 0, 1, storage.Succeeded, false},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSender(t, time.Second, c.adjust)
				c.broker(s.b)
				id := s.publish(1, "a")[0]
				s.start()
				<-time.After(5 * time.Second)
				if rec := s.row(id); rec.Status != c.want.status || rec.Final != c.want.final || rec.Retries != c.want.retries {
					t.Errorf("after the first answer: %v, final %v, %d retries", rec.Status, rec.Final, rec.Retries)
				}
				<-time.After(5 * time.Minute)
				rec, calls := s.row(id), s.callbacks()
				if rec.Status != c.want.end || !rec.Final || s.b.count("a") != c.want.attempts {
					t.Errorf("at last: %v, final %v, after %d sends", rec.Status, rec.Final, s.b.count("a"))
				}
				if (len(calls) == 1) != c.want.callback || len(calls) > 1 {
					t.Errorf("%d callbacks", len(calls))
				}
				if len(calls) == 1 && (calls[0].Retries != c.want.attempts || calls[0].LastError == "" || rec.LastError == "") {
					t.Errorf("the callback got %d attempts, error %q", calls[0].Retries, calls[0].LastError)
				}
			})
		})
	}
}

func TestWhatIsSentGoesAtOnceWhenNothingIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, func(cfg *processor.DispatcherConfig) { cfg.KeepSent = -1 })
		id := s.publish(1, "a")[0]
		s.start()
		<-time.After(time.Second)
		if s.row(id) != nil || s.b.count("a") != 1 {
			t.Error("the row is still there")
		}
	})
}

// TestUnroutableCostsNoAttempt: the waits grow with the age of the message, up
// to 5 minutes, and it fails only when a failed row would expire.
func TestUnroutableCostsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.answer = func(_ context.Context, m *transport.Message) error {
			if m.Topic == "nobody" {
				return fmt.Errorf("exchange x: %w", transport.ErrUnroutable)
			}
			return nil
		}
		id := s.publish(1, "nobody")[0]
		s.start()
		<-time.After(59 * time.Minute)
		if rec := s.row(id); rec.Final || rec.Retries != 0 || len(s.callbacks()) != 0 {
			t.Errorf("before the end: final %v, %d retries", rec.Final, rec.Retries)
		}
		<-time.After(10 * time.Minute)
		if rec := s.row(id); !rec.Final || rec.Status != storage.Failed || rec.Retries != 0 || len(s.callbacks()) != 1 {
			t.Errorf("after an hour: final %v, %d retries, %d callbacks", rec.Final, rec.Retries, len(s.callbacks()))
		}
		log, last := s.b.log(), 10*time.Second
		for i := 1; i < len(log); i++ {
			wait := log[i].at.Sub(log[i-1].at)
			if wait < last-time.Second || wait > 5*time.Minute+time.Second {
				t.Errorf("wait %d is %s after %s", i, wait, last)
			}
			last = wait
		}
		if len(log) < 12 || len(log) > 25 {
			t.Errorf("%d sends in an hour", len(log))
		}
		if n := s.log.count(); n > 65 {
			t.Errorf("%d lines in an hour for one topic, want one a minute", n)
		}
		s.publish(1, "somebody")
		s.retry.Kick()
		<-time.After(time.Millisecond)
		if s.b.count("somebody") != 1 {
			t.Error("another topic is held up")
		}
	})
}

// TestOneRefusedMessageOfABatchFailsAlone: its neighbours are sent once.
func TestOneRefusedMessageOfABatchFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		list := s.publish(100, "a")
		s.b.answer = func(_ context.Context, m *transport.Message) error {
			if m.ID == list[50].String() {
				return errors.Join(transport.ErrRejected, transport.ErrPermanent)
			}
			return nil
		}
		s.start()
		<-time.After(time.Minute)
		for i, id := range list {
			if rec := s.row(id); (rec.Status == storage.Failed) != (i == 50) || !rec.Final {
				t.Errorf("row %d: %v, final %v", i, rec.Status, rec.Final)
			}
		}
		if n := s.b.count("a"); n != 100 {
			t.Errorf("%d messages were sent, want 100", n)
		}
	})
}

func TestAMessageWhoseHeadersCannotBeReadFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		bad := record("a", s.keeper.Current().Number())
		bad.Headers = []byte("no headers")
		s.append(bad)
		good := s.publish(1, "a")[0]
		s.start()
		<-time.After(time.Second)
		if rec := s.row(bad.ID); !rec.Final || rec.Status != storage.Failed || len(s.callbacks()) != 1 {
			t.Errorf("it is %v, final %v, %d callbacks", rec.Status, rec.Final, len(s.callbacks()))
		}
		if rec := s.row(good); rec.Status != storage.Succeeded {
			t.Errorf("its neighbour is %v", rec.Status)
		}
	})
}

// TestASendWithoutAnAnswerInTimeCounts, though the transport says only that its
// context has ended.
func TestASendWithoutAnAnswerInTimeCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.answer = func(ctx context.Context, _ *transport.Message) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", transport.ErrUnavailable, ctx.Err())
		}
		id := s.publish(1, "a")[0]
		s.start()
		<-time.After(61 * time.Second)
		if rec := s.row(id); rec.Retries != 1 || rec.Status != storage.Failed {
			t.Errorf("%d retries, %v", rec.Retries, rec.Status)
		}
		if len(s.b.checks) != 0 {
			t.Error("the breaker opened")
		}
		<-time.After(5 * time.Minute)
		if rec := s.row(id); !rec.Final || rec.Retries != 3 {
			t.Errorf("at last %d retries, final %v", rec.Retries, rec.Final)
		}
	})
}
