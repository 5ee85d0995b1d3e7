package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A Server is a node of a test's own. Its methods may be called from any
// goroutine; they wait for each other.
type Server struct {
	Addr string // host:port; stays over restarts
	DSN  string // as Postgres, MySQL, RabbitMQ, Redis and NATS give it

	kind Kind

	mu      sync.Mutex
	node    node
	running bool
	killed  bool
}

// A node is where a server runs.
type node interface {
	start() error
	stop() error // orderly
	kill() error // without a last word, as when the power fails
	remove() error
	dead() bool // ended by itself
	log() string
	hint() string // command that stops it
}

// own says what a node of one's own should be like.
type own struct {
	dir      string
	port     int
	target   string   // PgBouncer: the PostgreSQL behind it
	settings []string // name=value
	watch    bool     // end it with this process, however that ends
}

// startTimeout is long for a slow machine that pulls no image; RabbitMQ takes
// 5 s on a fast one.
const startTimeout = 2 * time.Minute

// StartPostgres runs a PostgreSQL server for one test. Settings are those of
// postgresql.conf, such as "max_connections=20".
func StartPostgres(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return startForTest(tb, postgres(), own{settings: settings})
}

// StartMariaDB runs a MariaDB server for one test. Settings are options of
// mariadbd without the dashes, such as "max-connections=20".
func StartMariaDB(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return startForTest(tb, mariaDB(), own{settings: settings})
}

// StartRabbitMQ runs a RabbitMQ server for one test. Settings are those of
// rabbitmq.conf, such as "channel_max=10".
func StartRabbitMQ(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return startForTest(tb, rabbitMQ(), own{settings: settings})
}

// StartRedis runs a Redis server for one test. Settings are those of redis.conf,
// such as "maxmemory=10mb".
func StartRedis(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return startForTest(tb, redis(), own{settings: settings})
}

// StartNATS runs a NATS server with JetStream for one test. Settings are lines of
// its configuration, such as "max_connections: 20".
func StartNATS(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return startForTest(tb, nats(), own{settings: settings})
}

// StartPgBouncer runs a PgBouncer for one test. Target is the DSN of the
// PostgreSQL server behind it; all clients become the target's user there.
// Settings are those of pgbouncer.ini, such as "pool_mode=session"; the pool
// mode is transaction otherwise.
func StartPgBouncer(tb testing.TB, target string, settings ...string) *Server {
	tb.Helper()
	return startForTest(tb, pgBouncer(), own{target: target, settings: settings})
}

func startForTest(tb testing.TB, k Kind, o own) *Server {
	tb.Helper()
	o.dir, o.watch = tb.TempDir(), true
	o.settings = append(k.durable, o.settings...)
	s, err := k.own(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("%s on %s: the end of its log:\n%s", k.Name, s.Addr, s.node.log())
		}
		if err := s.Remove(); err != nil {
			tb.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		tb.Fatal(err)
	}
	return s
}

// Installed returns a server that is thrown away after use, of the installed
// binaries, with its data in dir. It is not started yet.
func (k Kind) Installed(dir string, watch bool) (*Server, error) {
	return k.server(own{dir: dir, watch: watch, settings: k.fast}, k.process)
}

// Container is as Installed, but in a container.
func (k Kind) Container() (*Server, error) {
	return k.server(own{settings: k.fast}, k.container)
}

// own takes the binaries where they are installed, else a container.
func (k Kind) own(o own) (*Server, error) {
	_, missing := k.Binaries()
	if missing == nil {
		return k.server(o, k.process)
	}
	if err := ComposeAnswers(); err != nil {
		return nil, errors.Join(missing, err)
	}
	return k.server(o, k.container)
}

func (k Kind) server(o own, newNode func(own) (node, error)) (*Server, error) {
	var err error
	if o.port, err = freePort(); err != nil {
		return nil, err
	}
	n, err := newNode(o)
	if err != nil {
		return nil, err
	}
	addr := loopback(o.port)
	return &Server{Addr: addr, DSN: k.dsn(addr), kind: k, node: n}, nil
}

// Start starts the server and returns when it answers.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start(ctx)
}

func (s *Server) start(ctx context.Context) error {
	if s.running {
		return nil
	}
	if err := s.node.start(); err != nil {
		return s.failed("start", err)
	}
	s.running = true
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.kind.Probe(ctx, s.DSN)
		if err == nil {
			return nil
		}
		if s.node.dead() {
			if err := s.again(began); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return s.failed("start", errors.Join(err, context.Cause(ctx)))
		case <-tick.C:
		}
	}
}

// again starts a server that has ended while it was started. After a kill that is
// no surprise for a moment: processes that were killed with it take a while to let
// go of what it needs, such as PostgreSQL's shared memory.
func (s *Server) again(began time.Time) error {
	if s.killed && time.Since(began) < 10*time.Second {
		if err := s.node.start(); err != nil {
			s.running = false
			return s.failed("start", err)
		}
		return nil
	}
	s.running = false
	return s.failed("start", errors.New("it has ended by itself"))
}

// Stop ends the server in an orderly way, its data stay. It does nothing if the
// server does not run.
func (s *Server) Stop() error { return s.end(false, node.stop) }

// Kill ends the server with SIGKILL, its data stay. It does nothing if the server
// does not run.
func (s *Server) Kill() error { return s.end(true, node.kill) }

func (s *Server) end(killed bool, how func(node) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return nil
	}
	s.running, s.killed = false, killed
	if err := how(s.node); err != nil {
		return s.failed("end", err)
	}
	return nil
}

// Restart stops the server if it runs, starts it, and returns when it answers.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Remove stops the server for good.
func (s *Server) Remove() error {
	err := s.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(err, s.node.remove())
}

// Hint is a command with which a person stops the server.
func (s *Server) Hint() string { return s.node.hint() }

func (s *Server) failed(what string, err error) error {
	return fmt.Errorf("testenv: %s %s on %s: %w\n%s", what, s.kind.Name, s.Addr, err, s.node.log())
}

// lastLines is the end of a log file.
func lastLines(path string) string {
	const most = 4000
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return ""
	}
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(text)
}
