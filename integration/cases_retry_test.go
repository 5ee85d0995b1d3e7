package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC033OneCallback: whatever fails, and however often it may, there is one
// callback that says what has failed, and a panic in it is contained.
func TestC033OneCallback(t *testing.T) {
	t.Parallel()
	for most := 1; most <= 4; most++ {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			failEveryWay(t, most)
		})
	}
}

func failEveryWay(t *testing.T, most int) {
	t.Helper()
	var mu sync.Mutex
	infos := map[string][]cap.FailedInfo{}
	s := start(t, file(t), serving(
		inGroup("error", func(context.Context, string) error { return errors.New("the shop is closed") }),
		inGroup("panic", func(context.Context, string) error { panic("boom") }),
		inGroup("decode", func(context.Context, int) error { return nil }),
	), leased, func(o *cap.Options) {
		o.FailedRetryCount, o.FailedRetryInterval, o.UnhandledAfter = most, 20*time.Millisecond, 500*time.Millisecond
		o.FailedThresholdCallback = func(_ context.Context, info cap.FailedInfo) {
			mu.Lock()
			defer mu.Unlock()
			infos[info.Message.Topic] = append(infos[info.Message.Topic], info)
			panic("callback")
		}
	})
	s.queue.SetFaults(memqueue.Faults{Refuse: func(m *transport.Message) error {
		if m.Topic == "send" {
			return fmt.Errorf("%w: no such exchange", transport.ErrRejected)
		}
		return nil
	}})
	want := map[string]struct {
		id       string
		kind     gocap.Kind
		group    string
		attempts int
		says     string
	}{
		"error":  {cap.NewID(), gocap.Subscribe, "g", most, "the shop is closed"},
		"panic":  {cap.NewID(), gocap.Subscribe, "g", most, "handler panicked: boom"},
		"decode": {cap.NewID(), gocap.Subscribe, "g", 1, "body cannot be decoded as int"},
		"send":   {cap.NewID(), gocap.Publish, "", most, "no such exchange"},
		"nobody": {cap.NewID(), gocap.Subscribe, "g", 0, "no subscription takes it"},
	}
	for topic, w := range want {
		if topic == "nobody" {
			must(t, s.queue.InjectTo("g.v1", &cap.Message{ID: w.id, Topic: topic, Body: []byte(`"x"`)}))
			continue
		}
		must(t, s.bus.Publish(t.Context(), cap.NoTx, topic, "x", cap.WithID(w.id)))
	}
	told := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		return len(infos)
	}
	eventually(t, "a callback for each", func() bool { return told() == len(want) })
	settled(t, s.store.DB(), window)
	mu.Lock()
	defer mu.Unlock()
	for topic, w := range want {
		got := infos[topic]
		if len(got) != 1 {
			t.Errorf("%s: %d callbacks, want one", topic, len(got))
			continue
		}
		if i := got[0]; i.Kind != w.kind || i.Message.ID != w.id || i.Group != w.group || i.Attempts != w.attempts || !strings.Contains(i.LastError, w.says) {
			t.Errorf("%s: %+v, message %+v; want %+v", topic, i, i.Message, w)
		}
	}
}

// TestC035OneRunAtATime: two instances retry the same messages with handlers
// that take longer than the wait for a retry; no message is run twice at once.
func TestC035OneRunAtATime(t *testing.T) {
	t.Parallel()
	path, q := file(t), memqueue.New(memqueue.Config{})
	var runs gauge
	var done journal
	handler := func(ctx context.Context, id string) error {
		defer runs.enter(id)()
		info, _ := cap.InfoFromContext(ctx)
		if info.Attempt < 3 {
			return errRollback // the failures before the round in question
		}
		<-time.After(60 * time.Millisecond)
		return done.handle(ctx, id)
	}
	hurry := func(o *cap.Options) {
		o.ImmediateRetries, o.FailedRetryInterval, o.PollInterval = -1, 20*time.Millisecond, 20*time.Millisecond
	}
	one := start(t, path, serving(inGroup("t", handler)), over(q), hurry)
	two := start(t, path, serving(inGroup("t", handler)), over(q), hurry)
	var want []string
	for i := range 80 {
		want = append(want, fmt.Sprint(i))
		must(t, []*service{one, two}[i%2].bus.Publish(t.Context(), cap.NoTx, "t", fmt.Sprint(i)))
	}
	settled(t, one.store.DB(), window)
	done.exactly(t, want)
	if n := runs.peak(); n != 1 {
		t.Errorf("%d runs of one message at once", n)
	}
}

