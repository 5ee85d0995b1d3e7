package postgres_test

import (
	"context"
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
