package postgres_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
)

// startAt opens a store, makes the tables and joins, as the start of a bus does.
func startAt(ctx context.Context, dsn string) error {
	s, err := postgres.Open(dsn, postgres.Config{MaxConns: 2})
	if err != nil {
		return err
	}
	if err = s.Migrate(ctx); err == nil {
		_, err = s.Join(ctx, storage.Instance{Box: storage.Outbox, Version: version, Lease: time.Minute})
	}
	return errors.Join(err, s.Close())
}

// TestManyStartAtOnceOnAnEmptyDatabase, some of them processes of their own: each
// makes the tables, or waits for them, and can work at once.
func TestManyStartAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	const starters, processes = 20, 3
	dsn := newDatabase(t)
	var wg sync.WaitGroup
	for range starters {
		wg.Go(func() {
			if err := startAt(t.Context(), dsn); err != nil {
				t.Error(err)
			}
		})
	}
	for range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this program itself
			cmd.Env = append(os.Environ(), childDSN+"="+dsn)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	s := open(t, dsn, quiet())
	must(t, s.Check(t.Context()))
	if n := count(t, s, `SELECT count(*) FROM cap_instances`); n != starters+processes {
		t.Errorf("%d instances", n)
	}
	list, err := s.Migrations()
	must(t, err)
	if n := count(t, s, `SELECT count(*) FROM cap_migrations`); n != len(list) {
		t.Errorf("%d steps", n)
	}
}

// shape describes all tables of a schema, and what hangs on them.
func shape(t *testing.T, dsn, schema string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	defer conn.Close(t.Context()) //nolint:errcheck // it was for reading
	rows, err := conn.Query(t.Context(), `SELECT concat_ws(' ', table_name, ordinal_position, column_name, data_type,
		is_nullable, column_default, collation_name, is_identity, identity_generation)
		FROM information_schema.columns WHERE table_schema = $1
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = $1
		UNION ALL SELECT conname || ' ' || pg_get_constraintdef(c.oid) FROM pg_constraint c
		JOIN pg_namespace n ON n.oid = connamespace WHERE nspname = $1
		UNION ALL SELECT relname || ' ' || reloptions::text FROM pg_class c
		JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1 AND reloptions IS NOT NULL
		ORDER BY 1`, schema)
	must(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return list
}

// TestThePrintedSQLMakesTheSameTables, as psql would run it; and undoes it.
func TestThePrintedSQLMakesTheSameTables(t *testing.T) {
	t.Parallel()
	made, byHand := newDatabase(t), newDatabase(t)
	must(t, open(t, made, quiet()).Migrate(t.Context()))
	list, err := gormstore.Migrations("postgres", gormstore.Config{})
	must(t, err)
	s := open(t, byHand, quiet())
	for range 2 {
		for _, m := range list {
			onServer(t, byHand, m.Up)
		}
		must(t, s.Check(t.Context()))
		must(t, s.Migrate(t.Context()))
		if a, b := shape(t, made, "public"), shape(t, byHand, "public"); !slices.Equal(a, b) || len(a) < 50 {
			t.Errorf("made:\n%s\nby hand:\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
		for _, m := range slices.Backward(list) {
			onServer(t, byHand, m.Down)
		}
		if rest := shape(t, byHand, "public"); slices.ContainsFunc(rest, func(s string) bool { return !strings.Contains(s, "cap_migrations") }) {
			t.Errorf("left: %q", rest)
		}
	}
	if err := s.Check(t.Context()); !errors.Is(err, gormstore.ErrSchema) || !strings.Contains(err.Error(), "step 1, messages") {
		t.Errorf("check without tables: %v", err)
	}
}

func TestMigrateDownAndUpAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t, quiet())
	publish(t, s, outgoing(0))
	must(t, s.MigrateDown(t.Context(), 1))
	if err := s.Check(t.Context()); !errors.Is(err, gormstore.ErrSchema) {
		t.Errorf("check without the last step: %v", err)
	}
	must(t, s.Migrate(t.Context()))
	must(t, s.Check(t.Context()))
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 1 {
		t.Errorf("%d rows are left", n)
	}
	must(t, s.MigrateDown(t.Context(), 0))
	must(t, s.Migrate(t.Context()))
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 0 {
		t.Errorf("%d rows are there", n)
	}
}

// TestALaterReleasesStepsAreLeftAlone as long as this one works with them.
func TestALaterReleasesStepsAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStore(t, quiet())
	run(t, s, `INSERT INTO cap_migrations VALUES (99, 'later', 1, now())`)
	must(t, s.Migrate(t.Context()))
	must(t, s.Check(t.Context()))
	run(t, s, `INSERT INTO cap_migrations VALUES (100, 'much_later', 98, now())`)
	for _, err := range []error{s.Migrate(t.Context()), s.Check(t.Context())} {
		if !errors.Is(err, gormstore.ErrSchema) || !strings.Contains(err.Error(), "step 100, much_later") {
			t.Error(err)
		}
	}
}

