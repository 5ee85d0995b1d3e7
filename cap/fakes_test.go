package cap_test

import (
	"context"
	"sync/atomic"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// limited is a transport with narrow limits.
type limited struct{ *memqueue.Queue }

func (limited) Traits() transport.Traits {
	return transport.Traits{Name: "limited", MaxTopic: 10, MaxMessage: 20}
}

// unruly is a storage whose parts can be made to fail.
type unruly struct {
	storage.Storage

	check, join atomic.Pointer[error]
}

func failing(p *atomic.Pointer[error], err error) { p.Store(&err) }

func (u *unruly) Check(ctx context.Context) error {
	if err := u.check.Load(); err != nil && *err != nil {
		return *err
	}
	return u.Storage.Check(ctx)
}

// Join fails for the inbox only, so that the outbox has joined before.
func (u *unruly) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	if err := u.join.Load(); in.Box == storage.Inbox && err != nil && *err != nil {
		return nil, *err
	}
	return u.Storage.Join(ctx, in)
}

// elsewhere is a transport with another destination.
type elsewhere struct{ *memqueue.Queue }

func (e elsewhere) Traits() transport.Traits {
	t := e.Queue.Traits()
	t.Destination = "elsewhere"
	return t
}
