package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// saboteur is a tracer that does something before the statement of a number.
type saboteur struct {
	mu sync.Mutex
	in int // statements until then; negative: never
	do func(ctx context.Context, conn *pgx.Conn)
}

func (s *saboteur) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	s.in--
	hit := s.in == 0
	s.mu.Unlock()
	if hit {
		s.do(ctx, conn)
	}
	return ctx
}

func (s *saboteur) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// arm lets it happen before the n-th statement from now on.
func (s *saboteur) arm(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in = n
}

// fired tells whether it has happened.
func (s *saboteur) fired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in <= 0
}

// operation is one call of the store, that may be done again.
type operation struct {
	name string
	run  func(ctx context.Context) error
}

// operations are all of them, on rows of their own.
func operations(t *testing.T, s *gormstore.Store) []operation {
	t.Helper()
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	message := incoming("once")
	row := outgoing(out.Number())
	publish(t, s, row)
	done := storage.Outcome{ID: row.ID, Kind: storage.Retry, Attempt: 1, Error: "no", After: time.Hour}
	ignore := func(_ any, err error) error { return err }
	return []operation{
		{"check", s.Check},
		{"migrate", s.Migrate},
		{"join", func(ctx context.Context) error {
			m, err := s.Join(ctx, storage.Instance{Box: storage.Outbox, Version: version, Lease: time.Minute})
			if err == nil {
				err = m.Leave(ctx)
			}
			return err
		}},
		{"beat", out.Beat},
		{"append", func(ctx context.Context) error { return appendTo(ctx, s, outgoing(out.Number()), outgoing(0)) }},
		{"accept", func(ctx context.Context) error { return ignore(in.Accept(ctx, message, incoming("again"))) }},
		{"due", func(ctx context.Context) error {
			_, _, err := out.Due(ctx, outLane(5))
			return err
		}},
		{"take over", func(ctx context.Context) error { return ignore(out.TakeOver(ctx, outLane(5))) }},
		{"claim", func(ctx context.Context) error { return ignore(out.Claim(ctx, row)) }},
		{"settle", func(ctx context.Context) error { return ignore(out.Settle(ctx, done)) }},
		{"purge", func(ctx context.Context) error {
			return ignore(s.Purge(ctx, storage.Purge{Box: storage.Outbox, Version: version, Limit: 5}))
		}},
		{"handler", func(ctx context.Context) error {
			tx, err := s.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback() // after a Commit it does nothing
			if err := tx.Append(ctx, outgoing(0)); err != nil {
				return err
			}
			err = tx.Settle(ctx, in, storage.Outcome{ID: message.ID, Kind: storage.Postpone, After: time.Hour})
			if err != nil {
				return err
			}
			return tx.Commit()
		}},
	}
}

// sabotaged runs each operation with something done before each of its
// statements in turn, and calls after with what came of it.
func sabotaged(t *testing.T, do func(t *testing.T, dsn string) func(context.Context, *pgx.Conn), after func(name string, err error)) {
	t.Helper()
	dsn := newDatabase(t)
	sab := &saboteur{}
	s := onPool(t, dsn, gormstore.Config{Unprepared: pgx.QueryExecModeExec}, func(c *pgx.ConnConfig) { c.Tracer = sab })
	must(t, s.Migrate(t.Context()))
	sab.do = do(t, dsn)
	hits := 0
	for _, op := range operations(t, s) {
		for n := 1; n < 20; n++ {
			sab.arm(n)
			err := op.run(t.Context())
			if !sab.fired() {
				break
			}
			hits++
			after(fmt.Sprintf("%s, statement %d", op.name, n), err)
			sab.arm(-1)
			if err := op.run(t.Context()); err != nil {
				t.Errorf("%s, statement %d, the next time: %v", op.name, n, err)
			}
		}
	}
	if hits < 30 {
		t.Errorf("only %d statements were disturbed", hits)
	}
}