// TestTablesAreNamedAsConfigured, whatever they are called otherwise and gorm's
// own naming is; nothing is made elsewhere.
func TestTablesAreNamedAsConfigured(t *testing.T) {
	t.Parallel()
	for _, name := range []struct{ schema, prefix string }{
		{"", "Shop_"},
		{"", "select"},
		{"CapBus", "Shop"},
		{"order", "user"},
		{"a-b c.d", "_x1"},
		{"Größe; DROP TABLE x", strings.Repeat("p", 32)},
		{"$user", "cap_"},
		{strings.Repeat("s", 63), "cap_"},
	} {
		t.Run(name.schema+" "+name.prefix, func(t *testing.T) {
			t.Parallel()
			dsn := newDatabase(t)
			in := "public"
			if name.schema != "" {
				in = name.schema
				onServer(t, dsn, `CREATE SCHEMA `+pgx.Identifier{in}.Sanitize())
				if lower := strings.ToLower(in); lower != in {
					onServer(t, dsn, `CREATE SCHEMA `+pgx.Identifier{lower}.Sanitize())
				}
			}
			s := open(t, dsn, postgres.Config{
				Schema: name.schema, TablePrefix: name.prefix,
				GORM: &gorm.Config{NamingStrategy: schema.NamingStrategy{TablePrefix: "other_", SingularTable: true}},
			})
			must(t, s.Migrate(t.Context()))
			everything(t, s)
			if n := count(t, s, `SELECT count(*) FROM pg_tables WHERE schemaname = ? AND starts_with(tablename, ?)`, in, name.prefix); n != 5 {
				t.Errorf("%d tables", n)
			}
			if n := count(t, s, `SELECT count(*) FROM pg_tables WHERE schemaname NOT IN (?, 'pg_catalog', 'information_schema')`, in); n != 0 {
				t.Errorf("%d tables elsewhere", n)
			}
			must(t, s.MigrateDown(t.Context(), 0))
		})
	}
}

func TestNamesThatWouldEndAQuotationAreRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []postgres.Config{
		{Schema: `a"b`},
		{Schema: "a`b"},
		{Schema: "a'b"},
		{Schema: "a\x00b"},
		{Schema: "a\nb"},
		{Schema: "a\xff"},
		{Schema: " a"},
		{Schema: strings.Repeat("s", 64)},
		{TablePrefix: `a"; DROP TABLE x; --`},
		{TablePrefix: "1a"},
		{TablePrefix: "a-b"},
		{TablePrefix: strings.Repeat("p", 33)},
	} {
		if _, err := postgres.Open("host=127.0.0.1", cfg); err == nil {
			t.Errorf("%q %q is no error", cfg.Schema, cfg.TablePrefix)
		}
		if _, err := gormstore.Migrations("postgres", gormstore.Config{Schema: cfg.Schema, TablePrefix: cfg.TablePrefix}); err == nil {
			t.Errorf("%q %q can be printed", cfg.Schema, cfg.TablePrefix)
		}
	}
}

func TestASchemaThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	s := open(t, newDatabase(t), postgres.Config{Schema: "Nowhere", GORM: quiet().GORM})
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), `schema "Nowhere" does not exist`) {
		t.Error(err)
	}
}

// TestMissingTablesAreSaidToBeMissing, and not that the transaction has ended: it
// may be one of another database.
func TestMissingTablesAreSaidToBeMissing(t *testing.T) {
	t.Parallel()
	s := open(t, newDatabase(t), quiet())
	err := appendTo(t.Context(), s, outgoing(0))
	if !errors.Is(err, gormstore.ErrSchema) || errors.Is(err, storage.ErrTxDone) || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("append without tables: %v, want ErrSchema and what makes them", err)
	}
}
