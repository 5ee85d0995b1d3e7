package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestRepeatedDeliveries: a message that comes a hundred times, one by one and
// together, is one row and one run in each group; when its row has expired it is
// new again.
func TestRepeatedDeliveries(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *gormstore.Store) {
		t.Helper()
		var j journal
		q := memqueue.New(memqueue.Config{})
		in := func(group string) subscribe.Subscription {
			return subscribe.To("t", func(ctx context.Context, id string) error { return j.handle(ctx, group+" "+id) }, subscribe.Group(group))
		}
		options := func(o *cap.Options) {
			o.SucceedMessageExpiredAfter, o.CollectorCleaningInterval = 10*time.Second, 100*time.Millisecond
		}
		begun(t, made(t, store, q, serving(in("a"), in("b")), options))
		deliver := func(n int) {
			m := &transport.Message{ID: "1", Topic: "t", Body: []byte(`"m"`)}
			for _, err := range q.Send(t.Context(), slices.Repeat([]*transport.Message{m}, n)) { // returns when the inbox has them
				must(t, err)
			}
		}
		rows := "SELECT count(*) FROM cap_received"
		deliver(1)
		j.wait(t, 2)
		for range 49 {
			deliver(1)
		}
		deliver(50)
		settled(t, store.DB(), window)
		if n := number(t, store.DB(), rows); n != 2 {
			t.Errorf("%d rows, want one a group", n)
		}
		j.exactly(t, []string{"a m", "b m"})
		eventually(t, "the rows have expired", func() bool { return number(t, store.DB(), rows) == 0 })
		deliver(100)
		settled(t, store.DB(), window)
		j.exactly(t, []string{"a m", "a m", "b m", "b m"})
	})
}

// TestABodyThatDoesNotDecode is kept and handled after the fix, on each database.
func TestABodyThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *gormstore.Store) {
		t.Helper()
		var j journal
		q := memqueue.New(memqueue.Config{})
		old := made(t, store, q, serving(inGroup("t", func(ctx context.Context, o order) error { return j.handle(ctx, o.ID) })))
		must(t, old.Start(t.Context()))
		must(t, q.InjectTo("g.v1", &cap.Message{ID: "1", Topic: "t", Body: []byte("\x00{\"ID\":7}\xff")}))
		eventually(t, "it is stored", func() bool { return number(t, store.DB(), "SELECT count(*) FROM cap_received") == 1 })
		settled(t, store.DB(), window)
		must(t, old.Stop(t.Context()))
		if got := column(t, store.DB(), "SELECT concat(status, ' ', retries, ' ', last_error) FROM cap_received"); len(got) != 1 ||
			!strings.HasPrefix(got[0], "3 1 body cannot be decoded as integration.order: json: invalid character") {
			t.Errorf("rows %q", got)
		}
		mended := begun(t, made(t, store, q, serving(inGroup("t", func(ctx context.Context, body []byte) error {
			return j.handle(ctx, fmt.Sprintf("%q", body))
		}, subscribe.Codec(transport.Bytes)))))
		o, err := mended.Operator()
		must(t, err)
		res, err := o.RequeueMatching(t.Context(), operator.Filter{Box: operator.Received, States: []operator.State{operator.Failed}}, operator.Bulk{})
		must(t, errors.Join(err, res.Err()))
		j.wait(t, 1)
		settled(t, store.DB(), window)
		j.exactly(t, []string{`"\x00{\"ID\":7}\xff"`})
	})
}

// TestOneGroupWithManyPatterns: over RabbitMQ, where the queue of a group gets one
// copy of a message, each subscription that matches has a row; one that fails
// runs again by itself.
func TestOneGroupWithManyPatterns(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	patterns := []string{"order.#", "order.*.paid", "#", "order.eu-west_1.paid", "order.*", "*.*.*"}
	var j journal
	var subs []subscribe.Subscription
	for _, pattern := range patterns {
		subs = append(subs, subscribe.To(pattern, func(ctx context.Context, id string) error {
			info, _ := cap.InfoFromContext(ctx)
			j.add(fmt.Sprint(pattern, " ", id))
			if pattern == "#" && info.Attempt < 4 {
				return errRollback
			}
			return nil
		}, subscribe.Group("handled")))
	}
	s := start(t, file(t), r.options, serving(subs...))
	must(t, s.bus.Publish(t.Context(), cap.NoTx, "order.eu-west_1.paid", "1"))
	must(t, s.bus.Publish(t.Context(), cap.NoTx, "order", "2"))
	must(t, s.bus.Publish(t.Context(), cap.NoTx, "order..paid", "3"))
	eventually(t, "all are stored", func() bool { return number(t, s.store.DB(), "SELECT count(*) FROM cap_received") == 5+2+4 })
	settled(t, s.store.DB(), window)
	var want []string
	for pattern, ids := range map[string]string{
		"order.#": "1 2 3", "order.*.paid": "1 3", "#": "1 1 1 1 2 2 2 2 3 3 3 3", "order.eu-west_1.paid": "1", "*.*.*": "1 3",
	} {
		for id := range strings.FieldsSeq(ids) {
			want = append(want, pattern+" "+id)
		}
	}
	j.exactly(t, want)
}
