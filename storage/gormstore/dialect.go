package gormstore

import (
	"context"
	"database/sql"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/capbus/gocap/storage"
)

// Most rows, or ids, and most lanes in one statement.
const (
	rowsPer  = 512
	lanesPer = 32
)

// query is a text with its arguments; one without a text does nothing.
type query struct {
	text string
	args []any
}

func textOf(text string, args ...any) query { return query{text, args} }

func (q query) exec(ctx context.Context, db storage.Execer) (sql.Result, error) {
	return db.ExecContext(ctx, q.text, q.args...)
}

// changed runs the statement and returns how many rows it changed.
func (q query) changed(ctx context.Context, db storage.Execer) (int64, error) {
	if q.text == "" {
		return 0, nil
	}
	res, err := q.exec(ctx, db)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// each calls f with every row of the answer.
func (q query) each(ctx context.Context, db querier, f func(rows *sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, q.text, q.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// into reads the rows of the answer that r wants.
func (q query) into(ctx context.Context, db querier, r *reader) error {
	rows, err := db.QueryContext(ctx, q.text, q.args...)
	if err != nil {
		return err
	}
	return r.read(rows)
}

// querier is a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// conn is a transaction, or a connection.
type conn interface {
	storage.Execer
	querier
}

// dialect is the SQL of one database, and the meaning of its errors. What runs
// statements does it in the transaction that it is given; a query that is
// returned is run by the caller. Changes of rows are conditional as in
// storage.Member.
type dialect interface {
	dialectErrors
	dialectTx
	dialectSchema
	dialectInstances
	dialectLooks
	dialectKeys
	dialectChanges
	dialectOperator
	dialectHealth
}

type dialectErrors interface {
	// transient: others were in the way; the transaction may be tried again.
	transient(err error) bool
	// badData: the statement was refused for the values in it.
	badData(err error) bool
	// duplicate: a key is there already, and the transaction goes on.
	duplicate(err error) bool
	// answered: the database itself has refused the statement.
	answered(err error) bool
	// ended: the database has ended the transaction, or lets it do nothing more.
	ended(err error) bool
	// missing: a table is not there, or what it is in.
	missing(err error) bool
}

type dialectTx interface {
	// options are those of the store's own transactions.
	options() *sql.TxOptions
	// maxTx is the most transactions that do not wait for each other, given the
	// most connections of the pool (0: no bound); 0: no bound.
	maxTx(conns int) int
	// alone: one statement needs no transaction around it.
	alone() bool
	// tells: the statements of dialectChanges are one each, and their answer tells
	// what they have changed.
	tells() bool
	// fragile: a statement that fails ends the transaction.
	fragile() bool
	// uncancelled: no statement in somebody's transaction may be interrupted.
	uncancelled() bool
	// prepares: statements are worth keeping prepared by the store.
	prepares() bool
	// lock makes a transaction of the store's own the writer before it has read
	// anything, where that must be.
	lock() query
	// guard begins what release, before the last statement, needs to tell that
	// the database has ended the transaction meanwhile.
	guard() query
	release() query
	// probe returns an error that is ended when the database has ended the
	// transaction behind the back of the library that holds it, unless the
	// statements that follow tell by themselves.
	probe(ctx context.Context, tx storage.Execer) error
	// maxBytes is the most bytes of values in one statement; 0: no bound.
	maxBytes() int
	// sizeHint names the setting that maxBytes comes from.
	sizeHint() string
}

type dialectSchema interface {
	// name is that of the folder with the migrations.
	name() string
	// prepare asks the server what the dialect must know of it, and refuses one
	// that cannot be used.
	prepare(ctx context.Context, db rowQuerier) error
	// check reads nothing from every table.
	check() []query
	// migrating runs f alone among all instances.
	migrating(ctx context.Context, s *Store, f func(ctx context.Context, db conn) error) error
	makeMigrated() string
	hasMigrated() query // answers with a count
	applied() query     // answers with number, name, oldest
	recordMigration(m Migration) string
	forgetMigration(m Migration) string
	// fill replaces what stands for names in the text of a migration.
	fill(text string) string
}

type dialectInstances interface {
	lockJoin() query
	rivals(in storage.Instance) query
	join(number int64, in storage.Instance) query
	beat(number int64) query
	leave(number int64) query
	// lockStates answers with name, holder and microseconds left, of the locks
	// that there are.
	lockStates(names []string) query
	// acquire takes the locks that are free or the holder's, for so many
	// microseconds.
	acquire(names []string, holder, ttl int64) query
	unlock(holder int64) query
	// running answers with number, beat, lease, and whether it has run out, of
	// the heartbeats that have not ended.
	running() query
	// declareDead ends a heartbeat that still is as it was seen, or that has run
	// out by the database's clock.
	declareDead(b heartbeat) query
	// endings answers with number, whether it has not ended, and whether it died.
	endings(numbers []int64) query
	forgetInstances() query
	// others answers with the numbers that live, but for the one given.
	others(b storage.Box, version string, number int64) query
}

// dialectLooks only read. Rows are answered as reader.scan reads them,
// candidates as readCandidates does.
type dialectLooks interface {
	// due walks the lanes along the index on due times: the rows that are due,
	// and how long it is until the next. The wait is read first, so that a row
	// that falls due in between is in both, never in neither.
	// Rows behind the one that makes the sum of headers and bodies exceed most
	// (0: no limit) need not be answered.
	due(b storage.Box, version string, owner int64, lanes []storage.Lane, most int) query
	byID(b storage.Box, ids []storage.ID, owner int64) query
	unmatched(version, group string, after int64, limit int) query
	// orphanage finds where there are due rows without a living owner: pairs of
	// an index into lanes and an owner (0: anyone). It hops over the owners, one
	// step in the index for each, however many rows they have.
	orphanage(ctx context.Context, db querier, b storage.Box, version string, q storage.Query, found func(lane int, owner int64)) error
	// glance answers what Glance asks of one box, in one statement; k is what
	// former ones have learned. See glanceBeat.
	glance(ctx context.Context, db querier, at glancePlace, k *known, g glancing) (sights, error)
	// candidates walks one owner's due rows of a lane, for each pair.
	candidates(b storage.Box, version string, q storage.Query, ps []pair) query
	candidatesByID(b storage.Box, version string, ids []storage.ID) query
	// subscribers hops over the subscribers of one owner's rows in a group.
	subscribers(ctx context.Context, db querier, version, group string, owner int64) ([]string, error)
}

type dialectChanges interface {
	insertOutbox(recs []*storage.Record) query
	// insertInbox inserts rows that are not there, and notes their ids.
	insertInbox(ctx context.Context, tx conn, rows []inboxRow, inserted idSet) error
	removeUnmatched(version string, id storage.ID) query
	// take makes rows of one owner the member's, and reads them.
	take(ctx context.Context, tx conn, r *reader, t taking) error
	// claim counts rows as begun, and reads them.
	claim(ctx context.Context, tx conn, r *reader, b storage.Box, number int64, ids []storage.ID) error
	// succeed stores successes that expire equally late, and notes the ids of the
	// rows changed; so do remove, for those that are deleted, and settle, for all
	// other outcomes.
	succeed(ctx context.Context, tx conn, s settling, ids []storage.ID, keep int64) error
	remove(ctx context.Context, tx conn, s settling, ids []storage.ID) error
	settle(ctx context.Context, tx conn, s settling, outcomes []outcomeRow) error
	purge(ctx context.Context, tx conn, p storage.Purge) (int64, error)
}

type dialectOperator interface {
	// operating begins a statement of an operator. What it says is in opSQL.
	operating(b storage.Box) opWords
	// apart finds where indexes can be walked, in a version or, given none, in all.
	apart(ctx context.Context, db querier, b storage.Box, version string) (parts, error)
}

// idSet holds ids of rows that a statement has changed.
type idSet map[storage.ID]bool

// settling says whose rows are settled; done takes the ids that were.
type settling struct {
	box    storage.Box
	number int64
	inTx   bool // in the transaction of a handler, and never outside of it
	done   idSet
}

// taking says which rows are taken from whom.
type taking struct {
	box       storage.Box
	number    int64 // who takes
	owner     int64 // from whom; 0: nobody
	died      bool
	keys      []int64 // seq
	mustBeDue bool
}

// inboxRow holds the values of an inbox record, moments in microseconds.
type inboxRow struct {
	*storage.Record

	version, key string
	owner        int64 // 0: nobody
	status       storage.Status
	fault        string
	due          bool
	keep         int64 // until it expires; negative: it does not
}

// outcomeRow holds the values of an outcome.
type outcomeRow struct {
	storage.Outcome

	wait int64 // microseconds
	text string
}

func newDialect(name string, cfg Config) (dialect, error) {
	switch name {
	case "sqlite":
		return newSQLite(cfg)
	case "postgres":
		return newPostgres(cfg)
	case "mysql":
		return newMySQL(cfg), nil
	}
	return nil, fmt.Errorf("gormstore: there is no dialect for %q; there are some for %s", name, strings.Join(dialects(), ", "))
}

// dialects are the names of the databases that there is a dialect for.
func dialects() []string { return []string{"sqlite", "postgres", "mysql"} }

// padded rounds a number of ids or lanes up, so that there are few texts of
// looks, and they stay prepared.
func padded(n, most int) int {
	return min(1<<bits.Len(uint(n-1)), most)
}

// tuples returns n times the given tuple.
func tuples(n int, tuple string) string {
	return strings.Repeat(tuple+",", n-1) + tuple
}

func idArgs(list []storage.ID) []any {
	args := make([]any, len(list), len(list)+2)
	for i := range list {
		args[i] = slices.Clone(list[i][:])
	}
	return args
}
