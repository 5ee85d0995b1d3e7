package main

import (
	"context"
	"os"
	"time"

	"github.com/capbus/gocap/internal/testenv"
)

// A machine is what there is to work with. Tests put other machines together.
type machine struct {
	getenv    func(name string) string
	probe     func(ctx context.Context, k testenv.Kind, address string) error
	installed func(k testenv.Kind) (folder string, missing error)
	compose   func() error // nil: docker compose works
	install   func(ctx context.Context, packages []string) error
	own       func(k testenv.Kind) (server, error)
	container func(k testenv.Kind) (server, error)
}

// A server is one that we start.
type server interface {
	Start(ctx context.Context) error
	Remove() error
	Address() string
	Hint() string
}

func (m machine) keep() bool { return m.getenv("GOCAP_KEEP_SERVICES") == "1" }

func thisMachine() machine {
	m := machine{
		getenv: os.Getenv,
		probe: func(ctx context.Context, k testenv.Kind, address string) error {
			return k.Probe(ctx, address)
		},
		installed: testenv.Kind.Binaries,
		compose:   testenv.ComposeAnswers,
		install:   installDebian,
	}
	m.own = func(k testenv.Kind) (server, error) { return ownServer(k, m.keep()) }
	m.container = func(k testenv.Kind) (server, error) {
		s, err := k.Container()
		return timed{Server: s, limit: 10 * time.Minute}, err // pulls its image first
	}
	return m
}

// ownServer has its data in a temporary folder.
func ownServer(k testenv.Kind, keep bool) (server, error) {
	dir, err := os.MkdirTemp("", "gocap-"+k.Package+"-")
	if err != nil {
		return nil, err
	}
	s, err := k.Installed(dir, !keep)
	if err != nil {
		_ = os.RemoveAll(dir) // the error above says more
		return nil, err
	}
	return timed{Server: s, limit: time.Minute, dir: dir}, nil
}

// A timed server has a time to start in, and maybe a folder of its own.
type timed struct {
	*testenv.Server

	limit time.Duration
	dir   string
}

func (t timed) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	return t.Server.Start(ctx)
}

func (t timed) Address() string { return t.DSN }

func (t timed) Remove() error {
	err := t.Server.Remove()
	if t.dir == "" || err != nil {
		return err
	}
	return os.RemoveAll(t.dir)
}
