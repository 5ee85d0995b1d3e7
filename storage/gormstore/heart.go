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

	mu      sync.Mutex // before that of rooms
	members int
	room    bool      // is counted in rooms
	conn    *sql.Conn // nil: none, or it is in use
}

// heartRoom is how large a pool must be for each connection that only beats.
const heartRoom = 4

// heartRooms counts, of each pool, the stores that keep a connection: together
// they must not take all of it.
type heartRooms struct {
	mu sync.Mutex
	of map[*sql.DB]int
}

//nolint:gochecknoglobals // stores on one pool know nothing of each other
var rooms = heartRooms{of: make(map[*sql.DB]int)}

// take counts one who wants a connection, where the pool allows it, and no
// longer counts one that had it.
func (r *heartRooms) take(db *sql.DB, had, wants bool) bool {
	most := db.Stats().MaxOpenConnections
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.of[db]
	if had {
		n--
	}
	has := wants && (most == 0 || (n+1)*heartRoom <= most)
	if has {
		n++
	}
	if r.of[db] = n; n == 0 {
		delete(r.of, db)
	}
	return has
}

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
	h.mu.Lock()
	conn := h.settle()
	room := h.room
	h.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it only gives the connection back
	}
	return room
}

// settle finds out whether there is room, and returns the connection if there is
// none any more; h.mu is held.
func (h *heart) settle() (unwanted *sql.Conn) {
	if h.db == nil {
		return nil
	}
	if h.room = rooms.take(h.db, h.room, h.members > 0); !h.room {
		unwanted, h.conn = h.conn, nil
	}
	return unwanted
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
	conn := h.settle()
	h.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// close ends the keeping, whoever has not left.
func (h *heart) close() error {
	h.mu.Lock()
	h.members = -1 << 31
	conn := h.settle()
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
	if h.conn == nil && h.room {
		h.conn, conn = conn, nil
	}
	h.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it only gives the connection back
	}
}
