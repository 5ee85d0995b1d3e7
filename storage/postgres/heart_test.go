package postgres_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
)

// A pool that the application makes small after New, or while a member lives,
// must not be left without a connection because heartbeats keep one.
func TestHeartbeatsLeaveASmallPoolItsConnections(t *testing.T) {
	t.Parallel()
	opened := newStore(t, postgres.Config{})
	db, err := opened.DB().DB()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	look := func(s *gormstore.Store, shrink func()) {
		m, err := s.Join(ctx, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Minute})
		must(t, err)
		must(t, m.Beat(ctx))
		shrink()
		must(t, m.Beat(ctx))
		_, _, err = m.Due(ctx, storage.Query{Lanes: []storage.Lane{{Limit: 1}}})
		must(t, err)
		must(t, m.Leave(ctx))
	}
	look(opened, func() { db.SetMaxOpenConns(1) })
	db.SetMaxOpenConns(0)
	second := gormstore.New(opened.DB(), gormstore.Config{})
	db.SetMaxOpenConns(1)
	look(second, func() {})
}

// Stores on one pool, such as one for each module of a program, must not keep all
// of its connections.
func TestHeartbeatsOfManyStoresLeaveRoom(t *testing.T) {
	t.Parallel()
	opened := newStore(t, postgres.Config{MaxConns: 8})
	db, err := opened.DB().DB()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var stores []*gormstore.Store
	for i := range 9 {
		s := gormstore.New(opened.DB(), gormstore.Config{TablePrefix: "m" + strconv.Itoa(i) + "_"})
		t.Cleanup(func() { must(t, s.Close()) })
		must(t, s.Migrate(ctx))
		m, err := s.Join(ctx, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Minute})
		must(t, err)
		must(t, m.Beat(ctx))
		if kept := db.Stats().InUse; kept != min(i+1, 2) {
			t.Errorf("%d stores keep %d connections of 8, want at most two", i+1, kept)
		}
		stores = append(stores, s)
	}
	must(t, stores[0].Close())
	must(t, stores[1].Close())
	if kept := db.Stats().InUse; kept != 0 {
		t.Errorf("%d connections are kept for stores that are closed", kept)
	}
}
