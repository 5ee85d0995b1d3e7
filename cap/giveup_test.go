package cap_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// failure is a way in which a message fails for good.
type failure struct {
	name     string
	handler  func(context.Context, int) error
	send     func(r *rig, id string) error // nil: an int is published
	refuse   bool
	kind     gocap.Kind
	group    string
	sub      string
	attempts func(most int) int
	says     string
}

func failures() []failure {
	all := func(most int) int { return most }
	n := func(n int) func(int) int { return func(int) int { return n } }
	return []failure{
		{
			name: "handler error", handler: func(context.Context, int) error { return errors.New("the shop is closed") },
			kind: gocap.Subscribe, group: "test", sub: "t", attempts: all, says: "the shop is closed",
		},
		{
			name: "handler panic", handler: func(context.Context, int) error { panic("boom") },
			kind: gocap.Subscribe, group: "test", sub: "t", attempts: all, says: "handler panicked: boom",
		},
		{
			name: "rejected", handler: func(context.Context, int) error {
				return fmt.Errorf("today: %w", subscribe.Reject(errors.New("never")))
			},
			kind: gocap.Subscribe, group: "test", sub: "t", attempts: n(1), says: "today: never",
		},
		{
			name: "decode error", send: func(r *rig, id string) error {
				return r.Publish(context.Background(), cap.NoTx, "t", "no int", cap.WithID(id))
			},
			kind: gocap.Subscribe, group: "test", sub: "t", attempts: n(1), says: "body cannot be decoded as int",
		},
		{
			name: "no subscriber", send: func(r *rig, id string) error {
				return r.queue.InjectTo("test.v1", &cap.Message{ID: id, Topic: "t", Body: []byte("1")})
			},
			kind: gocap.Subscribe, group: "test", sub: "", attempts: n(0), says: "no subscription takes it",
		},
		{name: "send error", refuse: true, kind: gocap.Publish, attempts: all, says: "no such exchange"},
	}
}

// Case C033: whatever fails, and however often it may, there is one callback that
// says what has failed. A panic in it is contained.
func TestExactlyOneCallbackForEachFailure(t *testing.T) {
	t.Parallel()
	for _, f := range failures() {
		for most := 1; most <= 4; most++ {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d attempts, callback panics %t", f.name, most, panics), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { f.run(t, most, panics) })
				})
			}
		}
	}
}

func (f failure) run(t *testing.T, most int, panics bool) {
	t.Helper()
	var infos []cap.FailedInfo
	runs, handler := 0, f.handler
	if handler == nil {
		handler = func(context.Context, int) error { return nil }
	}
	topic := "t"
	if f.name == "no subscriber" {
		topic = "another"
	}
	r := running(t, cap.Options{
		FailedRetryCount: most,
		PollInterval:     5 * time.Second,
		FailedThresholdCallback: func(_ context.Context, info cap.FailedInfo) {
			infos = append(infos, info)
			if panics {
				panic("callback")
			}
		},
	}, subscribe.To(topic, func(ctx context.Context, i int) error {
		runs++
		return handler(ctx, i)
	}))
	if f.refuse {
		r.queue.SetFaults(memqueue.Faults{Refuse: func(*transport.Message) error {
			runs++
			return fmt.Errorf("%w: no such exchange", transport.ErrRejected)
		}})
	}
	id, begun := cap.NewID(), time.Now()
	send := f.send
	if send == nil {
		send = func(r *rig, id string) error { return r.Publish(t.Context(), cap.NoTx, "t", 1, cap.WithID(id)) }
	}
	synctest.Wait() // the queue is there
	if err := send(r, id); err != nil {
		t.Fatal(err)
	}
	if f.name == "no subscriber" {
		elapse(time.Hour) // UnhandledAfter
	}
	elapse(5 * time.Minute)
	if len(infos) != 1 {
		t.Fatalf("%d callbacks, want one: %+v", len(infos), infos)
	}
	info := infos[0]
	if info.Kind != f.kind || info.Message.ID != id || info.Message.Topic != "t" || info.Group != f.group || info.Subscriber != f.sub {
		t.Errorf("FailedInfo: %+v, message %+v", info, info.Message)
	}
	if want := f.attempts(most); info.Attempts != want {
		t.Errorf("FailedInfo says %d attempts, want %d", info.Attempts, want)
	}
	if (f.handler != nil || f.refuse) && runs != f.attempts(most) {
		t.Errorf("%d runs, want %d", runs, f.attempts(most))
	}
	if !strings.Contains(info.LastError, f.says) {
		t.Errorf("FailedInfo says %q, want %q", info.LastError, f.says)
	}
	if info.FailedAt.Location() != time.UTC || info.FailedAt.Before(begun) || info.FailedAt.After(time.Now()) {
		t.Errorf("FailedAt is %v", info.FailedAt)
	}
	if len(info.Message.Body) == 0 {
		t.Error("the message has lost its body")
	}
	box := storage.Inbox
	if f.refuse {
		box = storage.Outbox
	}
	if rec := r.row(t, box); !rec.Final || rec.Status != storage.Failed || rec.Retries != f.attempts(most) || len(rec.Body) == 0 || !strings.Contains(rec.LastError, f.says) {
		t.Errorf("row: final %t, %v, %d retries, body %s, error %q", rec.Final, rec.Status, rec.Retries, rec.Body, rec.LastError)
	}
}