// TestC036SubscriptionIsGone: a message whose subscription a newer build has no
// more ends failed with one callback, delays no other, and one whose
// subscription comes back in time is handled.
func TestC036SubscriptionIsGone(t *testing.T) {
	t.Parallel()
	path := file(t)
	fails := func(context.Context, string) error { return errRollback }
	old, err := newService(t.Context(), path, serving(inGroup("gone", fails), inGroup("back", fails)))
	must(t, err)
	must(t, old.bus.Start(t.Context()))
	must(t, old.bus.Publish(t.Context(), cap.NoTx, "gone", "x"))
	must(t, old.bus.Publish(t.Context(), cap.NoTx, "back", "y"))
	failedOnce := "SELECT count(*) FROM cap_received WHERE retries > 0"
	eventually(t, "both have failed once", func() bool { return number(t, old.store.DB(), failedOnce) == 2 })
	must(t, errors.Join(old.bus.Stop(t.Context()), old.store.Close()))

	var others, back journal
	infos := make(chan cap.FailedInfo, 10)
	next := start(t, path, serving(inGroup("other", others.handle), inGroup("back", back.handle)), func(o *cap.Options) {
		o.UnhandledAfter, o.FallbackWindow = time.Second, window
		o.FailedThresholdCallback = func(_ context.Context, info cap.FailedInfo) { infos <- info }
	})
	for i := range 20 {
		must(t, next.bus.Publish(t.Context(), cap.NoTx, "other", fmt.Sprint(i)))
	}
	others.wait(t, 20)
	back.wait(t, 1)
	select {
	case info := <-infos:
		if info.Message.Topic != "gone" || !strings.Contains(info.LastError, "no subscription takes it") {
			t.Errorf("callback %+v", info)
		}
	case <-time.After(patience):
		t.Fatal("the message of the subscription that is gone does not end")
	}
	settled(t, next.store.DB(), window)
	if got := column(t, next.store.DB(), "SELECT name||' '||status||' '||CAST(body AS TEXT) FROM cap_received WHERE status <> 2"); len(got) != 1 || got[0] != `gone 3 "x"` || len(infos) > 0 {
		t.Errorf("rows %q, %d further callbacks", got, len(infos))
	}
}

// lines counts log lines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func logTo(l *lines, level slog.Level) func(*cap.Options) {
	return func(o *cap.Options) { o.Logger = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level})) }
}

// TestC038DatabaseAway: while the tables cannot be reached the loops are paced,
// and everything goes on when they are back.
func TestC038DatabaseAway(t *testing.T) {
	t.Parallel()
	eachDatabase(t, withoutTables)
}

func withoutTables(t *testing.T, store *gormstore.Store) {
	t.Helper()
	var j journal
	var log lines
	bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", j.handle)), leased, logTo(&log, slog.LevelDebug), func(o *cap.Options) {
		o.PollInterval, o.CollectorCleaningInterval = 20*time.Millisecond, 20*time.Millisecond
	}))
	must(t, bus.Publish(t.Context(), cap.NoTx, "t", "before"))
	j.wait(t, 1)
	settled(t, store.DB(), window)
	tables := []string{"published", "received", "instances"}
	for _, name := range tables {
		must(t, store.DB().Exec("ALTER TABLE cap_"+name+" RENAME TO away_"+name).Error)
	}
	before := strings.Count(log.String(), "\n")
	const outage = 2 * window // longer than a lease
	<-time.After(outage)
	if err := bus.Publish(t.Context(), cap.NoTx, "t", "lost"); err == nil {
		t.Error("Publish without a table: no error")
	}
	n := strings.Count(log.String(), "\n") - before
	t.Logf("%d lines in %s", n, outage)
	if most := 5 * int(outage/time.Second); n > most || n == 0 {
		t.Errorf("%d log lines in %s, want at most %d:\n%s", n, outage, most, log.String())
	}
	for _, name := range tables {
		must(t, store.DB().Exec("ALTER TABLE away_"+name+" RENAME TO cap_"+name).Error)
	}
	must(t, bus.Publish(t.Context(), cap.NoTx, "t", "after"))
	begun := time.Now()
	j.wait(t, 2)
	if d := time.Since(begun); d > 10*time.Second {
		t.Errorf("it took %s to recover", d)
	}
	settled(t, store.DB(), window)
	j.exactly(t, []string{"before", "after"})
}

// TestC139ErrorAsHeader: a header in which another system carries an error is a
// header like any other; our own error is a column, with the latest text, also
// after a requeue.
func TestC139ErrorAsHeader(t *testing.T) {
	t.Parallel()
	const header = "cap-exception"
	var seen journal
	s := start(t, file(t), serving(inGroup("t", func(ctx context.Context, m *cap.Message) error {
		info, _ := cap.InfoFromContext(ctx)
		seen.add(fmt.Sprint(info.Attempt, " ", m.Headers[header]))
		m.Headers[header] = "changed" // of this attempt's copy alone
		switch {
		case m.ID == "fails" || info.Attempt < 3:
			return fmt.Errorf("failure %d", info.Attempt)
		}
		return nil
	}, subscribe.FailedRetryCount(4))))
	for _, id := range []string{"fails", "succeeds"} {
		must(t, s.queue.InjectTo("g.v1", &cap.Message{ID: id, Topic: "t", Headers: map[string]string{header: "NullReferenceException-->"}, Body: []byte("1")}))
	}
	eventually(t, "both are there", func() bool { return number(t, s.store.DB(), "SELECT count(*) FROM cap_received") == 2 })
	settled(t, s.store.DB(), window)
	o, err := s.bus.Operator()
	must(t, err)
	res, err := o.RequeueMatching(t.Context(), operator.Filter{Box: operator.Received, States: []operator.State{operator.Failed}}, operator.Bulk{})
	if must(t, err); res.Done != 1 {
		t.Errorf("%d messages requeued, want the failed one", res.Done)
	}
	settled(t, s.store.DB(), window)
	if n := seen.count("4 NullReferenceException-->"); n != 2 {
		t.Errorf("%d last attempts, want one before and one after the requeue", n)
	}
	for _, line := range seen.sorted() {
		if !strings.HasSuffix(line, " NullReferenceException-->") {
			t.Errorf("an attempt saw the header as %q", line)
		}
	}
	got := column(t, s.store.DB(), "SELECT message_id||' '||status||' '||retries||' '||last_error FROM cap_received ORDER BY message_id")
	if len(got) != 2 || got[0] != "fails 3 4 failure 4" || !strings.HasPrefix(got[1], "succeeds 2 2 ") {
		t.Errorf("rows %q", got)
	}
	t.Log(got)
}
