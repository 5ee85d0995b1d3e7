package trackertest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/capbus/gocap/idempotency"
)

func basicCases() []testCase {
	return []testCase{
		{"once", "Once runs fn, and notes that the key is done if fn returns nil. A key that is done is nil, without running fn.", onceCase},
		{"marked", "MarkAsProcessed notes that the key is done. One that is done already stays so, without an error.", markedCase},
		{"bytes", "A key is any bytes, of any length; keys are the same if they are the same bytes.", bytesCase},
		{"no key", "A key is any bytes but none: ErrNoKey.", noKeyCase},
		{"ended context", "With a context that has ended nothing is done.", endedCase},
	}
}

func onceCase(e *env) {
	key := e.key("a")
	e.wantDone(key, false)
	e.wantOnce(key, 1)
	e.wantDone(key, true)
	e.wantOnce(key, 0)
	e.wantDone(e.key("b"), false)
	e.wantOnce(e.key("b"), 1)
}

func markedCase(e *env) {
	key := e.key("a")
	for range 2 {
		if err := e.tracker.MarkAsProcessed(e.op(), key); err != nil {
			e.Fatalf("MarkAsProcessed: %v", err)
		}
		e.wantDone(key, true)
	}
	e.wantOnce(key, 0)
	e.wantOnce(e.key("b"), 1)
	if err := e.tracker.MarkAsProcessed(e.op(), e.key("b")); err != nil {
		e.Fatalf("MarkAsProcessed after Once: %v", err)
	}
}

// alike are keys that a collation, a column or a text format could take for one.
func alike() []string {
	long := strings.Repeat("x", 5000)
	return []string{
		"order", "Order", "order ", " order", "order\n", "ordér", "orde\u0301r", "ord\u00e9r", "orderſ", "orders",
		"order\x00", "order\x00\x00", "\x00order", "order\xff", "order\xfe", "order\ufffd", "straße", "strasse", "æ", "ae",
		"1", "1.0", "01", "+1", long, long + "y", long + "Y", long[1:],
	}
}

func bytesCase(e *env) {
	keys := slices.Compact(slices.Sorted(slices.Values(alike())))
	for _, key := range keys {
		e.wantDone(e.key(key), false)
		e.wantOnce(e.key(key), 1)
	}
	for _, key := range keys {
		e.wantDone(e.key(key), true)
	}
}

func noKeyCase(e *env) {
	_, has := e.tracker.HasProcessed(e.op(), "")
	runs, once := e.once("", nil)
	for what, err := range map[string]error{"HasProcessed": has, "MarkAsProcessed": e.tracker.MarkAsProcessed(e.op(), ""), "Once": once} {
		if !errors.Is(err, idempotency.ErrNoKey) {
			e.Errorf("%s of an empty key: error %v, want ErrNoKey", what, err)
		}
	}
	if runs != 0 {
		e.Errorf("fn ran for an empty key")
	}
}

func endedCase(e *env) {
	ctx, cancel := context.WithCancel(e.op())
	cancel()
	key := e.key("a")
	if _, err := e.tracker.HasProcessed(ctx, key); err == nil {
		e.Errorf("HasProcessed with a context that has ended: no error")
	}
	if err := e.tracker.MarkAsProcessed(ctx, key); err == nil {
		e.Errorf("MarkAsProcessed with a context that has ended: no error")
	}
	err := e.tracker.Once(ctx, key, func(context.Context) error {
		e.Errorf("Once with a context that has ended runs fn")
		return nil
	})
	if err == nil {
		e.Errorf("Once with a context that has ended: no error")
	}
	e.wantDone(key, false)
}