// TestAConnectionThatIsTerminated costs the operation at most; the next one
// works, on another connection.
func TestAConnectionThatIsTerminated(t *testing.T) {
	t.Parallel()
	sabotaged(t, func(t *testing.T, dsn string) func(context.Context, *pgx.Conn) {
		t.Helper()
		return func(_ context.Context, conn *pgx.Conn) {
			onServer(t, dsn, fmt.Sprintf(`SELECT pg_terminate_backend(%d)`, conn.PgConn().PID())) //nolint:contextcheck // the test's
		}
	}, func(name string, err error) {
		if errors.Is(err, storage.ErrLost) || errors.Is(err, storage.ErrDuplicate) {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// TestAStatementThatIsCancelled, as by statement_timeout, costs the operation at
// most.
func TestAStatementThatIsCancelled(t *testing.T) {
	t.Parallel()
	sabotaged(t, func(t *testing.T, _ string) func(context.Context, *pgx.Conn) {
		t.Helper()
		return func(ctx context.Context, conn *pgx.Conn) {
			// On the wire as the timeout is, with the connection and its transaction
			// as they were before.
			_ = conn.PgConn().Exec(ctx, `SET LOCAL statement_timeout = 1; SELECT pg_sleep(1)`).Close()
		}
	}, func(name string, err error) {
		if errors.Is(err, storage.ErrLost) || errors.Is(err, storage.ErrDuplicate) {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// refusals makes a trigger refuse the next changes of a table with a code.
const refusals = `CREATE SEQUENCE refused; CREATE TABLE refuse (code text, times int);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE r refuse;
BEGIN
  SELECT * INTO r FROM refuse;
  IF FOUND AND nextval('refused') <= r.times THEN
    RAISE EXCEPTION 'as if others were in the way' USING ERRCODE = r.code;
  END IF;
  RETURN COALESCE(NEW, OLD);
END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON cap_published FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON cap_received FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON cap_instances FOR EACH ROW EXECUTE FUNCTION refuse();`

// TestOthersInTheWayAreTriedAgainInside: a deadlock, a serialization failure or a
// lock that is not to be had is no business of the engine.
func TestOthersInTheWayAreTriedAgainInside(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01", "55P03"} {
		dsn := newDatabase(t)
		s := open(t, dsn, quiet())
		must(t, s.Migrate(t.Context()))
		list := operations(t, s)
		onServer(t, dsn, refusals)
		for _, op := range list {
			if op.name == "append" || op.name == "handler" {
				continue // the transaction is somebody else's
			}
			onServer(t, dsn, `TRUNCATE refuse`, `ALTER SEQUENCE refused RESTART`, `INSERT INTO refuse VALUES ('`+code+`', 3)`)
			if err := op.run(t.Context()); err != nil {
				t.Errorf("%s, %s: %v", code, op.name, err)
			}
		}
	}
}

// TestADeadlockIsResolved: two who settle and lock the same rows crosswise.
func TestADeadlockIsResolved(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s := open(t, dsn, quiet())
	must(t, s.Migrate(t.Context()))
	m := join(t, s, storage.Outbox)
	a, b := outgoing(m.Number()), outgoing(m.Number())
	publish(t, s, a, b)
	tx := s.DB().Begin()
	must(t, tx.Error)
	lock := func(r *storage.Record) error {
		return tx.Exec(`SELECT 1 FROM cap_published WHERE id = ? FOR UPDATE`, r.ID.String()).Error
	}
	must(t, tx.Exec(`SET LOCAL deadlock_timeout = '1h'`).Error) // it is the other who finds it
	must(t, lock(b))
	settled := make(chan error, 1)
	go func() {
		lost, err := m.Settle(t.Context(), storage.Outcome{ID: a.ID, Kind: storage.Succeed, After: time.Hour},
			storage.Outcome{ID: b.ID, Kind: storage.Retry, Attempt: 1, After: time.Hour})
		if len(lost) > 0 {
			err = errors.Join(err, fmt.Errorf("lost: %v", lost))
		}
		settled <- err
	}()
	for waiting := 0; waiting == 0; {
		waiting = count(t, s, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	must(t, lock(a))
	must(t, tx.Rollback().Error)
	must(t, <-settled)
}

// TestASessionThatIsIdleInATransaction is ended by the server, and with it the
// transaction of a slow handler; nothing of it stays.
func TestASessionThatIsIdleInATransaction(t *testing.T) {
	t.Parallel()
	s := newStore(t, quiet(), "idle_in_transaction_session_timeout=50")
	m := join(t, s, storage.Inbox)
	in := incoming("1")
	_, err := m.Accept(t.Context(), in)
	must(t, err)
	tx, err := s.Begin(t.Context())
	must(t, err)
	must(t, tx.Append(t.Context(), outgoing(0)))
	var pid int
	must(t, tx.Value().(*gorm.DB).Raw(`SELECT pg_backend_pid()`).Row().Scan(&pid))
	for there := 1; there > 0; {
		there = count(t, s, `SELECT count(*) FROM pg_stat_activity WHERE pid = ?`, pid)
	}
	if err := tx.Settle(t.Context(), m, storage.Outcome{ID: in.ID, Kind: storage.Succeed}); err == nil || errors.Is(err, storage.ErrLost) {
		t.Error(err)
	}
	_ = tx.Rollback()
	if n := count(t, s, `SELECT count(*) FROM cap_published`); n != 0 {
		t.Errorf("%d rows", n)
	}
	if got := due(t, m, inLane(5)); len(got) != 1 {
		t.Error(got)
	}
}
