package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC115InboxCannotStore: while nothing can be stored nothing is acked, so no
// message counts as sent; all are handled when it can, and no attempt is counted.
func TestC115InboxCannotStore(t *testing.T) {
	t.Parallel()
	var j journal
	var log lines
	s := start(t, file(t), serving(inGroup("t", j.handle)), logTo(&log, 0))
	db := s.store.DB()
	must(t, db.Exec("CREATE TRIGGER full BEFORE INSERT ON cap_received BEGIN SELECT RAISE(ABORT, 'no space'); END").Error)
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint(i))
		must(t, s.bus.Publish(t.Context(), cap.NoTx, "t", fmt.Sprint(i)))
	}
	s.queue.Record(10_000)
	eventually(t, "storing is refused", func() bool { return strings.Contains(log.String(), "no space") })
	<-time.After(2 * time.Second)
	if n := number(t, db, "SELECT count(*) FROM cap_published WHERE status <> 0 OR retries > 0"); n != 0 || j.len() != 0 {
		t.Errorf("%d rows are not as they were; %d handled", n, j.len())
	}
	if n := len(s.queue.Sent()); n > 10*len(want) {
		t.Errorf("%d messages are sent again and again", n)
	}
	must(t, db.Exec("DROP TRIGGER full").Error)
	j.wait(t, len(want))
	settled(t, db, window)
	j.exactly(t, want)
	if n := number(t, db, "SELECT count(*) FROM cap_published WHERE retries > 0"); n != 0 {
		t.Errorf("%d attempts were counted", n)
	}
}

// TestC117TwoHandlersOfOneTopic: the same topic twice in a group is refused with
// both places; with a name, a wildcard or another group both run, once.
func TestC117TwoHandlersOfOneTopic(t *testing.T) {
	t.Parallel()
	var j journal
	as := func(name string) func(context.Context, string) error {
		return func(ctx context.Context, id string) error { return j.handle(ctx, name+" "+id) }
	}
	store := opened(t, file(t))
	for name, subs := range map[string]func(*cap.Options){
		"written out": serving(subscribe.To("t", as("1"), subscribe.Group("g")), subscribe.To("t", as("2"), subscribe.Group("g"))),
		"by default": func(o *cap.Options) {
			o.DefaultGroupName = "g"
			o.Subscriptions = []subscribe.Subscription{subscribe.To("t", as("1"), subscribe.Group("g")), subscribe.To("t", as("2"))}
		},
	} {
		err := made(t, store, memqueue.New(memqueue.Config{}), subs).Start(t.Context())
		if err == nil || strings.Count(err.Error(), "cases_consumer_test.go:") != 2 {
			t.Errorf("%s: %v, want an error that names both places", name, err)
		}
	}
	bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(
		inGroup("t.a", as("exact")), inGroup("t.a", as("named"), subscribe.Name("second")), inGroup("t.*", as("wildcard")),
		subscribe.To("t.a", as("other"), subscribe.Group("h")))))
	must(t, bus.Publish(t.Context(), cap.NoTx, "t.a", "m"))
	j.wait(t, 4)
	settled(t, store.DB(), window)
	j.exactly(t, []string{"exact m", "named m", "wildcard m", "other m"})
}

// TestC118Wildcards, and cases C098 and C150: patterns in two groups, topics with
// characters that mean something elsewhere, and topics that differ in little.
func TestC118Wildcards(t *testing.T) {
	t.Parallel()
	patterns := []string{"*.key", "a.#", "a.*.c", "#", "a+c", "a(b", "Order", "order", "a.b", "a_b", "x.Key"}
	topics := []string{"x.key", "a", "a.b.c", "a.b.c.d", "a+c", "a(b", "a.key.key", "Order", "order", "a.b", "a_b", "x.Key", "ORDER", "aac"}
	table := map[string]string{
		"*.key": "x.key", "a.#": "a a.b.c a.b.c.d a.key.key a.b", "a.*.c": "a.b.c", "#": strings.Join(topics, " "),
		"a+c": "a+c", "a(b": "a(b", "Order": "Order", "order": "order", "a.b": "a.b", "a_b": "a_b", "x.Key": "x.Key",
	}
	var j journal
	var subs []subscribe.Subscription
	var want []string
	for _, group := range []string{"I", "i", "ı"} {
		for _, pattern := range patterns {
			subs = append(subs, subscribe.To(pattern, func(ctx context.Context, id string) error {
				info, _ := cap.InfoFromContext(ctx)
				return j.handle(ctx, group+" "+pattern+" <- "+info.Message.Topic+" "+id)
			}, subscribe.Group(group)))
			for topic := range strings.FieldsSeq(table[pattern]) {
				want = append(want, group+" "+pattern+" <- "+topic+" 1", group+" "+pattern+" <- "+topic+" 2")
			}
		}
	}
	s := start(t, file(t), serving(subs...))
	for _, round := range []string{"1", "2"} {
		for _, topic := range topics {
			must(t, s.bus.Publish(t.Context(), cap.NoTx, topic, round))
		}
	}
	settled(t, s.store.DB(), window)
	j.exactly(t, want)
}

