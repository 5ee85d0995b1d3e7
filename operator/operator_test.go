package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// desk is an operator, with rows to operate on.
type desk struct {
	*operator.Operator

	store  *memstore.Store
	member storage.Member
	woken  int
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{store: memstore.New(memstore.Config{})}
	var err error
	d.Operator, err = operator.New(d.store, operator.Config{Wake: func() { d.woken++ }})
	must(t, err)
	d.member, err = d.store.Join(t.Context(), storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Hour})
	must(t, err)
	return d
}

// publish adds n messages of a topic, and returns their ids.
func (d *desk) publish(t *testing.T, n int, topic string, delay time.Duration) []storage.ID {
	t.Helper()
	tx, err := d.store.Begin(t.Context())
	must(t, err)
	list := make([]storage.ID, n)
	for i := range list {
		list[i] = ids.New()
		must(t, tx.Append(t.Context(), &storage.Record{
			ID: list[i], Version: "v1", Topic: topic, Owner: d.member.Number(), Delay: delay,
			Headers: []byte(`{"cap-msg-name":"` + topic + `"}`), Body: []byte(`{"big":9007199254740993}`),
		}))
	}
	must(t, tx.Commit())
	return list
}

// failed is as publish, of messages that have failed for good.
func (d *desk) failed(t *testing.T, n int, topic string) []storage.ID {
	t.Helper()
	list := d.publish(t, n, topic, 0)
	for _, id := range list {
		_, err := d.member.Settle(t.Context(), storage.Outcome{ID: id, Kind: storage.Fail, Attempt: 2, After: time.Hour, Error: "no"})
		must(t, err)
	}
	return list
}

func stateIs(s ...operator.State) operator.Filter {
	return operator.Filter{Box: operator.Published, States: s}
}

func want(t *testing.T, what string, done, refused int) func(r operator.Result, err error) {
	t.Helper()
	return func(r operator.Result, err error) {
		t.Helper()
		if err != nil || r.Done != done || r.Refused != refused {
			t.Errorf("%s: %d done, %d refused, %v; want %d and %d", what, r.Done, r.Refused, err, done, refused)
		}
	}
}

func TestMessagesAreReadable(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.failed(t, 1, "orders.created")[0]
	m, err := d.Read(t.Context(), operator.Published, id.String())
	must(t, err)
	if m.MessageID != id.String() || m.State != operator.Failed || m.Attempts != 2 || m.LastError != "no" || m.Owned ||
		string(m.Body) != `{"big":9007199254740993}` || m.Headers["cap-msg-name"] != "orders.created" {
		t.Errorf("read %+v", m)
	}
	text, err := json.Marshal(m)
	must(t, err)
	for _, part := range []string{`"id":"` + id.String() + `"`, `"state":"failed"`, `"box":"published"`, `"expires_at"`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
	if strings.Contains(string(text), "due_at") {
		t.Errorf("nothing is due, but %s", text)
	}
	if _, err := d.Read(t.Context(), operator.Received, id.String()); !errors.Is(err, operator.ErrNotFound) {
		t.Errorf("read in the other box: %v", err)
	}
}

func TestHeadersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx, err := d.store.Begin(t.Context())
	must(t, err)
	rec := &storage.Record{ID: ids.New(), Version: "v1", Topic: "t", Headers: []byte("{")}
	must(t, tx.Append(t.Context(), rec))
	must(t, tx.Commit())
	m, err := d.Read(t.Context(), operator.Published, rec.ID.String())
	must(t, err)
	if m.HeadersError == "" {
		t.Errorf("read %+v", m)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	list := d.publish(t, 250, "t", 0)
	var got []string
	var p operator.Page
	for {
		l, err := d.List(t.Context(), operator.Filter{Box: operator.Published}, p)
		must(t, err)
		for _, m := range l.Messages {
			got = append(got, m.ID)
		}
		if p.After = l.Next; l.Next == "" {
			break
		}
		if len(l.Messages) != operator.DefaultLimit {
			t.Errorf("a page of %d", len(l.Messages))
		}
	}
	if len(got) != 250 || got[0] != list[249].String() || got[249] != list[0].String() {
		t.Errorf("listed %d messages, want all, newest first", len(got))
	}
}

// Cases C157: ids of every kind.
func TestIDs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	list := d.failed(t, 2500, "t")
	due := d.publish(t, 1, "t", 0)[0]
	texts := []string{due.String(), storage.ID(ids.New()).String()}
	for _, id := range list {
		texts = append(texts, id.String(), strings.ToUpper(id.String()))
	}
	r, err := d.Requeue(t.Context(), operator.Published, texts...)
	want(t, "requeue", 2500, 2)(r, err)
	if !errors.Is(r.Err(), operator.ErrInWork) || !errors.Is(r.Err(), operator.ErrNotFound) || d.woken != 3 {
		t.Errorf("refused: %v; woken %d times", r.Err(), d.woken)
	}
	r, err = d.Requeue(t.Context(), operator.Published)
	want(t, "of nothing", 0, 0)(r, err)
	for _, bad := range []string{"", "1", "-1", "9223372036854775807", "abc", list[0].String() + "0"} {
		if _, err := d.Requeue(t.Context(), operator.Published, bad); !errors.Is(err, operator.ErrInvalid) {
			t.Errorf("id %q: %v", bad, err)
		}
	}
	r, err = d.Requeue(t.Context(), operator.Published, texts...)
	if want(t, "again", 0, 2502)(r, err); len(r.Refusals) != 100 || !strings.Contains(r.Err().Error(), "2402 more") {
		t.Errorf("%d refusals are named", len(r.Refusals))
	}
}

