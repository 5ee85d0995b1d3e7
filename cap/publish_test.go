package cap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

type productDeleted struct {
	ID int `json:"id"`
}

type wrapper[T any] struct{ V T }

func headersOf(t *testing.T, rec *storage.Record) map[string]string {
	t.Helper()
	h := map[string]string{}
	if err := json.Unmarshal(rec.Headers, &h); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHeadersOfAPublishedMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{TopicNamePrefix: "shop"})
	id := cap.NewID()
	before := time.Now()
	err := r.Publish(t.Context(), cap.NoTx, "product.deleted", &productDeleted{7},
		cap.WithID(id), cap.WithHeader("tenant", "blue"), cap.WithHeader("traceparent", "00-1-2-01"))
	if err != nil {
		t.Fatal(err)
	}
	rec := r.row(t, storage.Outbox)
	if rec.Topic != "shop.product.deleted" || string(rec.Body) != `{"id":7}` || rec.ID.String() != id {
		t.Errorf("row: topic %s, body %s, id %s", rec.Topic, rec.Body, rec.ID)
	}
	h := headersOf(t, rec)
	sent, err := time.Parse(time.RFC3339Nano, h["cap-senttime"])
	if err != nil || sent.Before(before.Add(-time.Second)) || sent.Location() != time.UTC {
		t.Errorf("cap-senttime is %q, want RFC 3339 in UTC, now", h["cap-senttime"])
	}
	delete(h, "cap-senttime")
	want := map[string]string{
		"cap-msg-id": id, "cap-msg-name": "shop.product.deleted", "cap-msg-type": "productDeleted",
		"cap-corr-id": id, "cap-corr-seq": "0", "tenant": "blue", "traceparent": "00-1-2-01",
	}
	if !maps.Equal(h, want) {
		t.Errorf("headers are\n%v, want\n%v", h, want)
	}
}

func TestTypeHeaderHasNoPackagePath(t *testing.T) {
	t.Parallel()
	for want, msg := range map[string]any{
		"":               nil,
		"int":            1,
		"productDeleted": new(*productDeleted),
		"wrapper":        wrapper[productDeleted]{},
		"RawMessage":     json.RawMessage("1"),
	} {
		r := newRig(t, cap.Options{})
		if err := r.Publish(t.Context(), cap.NoTx, "t", msg); err != nil {
			t.Fatal(err)
		}
		if got := headersOf(t, r.row(t, storage.Outbox))["cap-msg-type"]; got != want {
			t.Errorf("type of %T is %q, want %q", msg, got, want)
		}
	}
}

func TestLongestTopicAndBodyAreTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{MaxBodySize: 1000, MaxHeaders: 7, TopicNamePrefix: "abc"})
	topic := strings.Repeat("t", 251) // 255 with prefix and dot
	if err := r.Publish(t.Context(), cap.NoTx, topic, strings.Repeat("x", 998), cap.WithHeader("a", "b")); err != nil {
		t.Error(err)
	}
	if err := r.Publish(t.Context(), cap.NoTx, topic+"t", 1); err == nil || !strings.Contains(err.Error(), "prefix included") {
		t.Errorf("a byte more, with the prefix: %v", err)
	}
}

func TestPublishManyWritesAllOrNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	known := cap.NewID()
	if err := r.Publish(t.Context(), cap.NoTx, "t", 0, cap.WithID(known)); err != nil {
		t.Fatal(err)
	}
	twice := cap.NewID()
	for name, msgs := range map[string][]cap.Outgoing{
		"one is bad":         {{Topic: "t", Msg: 1}, {Topic: "", Msg: 2}},
		"one is known":       {{Topic: "t", Msg: 1}, {Topic: "t", Msg: 2, Opts: []cap.PublishOption{cap.WithID(known)}}},
		"two with the same":  {{Topic: "t", Msg: 1, Opts: []cap.PublishOption{cap.WithID(twice)}}, {Topic: "t", Msg: 2, Opts: []cap.PublishOption{cap.WithID(twice)}}},
		"one does not fit":   {{Topic: "t", Msg: 1}, {Topic: "t", Msg: make(chan int)}},
		"one has bad header": {{Topic: "t", Msg: 1}, {Topic: "t", Msg: 1, Opts: []cap.PublishOption{cap.WithHeader("cap-msg-id", "")}}},
	} {
		if err := r.PublishMany(t.Context(), cap.NoTx, msgs...); err == nil {
			t.Errorf("%s: no error", name)
		}
		r.row(t, storage.Outbox) // still one
	}
	if err := r.PublishMany(t.Context(), cap.NoTx, cap.Outgoing{Topic: "t", Msg: 1}, cap.Outgoing{Topic: "t", Msg: 2}); err != nil {
		t.Fatal(err)
	}
	if recs := r.store.Records(storage.Outbox); len(recs) != 3 || string(recs[1].Body) != "1" || string(recs[2].Body) != "2" {
		t.Errorf("%d rows, want 3 in order", len(recs))
	}
}

