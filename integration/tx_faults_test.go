package integration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

func hasServer(s *site, _ *flavour) bool { return s.backend != "" }

// lostOnes lose their connection.
func lostOnes() []txWay {
	return []txWay{
		{"connection killed after the publish", hasServer, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			c.killed(h)
			c.fails(h.commit(c.Context()), "the commit")
			_ = h.rollback(c.Context())
			c.loses("a")
		}},
		{"connection killed before the publish", hasServer, func(c *txCase) {
			h := c.begin(c.Context())
			must(c, c.order(c.Context(), h, "a"))
			c.killed(h)
			c.fails(c.publish(c.Context(), h, "a"), "the publish")
			c.fails(h.commit(c.Context()), "the commit")
			_ = h.rollback(c.Context())
			c.loses("a")
		}},
		{"connection killed in a function that swallows it", hasServer, func(c *txCase) {
			c.fails(c.f.within(c.Context(), func(h held) error {
				c.wrote(h, "a")
				c.killed(h)
				_ = c.write(h, "b")
				return nil
			}), "the function")
			c.loses("a", "b")
		}},
		{"connection cut before the commit arrives", hasServer, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.exec(c.Context(), cutBefore))
			c.fails(h.commit(c.Context()), "the commit")
			_ = h.rollback(c.Context())
			c.loses("a")
		}},
		{"connection cut after the commit has arrived", hasServer, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.exec(c.Context(), cutAfter))
			c.fails(h.commit(c.Context()), "the commit")
			_ = h.rollback(c.Context())
			c.stores("a")
		}},
		{"commit refused by a constraint", func(s *site, _ *flavour) bool { return s.deferred != "" }, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.exec(c.Context(), fmt.Sprintf(c.s.deferred, c.n)))
			c.fails(h.commit(c.Context()), "the commit")
			c.loses("a")
		}},
		{"a function whose commit is refused", func(s *site, _ *flavour) bool { return s.deferred != "" }, func(c *txCase) {
			c.fails(c.f.within(c.Context(), func(h held) error {
				return errors.Join(c.write(h, "a"), h.exec(c.Context(), fmt.Sprintf(c.s.deferred, c.n)))
			}), "the function")
			c.loses("a")
		}},
	}
}

// endedOnes are ended by the server with an error that the caller swallows.
func endedOnes() []txWay {
	return []txWay{
		{"a refused statement, swallowed", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			c.fails(h.exec(c.Context(), "INSERT INTO nowhere VALUES (1)"), "a table that is not there")
			if !c.s.fragile {
				c.wrote(h, "b")
				must(c, h.commit(c.Context()))
				c.stores("a", "b")
				return
			}
			c.refused(h, "b")
			c.fails(h.commit(c.Context()), "the commit")
			_ = h.rollback(c.Context())
			c.loses("a")
		}},
		{"a refused statement before the publish, swallowed in a function", nil, func(c *txCase) {
			err := c.f.within(c.Context(), func(h held) error {
				_ = h.exec(c.Context(), "INSERT INTO nowhere VALUES (1)")
				_ = c.write(h, "a")
				return nil
			})
			if (err != nil) != c.s.fragile {
				c.Errorf("the function: %v", err)
			}
			c.expect(!c.s.fragile, []string{"a"})
		}},
		{"victim of a deadlock, swallowed", hasServer, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			c.deadlock(h)
			c.refused(h, "b")
			_ = h.commit(c.Context())
			_ = h.rollback(c.Context())
			c.loses("a")
		}},
	}
}

// interrupt lets a statement's context end while the statement runs.
func (c *txCase) interrupt(h held) {
	c.Helper()
	err := c.interrupted(h, func(ctx context.Context) error { return h.exec(ctx, c.s.slow) })
	c.fails(err, "a statement whose context ends")
}

// interrupted lets the context of do end until the transaction has ended, too:
// on a busy machine its statement may not have begun.
func (c *txCase) interrupted(h held, do func(ctx context.Context) error) error {
	for long := 20 * time.Millisecond; ; long *= 2 {
		ctx, cancel := context.WithTimeout(c.Context(), long)
		err := do(ctx)
		cancel()
		if err == nil || h.exec(c.Context(), "SELECT 1") != nil {
			return err
		}
	}
}

// killed ends the connection at the server.
func (c *txCase) killed(h held) {
	c.Helper()
	id, err := h.scan(c.Context(), c.s.backend)
	must(c, err)
	must(c, c.s.store.DB().Exec(fmt.Sprintf(c.s.kill, id)).Error)
}

// publishWaits publishes with an id that another transaction has inserted, and
// ends the context meanwhile; end ends the transaction, or a function does.
func (c *txCase) publishWaits(end func(ctx context.Context, h held)) {
	c.Helper()
	id := storage.ID(ids.New()).String()
	ahead, err := c.s.db.BeginTx(c.Context(), nil)
	must(c, err)
	defer ahead.Rollback()
	must(c, c.s.bus.Publish(c.Context(), ahead, "order.never", 1, cap.WithID(id)))
	publish := func(h held) error {
		if err := c.write(h, "a"); err != nil {
			return err
		}
		return c.interrupted(h, func(ctx context.Context) error {
			return c.s.bus.Publish(ctx, h.tx, "order.never", 2, cap.WithID(id))
		})
	}
	c.loses("a")
	if end == nil {
		c.fails(c.f.within(c.Context(), publish), "the function")
		return
	}
	h := c.begin(c.Context())
	if err := publish(h); !errors.Is(err, context.DeadlineExceeded) {
		c.Errorf("the publish that waits: %v", err)
	}
	end(c.Context(), h)
}

// deadlock makes the transaction the victim of one.
func (c *txCase) deadlock(h held) {
	c.Helper()
	ctx := c.Context()
	other, err := c.s.db.BeginTx(ctx, nil)
	must(c, err)
	defer other.Rollback()
	o := sqlHeld(other)
	lock := func(h held, row int) error {
		return h.exec(ctx, fmt.Sprintf("UPDATE locks SET v = 1 WHERE n = %d", row))
	}
	c.s.exec(c, fmt.Sprintf("INSERT INTO locks VALUES (%d, 0), (%d, 0)", c.n, c.n+1))
	for i := range 10 { // the one that has changed less is the victim, where it is not the one that looks
		must(c, o.exec(ctx, fmt.Sprintf("INSERT INTO orders VALUES ('weight %s %d')", c.id, i)))
	}
	if c.s.impatient != "" {
		must(c, h.exec(ctx, c.s.impatient))
	}
	must(c, lock(o, c.n))
	must(c, lock(h, c.n+1))
	id, err := o.scan(ctx, c.s.backend)
	must(c, err)
	done := make(chan error)
	go func() { done <- lock(o, c.n+1) }()
	if c.s.waits != "" {
		eventually(c, "the other waits", func() bool { return number(c, c.s.store.DB(), fmt.Sprintf(c.s.waits, id)) > 0 })
	}
	c.fails(lock(h, c.n), "the statement that closes the circle")
	must(c, <-done)
}
