package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/capbus/gocap/internal/testenv"
)

// fake is a machine that is told what it has.
type fake struct {
	env        map[string]string
	answering  []string // addresses
	programs   map[string]bool
	docker     bool
	debian     bool // apt-get works
	broken     bool // installed programs do not start
	wantSetup  map[string]string
	wantErrors []string // in the error, if one is due
	wantEnds   int      // servers that are started, and removed

	mu     sync.Mutex
	events []string
}

var errNot = errors.New("not here")

func (f *fake) machine() machine {
	return machine{
		getenv: func(name string) string { return f.env[name] },
		probe: func(_ context.Context, _ testenv.Kind, address string) error {
			if slices.Contains(f.answering, address) {
				return nil
			}
			return errNot
		},
		installed: func(k testenv.Kind) (string, error) {
			if f.programs[k.Name] {
				return "/bin/" + k.Name, nil
			}
			return "", errors.New("no program of " + k.Name)
		},
		compose: func() error {
			if f.docker {
				return nil
			}
			return errors.New("no docker")
		},
		install: func(_ context.Context, packages []string) error {
			if !f.debian {
				return errors.New("no apt-get")
			}
			f.note("install " + strings.Join(packages, " "))
			f.programs = everything()
			return nil
		},
		own: func(k testenv.Kind) (server, error) {
			return &fakeServer{f: f, name: "own " + k.Name, broken: f.broken}, nil
		},
		container: func(k testenv.Kind) (server, error) {
			return &fakeServer{f: f, name: "container " + k.Name}, nil
		},
	}
}

func (f *fake) note(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
}

type fakeServer struct {
	f      *fake
	name   string
	broken bool
}

func (s *fakeServer) Start(context.Context) error {
	if s.broken {
		return errors.New("broken: " + s.name)
	}
	return nil
}
func (s *fakeServer) Remove() error   { s.f.note("remove"); return nil }
func (s *fakeServer) Address() string { return s.name }
func (s *fakeServer) Hint() string    { return "stop " + s.name }

func everything() map[string]bool {
	all := make(map[string]bool)
	for _, k := range testenv.Kinds() {
		all[k.Name] = true
	}
	return all
}

func allBut(name string) map[string]bool {
	programs := everything()
	delete(programs, name)
	return programs
}

func defaults() []string {
	var addresses []string
	for _, k := range testenv.Kinds() {
		addresses = append(addresses, k.Default)
	}
	return addresses
}

// shared is how many servers tests share.
func shared() int {
	n := 0
	for _, k := range testenv.Kinds() {
		if k.Variable != "" {
			n++
		}
	}
	return n
}

func TestReady(t *testing.T) {
	t.Parallel()
	const pg = "GOCAP_POSTGRES_DSN"
	usual := defaults()[0]
	for name, f := range map[string]*fake{
		"all servers answer": {
			programs: everything(), answering: defaults(), wantSetup: map[string]string{pg: usual},
		},
		"the user's address is used": {
			programs: everything(), answering: append(defaults(), "mine"), env: map[string]string{pg: "mine"},
			wantSetup: map[string]string{pg: ""},
		},
		"the user's address is not replaced": {
			programs: everything(), docker: true, answering: defaults(), env: map[string]string{pg: "mine"},
			wantErrors: []string{pg, "not here"},
		},
		"installed, but nothing answers": {
			programs: everything(), docker: true, wantSetup: map[string]string{pg: "own PostgreSQL"}, wantEnds: shared(),
		},
		"only docker": {
			docker: true, wantSetup: map[string]string{pg: "container PostgreSQL", "GOCAP_PG_BIN": ""}, wantEnds: shared(),
		},
		"docker where the installed one does not start": {
			programs: everything(), docker: true, broken: true,
			wantSetup: map[string]string{pg: "container PostgreSQL"}, wantEnds: 2 * shared(),
		},
		"installed ones do not start, no docker": {
			programs: everything(), broken: true, wantEnds: shared(),
			wantErrors: []string{"PostgreSQL", "MariaDB", "RabbitMQ", "broken: own RabbitMQ", "no docker"},
		},
		"Debian": {
			debian: true, wantSetup: map[string]string{pg: "own PostgreSQL", "GOCAP_PG_BIN": "/bin/PostgreSQL"}, wantEnds: shared(),
		},
		"one program is missing though all servers answer": {
			programs: allBut("PgBouncer"), answering: defaults(),
			wantErrors: []string{"no program of PgBouncer", "no docker", "no apt-get", "apt-get install pgbouncer"},
		},
		"the user's programs are not replaced": {
			docker: true, debian: true, answering: defaults(), env: map[string]string{"GOCAP_PG_BIN": "/mine"},
			wantErrors: []string{"no program of PostgreSQL"},
		},
		"nothing at all": {
			wantErrors: []string{"no program of PostgreSQL", "no program of MariaDB", "no program of RabbitMQ", "no program of Redis", "no program of PgBouncer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.check(t)
		})
	}
}

func (f *fake) check(t *testing.T) {
	t.Helper()
	r := &readier{machine: f.machine()}
	env, err := r.ready(t.Context())
	if len(f.wantErrors) == 0 && err != nil {
		t.Fatal(err)
	}
	if len(f.wantErrors) > 0 && err == nil {
		t.Fatalf("no error, but %v", env)
	}
	for _, want := range f.wantErrors {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	for name, want := range f.wantSetup {
		var got string
		for _, e := range env {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				got = value
			}
		}
		if got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	ends := 0
	for _, event := range f.events {
		if event == "remove" {
			ends++
		}
	}
	if ends != f.wantEnds {
		t.Errorf("%d servers are removed, want %d", ends, f.wantEnds)
	}
}

func TestKeptServersStay(t *testing.T) {
	t.Parallel()
	f := &fake{programs: everything(), env: map[string]string{"GOCAP_KEEP_SERVICES": "1"}}
	f.check(t)
}

func TestExitCodeIsTheCommands(t *testing.T) {
	t.Parallel()
	f := &fake{programs: everything(), wantEnds: shared()}
	code, err := runWith(t.Context(), f.machine(), []string{"sh", "-c", `test "$GOCAP_RABBITMQ_URL" = "own RabbitMQ" && exit 7`})
	if code != 7 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	if len(f.events) != shared() {
		t.Errorf("%d servers are removed, want %d", len(f.events), shared())
	}
}

func TestStartsAreDeniedForAWhile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy-rc.d")
	allow, err := denyStarts(path)
	if err != nil {
		t.Fatal(err)
	}
	// One that was there before stays.
	allowAgain, err := denyStarts(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := allowAgain(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Fatalf("%v, %v", info, err)
	}
	if err := allow(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it is still there")
	}
}
