package sqlqueue

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
)

// core is what the transports of all versions have together.
type core struct {
	cfg    Config
	given  Config
	tables tables
	db     *sql.DB     // set by ready
	made   atomic.Bool // the tables are known to be there

	sweeping atomic.Bool  // one receiver does at a time
	swept    atomic.Int64 // seq up to which messages were looked at

	routing routing

	mu        sync.Mutex
	closed    bool
	receivers map[*receiver]struct{}
	ended     sync.WaitGroup // Receives
}

// join adds a receiver to those that Close ends.
func (c *core) join(r *receiver) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.receivers[r] = struct{}{}
	c.ended.Add(1)
	return nil
}

func (c *core) leave(r *receiver) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.receivers, r)
	c.ended.Done()
}

// wake lets the receivers of these groups look now.
func (c *core) wake(groups map[int64]struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.receivers {
		if _, there := groups[r.group.id]; there {
			signal(r.wake)
		}
	}
}

// ready opens the pool and makes the tables if need be, once. Everything begins
// with it.
func (c *core) ready(ctx context.Context) error {
	if err := c.open(); err != nil {
		return err
	}
	if c.made.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	if err := c.setUp(ctx); err != nil {
		return lasting(err)
	}
	c.made.Store(true)
	return nil
}

func (c *core) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	if c.db == nil {
		c.db = c.cfg.pool()
	}
	return nil
}

func (c *core) setUp(ctx context.Context) error {
	utf8, err := c.column(ctx, `SELECT (pg_catalog.current_setting('server_encoding') = 'UTF8')::int`)
	if err != nil {
		return err
	}
	if utf8[0] == 0 {
		return errEncoding
	}
	if c.cfg.SkipSetup {
		_, err := c.generation(ctx)
		if sqlState(err) == undefinedTable {
			return errNoTables
		}
		return err
	}
	for _, q := range (schema{tables: c.tables}).SchemaInitializingQueries(queue) {
		if _, err := c.db.ExecContext(ctx, q.Query, q.Args...); err != nil {
			return err
		}
	}
	return nil
}

// exec runs a statement of our own, bounded.
func (c *core) exec(ctx context.Context, query string, args ...any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	res, err := c.db.ExecContext(ctx, query, unprepared(args)...)
	if err != nil {
		return 0, c.failed(err)
	}
	return res.RowsAffected()
}

// column runs a query for numbers, bounded.
func (c *core) column(ctx context.Context, query string, args ...any) ([]int64, error) {
	var all []int64
	err := c.each(ctx, func(scan func(...any) error) error {
		var n int64
		err := scan(&n)
		all = append(all, n)
		return err
	}, query, args...)
	return all, err
}

// each runs a query, bounded, and calls f for each row.
func (c *core) each(ctx context.Context, f func(scan func(...any) error) error, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	rows, err := c.db.QueryContext(ctx, query, unprepared(args)...)
	if err != nil {
		return c.failed(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return c.failed(rows.Err())
}

// change runs f and begins another generation, in a transaction that is alone.
func (c *core) change(ctx context.Context, f func(exec func(query string, args ...any) error) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	tx, err := c.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	exec := func(query string, args ...any) error {
		_, err := tx.ExecContext(ctx, query, unprepared(args)...)
		return c.failed(err)
	}
	if err := exec(`UPDATE ` + c.tables.state + ` SET generation = ` + newGeneration); err != nil {
		return err
	}
	if err := f(exec); err != nil {
		return err
	}
	return tx.Commit()
}

// failed notes that tables are gone, so that they are made again.
func (c *core) failed(err error) error {
	if sqlState(err) == undefinedTable {
		c.made.Store(false)
	}
	return err
}

// signal puts a token into a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