func TestAGivenIDIsTakenOnceAndTheTransactionStaysUsable(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	id := cap.NewID()
	tx := r.begin(t.Context(), t)
	if err := r.Publish(t.Context(), tx, "t", 1, cap.WithID(id)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := r.Publish(t.Context(), tx, "t", 2, cap.WithID(strings.ToUpper(id)))
		if !errors.Is(err, cap.ErrDuplicate) || !strings.Contains(err.Error(), id) {
			t.Errorf("the same id in one transaction: %v, want ErrDuplicate with the id", err)
		}
	}
	if err := r.Publish(t.Context(), tx, "t", 3); err != nil {
		t.Errorf("the transaction is not usable any more: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), cap.NoTx, "t", 4, cap.WithID(id)); !errors.Is(err, cap.ErrDuplicate) {
		t.Errorf("the same id later: %v, want ErrDuplicate", err)
	}
	var bodies []string
	for _, rec := range r.store.Records(storage.Outbox) {
		bodies = append(bodies, string(rec.Body))
	}
	if !slices.Equal(bodies, []string{"1", "3"}) {
		t.Errorf("rows %v, want 1 and 3", bodies)
	}
}

func TestNewIDIsAUUIDOfVersion7(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := cap.NewID()
		if _, err := storage.ParseID(id); err != nil || id[14] != '7' || seen[id] {
			t.Fatalf("NewID: %q (%v, seen before: %t)", id, err, seen[id])
		}
		seen[id] = true
	}
}

// Case C129: options are values of the caller; they can be used again, by many.
func TestOptionsCanBeUsedForManyMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type received struct{ id, corr, tenant, own string }
		var mu sync.Mutex
		var got []received
		r := running(t, cap.Options{}, subscribe.To("t", func(_ context.Context, m *cap.Message) error {
			mu.Lock()
			defer mu.Unlock()
			h := m.Headers
			got = append(got, received{m.ID, h["cap-corr-id"], h["tenant"], h["own"]})
			h["tenant"] = "changed by the handler"
			return nil
		}))
		headers := map[string]string{"tenant": "blue"}
		before := maps.Clone(headers)
		var shared []cap.PublishOption
		for k, v := range headers {
			shared = append(shared, cap.WithHeader(k, v))
		}
		msg := &productDeleted{1}
		inParallel(names("m", 100), func(name string) {
			opts := append(slices.Clone(shared), cap.WithHeader("own", name))
			if err := r.Publish(t.Context(), cap.NoTx, "t", msg, opts...); err != nil {
				t.Error(err)
			}
		})
		for range 10 {
			if err := r.Publish(t.Context(), cap.NoTx, "t", msg, shared...); err != nil {
				t.Error(err)
			}
		}
		elapse(time.Second)
		mu.Lock()
		defer mu.Unlock()
		ids, owns := map[string]bool{}, map[string]bool{}
		for _, m := range got {
			ids[m.id] = true
			owns[m.own] = true
			if m.corr != m.id || m.tenant != "blue" {
				t.Errorf("message %v: want its own correlation id and tenant blue", m)
			}
		}
		if len(got) != 110 || len(ids) != 110 || len(owns) != 101 {
			t.Errorf("%d messages, %d ids, %d own headers, want 110, 110 and 101", len(got), len(ids), len(owns))
		}
		if !maps.Equal(headers, before) || *msg != (productDeleted{1}) {
			t.Errorf("Publish changed what it was given: %v, %v", headers, msg)
		}
	})
}

func TestWithoutABusThePackageFunctionsSayHowToGetOne(t *testing.T) { //nolint:paralleltest // the default bus is global
	if b := cap.Default(); b != nil {
		t.Fatalf("there is a default bus: %v", b)
	}
	for _, err := range []error{
		cap.Publish(t.Context(), cap.NoTx, "t", 1),
		cap.PublishMany(t.Context(), cap.NoTx, cap.Outgoing{Topic: "t", Msg: 1}),
	} {
		if !errors.Is(err, cap.ErrNoBus) {
			t.Fatalf("Publish: %v, want ErrNoBus", err)
		}
		for _, way := range []string{"*cap.Bus", "cap.New", "cap.SetDefault"} {
			if !strings.Contains(err.Error(), way) {
				t.Errorf("%q does not name the way %s", err, way)
			}
		}
	}
}

type stubPublisher struct {
	tx    cap.Tx
	topic string
	msg   any
	opts  int
	err   error
}

func (s *stubPublisher) Publish(_ context.Context, tx cap.Tx, topic string, msg any, opts ...cap.PublishOption) error {
	s.tx, s.topic, s.msg, s.opts = tx, topic, msg, len(opts)
	return s.err
}

func TestForPassesEverythingOn(t *testing.T) {
	t.Parallel()
	stub := &stubPublisher{err: errors.New("no")}
	err := cap.For[int](stub).Publish(t.Context(), 5, "t", "m", cap.WithDelay(1), cap.WithHeader("a", "b"))
	if !errors.Is(err, stub.err) || stub.tx != 5 || stub.topic != "t" || stub.msg != "m" || stub.opts != 2 {
		t.Errorf("For: %v, %+v", err, fmt.Sprint(stub))
	}
}
