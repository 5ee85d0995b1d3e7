package integration

import "errors"

func nests(_ *site, f *flavour) bool { return f.nests }

func savepoints() []txWay {
	return []txWay{
		{"nested", nests, func(c *txCase) {
			must(c, c.f.within(c.Context(), func(h held) error {
				c.wrote(h, "a")
				return h.nest(c.Context(), func(in held) error { return c.write(in, "b") })
			}))
			c.stores("a", "b")
		}},
		{"nested rolled back", nests, func(c *txCase) {
			must(c, c.f.within(c.Context(), func(h held) error {
				c.wrote(h, "a")
				err := h.nest(c.Context(), func(in held) error { return errors.Join(c.write(in, "b"), errRollback) })
				c.fails(err, "the inner function")
				return c.write(h, "c")
			}))
			c.stores("a", "c")
			c.expect(c.f.flat, []string{"b"})
		}},
		{"nested panics", nests, func(c *txCase) {
			must(c, c.f.within(c.Context(), func(h held) error {
				c.wrote(h, "a")
				func() {
					defer func() { _ = recover() }()
					_ = h.nest(c.Context(), func(in held) error {
						c.wrote(in, "b")
						panic("on purpose")
					})
				}()
				return c.write(h, "c")
			}))
			c.stores("a", "c")
			c.expect(c.f.flat, []string{"b"})
		}},
		{"nested kept, the outer one rolled back", nests, func(c *txCase) {
			c.fails(c.f.within(c.Context(), func(h held) error {
				return errors.Join(h.nest(c.Context(), func(in held) error { return c.write(in, "a") }), errRollback)
			}), "the outer function")
			c.loses("a")
		}},
		{"nested twice", nests, func(c *txCase) {
			must(c, c.f.within(c.Context(), func(h held) error {
				return h.nest(c.Context(), func(in held) error {
					c.wrote(in, "a")
					err := in.nest(c.Context(), func(in held) error { return errors.Join(c.write(in, "b"), errRollback) })
					c.fails(err, "the innermost function")
					return in.nest(c.Context(), func(in held) error { return c.write(in, "c") })
				})
			}))
			c.stores("a", "c")
			c.expect(c.f.flat, []string{"b"})
		}},
		{"only what is nested, rolled back", nests, func(c *txCase) {
			must(c, c.f.within(c.Context(), func(h held) error {
				_ = h.nest(c.Context(), func(in held) error { return errors.Join(c.write(in, "a"), errRollback) })
				return nil
			}))
			c.expect(c.f.flat, []string{"a"})
		}},
		{"savepoint rolled back", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.savepoint(c.Context(), "here"))
			c.wrote(h, "b")
			must(c, h.rollbackTo(c.Context(), "here"))
			c.wrote(h, "c")
			must(c, h.commit(c.Context()))
			c.stores("a", "c")
			c.loses("b")
		}},
		{"savepoint released", nil, func(c *txCase) {
			h := c.begin(c.Context())
			must(c, h.savepoint(c.Context(), "here"))
			c.wrote(h, "a")
			must(c, h.exec(c.Context(), "RELEASE SAVEPOINT here"))
			must(c, h.commit(c.Context()))
			c.stores("a")
		}},
		{"a refused statement behind a savepoint", nil, func(c *txCase) {
			h := c.begin(c.Context())
			c.wrote(h, "a")
			must(c, h.savepoint(c.Context(), "here"))
			c.fails(h.exec(c.Context(), "INSERT INTO nowhere VALUES (1)"), "a table that is not there")
			must(c, h.rollbackTo(c.Context(), "here"))
			c.wrote(h, "b")
			must(c, h.commit(c.Context()))
			c.stores("a", "b")
		}},
	}
}
