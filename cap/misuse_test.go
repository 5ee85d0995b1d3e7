package cap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("no body today") }

type cyclic struct{ Self *cyclic }

func aCycle() any {
	c := &cyclic{}
	c.Self = c
	return c
}

// misuse is a call of Publish that must be refused without any SQL.
type misuse struct {
	name  string
	topic string
	msg   any
	opts  []cap.PublishOption
	says  []string
}

func misuses() []misuse {
	ok := "product.deleted"
	var tooMany []cap.PublishOption
	for i := range 300 {
		tooMany = append(tooMany, cap.WithHeader(fmt.Sprint("h", i), "x"))
	}
	return []misuse{
		{"empty topic", "", 1, nil, []string{"topic is empty", "product.deleted"}},
		{"256-byte topic", strings.Repeat("t", 256), 1, nil, []string{"256 bytes", "255"}},
		{"wildcard * topic", "product.*", 1, nil, []string{"product.*", "wildcard", "subscriptions"}},
		{"wildcard # topic", "#", 1, nil, []string{`"#"`, "wildcard"}},
		{"topic with NUL", "a\x00b", 1, nil, []string{"UTF-8 without NUL"}},
		{"topic of invalid UTF-8", "a\xffb", 1, nil, []string{"UTF-8"}},
		{"channel", ok, make(chan int), nil, []string{"chan int", "unsupported type"}},
		{"func in a struct", ok, struct{ F func() }{func() {}}, nil, []string{"unsupported type: func()"}},
		{"cycle", ok, aCycle(), nil, []string{"*cap_test.cyclic", "cycle"}},
		{"panicking MarshalJSON", ok, panicking{}, nil, []string{"cap_test.panicking", "panic", "no body today"}},
		{"body too large", ok, strings.Repeat("x", 2000), nil, []string{"2002 bytes", "1000", "Options.MaxBodySize"}},
		{"too many headers", ok, 1, tooMany, []string{"headers", "256", "Options.MaxHeaders"}},
		{"id that is no UUID", ok, 1, []cap.PublishOption{cap.WithID("order-7")}, []string{`"order-7"`, "UUID", "cap.NewID"}},
		{"negative delay", ok, 1, []cap.PublishOption{cap.WithDelay(-time.Second)}, []string{"WithDelay", "-1s"}},
		{"zero due time", ok, 1, []cap.PublishOption{cap.WithDueAt(time.Time{})}, []string{"WithDueAt", "zero"}},
		{"delay and due time", ok, 1, []cap.PublishOption{cap.WithDelay(1), cap.WithDueAt(time.Now())}, []string{"WithDelay and WithDueAt"}},
		{"nil option", ok, 1, []cap.PublishOption{nil}, []string{"PublishOption is nil"}},
		{"reserved id header", ok, 1, []cap.PublishOption{cap.WithHeader("cap-msg-id", "7")}, []string{"cap-msg-id", "WithID"}},
		{"reserved topic header", ok, 1, []cap.PublishOption{cap.WithHeader("cap-msg-name", "x")}, []string{"cap-msg-name", "topic argument"}},
		{"reserved type header", ok, 1, []cap.PublishOption{cap.WithHeader("cap-msg-type", "x")}, []string{"cap-msg-type"}},
		{"reserved time header", ok, 1, []cap.PublishOption{cap.WithHeader("cap-senttime", "x")}, []string{"cap-senttime"}},
		{"reserved group header", ok, 1, []cap.PublishOption{cap.WithHeader("cap-msg-group", "x")}, []string{"cap-msg-group"}},
		{"reserved key header", ok, 1, []cap.PublishOption{cap.WithHeader("cap-key", "x")}, []string{"cap-key"}},
		{"empty header name", ok, 1, []cap.PublishOption{cap.WithHeader("", "x")}, []string{"header name", "0 bytes"}},
		{"long header name", ok, 1, []cap.PublishOption{cap.WithHeader(strings.Repeat("h", 256), "x")}, []string{"256 bytes", "255"}},
		{"header value of invalid UTF-8", ok, 1, []cap.PublishOption{cap.WithHeader("h", "\xff")}, []string{`"h"`, "UTF-8"}},
		{"two bad options", ok, 1, []cap.PublishOption{cap.WithID("x"), cap.WithDelay(-1)}, []string{"WithID", "WithDelay"}},
	}
}

