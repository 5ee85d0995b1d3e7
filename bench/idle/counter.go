package main

import (
	"context"
	"database/sql/driver"
	"iter"
	"slices"
	"strings"
	"sync"
)

// tables are those that are counted.
func tables() iter.Seq[string] {
	return slices.Values([]string{"published", "received", "instances", "lock"})
}

// counter counts statements by the tables that they name. What names one of the
// tables of messages counts as that alone: a glance reads the heartbeats with it.
type counter struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counter) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	messages := false
	for table := range tables() {
		if strings.Contains(text, prefix+table) && !messages {
			c.of[table]++
			messages = table == "published" || table == "received"
		}
	}
}

// taken returns what was counted since the last call.
func (c *counter) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of
	c.of = map[string]int{}
	return of
}

// counting is a connector whose connections count.
type counting struct {
	driver.Connector

	c *counter
}

func (c counting) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return counted{conn.(full), c.c}, nil //nolint:forcetypeassert // both drivers have them
}

// full is what the drivers of PostgreSQL and MySQL both have.
type full interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.NamedValueChecker
}

type counted struct {
	full

	c *counter
}

func (c counted) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.c.note(text)
	return c.full.ExecContext(ctx, text, args)
}

func (c counted) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.c.note(text)
	return c.full.QueryContext(ctx, text, args)
}

func (c counted) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	c.c.note(text)
	return c.full.PrepareContext(ctx, text)
}