func TestACallbackCanPublish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		var nilTx error
		r := running(t, cap.Options{FailedRetryCount: 1, FailedThresholdCallback: func(ctx context.Context, info cap.FailedInfo) {
			nilTx = cap.Publish(ctx, nil, "failed", "x")
			if err := cap.Publish(ctx, cap.NoTx, "failed", info.LastError); err != nil {
				t.Error(err)
			}
		}}, subscribe.To("t", func(context.Context, string) error { return errors.New("no") }), subscribe.To("failed", j.handler))
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if got := j.all(); len(got) != 1 || got[0] != "no" {
			t.Errorf("handled %v", got)
		}
		if !errors.Is(nilTx, cap.ErrNoTx) || !strings.Contains(nilTx.Error(), "cap.NoTx") {
			t.Errorf("Publish with a nil transaction in a callback: %v, want ErrNoTx and what to do", nilTx)
		}
	})
}

func TestWithoutACallbackAFailureIsFinalAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := running(t, cap.Options{FailedRetryCount: 2, FailedMessageExpiredAfter: time.Hour}, subscribe.To("t", func(context.Context, string) error {
			runs++
			return errors.New("no")
		}))
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(30 * time.Minute)
		if rec := r.row(t, storage.Inbox); runs != 2 || !rec.Final || rec.Status != storage.Failed {
			t.Errorf("%d runs, row %v, final %t", runs, rec.Status, rec.Final)
		}
		elapse(time.Hour)
		if recs := r.store.Records(storage.Inbox); len(recs) != 0 {
			t.Errorf("%d rows after FailedMessageExpiredAfter, want none", len(recs))
		}
	})
}

// A callback that could not be made before a stop is made by the next one.
func TestCallbacksThatAreOwedOutliveAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made []string
		opts := cap.Options{FailedRetryCount: 1, StopTimeout: 2 * time.Second, FailedThresholdCallback: func(ctx context.Context, info cap.FailedInfo) {
			made = append(made, string(info.Message.Body))
			if len(made) == 1 {
				<-ctx.Done() // the others wait
			}
		}}
		sub := subscribe.To("t", func(context.Context, string) error { return errors.New("no") }, subscribe.Concurrency(1))
		r := newRig(t, opts, sub)
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, m := range names("m", 3) {
			if err := r.Publish(t.Context(), cap.NoTx, "t", m); err != nil {
				t.Fatal(err)
			}
		}
		elapse(time.Second)
		if err := r.Stop(t.Context()); err == nil {
			t.Error("Stop: no error, though a callback was cut")
		}
		if len(made) != 1 {
			t.Errorf("%d callbacks before the stop, want one: they come one after another", len(made))
		}
		next := r.again(t, opts, sub).start(t)
		elapse(time.Minute)
		slices.Sort(made)
		if got := slices.Compact(slices.Clone(made)); !slices.Equal(got, quoted(names("m", 3))) {
			t.Errorf("callbacks for %v, want for all three", made)
		}
		for _, rec := range next.store.Records(storage.Inbox) {
			if rec.Retries != 1 {
				t.Errorf("%d attempts counted, want 1", rec.Retries)
			}
		}
	})
}