// TestC120Concurrency: the workers are those of the group, whatever the number of
// topics and receivers, and all of them are used.
func TestC120Concurrency(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			var runs gauge
			var done journal
			full := make(chan struct{})
			handler := func(ctx context.Context, id string) error {
				info, _ := cap.InfoFromContext(ctx)
				defer runs.enter(info.Group)()
				<-full
				return done.handle(ctx, id)
			}
			var subs []subscribe.Subscription
			for _, group := range []string{"one", "two"} {
				for _, topic := range []string{"a", "b", "c"} {
					subs = append(subs, subscribe.To(topic, handler, subscribe.Group(group)))
				}
			}
			s := start(t, file(t), serving(subs...), func(o *cap.Options) { o.Concurrency, o.ConsumerCount = n, 4 })
			for i := range 60 {
				must(t, s.bus.Publish(t.Context(), cap.NoTx, []string{"a", "b", "c"}[i%3], fmt.Sprint(i)))
			}
			stored := "SELECT count(*) FROM cap_received"
			eventually(t, "all are stored and all workers are busy", func() bool {
				return number(t, s.store.DB(), stored) == 120 && runs.running("one") == n && runs.running("two") == n
			})
			close(full)
			done.wait(t, 120)
			if got := runs.peak(); got != n {
				t.Errorf("%d runs at once, want %d", got, n)
			}
		})
	}
}

// TestC121KilledInAHandler: a message whose handler was under way when its
// process was killed is handled again within a window, 2 s, and an interval.
func TestC121KilledInAHandler(t *testing.T) {
	t.Parallel()
	path := file(t)
	const rounds = 3
	for round := range rounds {
		cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test binary
		cmd.Env = append(os.Environ(), childEnv+"=halfway", "GOCAP_TEST_DB="+path, "GOCAP_TEST_ROUND="+fmt.Sprint(round))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || line != fmt.Sprintf("begin %d\n", round) {
			t.Errorf("the child said %q, %v", line, err)
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		var again journal
		begun := time.Now()
		s, err := newService(t.Context(), path, serving(inGroup("t", again.handle)), leased)
		must(t, err)
		must(t, s.bus.Start(t.Context()))
		again.wait(t, 1)
		took := time.Since(begun)
		t.Logf("handled %s after the kill", took)
		if most := window + 2*time.Second; took > most+2*time.Second { // and what a busy machine takes
			t.Errorf("handled %s after the kill, want %s", took, most)
		}
		settled(t, s.store.DB(), window)
		again.exactly(t, []string{fmt.Sprint(round)})
		must(t, errors.Join(s.bus.Stop(t.Context()), s.store.Close()))
	}
}

// halfwayChild begins to handle a message, and never ends.
func halfwayChild() {
	ctx := context.Background()
	s, err := newService(ctx, os.Getenv("GOCAP_TEST_DB"), serving(inGroup("t", func(_ context.Context, id string) error {
		say("begin", id)
		select {}
	})), leased)
	check(err)
	check(s.bus.Start(ctx))
	check(s.bus.Publish(ctx, cap.NoTx, "t", os.Getenv("GOCAP_TEST_ROUND")))
	select {}
}

// TestC089ForeignMessages, and cases C083 and C109: messages of other producers
// are handled, or end failed, once each, and stop nothing behind them; what is
// delivered again is known.
func TestC089ForeignMessages(t *testing.T) {
	t.Parallel()
	var raw, good journal
	s := start(t, file(t), serving(
		inGroup("raw", func(_ context.Context, m *cap.Message) error {
			raw.add(m.ID)
			return nil
		}),
		inGroup("order", func(ctx context.Context, o order) error { return good.handle(ctx, o.ID) }),
	))
	odd := map[string]string{
		"": "no name", "int": "-2147483648", "bool": "true", "nil": "", "text": "a\x00b\xff\xfe", "\xff": "name",
		"x-death": `[{"count":1}]`, "long": strings.Repeat("ж", 100_000), "cap-msg-group": "of another", "cap-senttime": "10/27/2021 16:46:38 +08:00",
	}
	garbage := []byte(strings.Repeat("\x00\xff{", 33_000))
	foreign := []*cap.Message{
		{ID: "headers", Topic: "raw", Headers: odd, Body: garbage},
		{ID: "empty", Topic: "raw"},
		{ID: "no headers", Topic: "order", Body: []byte(`{"ID":"foreign"}`)},
		{ID: "some headers", Topic: "order", Headers: map[string]string{"cap-msg-type": "Order"}, Body: []byte(`{"ID":"some"}`)},
		{ID: "garbage", Topic: "order", Body: garbage},
		{ID: "no json", Topic: "order", Headers: odd, Body: []byte("hello")},
		{ID: "empty body", Topic: "order"}, // .NET CAP sends null so
		{ID: strings.Repeat("i", 300), Topic: "order", Body: []byte(`{"ID":"long id"}`)},
		{ID: "topic", Topic: "\xff", Body: []byte("x")},
	}
	for range 2 {
		for _, m := range foreign {
			must(t, s.queue.InjectTo("g.v1", m))
		}
	}
	want := []string{"foreign", "some", "", "long id"}
	for i := range 10 {
		want = append(want, fmt.Sprint(i))
		must(t, s.bus.Publish(t.Context(), cap.NoTx, "order", order{fmt.Sprint(i)}))
	}
	all := len(foreign) + 10
	eventually(t, "all are stored", func() bool { return number(t, s.store.DB(), "SELECT count(*) FROM cap_received") == all })
	settled(t, s.store.DB(), window)
	good.exactly(t, want)
	raw.exactly(t, []string{"headers", "empty"})
	failed := column(t, s.store.DB(), "SELECT message_id FROM cap_received WHERE status = 3 AND expires_at IS NOT NULL AND length(body) > 0 ORDER BY message_id")
	if fmt.Sprint(failed) != "[garbage no json topic]" {
		t.Errorf("failed: %q", failed)
	}
}
