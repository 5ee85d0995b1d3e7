package integration

import (
	"context"
	"errors"
	"slices"
)

func txWays() []txWay {
	return slices.Concat(commits(), rollbacks(), savepoints(), contexts(), lostOnes(), endedOnes())
}

// commits are the ways that store.
func commits() []txWay {
	return []txWay{
		{"commit", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.commit(c.Context()))
			c.stores("a")
		}},
		{"commit, then the deferred rollback", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.commit(c.Context()))
			_ = h.rollback(c.Context())
			c.stores("a")
		}},
		{"several in one", nil, func(c *txCase) {
			h := c.begin(c.Context())
			for _, part := range []string{"a", "b", "c"} {
				c.wrote(h, part)
			}
			must(c, h.commit(c.Context()))
			c.stores("a", "b", "c")
		}},
		{"committed by another goroutine", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			done := make(chan error)
			go func() { done <- h.commit(c.Context()) }()
			must(c, <-done)
			c.stores("a")
		}},
		{"a function that returns", nil, func(c *txCase) {
			must(c, c.f.within(c.Context(), func(h held) error { return c.write(h, "a") }))
			c.stores("a")
		}},
		{"commit by its text", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.exec(c.Context(), "COMMIT"))
			c.stores("a")
			if !c.f.blind {
				c.refused(h, "b")
			}
			_ = h.rollback(c.Context())
		}},
		{"commit, then a publish", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.commit(c.Context()))
			c.stores("a")
			c.refused(h, "b")
		}},
	}
}

func rollbacks() []txWay {
	return []txWay{
		{"rollback", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.rollback(c.Context()))
			c.loses("a")
		}},
		{"rollback, then a commit and a publish", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.rollback(c.Context()))
			c.fails(h.commit(c.Context()), "a commit after the rollback")
			c.loses("a")
			c.refused(h, "b")
		}},
		{"a function that fails", nil, func(c *txCase) {
			err := c.f.within(c.Context(), func(h held) error { return errors.Join(c.write(h, "a"), errRollback) })
			if !errors.Is(err, errRollback) {
				c.Errorf("the function's error is %v", err)
			}
			c.loses("a")
		}},
		{"a function that panics", nil, func(c *txCase) {
			func() {
				defer func() { _ = recover() }()
				_ = c.f.within(c.Context(), func(h held) error {
					c.wrote(h, "a")
					panic("on purpose")
				})
			}()
			c.loses("a")
		}},
		{"a panic before the deferred rollback", nil, func(c *txCase) {
			func() {
				defer func() { _ = recover() }()
				h := c.begin(c.Context())
				defer h.rollback(c.Context()) //nolint:errcheck // the row shows
				c.wrote(h, "a")
				panic("on purpose")
			}()
			c.loses("a")
		}},
		{"a function whose publish fails", nil, func(c *txCase) {
			c.fails(c.f.within(c.Context(), func(h held) error {
				return errors.Join(c.write(h, "a"), c.s.bus.Publish(c.Context(), h.tx, "", 1))
			}), "a publish without a topic")
			c.loses("a")
		}},
		{"a publish that is refused before SQL, swallowed", nil, func(c *txCase) {
			must(c, c.f.within(c.Context(), func(h held) error {
				c.fails(c.s.bus.Publish(c.Context(), h.tx, "", 1), "a publish without a topic")
				return c.write(h, "a")
			}))
			c.stores("a")
		}},
		{"rollback by its text", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.exec(c.Context(), "ROLLBACK"))
			c.loses("a")
			if !c.f.blind {
				c.refused(h, "b")
			}
			_ = h.rollback(c.Context())
		}},
	}
}

// contexts are those in which the context of something ends.
func contexts() []txWay {
	return []txWay{
		{"context ended before the publish", nil, func(c *txCase) {
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			h := c.begin(c.Context())
			must(c, c.order(ctx, h, "a"))
			cancel()
			if err := c.publish(ctx, h, "a"); !errors.Is(err, context.Canceled) {
				c.Errorf("the publish: %v", err)
			}
			must(c, h.rollback(c.Context()))
			c.loses("a")
		}},
		{"context ended before the publish, swallowed", nil, func(c *txCase) {
			ctx, cancel := context.WithCancel(c.Context())
			cancel()
			h := c.begin(c.Context())
			c.fails(c.s.bus.Publish(ctx, h.tx, "order.never", 1), "a publish whose context has ended")
			c.wrote(h, "a") // no SQL ran: the transaction goes on
			must(c, h.commit(c.Context()))
			c.stores("a")
		}},
		{"context of the transaction ends before the commit", nil, func(c *txCase) {
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			h := c.begin(ctx)
			c.wrote(h, "a")
			cancel()
			c.fails(h.commit(ctx), "the commit")
			_ = h.rollback(c.Context())
			c.loses("a")
		}},
		{"context of the transaction ends in a function", nil, func(c *txCase) {
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			c.fails(c.f.within(ctx, func(h held) error {
				c.wrote(h, "a")
				cancel()
				return nil
			}), "the function")
			c.loses("a")
		}},
		{"context of the transaction ends after the commit", nil, func(c *txCase) {
			ctx, cancel := context.WithCancel(c.Context())
			h := c.begin(ctx)
			c.wrote(h, "a")
			must(c, h.commit(ctx))
			cancel()
			c.stores("a")
		}},
		{"context of a statement ends while it runs, swallowed", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			c.interrupt(h)
			if c.s.backend == "" { // SQLite has rolled back
				c.refused(h, "b")
			} else { // the driver has closed the connection
				c.fails(c.publish(c.Context(), h, "b"), "a publish on a closed connection")
			}
			c.fails(h.commit(c.Context()), "the commit")
			_ = h.rollback(c.Context())
			c.loses("a", "b")
		}},
		{"context of the publish ends while it waits", hasServer, func(c *txCase) {
			c.publishWaits(func(ctx context.Context, h held) {
				c.fails(h.commit(ctx), "the commit")
				_ = h.rollback(ctx)
			})
		}},
		{"context of the publish ends while it waits, in a function", hasServer, func(c *txCase) {
			c.publishWaits(nil)
		}},
	}
}