func TestMatching(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.failed(t, 1200, "a")
	d.failed(t, 10, "b")
	d.publish(t, 3, "a", time.Hour)
	d.publish(t, 4, "a", 0)
	f := stateIs(operator.Failed)
	f.Topic = "a"
	dry, err := d.DeleteMatching(t.Context(), f, operator.Bulk{DryRun: true})
	want(t, "dry run", 1200, 0)(dry, err)
	some, err := d.RequeueMatching(t.Context(), f, operator.Bulk{Most: 700})
	want(t, "at most 700", 700, 0)(some, err)
	rest, err := d.DeleteMatching(t.Context(), f, operator.Bulk{})
	want(t, "the rest", 500, 0)(rest, err)
	all, err := d.CancelMatching(t.Context(), operator.Filter{Box: operator.Published, Topic: "a"}, operator.Bulk{})
	want(t, "cancel", 3, 704)(all, err)
	c, err := d.Count(t.Context(), operator.Published, "v1")
	must(t, err)
	if got := fmt.Sprint(c.States); got != "[{scheduled 704 false} {delayed 0 false} {retrying 0 false} {failed 10 false} {succeeded 0 false}]" {
		t.Errorf("counted %s", got)
	}
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	errOf := func(_ any, err error) error { return err }
	for what, err := range map[string]error{
		"everything":  errOf(d.DeleteMatching(t.Context(), operator.Filter{Box: operator.Published}, operator.Bulk{DryRun: true})),
		"negative":    errOf(d.DeleteMatching(t.Context(), stateIs(operator.Failed), operator.Bulk{Most: -1})),
		"no box":      errOf(d.List(t.Context(), operator.Filter{}, operator.Page{})),
		"a page":      errOf(d.List(t.Context(), stateIs(operator.Failed), operator.Page{After: "x"})),
		"a limit":     errOf(d.List(t.Context(), stateIs(operator.Failed), operator.Page{Limit: 1001})),
		"id":          errOf(d.Read(t.Context(), operator.Published, "1")),
		"no such box": errOf(d.Requeue(t.Context(), 0, storage.ID(ids.New()).String())),
		"count":       errOf(d.Count(t.Context(), 3, "")),
	} {
		if !errors.Is(err, operator.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}

// meanwhile is a store in which messages change between a look and a change.
type meanwhile struct {
	*memstore.Store

	before func()
}

func (m *meanwhile) Change(ctx context.Context, a storage.Action, f storage.Filter) ([]storage.ID, error) {
	m.before()
	return m.Store.Change(ctx, a, f)
}

func TestAChangeMeanwhileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	list := d.failed(t, 3, "t")
	store := &meanwhile{Store: d.store, before: func() {
		r, err := d.Requeue(t.Context(), operator.Published, list[1].String())
		want(t, "another operator", 1, 0)(r, err)
	}}
	o, err := operator.New(store, operator.Config{})
	must(t, err)
	r, err := o.DeleteMatching(t.Context(), stateIs(operator.Failed), operator.Bulk{})
	if want(t, "delete", 2, 1)(r, err); !errors.Is(r.Err(), operator.ErrChanged) {
		t.Errorf("refused: %v", r.Err())
	}
}

func TestErrorsOfTheDatabaseComeThrough(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errOf := func(_ any, err error) error { return err }
	for _, err := range []error{
		errOf(d.List(ctx, stateIs(operator.Failed), operator.Page{})), errOf(d.Count(ctx, operator.Published, "")),
		errOf(d.Delete(ctx, operator.Published, storage.ID(ids.New()).String())), errOf(d.Cancel(ctx, storage.ID(ids.New()).String())),
		errOf(d.CancelMatching(ctx, stateIs(operator.Delayed), operator.Bulk{})),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
	}
}

func TestAStorageWithoutOperator(t *testing.T) {
	t.Parallel()
	if _, err := operator.New(nil, operator.Config{}); !errors.Is(err, operator.ErrUnsupported) {
		t.Errorf("New(nil): %v", err)
	}
}