func TestMisuseOfPublishIsAClearErrorAndTheTransactionStaysUsable(t *testing.T) {
	t.Parallel()
	for _, c := range misuses() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cap.Options{MaxBodySize: 1000})
			tx := r.begin(t.Context(), t)
			for how, err := range map[string]error{
				"Publish": r.Publish(t.Context(), tx, c.topic, c.msg, c.opts...),
				"NoTx":    r.Publish(t.Context(), cap.NoTx, c.topic, c.msg, c.opts...),
				"PublishMany": r.PublishMany(t.Context(), tx, cap.Outgoing{Topic: "ok", Msg: 1},
					cap.Outgoing{Topic: c.topic, Msg: c.msg, Opts: c.opts}, cap.Outgoing{Topic: "ok", Msg: 2}),
			} {
				if err == nil {
					t.Fatalf("%s: no error", how)
				}
				if !strings.HasPrefix(err.Error(), "cap: publish ") || strings.Count(err.Error(), "cap: ") != 1 {
					t.Errorf("%s: %q does not begin with the operation", how, err)
				}
				for _, text := range c.says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%s: %q does not say %q", how, err, text)
					}
				}
				if how == "PublishMany" && !strings.Contains(err.Error(), "message 1 (") {
					t.Errorf("%s: %q does not say which message", how, err)
				}
			}
			if err := r.Publish(t.Context(), tx, "good", "after"); err != nil {
				t.Fatalf("the transaction is not usable any more: %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if row := r.row(t, storage.Outbox); row.Topic != "good" {
				t.Errorf("row of topic %q, want only the good one", row.Topic)
			}
		})
	}
}

func TestMisuseOfTheTransactionIsAClearError(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	done := r.begin(t.Context(), t)
	if err := done.Rollback(); err != nil {
		t.Fatal(err)
	}
	cut, cancel := context.WithCancel(t.Context())
	cutTx := r.begin(cut, t)
	cancel()
	foreign, err := memstore.New(memstore.Config{}).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if recs := r.store.Records(storage.Outbox); len(recs) != 0 {
			t.Errorf("%d rows, want none", len(recs))
		}
	})
	for _, c := range []struct {
		name string
		tx   cap.Tx
		is   error
		says []string
	}{
		{"nil", nil, cap.ErrNoTx, []string{"is nil", "cap.NoTx"}},
		{"typed nil", (*memstore.Tx)(nil), cap.ErrNoTx, []string{"a nil *memstore.Tx", "cap.NoTx"}},
		{"nil of another type", (*strings.Builder)(nil), cap.ErrNoTx, []string{"a nil *strings.Builder", "cap.NoTx"}},
		{"ended", done, storage.ErrTxDone, []string{"already ended"}},
		{"cut by its context", cutTx, storage.ErrTxDone, []string{"already ended"}},
		{"foreign type", 42, nil, []string{"int", "*memstore.Tx"}},
		{"zero value", &memstore.Tx{}, cap.ErrNoTx, []string{"no transaction"}},
		{"of another store", foreign, nil, []string{"*memstore.Tx", "another store"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := r.Publish(t.Context(), c.tx, "t", 1)
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("Publish: %v, want %v", err, c.is)
			}
			var typeErr *cap.TxTypeError
			if c.is == nil && !errors.As(err, &typeErr) {
				t.Errorf("Publish: %T, want a *cap.TxTypeError", err)
			}
			for _, text := range append(c.says, "cap: publish t: ") {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		})
	}
}

func TestPublishWithACancelledContextIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	tx := r.begin(t.Context(), t)
	why := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for _, tried := range []cap.Tx{tx, cap.NoTx, nil} {
		err := r.Publish(ctx, tried, "t", 1)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("Publish: %v, want context.Canceled and its cause", err)
		}
	}
	if err := r.Publish(t.Context(), tx, "t", 2); err != nil {
		t.Errorf("the transaction is not usable any more: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if row := r.row(t, storage.Outbox); string(row.Body) != "2" {
		t.Errorf("row with body %s, want only the second", row.Body)
	}
}

func TestPublishManyWithoutMessagesDoesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	if err := r.PublishMany(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestLimitsOfTheTransportAreCheckedBeforeSQL(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	small := r.again(t, cap.Options{Transport: limited{r.queue}})
	err := small.Publish(t.Context(), cap.NoTx, "a.long.topic", 1)
	if err == nil || !strings.Contains(err.Error(), "topic has 12 bytes; transport limited allows 10") {
		t.Errorf("long topic: %v", err)
	}
	err = small.Publish(t.Context(), cap.NoTx, "t", strings.Repeat("x", 30))
	if err == nil || !strings.Contains(err.Error(), "32 bytes; at most 20 are allowed (transport limited)") {
		t.Errorf("large body: %v", err)
	}
	if recs := r.store.Records(storage.Outbox); len(recs) != 0 {
		t.Errorf("%d rows, want none", len(recs))
	}
}

func TestAnErrorOfTheCodecKeepsItsType(t *testing.T) {
	t.Parallel()
	err := newRig(t, cap.Options{}).Publish(t.Context(), cap.NoTx, "t", make(chan int))
	var unsupported *json.UnsupportedTypeError
	if !errors.As(err, &unsupported) {
		t.Errorf("Publish: %v, want a *json.UnsupportedTypeError in it", err)
	}
}
