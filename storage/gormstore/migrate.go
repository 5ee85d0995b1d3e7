package gormstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

//go:embed migrations
var migrationFiles embed.FS

// Migration is one numbered step of the tables.
type Migration struct {
	Number   int
	Name     string
	Up, Down string // SQL with the table prefix filled in
}

// Migrations returns the steps that Migrate applies, in order, for those who
// make the tables by other means. The text of a step records it as applied, so
// that Migrate goes on where the other means left off.
func (s *Store) Migrations() ([]Migration, error) {
	if s.err != nil {
		return nil, s.err
	}
	const dir = "migrations/sqlite"
	files, err := fs.ReadDir(migrationFiles, dir)
	if err != nil {
		return nil, fmt.Errorf("gormstore: migrations: %w", err)
	}
	fill := strings.NewReplacer("{prefix}", s.cfg.prefix())
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
		m := Migration{Number: n, Name: name}
		for suffix, text := range map[string]*string{".up.sql": &m.Up, ".down.sql": &m.Down} {
			b, err := migrationFiles.ReadFile(path.Join(dir, base+suffix))
			if err != nil {
				return nil, fmt.Errorf("gormstore: migrations: %w", err)
			}
			*text = fill.Replace(string(b))
		}
		m.Up += s.text.recordMigration(m.Number, m.Name)
		m.Down += s.text.forgetMigration(m.Number)
		list = append(list, m)
	}
	return list, nil
}

// Migrate implements storage.Migrator. It writes nothing when every step is
// recorded as applied; steps of a later release than this one are left alone.
func (s *Store) Migrate(ctx context.Context) error {
	list, err := s.Migrations()
	if err != nil {
		return err
	}
	if err := s.checkEncoding(ctx); err != nil {
		return err
	}
	var missing []Migration
	err = s.untilFree(ctx, func() error {
		missing, err = s.missingMigrations(ctx, s.reader, list)
		return err
	})
	if err != nil {
		return fmt.Errorf("gormstore: migrate: %w", err)
	}
	if len(missing) == 0 {
		return nil
	}
	err = s.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, q := range []string{s.text.makeMigrated(), s.text.lockMigrated()} {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				return err
			}
		}
		missing, err := s.missingMigrations(ctx, tx, list)
		if err != nil {
			return err
		}
		for _, m := range missing {
			if _, err := tx.ExecContext(ctx, m.Up); err != nil {
				return fmt.Errorf("step %d, %s: %w", m.Number, m.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("gormstore: migrate: %w", err)
	}
	return nil
}

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	querier
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// missingMigrations returns the steps that are not recorded as applied.
func (s *Store) missingMigrations(ctx context.Context, q rowQuerier, list []Migration) ([]Migration, error) {
	var there int
	name := strings.Trim(s.text.migrated, `"`)
	if err := q.QueryRowContext(ctx, s.text.hasMigrated(), name).Scan(&there); err != nil {
		return nil, err
	}
	if there == 0 {
		return list, nil
	}
	rows, err := q.QueryContext(ctx, s.text.appliedMigrations())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	applied := make(map[int]bool)
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		applied[n] = true
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	var missing []Migration
	for _, m := range list {
		if !applied[m.Number] {
			missing = append(missing, m)
		}
	}
	return missing, nil
}
