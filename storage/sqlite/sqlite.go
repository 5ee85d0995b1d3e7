// Package sqlite opens a gormstore.Store on a SQLite file, without cgo. Tested
// with SQLite 3.54 (modernc.org/sqlite through github.com/libtnb/sqlite).
//
// SQLite has one writer at a time. Open therefore makes one connection that
// writes, whose transactions take the write lock when they begin, and a few
// that only read; the file is in WAL mode, in which neither waits for the
// other. Several processes may have the file open.
package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/libtnb/sqlite"
	"gorm.io/gorm"

	"github.com/capbus/gocap/storage/gormstore"
)

// memory is the path of a database that lives in this process alone.
const memory = ":memory:"

// Open opens the file at path, which it creates unless it is there; its folder
// must be there. It makes no tables: Migrate, or the start of a bus, does. The
// store's Close closes the connections.
//
// The *gorm.DB of the store (DB) sends a statement that begins with SELECT,
// outside a transaction, to the reading connections, as it does a transaction
// with sql.TxOptions.ReadOnly, and everything else to the writing one, in the
// order in which it is asked for; the heartbeats of the store go first. What it cannot see is that a temporary table,
// or an attached database, is there on just one of them: use those in a
// transaction. A begin, or a write outside a transaction, that cannot have the
// writing connection within BusyTimeout fails with ErrBusy: most often the
// caller itself holds a transaction, and should have used that one.
//
// SQLite ends a transaction by itself when a statement that writes is interrupted
// in it (its context ends), and for some errors, such as a full disk. From then
// on every statement of the transaction, and Commit, fails with sql.ErrTxDone.
// Only a transaction that was begun with a statement, on a *sql.Conn, is not
// watched. What Raw of such a Conn gives has Unwrap for the driver's connection.
//
// The path ":memory:" is a database of this store's own on a single connection,
// gone with Close: for tests. URIs ("file:…") are refused.
func Open(path string, cfg Config) (*gormstore.Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := checkPath(path); err != nil {
		return nil, err
	}
	p, err := openPool(path, cfg)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %s: %w", path, err)
	}
	db, err := gorm.Open(sqlite.New(sqlite.Config{Conn: p}), cfg.gormConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: open %s: %w", path, err), p.Close())
	}
	return gormstore.New(db, cfg.store(p)), nil
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New(`sqlite: open: the path is empty; ":memory:" is a database in memory`)
	case path == memory:
		return nil
	case strings.HasPrefix(path, "file:"):
		return fmt.Errorf("sqlite: open: %q is a URI; give the plain path, and options in Config", path)
	case strings.ContainsRune(path, 0):
		return errors.New("sqlite: open: the path contains a NUL")
	}
	dir := filepath.Dir(path)
	switch info, err := os.Stat(dir); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("sqlite: open %s: the folder %s does not exist", path, dir)
	case err != nil:
		return fmt.Errorf("sqlite: open %s: %w", path, err)
	case !info.IsDir():
		return fmt.Errorf("sqlite: open %s: %s is not a folder", path, dir)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("sqlite: open %s: it is a folder", path)
	}
	return nil
}

// lookers is the number of connections for the looks of the store: one for each
// box.
const lookers = 2

func openPool(path string, cfg Config) (*pool, error) {
	write, err := openDB(path, cfg, 1, false)
	if err != nil {
		return nil, err
	}
	p := &pool{write: write, read: write, look: write, wait: cfg.BusyTimeout}
	if path == memory {
		return p, nil
	}
	// The first connection makes the file; the others only read it.
	if err := checkWAL(write); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	read, err := openDB(path, cfg, cfg.Readers, true)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	look, err := openDB(path, cfg, lookers, true)
	if err != nil {
		return nil, errors.Join(err, read.Close(), write.Close())
	}
	p.read, p.look = read, look
	return p, nil
}

func openDB(path string, cfg Config, conns int, reading bool) (*sql.DB, error) {
	plain, err := sql.Open(sqlite.DriverName, "") // it only finds the driver
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector{plain.Driver(), dsn(path, cfg, reading)})
	if err := plain.Close(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// checkWAL connects, and makes sure that the file took the WAL mode: SQLite
// keeps another mode silently where WAL is impossible.
func checkWAL(db *sql.DB) error {
	var mode string
	if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil { // the busy timeout bounds it
		return err
	}
	if !strings.EqualFold(mode, "wal") {
		return fmt.Errorf("the journal mode stays %q; WAL is needed, which a network file system cannot have", mode)
	}
	return nil
}

// dsn is the data source name of the driver: a URI, so that any path can be
// said. The time formats are those that the gorm dialect expects.
func dsn(path string, cfg Config, reading bool) string {
	q := url.Values{
		"_time_format":  {"sqlite"},
		"_texttotime":   {"1"},
		"_inttotime":    {"1"},
		"_busy_timeout": {strconv.FormatInt(cfg.BusyTimeout.Milliseconds(), 10)},
		"_foreign_keys": {"1"},
		"_synchronous":  {cfg.Synchronous},
	}
	if reading {
		q.Set("_query_only", "1")
	} else {
		q.Set("_txlock", "immediate")
	}
	if path == memory {
		return memory + "?" + q.Encode()
	}
	if !reading {
		q.Set("_journal_mode", "WAL")
	}
	return "file:" + uriPath(path, runtime.GOOS) + "?" + q.Encode()
}

// uriPath writes a path as that of a file: URI, https://www.sqlite.org/uri.html.
func uriPath(path, goos string) string {
	if goos == "windows" {
		path = strings.ReplaceAll(path, `\`, "/")
		if len(path) > 1 && path[1] == ':' {
			path = "/" + path
		}
	}
	path = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	if strings.HasPrefix(path, "//") {
		// "//" would begin a host.
		path = "//" + path
	}
	return path
}
