package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// value is something to publish, and a handler that wants it back.
type value struct {
	name string
	msg  any
	sub  func(handled func(attempt int, got any) error) subscribe.Subscription
	want any
}

// back makes a value that a handler of T is to get as want.
func back[T any](name string, msg any, want T) value {
	return value{name, msg, func(handled func(int, any) error) subscribe.Subscription {
		return inGroup(name, func(ctx context.Context, got T) error {
			info, _ := cap.InfoFromContext(ctx)
			return handled(info.Attempt, got)
		})
	}, want}
}

func values() []value {
	type point struct{ X, Y int }
	return []value{
		back[*point]("nil to pointer", nil, nil), back("nil to struct", nil, point{}), back("nil to string", nil, ""),
		back[[]byte]("nil to bytes", nil, nil), back("nil to int", nil, 0), back("nil to raw", nil, json.RawMessage("null")),
		back[*point]("typed nil", (*point)(nil), nil), back("empty string", "", ""), back("empty bytes", []byte{}, []byte{}),
		back[[]byte]("nil bytes", []byte(nil), nil), back("empty struct", struct{}{}, struct{}{}),
		back("raw null", json.RawMessage("null"), json.RawMessage("null")), back("zero", 0, 0), back("false", false, false),
		back("the word null", "null", "null"), back("big integer", int64(1<<63-1), int64(1<<63-1)),
		back("text", "😀 𠀀 שלום e\u0301 \u0000 <&> \u2028", "😀 𠀀 שלום e\u0301 \u0000 <&> \u2028"), back("surrogate", json.RawMessage(`"\ud800"`), json.RawMessage(`"\ud800"`)),
		back("bytes", []byte("\x00\xff"), []byte("\x00\xff")), back("time", time.Unix(1, 2).UTC(), time.Unix(1, 2).UTC()),
	}
}

// eachDatabase runs a test on a store of each kind.
func eachDatabase(t *testing.T, test func(t *testing.T, store *gormstore.Store)) {
	t.Helper()
	for _, db := range databases() {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			test(t, db.make(t).store)
		})
	}
}

// TestC134RoundTrips: every value arrives as it was, also when a retry reads it
// from the table after a restart, and when an operator has requeued it.
func TestC134RoundTrips(t *testing.T) {
	t.Parallel()
	eachDatabase(t, roundTrips)
}

func roundTrips(t *testing.T, store *gormstore.Store) {
	t.Helper()
	q := memqueue.New(memqueue.Config{})
	var mu sync.Mutex
	attempts := map[string]int{}
	results := map[string]any{}
	succeed := false
	var subs []subscribe.Subscription
	for _, v := range values() {
		subs = append(subs, v.sub(func(attempt int, got any) error {
			mu.Lock()
			defer mu.Unlock()
			attempts[v.name] = attempt
			results[v.name] = got
			if !reflect.DeepEqual(got, v.want) {
				t.Errorf("%s: attempt %d got %#v, want %#v", v.name, attempt, got, v.want)
			}
			if !succeed {
				return errRollback
			}
			return nil
		}))
	}
	first := made(t, store, q, serving(subs...))
	must(t, first.Start(t.Context()))
	for _, v := range values() {
		must(t, first.Publish(t.Context(), cap.NoTx, v.name, v.msg))
	}
	eventually(t, "all have failed", func() bool { mu.Lock(); defer mu.Unlock(); return len(results) == len(values()) })
	must(t, first.Stop(t.Context()))
	mu.Lock()
	clear(results)
	succeed = true
	mu.Unlock()
	second := begun(t, made(t, store, q, serving(subs...)))
	for _, again := range []bool{true, false} { // from the table; from the operator, whose messages start afresh
		eventually(t, "all have been handled", func() bool { mu.Lock(); defer mu.Unlock(); return len(results) == len(values()) })
		settled(t, store.DB(), window)
		mu.Lock()
		for _, v := range values() {
			if (attempts[v.name] > 1) != again {
				t.Errorf("%s: attempt %d", v.name, attempts[v.name])
			}
		}
		clear(results)
		mu.Unlock()
		if bad := column(t, store.DB(), "SELECT concat(name, ' ', last_error) FROM cap_received WHERE status <> 2"); len(bad) > 0 {
			t.Errorf("rows %q", bad)
		}
		if again {
			o, err := second.Operator()
			must(t, err)
			res, err := o.RequeueMatching(t.Context(), operator.Filter{Box: operator.Received, States: []operator.State{operator.Succeeded}}, operator.Bulk{})
			must(t, errors.Join(err, res.Err()))
		}
	}
}

// TestC137Unicode: topics, groups, header values and error texts come back as
// they were; what no database could keep is refused, and the transaction goes on.
func TestC137Unicode(t *testing.T) {
	t.Parallel()
	eachDatabase(t, unicodeTexts)
}

func unicodeTexts(t *testing.T, store *gormstore.Store) {
	t.Helper()
	const text = "😀 𠀀 שלום e\u0301 'x' \"y\" \\ -- ; %s"
	var seen journal
	bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(subscribe.To("topic."+text, func(ctx context.Context, _ string) error {
		info, _ := cap.InfoFromContext(ctx)
		seen.add(info.Message.Topic + "|" + info.Group + "|" + info.Subscriber + "|" + info.Message.Headers["h "+text])
		return errors.New(text + " \x00 \xff")
	}, subscribe.Group("group "+text), subscribe.Name("name "+text), subscribe.FailedRetryCount(1)))))
	must(t, store.DB().Transaction(func(tx *gorm.DB) error {
		for name, err := range map[string]error{
			"NUL in a topic":  bus.Publish(t.Context(), tx, "a\x00b", "x"),
			"invalid topic":   bus.Publish(t.Context(), tx, "a\xff", "x"),
			"NUL in a header": bus.Publish(t.Context(), tx, "t", "x", cap.WithHeader("h", "a\x00b")),
			"invalid header":  bus.Publish(t.Context(), tx, "t", "x", cap.WithHeader("h\xff", "a")),
		} {
			if err == nil || !strings.Contains(err.Error(), "UTF-8 without NUL") {
				t.Errorf("%s: %v", name, err)
			}
		}
		return bus.Publish(t.Context(), tx, "topic."+text, text, cap.WithHeader("h "+text, text))
	}))
	settled(t, store.DB(), window)
	seen.exactly(t, []string{"topic." + text + "|group " + text + "|name " + text + "|" + text})
	got := column(t, store.DB(), "SELECT concat(name, '|', group_name, '|', subscriber, '|', last_error) FROM cap_received")
	if want := fmt.Sprintf("topic.%s|group %s|name %s|%s \uFFFD \uFFFD", text, text, text, text); len(got) != 1 || got[0] != want {
		t.Errorf("row %q, want %q", got, want)
	}
}
