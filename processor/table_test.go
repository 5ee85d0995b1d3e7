package processor_test

import (
	"context"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

const lease = 15 * time.Second

// tables is a storage with a number that is kept until the test ends.
type tables struct {
	*spy

	t      *testing.T
	log    *lines
	keeper *rows.Keeper
}

func newTables(t *testing.T) *tables {
	t.Helper()
	s := &tables{spy: &spy{Store: memstore.New(memstore.Config{})}, t: t, log: &lines{}}
	s.keeper = rows.NewKeeper(s, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: lease}, quietLog(s.log).Log)
	if err := s.keeper.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.background(s.keeper.Run)
	return s
}

// background runs f until the test ends, in a bubble.
func (s *tables) background(f func(context.Context)) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
}

func record(topic string, owner int64) *storage.Record {
	return &storage.Record{ID: ids.New(), Version: "v1", Topic: topic, Owner: owner, Headers: []byte("{}"), Body: []byte("1")}
}

// append commits records.
func (s *tables) append(recs ...*storage.Record) []storage.ID {
	s.t.Helper()
	tx, err := s.Begin(s.t.Context())
	if err == nil {
		err = tx.Append(s.t.Context(), recs...)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	list := make([]storage.ID, len(recs))
	for i, rec := range recs {
		list[i] = rec.ID
	}
	return list
}

// publish commits n rows of this instance.
func (s *tables) publish(n int, topic string) []storage.ID {
	s.t.Helper()
	recs := make([]*storage.Record, n)
	for i := range recs {
		recs[i] = record(topic, s.keeper.Current().Number())
	}
	return s.append(recs...)
}

// strangers commits n rows of an instance that dies after a second.
func (s *tables) strangers(n int, topic string) []storage.ID {
	s.t.Helper()
	m, err := s.Store.Join(s.t.Context(), storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	recs := make([]*storage.Record, n)
	for i := range recs {
		recs[i] = record(topic, m.Number())
	}
	return s.append(recs...)
}

// row returns a row as it is in the table; nil: it is gone.
func (s *tables) row(id storage.ID) *storage.Record { return s.all()[id] }

func (s *tables) all() map[storage.ID]*storage.Record {
	m := map[storage.ID]*storage.Record{}
	for _, rec := range s.Records(storage.Outbox) {
		m[rec.ID] = rec
	}
	return m
}

// unfinished counts the rows that are not final.
func (s *tables) unfinished() int {
	n := 0
	for _, rec := range s.Records(storage.Outbox) {
		if !rec.Final {
			n++
		}
	}
	return n
}

// lose ends the number behind the keeper's back, and waits until it has noticed.
func (s *tables) lose() {
	s.t.Helper()
	old := s.keeper.Current()
	s.mu.Lock()
	m := s.members[len(s.members)-1]
	s.mu.Unlock()
	if err := m.Leave(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	<-old.Context().Done()
}
