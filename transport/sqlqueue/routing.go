package sqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/capbus/gocap/transport"
)

// maxRoutes bounds the topics whose groups are remembered.
const maxRoutes = 10_000

// routing remembers which groups take what, of each version. Every statement that
// sends compares the generation, so that nothing is sent by what is not so any
// more: patterns are matched here alone, by transport.Match.
type routing struct {
	mu       sync.Mutex
	versions map[string]*routes
}

// routes are the bindings of one generation. It is guarded by routing.mu.
type routes struct {
	generation int64
	bindings   []binding
	topics     map[string][]int64 // resolved
}

type binding struct {
	group   int64
	pattern string
}

// routesOf returns the remembered groups of each message, or reads the bindings
// first, if none are remembered or fresh ones are asked for.
func (c *core) routesOf(ctx context.Context, version string, msgs []*transport.Message, fresh bool) ([][]int64, int64, error) {
	if !fresh {
		if groups, generation, ok := c.routing.resolve(version, msgs); ok {
			return groups, generation, nil
		}
	}
	read, err := c.readRoutes(ctx, version)
	if err != nil {
		return nil, 0, err
	}
	c.routing.keep(version, read)
	groups, generation, _ := c.routing.resolve(version, msgs)
	return groups, generation, nil
}

func (r *routing) keep(version string, read *routes) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.versions == nil {
		r.versions = map[string]*routes{}
	}
	r.versions[version] = read
}

func (r *routing) resolve(version string, msgs []*transport.Message) ([][]int64, int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rs := r.versions[version]
	if rs == nil {
		return nil, 0, false
	}
	groups := make([][]int64, len(msgs))
	for i, m := range msgs {
		groups[i] = rs.resolve(m.Topic)
	}
	return groups, rs.generation, true
}

func (rs *routes) resolve(topic string) []int64 {
	if groups, there := rs.topics[topic]; there {
		return groups
	}
	var groups []int64
	for _, b := range rs.bindings { // in the order of groups
		if n := len(groups); (n == 0 || groups[n-1] != b.group) && transport.Match(b.pattern, topic) {
			groups = append(groups, b.group)
		}
	}
	if len(rs.topics) >= maxRoutes {
		clear(rs.topics)
	}
	rs.topics[topic] = groups
	return groups
}

// readRoutes reads generation and bindings in one statement, so that they belong
// together.
func (c *core) readRoutes(ctx context.Context, version string) (*routes, error) {
	rs := &routes{topics: map[string][]int64{}}
	return rs, c.each(ctx, func(scan func(...any) error) error {
		var group sql.NullInt64
		var pattern sql.NullString
		err := scan(&rs.generation, &group, &pattern)
		if group.Valid {
			rs.bindings = append(rs.bindings, binding{group.Int64, pattern.String})
		}
		return err
	}, `SELECT s.generation, b.group_id, b.pattern FROM `+c.tables.state+` s LEFT JOIN (`+
		c.tables.bindings+` b JOIN `+c.tables.groups+` g ON g.id = b.group_id) ON g.version = $1 ORDER BY b.group_id`, version)
}

// generation is that of the bindings now.
func (c *core) generation(ctx context.Context) (int64, error) {
	n, err := c.column(ctx, `SELECT generation FROM `+c.tables.state)
	if err == nil && len(n) != 1 {
		err = fmt.Errorf("table %s has %d rows, 1 is needed", c.tables.state, len(n))
	}
	if err != nil {
		return 0, err
	}
	return n[0], nil
}

// group is a row of groups.
type group struct {
	id      int64
	ordered bool
}

// Declare makes a group and its patterns known: it gets what is sent from then on.
func (t *Transport) Declare(ctx context.Context, src transport.Source) error {
	_, err := t.declare(ctx, src)
	return err
}

func (t *Transport) declare(ctx context.Context, src transport.Source) (group, error) {
	if err := checkSource(src); err != nil {
		return group{}, err
	}
	if err := t.ready(ctx); err != nil {
		return group{}, err
	}
	g, err := t.find(ctx, src)
	if errors.Is(err, sql.ErrNoRows) {
		if err = t.change(ctx, func(exec func(string, ...any) error) error { return t.add(exec, src) }); err == nil {
			g, err = t.find(ctx, src)
		}
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = unavailable(fmt.Errorf("group %q was dropped while it was declared", src.Group))
	}
	return g, lasting(err)
}

// find returns the group if it has all that the source asks for, or ErrNoRows.
func (t *Transport) find(ctx context.Context, src transport.Source) (group, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
	defer cancel()
	var g group
	err := t.db.QueryRowContext(ctx, `SELECT id, ordered FROM `+t.tables.groups+` g WHERE version = $1 AND name = $2 AND (ordered OR NOT $3)
	AND NOT EXISTS (SELECT FROM unnest($4::text[]) AS p WHERE NOT EXISTS (
		SELECT FROM `+t.tables.bindings+` b WHERE b.group_id = g.id AND b.pattern = p))`,
		unprepared([]any{t.version, src.Group, src.Ordered, topics(src)})...).Scan(&g.id, &g.ordered)
	return g, t.failed(err)
}

// add makes the group, or adds to it.
func (t *Transport) add(exec func(string, ...any) error, src transport.Source) error {
	err := exec(`INSERT INTO `+t.tables.groups+` AS g (version, name, ordered) VALUES ($1, $2, $3)
	ON CONFLICT (version, name) DO UPDATE SET ordered = g.ordered OR excluded.ordered`, t.version, src.Group, src.Ordered)
	if err != nil {
		return err
	}
	return exec(`INSERT INTO `+t.tables.bindings+` (group_id, pattern)
	SELECT g.id, p FROM `+t.tables.groups+` g, unnest($3::text[]) AS p WHERE g.version = $1 AND g.name = $2 ON CONFLICT DO NOTHING`,
		t.version, src.Group, topics(src))
}

// topics is never nil, which would be NULL.
func topics(src transport.Source) []string { return append([]string{}, src.Topics...) }

// Unbind takes patterns away from a group, which a start never does: an instance
// cannot know what others of the group subscribe to. Messages that the group has
// already stay.
func (t *Transport) Unbind(ctx context.Context, group string, patterns ...string) error {
	return t.remove(ctx, `DELETE FROM `+t.tables.bindings+` b USING `+t.tables.groups+` g
	WHERE b.group_id = g.id AND g.version = $1 AND g.name = $2 AND b.pattern = ANY ($3::text[])`, t.version, group, append([]string{}, patterns...))
}

// DropGroup forgets a group. What it has not taken is deleted little by little,
// while receivers of other groups run. A receiver of it that runs is lost, and
// makes the group anew.
func (t *Transport) DropGroup(ctx context.Context, group string) error {
	return t.remove(ctx, `DELETE FROM `+t.tables.groups+` WHERE version = $1 AND name = $2`, t.version, group)
}

func (t *Transport) remove(ctx context.Context, query string, args ...any) error {
	if err := t.ready(ctx); err != nil {
		return err
	}
	return lasting(t.change(ctx, func(exec func(string, ...any) error) error { return exec(query, args...) }))
}
