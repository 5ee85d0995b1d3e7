package testenv

import (
	"context"
	"net"
	"testing"
	"time"
)

// start starts a node for the test, whose folder and settings are its own.
type start func(tb testing.TB) *Server

func TestOwnPostgres(t *testing.T) {
	t.Parallel()
	livesOn(t, func(tb testing.TB) *Server { tb.Helper(); return StartPostgres(tb, "max_connections=20") })
}

func TestOwnMariaDB(t *testing.T) {
	t.Parallel()
	livesOn(t, func(tb testing.TB) *Server { tb.Helper(); return StartMariaDB(tb, "max-connections=20") })
}

func TestOwnRabbitMQ(t *testing.T) {
	t.Parallel()
	livesOn(t, func(tb testing.TB) *Server { tb.Helper(); return StartRabbitMQ(tb, "channel_max=10") })
}

func TestOwnRedis(t *testing.T) {
	t.Parallel()
	livesOn(t, func(tb testing.TB) *Server { tb.Helper(); return StartRedis(tb, "maxmemory=10mb") })
}

func TestOwnNATS(t *testing.T) {
	t.Parallel()
	livesOn(t, func(tb testing.TB) *Server { tb.Helper(); return StartNATS(tb, "max_connections: 20") })
}

func TestOwnPgBouncer(t *testing.T) {
	t.Parallel()
	livesOn(t, func(tb testing.TB) *Server { tb.Helper(); return StartPgBouncer(tb, Postgres(), "pool_mode=session") })
}

func livesOn(t *testing.T, start start) {
	t.Helper()
	var s *Server
	t.Run("while its test runs", func(t *testing.T) {
		s = start(t)
		answers(t, s)

		check(t, s.Restart(t.Context()))
		answers(t, s)

		check(t, s.Kill())
		gone(t, s)
		check(t, s.Restart(t.Context()))
		answers(t, s)

		check(t, s.Stop())
		gone(t, s)
		check(t, s.Stop()) // again
		check(t, s.Start(t.Context()))
		answers(t, s)
	})
	if s != nil {
		gone(t, s)
	}
}

func answers(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check(t, s.kind.Probe(ctx, s.DSN))
}

func gone(t *testing.T, s *Server) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err == nil {
		_ = conn.Close()
		t.Fatalf("%s still listens on %s", s.kind.Name, s.Addr)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
