package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// heart keeps a connection for heartbeats alone while there are members: behind
// an application that uses the whole pool they would come too late, and the
// rows would be lost to others.
type heart struct {
	db *sql.DB // nil: a pool whose writers wait in a queue has a way of its own

	mu      sync.Mutex
	members int
	conn    *sql.Conn // nil: none, or it is in use
}

// heartRoom is how large a pool must be for a connection that only beats.
const heartRoom = 4

func newHeart(db *sql.DB, d dialect) *heart {
	if !d.alone() {
		db = nil
	}
	return &heart{db: db}
}

// apart reports whether heartbeats have a connection of their own. An application
// may make its pool smaller at any time: one that has no room gets it back.
func (h *heart) apart() bool {
	if h.db == nil {
		return false
	}
	if most := h.db.Stats().MaxOpenConnections; most == 0 || most >= heartRoom {
		return true
	}
	h.mu.Lock()
	conn := h.conn
	h.conn = nil
	h.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it only gives the connection back
	}
	return false
}

func (h *heart) join() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.members++
}

// leave closes the connection when the last member has left.
func (h *heart) leave() error {
	h.mu.Lock()
	h.members--
	var conn *sql.Conn
	if h.members <= 0 {
		conn, h.conn = h.conn, nil
	}
	h.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// close ends the keeping, whoever has not left.
func (h *heart) close() error {
	h.mu.Lock()
	conn := h.conn
	h.conn, h.members = nil, -1<<31
	h.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// beat runs a statement on the connection, or on another one from the pool when
// that is broken or in use.
func (h *heart) beat(ctx context.Context, q query) (int64, error) {
	h.mu.Lock()
	conn := h.conn
	h.conn = nil
	h.mu.Unlock()
	if conn != nil {
		if n, err := q.changed(ctx, conn); err == nil {
			h.keep(conn)
			return n, nil
		}
		_ = conn.Close() // what is wrong with it shows on the next one, too
	}
	conn, err := h.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	n, err := q.changed(ctx, conn)
	if err != nil {
		return 0, errors.Join(err, conn.Close())
	}
	h.keep(conn)
	return n, nil
}

// keep stores the connection for the next beat, if there is to be one.
func (h *heart) keep(conn *sql.Conn) {
	h.mu.Lock()
	if h.conn == nil && h.members > 0 {
		h.conn, conn = conn, nil
	}
	h.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it only gives the connection back
	}
}
