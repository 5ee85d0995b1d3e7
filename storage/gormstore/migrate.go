package gormstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed migrations
var migrationFiles embed.FS

// ErrSchema says that the tables are not those that this release works with.
var ErrSchema = errors.New("the tables do not fit this release")

// Migration is one numbered step of the tables.
type Migration struct {
	Number int
	Name   string
	// Oldest is the lowest number of a step whose release still works with the
	// tables after this one. A release refuses to run on tables with a step that
	// it does not know, unless its own last step is not older than that.
	Oldest   int
	Up, Down string // SQL with schema and table prefix filled in; a statement ends with ";\n"
}

// oldestWith is Migration.Oldest of a step. All steps so far only add, so that
// every release works on; one that does not gets a case of its own.
func oldestWith(int) int { return 1 }

// Migrations returns the steps that Migrate applies, in order, as SQL for those
// who make the tables by other means. The text of a step records it as applied,
// so that Migrate goes on where the other means left off. The dialect is
// "sqlite", "postgres" or "mysql" (MariaDB, too).
func Migrations(dialect string, cfg Config) ([]Migration, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d, err := newDialect(dialect, cfg)
	if err != nil {
		return nil, err
	}
	return migrations(d)
}

// Migrations is as the function Migrations, for the database of the store.
func (s *Store) Migrations() ([]Migration, error) {
	if s.err != nil {
		return nil, s.err
	}
	return migrations(s.d)
}

func migrations(d dialect) ([]Migration, error) {
	dir := path.Join("migrations", d.name())
	files, err := fs.ReadDir(migrationFiles, dir)
	if err != nil {
		return nil, fmt.Errorf("gormstore: migrations: %w", err)
	}
	var list []Migration
	for _, f := range files {
		base, up := strings.CutSuffix(f.Name(), ".up.sql")
		if !up {
			continue
		}
		number, name, _ := strings.Cut(base, "_")
		n, err := strconv.Atoi(number)
		if err != nil || n != len(list)+1 {
			return nil, fmt.Errorf("gormstore: migration file %q is not number %d", f.Name(), len(list)+1)
		}
		m := Migration{Number: n, Name: name, Oldest: oldestWith(n)}
		for suffix, text := range map[string]*string{".up.sql": &m.Up, ".down.sql": &m.Down} {
			b, err := migrationFiles.ReadFile(path.Join(dir, base+suffix))
			if err != nil {
				return nil, fmt.Errorf("gormstore: migrations: %w", err)
			}
			*text = d.fill(string(b))
		}
		m.Up += d.recordMigration(m)
		m.Down += d.forgetMigration(m)
		list = append(list, m)
	}
	return list, nil
}

// Migrate implements storage.Migrator. It writes nothing when every step is
// recorded as applied. Instances that start at the same moment wait for the one
// that applies the steps. A user without the right to make tables needs them to
// be there; the error names the step to apply. ErrSchema: the tables are of a
// later release, which this one does not work with.
func (s *Store) Migrate(ctx context.Context) error {
	list, err := s.Migrations()
	if err != nil {
		return err
	}
	if err := s.migrate(ctx, list); err != nil {
		return fmt.Errorf("gormstore: migrate: %w", err)
	}
	return nil
}

func (s *Store) migrate(ctx context.Context, list []Migration) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	var todo []Migration
	err := s.untilFree(ctx, func() (err error) {
		todo, err = s.unapplied(ctx, s.reader, list)
		return err
	})
	if err != nil || len(todo) == 0 {
		return err
	}
	return s.d.migrating(ctx, s, func(ctx context.Context, db conn) error {
		todo, err := s.unapplied(ctx, db, list)
		if err != nil {
			return err
		}
		for _, m := range todo {
			if err := run(ctx, db, m.Up); err != nil {
				return fmt.Errorf("step %d, %s, is not applied, and this user could not: "+
					"have it applied (Store.Migrations returns its SQL): %w", m.Number, m.Name, err)
			}
		}
		return nil
	})
}

// MigrateDown takes back the steps above the given number; 0 deletes the tables
// with all messages in them. No bus may be running.
func (s *Store) MigrateDown(ctx context.Context, number int) error {
	list, err := s.Migrations()
	if err != nil {
		return err
	}
	if number < 0 || number > len(list) {
		return fmt.Errorf("gormstore: migrate down: there is no step %d; the last one is %d", number, len(list))
	}
	err = s.d.migrating(ctx, s, func(ctx context.Context, db conn) error {
		done, err := s.applied(ctx, db)
		if err != nil {
			return err
		}
		for _, m := range slices.Backward(list[number:]) {
			if _, ok := done[m.Number]; !ok {
				continue
			}
			if err := run(ctx, db, m.Down); err != nil {
				return fmt.Errorf("step %d, %s: %w", m.Number, m.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("gormstore: migrate down: %w", err)
	}
	return nil
}

// run runs the statements of a text one by one: not every driver takes several.
func run(ctx context.Context, db conn, text string) error {
	for _, q := range strings.Split(text, ";\n") {
		if strings.TrimSpace(q) == "" {
			continue
		}
		if _, err := db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	querier
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// checkMigrations makes sure that the tables are those of this release.
func (s *Store) checkMigrations(ctx context.Context) error {
	list, err := s.Migrations()
	if err != nil {
		return err
	}
	todo, err := s.unapplied(ctx, s.reader, list)
	if err != nil || len(todo) == 0 {
		return err
	}
	return fmt.Errorf("%w: step %d, %s, is not applied (Migrate applies it; Migrations returns its SQL)",
		ErrSchema, todo[0].Number, todo[0].Name)
}

// unapplied returns the steps that are not recorded as applied.
func (s *Store) unapplied(ctx context.Context, q querier, list []Migration) ([]Migration, error) {
	done, err := s.applied(ctx, q)
	if err != nil {
		return nil, err
	}
	last := list[len(list)-1].Number
	for _, m := range done {
		if m.Number > last && m.Oldest > last {
			return nil, fmt.Errorf("%w: they have step %d, %s, of a later release; this one knows %d steps, "+
				"and at least %d are needed: use the later release", ErrSchema, m.Number, m.Name, last, m.Oldest)
		}
	}
	var todo []Migration
	for _, m := range list {
		if _, ok := done[m.Number]; !ok {
			todo = append(todo, m)
		}
	}
	return todo, nil
}

// applied reads which steps are recorded.
func (s *Store) applied(ctx context.Context, q querier) (map[int]Migration, error) {
	there, err := readAll[int](ctx, q, s.d.hasMigrated())
	if err != nil || len(there) == 0 || there[0] == 0 {
		return nil, err
	}
	done := make(map[int]Migration)
	err = s.d.applied().each(ctx, q, func(rows *sql.Rows) error {
		var m Migration
		err := rows.Scan(&m.Number, &m.Name, &m.Oldest)
		done[m.Number] = m
		return err
	})
	return done, err
}
