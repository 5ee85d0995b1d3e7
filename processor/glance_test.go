package processor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

// glancer is a storage whose members can glance; fail is what that comes to.
type glancer struct {
	*spy

	fail    error
	glances int
}

func (g *glancer) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	m, err := g.Store.Join(ctx, in)
	return &glancingMember{&spyMember{Member: m, s: g.spy}, m.(storage.Glancer), g}, err //nolint:forcetypeassert // memstore can
}

type glancingMember struct {
	*spyMember

	storage.Glancer
	g *glancer
}

func (m *glancingMember) Glance(ctx context.Context, q storage.GlanceQuery) (storage.Glance, error) {
	m.g.mu.Lock()
	m.g.glances++
	err := m.g.fail
	m.g.mu.Unlock()
	if err != nil {
		return storage.Glance{}, err
	}
	return m.Glancer.Glance(ctx, q)
}

// glancing is a taker on a storage that can glance.
func glancing(t *testing.T) (*taker, *glancer) {
	t.Helper()
	k := newTaker(t, 100, nil)
	g := &glancer{spy: k.spy}
	k.keeper = rows.NewKeeper(g, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: lease}, quietLog(k.log).Log)
	if err := k.keeper.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.background(k.keeper.Run)
	k.retry = processor.NewNeedRetry(processor.NeedRetryConfig{
		Keeper: k.keeper, Hand: &k.hand, Taker: k, Log: quietLog(k.log), PollInterval: time.Second, BatchSize: 500, MaxBytes: 8 << 20,
	})
	return k, g
}

func (g *glancer) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.glances
}

func TestWhoFoundNothingGlances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, g := glancing(t)
		k.run()
		<-time.After(100*time.Second + 500*time.Millisecond)
		if n, looks := g.count(), k.seen(); n != 100 || len(looks) != 2 {
			t.Errorf("in 100 s %d glances and %d looks, want 100 after the first two", n, len(looks))
		}
		k.publish(1, "t") // nobody tells of it
		<-time.After(time.Second)
		got := k.take()
		if len(got) != 1 {
			t.Fatalf("%d rows were found within a PollInterval, want 1", len(got))
		}
		was := g.count()
		<-time.After(10 * time.Second) // it is in hand
		if n := g.count(); n != was {
			t.Errorf("%d glances while looks find something", n-was)
		}
		k.finish(t.Context(), storage.Retry, 5500*time.Millisecond, got...)
		k.retry.Later(5500*time.Millisecond, true)
		<-time.After(5499 * time.Millisecond)
		if got := k.take(); len(got) != 0 {
			t.Errorf("%d rows before they are due", len(got))
		}
		<-time.After(2 * time.Millisecond)
		if got := k.take(); len(got) != 1 {
			t.Errorf("%d rows when one is due", len(got))
		}
		if g.count() == was {
			t.Error("no glance while it was not due")
		}
	})
}

// TestAGlanceThatFailsIsNoLook: after it comes a look, which finds what is there.
func TestAGlanceThatFailsIsNoLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, g := glancing(t)
		k.run()
		<-time.After(10 * time.Second)
		g.mu.Lock()
		g.fail = errors.New("not now")
		g.mu.Unlock()
		for range 5 {
			k.publish(1, "t")
			<-time.After(1600 * time.Millisecond) // a PollInterval, and the wait after an error
			got := k.take()
			if len(got) != 1 {
				t.Fatalf("%d rows were found, want 1", len(got))
			}
			k.finish(t.Context(), storage.Succeed, time.Hour, got...)
			<-time.After(3 * time.Second)
		}
	})
}
