package mysql_test

import (
	"context"
	"database/sql/driver"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// recorder notes the statements that a pool runs, each with the values that it
// was first given: the optimizer's plan depends on them.
type recorder struct {
	driver.Connector

	mu    sync.Mutex
	texts map[string][]any
}

func (r *recorder) note(text string, values []driver.NamedValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.texts[text]; known {
		return
	}
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v.Value
	}
	r.texts[text] = args
}

func (r *recorder) forget() map[string][]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := r.texts
	r.texts = make(map[string][]any)
	return texts
}

func (r *recorder) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &noted{c.(fullConn), r}, nil
}

type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type noted struct {
	fullConn

	r *recorder
}

func (c *noted) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	c.r.note(q, args)
	return c.fullConn.ExecContext(ctx, q, args)
}

func (c *noted) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	c.r.note(q, args)
	return c.fullConn.QueryContext(ctx, q, args)
}

// everything runs each operation of the store, on few rows.
func everything(t *testing.T, s *gormstore.Store) {
	t.Helper()
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	gone, lost := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	must(t, s.Check(t.Context()))
	given := outgoing(gone.Number())
	given.GivenID = true
	publish(t, s, given, outgoing(0), outgoing(gone.Number()))
	unmatched := incoming("u")
	unmatched.Subscriber = ""
	for _, r := range []*storage.Record{incoming("1"), incoming("2"), unmatched} {
		_, err := lost.Accept(t.Context(), r)
		must(t, err)
	}
	_, err := lost.Accept(t.Context(), incoming("2"), incoming("3")) // a careful run
	must(t, err)
	must(t, gone.Leave(t.Context()))
	must(t, lost.Leave(t.Context()))
	two := storage.Query{MaxBytes: 1 << 20, Lanes: []storage.Lane{
		{Group: "g", Subscriber: "s", Limit: 1, After: storage.Position{DueAt: time.Now().Add(-time.Hour), Seq: 1}},
		{Group: "g", Subscriber: "t", Limit: 1},
	}}
	stale := two
	stale.Stale = time.Microsecond
	glance(t, out, storage.GlanceQuery{Lanes: outLane(5).Lanes, Keys: outLane(5).Lanes})
	glance(t, in, storage.GlanceQuery{Lanes: two.Lanes, Keys: two.Lanes, Groups: []string{"g"}})
	for _, q := range []storage.Query{two, inLane(5), stale, {IDs: []storage.ID{given.ID, given.ID}}} {
		taken, err := in.TakeOver(t.Context(), q)
		must(t, err)
		due(t, in, q)
		_, err = in.Claim(t.Context(), taken...)
		must(t, err)
	}
	settleEverything(t, out)
	tidy(t, s, in)
	must(t, out.Beat(t.Context()))
}

func glance(t *testing.T, m storage.Member, q storage.GlanceQuery) {
	t.Helper()
	_, err := m.(storage.Glancer).Glance(t.Context(), q)
	must(t, err)
}

func settleEverything(t *testing.T, out storage.Member) {
	t.Helper()
	taken, err := out.TakeOver(t.Context(), outLane(5))
	must(t, err)
	if len(taken) != 3 {
		t.Fatalf("taken over: %v", taken)
	}
	due(t, out, outLane(5))
	_, err = out.Claim(t.Context(), taken...)
	must(t, err)
	outcomes := []storage.Outcome{
		{ID: taken[0].ID, Kind: storage.Succeed},
		{ID: taken[1].ID, Kind: storage.Succeed, After: -1},
		{ID: taken[2].ID, Kind: storage.Fail, Error: "no"},
	}
	for _, o := range outcomes { // some are lost: careful runs
		_, err = out.Settle(t.Context(), o)
		must(t, err)
		_, err = out.Settle(t.Context(), outcomes...)
		must(t, err)
	}
}

func tidy(t *testing.T, s *gormstore.Store, in storage.Member) {
	t.Helper()
	rows, err := in.Unmatched(t.Context(), []string{"g", "h"}, 0, 5)
	must(t, err)
	for _, r := range rows {
		_, err = in.Split(t.Context(), r, incoming("u"))
		must(t, err)
	}
	for _, b := range []storage.Box{storage.Outbox, storage.Inbox} {
		_, err = s.Purge(t.Context(), storage.Purge{Box: b, Version: version, Limit: 5})
		must(t, err)
	}
}
