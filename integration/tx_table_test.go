package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

// The table of transactions: on each database, in each form that a transaction
// has in the libraries (flavour), each way to end it (txWay). A row of the
// application's own is written with each message; where one is, the other must
// be, and a running bus delivers just those messages, long before its poll.

// txWay is a way to end a transaction.
type txWay struct {
	name string
	on   func(s *site, f *flavour) bool // nil: everywhere
	run  func(c *txCase)
}

// txCase is one run of a way.
type txCase struct {
	testing.TB

	s     *site
	f     *flavour
	id    string
	n     int             // unlike that of any other case of the database
	want  map[string]bool // by part: whether it is stored
	over  time.Time
	parts []string // published, or tried to
}

// promptly bounds the time from the end of a transaction to the handler, on a
// machine with much else to do; the next poll is a minute away.
const promptly = 3 * time.Second

// TestTransactions is the table.
func TestTransactions(t *testing.T) {
	t.Parallel()
	for _, db := range databases() {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			s := db.make(t)
			s.serve(t)
			t.Run("flavours", func(t *testing.T) { // ends before the site does
				for i, f := range s.flavours(t) {
					t.Run(f.name, func(t *testing.T) {
						t.Parallel()
						runWays(t, s, f, i)
					})
				}
			})
		})
	}
}

func runWays(t *testing.T, s *site, f *flavour, at int) {
	t.Helper()
	var cases []*txCase
	for i, w := range txWays() {
		if w.on != nil && !w.on(s, f) {
			continue
		}
		t.Run(w.name, func(t *testing.T) { // in turn: a flavour may have one connection
			c := &txCase{TB: t, s: s, f: f, id: fmt.Sprintf("%d-%d", at, i), n: 1000*at + 10*i, want: map[string]bool{}}
			w.run(c)
			c.over = time.Now()
			c.rows()
			cases = append(cases, c)
			if t.Failed() {
				t.FailNow()
			}
		})
	}
	for _, c := range cases {
		c.TB = t
		c.delivered()
	}
	t.Logf("%s: %d ways, slowest delivery %s", f.name, len(cases), s.slowest(cases))
}

func (c *txCase) topic(part string) string { return "order." + c.id + part }

// order writes the application's own row.
func (c *txCase) order(ctx context.Context, h held, part string) error {
	return h.exec(ctx, "INSERT INTO orders VALUES ('"+c.id+part+"')")
}

func (c *txCase) publish(ctx context.Context, h held, part string) error {
	c.parts = append(c.parts, part)
	return c.s.bus.Publish(ctx, h.tx, c.topic(part), order{c.id + part})
}

// write is what an application does in a transaction: its own row and the
// message.
func (c *txCase) write(h held, part string) error {
	if err := c.order(c.Context(), h, part); err != nil {
		c.parts = append(c.parts, part)
		return err
	}
	return c.publish(c.Context(), h, part)
}

// wrote is write where it must succeed.
func (c *txCase) wrote(h held, part string) {
	c.Helper()
	must(c, c.write(h, part))
}

func (c *txCase) begin(ctx context.Context) held {
	c.Helper()
	h, err := c.f.begin(ctx)
	must(c, err)
	return h
}

func (c *txCase) stores(parts ...string) { c.expect(true, parts) }
func (c *txCase) loses(parts ...string)  { c.expect(false, parts) }

func (c *txCase) expect(stored bool, parts []string) {
	for _, p := range parts {
		c.want[p] = stored
	}
}

// refused publishes once more, in a transaction that has ended: the error says
// so, and nothing is stored.
func (c *txCase) refused(h held, part string) {
	c.Helper()
	c.loses(part)
	if err := c.publish(c.Context(), h, part); !errors.Is(err, storage.ErrTxDone) {
		c.Errorf("a publish in what has ended: %v, want ErrTxDone", err)
	}
}

func (c *txCase) fails(err error, what string) {
	c.Helper()
	if err == nil {
		c.Errorf("%s: no error", what)
	}
}

// rows compares what is in the tables with what must be.
func (c *txCase) rows() {
	c.Helper()
	for _, part := range c.parts {
		want, said := c.want[part]
		if !said {
			c.Errorf("%q: the way does not say what becomes of it", part)
		}
		orders, published := c.s.count("orders", "id", c.id+part), c.s.count("cap_published", "name", c.topic(part))
		if (orders > 0) != want || published != orders {
			c.Errorf("%q: %d orders and %d messages; stored should be %t", part, orders, published, want)
		}
	}
}

// delivered waits for the messages that must be handled, and looks for others.
func (c *txCase) delivered() {
	c.Helper()
	for _, part := range c.parts {
		if c.want[part] {
			eventually(c, c.topic(part)+" is handled", func() bool { return len(c.s.handled.of(c.topic(part))) > 0 })
		}
		at := c.s.handled.of(c.topic(part))
		switch {
		case !c.want[part] && len(at) > 0:
			c.Errorf("%s: a message of what was rolled back was handled", c.topic(part))
		case len(at) > 1:
			c.Errorf("%s: handled %d times", c.topic(part), len(at))
		case len(at) == 1 && at[0].Sub(c.over) > promptly:
			c.Errorf("%s: handled after %s", c.topic(part), at[0].Sub(c.over))
		}
	}
}

// arrivals notes when handlers got what.
type arrivals struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func (a *arrivals) add(topic string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil {
		a.at = map[string][]time.Time{}
	}
	a.at[topic] = append(a.at[topic], time.Now())
}

func (a *arrivals) of(topic string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at[topic]
}

func (s *site) slowest(cases []*txCase) (most time.Duration) {
	for _, c := range cases {
		for _, part := range c.parts {
			for _, at := range s.handled.of(c.topic(part)) {
				most = max(most, at.Sub(c.over))
			}
		}
	}
	return most.Round(time.Millisecond)
}

// count reads beside all transactions.
func (s *site) count(table, column, value string) int {
	return number(s.tb, s.store.DB().Session(&gorm.Session{NewDB: true}),
		"SELECT count(*) FROM "+table+" WHERE "+column+" = '"+strings.ReplaceAll(value, "'", "''")+"'")
}
