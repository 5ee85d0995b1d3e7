package memstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"

	"github.com/capbus/gocap/storage"
)

// row is a row of a table. Of its record, Position and Age are made when it is
// read.
type row struct {
	storage.Record
	seq     int64
	added   time.Duration
	open    bool          // due_at is set: there is something to do
	due     time.Duration // if open
	expires time.Duration // if Final
}

type laneKey struct{ version, group, subscriber string }

type groupKey struct{ version, group string }

// inboxKey is what makes an inbox record one and the same.
type inboxKey struct{ version, group, subscriber, topic, message string }

// table is one box. Everything is reached through an index that holds just the
// rows it is for, so that finished rows cost a look nothing.
type table struct {
	inbox    bool
	rows     map[storage.ID]*row
	peak     int // most rows since the maps were made
	seq      int64
	keys     map[inboxKey]*row             // inbox
	lanes    map[laneKey]map[int64]*order  // open rows by owner, by due time; not those in keyed
	keyed    map[laneKey]map[string]*order // unfinished rows with a key, by seq
	waiting  map[groupKey]*order           // inbox: unmatched rows, by seq
	expiring map[string]*order             // by version: what Purge may delete, by expiry
}

func newTable(inbox bool) *table {
	return &table{
		inbox:    inbox,
		rows:     map[storage.ID]*row{},
		keys:     map[inboxKey]*row{},
		lanes:    map[laneKey]map[int64]*order{},
		keyed:    map[laneKey]map[string]*order{},
		waiting:  map[groupKey]*order{},
		expiring: map[string]*order{},
	}
}

// newRow makes a row of what the caller sets in a record. The bytes are copied,
// so that the caller may do with his as he likes.
func (t *table) newRow(rec *storage.Record, now time.Duration) *row {
	t.seq++
	return &row{
		Record: storage.Record{
			ID: rec.ID, Version: rec.Version, Topic: rec.Topic, Owner: rec.Owner,
			Headers: bytes.Clone(rec.Headers), Body: bytes.Clone(rec.Body),
			Group: rec.Group, Subscriber: rec.Subscriber, MessageID: rec.MessageID,
			Key: rec.Key,
		},
		seq: t.seq, added: now, open: true, due: now,
	}
}

func (r *row) size() int { return len(r.Headers) + len(r.Body) }

func (r *row) lane() laneKey { return laneKey{r.Version, r.Group, r.Subscriber} }

func (r *row) group() groupKey { return groupKey{r.Version, r.Group} }

func (r *row) key() inboxKey {
	return inboxKey{r.Version, r.Group, r.Subscriber, r.Topic, r.MessageID}
}

// finish makes a row final. With a callback owed it stays its owner's and due.
func (r *row) finish(st storage.Status, now, keep time.Duration, callback bool) {
	r.Status, r.Final, r.expires = st, true, plus(now, keep)
	r.open, r.due = callback, now
	if !callback {
		r.Owner = 0
	}
}

// insert adds a row that is in no index yet.
func (t *table) insert(r *row) {
	t.rows[r.ID] = r
	t.peak = max(t.peak, len(t.rows))
	if t.inbox {
		t.keys[r.key()] = r
	}
	t.index(r)
}

func (t *table) remove(r *row) {
	t.unindex(r)
	delete(t.rows, r.ID)
	if t.keys[r.key()] == r {
		delete(t.keys, r.key())
	}
}

// change lets f write to a row that is in the table.
func (t *table) change(r *row, f func()) {
	t.unindex(r)
	f()
	t.index(r)
}

func (t *table) index(r *row) {
	if r.inOrder() {
		keys := t.keyed[r.lane()]
		if keys == nil {
			keys = map[string]*order{}
			t.keyed[r.lane()] = keys
		}
		into(keys, r.Key).insert(pos{seq: r.seq}, r)
	} else if r.open {
		owners := t.lanes[r.lane()]
		if owners == nil {
			owners = map[int64]*order{}
			t.lanes[r.lane()] = owners
		}
		into(owners, r.Owner).insert(pos{r.due, r.seq}, r)
	} else if r.Final {
		into(t.expiring, r.Version).insert(pos{r.expires, r.seq}, r)
	}
	if t.unmatched(r) {
		into(t.waiting, r.group()).insert(pos{seq: r.seq}, r)
	}
}

func (t *table) unindex(r *row) {
	if r.inOrder() {
		keys := t.keyed[r.lane()]
		from(keys, r.Key, pos{seq: r.seq})
		if len(keys) == 0 {
			delete(t.keyed, r.lane())
		}
	} else if r.open {
		owners := t.lanes[r.lane()]
		from(owners, r.Owner, pos{r.due, r.seq})
		if len(owners) == 0 {
			delete(t.lanes, r.lane())
		}
	} else if r.Final {
		from(t.expiring, r.Version, pos{r.expires, r.seq})
	}
	if t.unmatched(r) {
		from(t.waiting, r.group(), pos{seq: r.seq})
	}
}

// inOrder says that a row waits for those before it that have its key.
func (r *row) inOrder() bool { return r.Key != "" && !r.Final }

// unmatched says that a row of the inbox waits for its subscriptions.
func (t *table) unmatched(r *row) bool { return t.inbox && r.Subscriber == "" && !r.Final }

// shrink gives the memory of deleted entries back, which a map keeps.
func (t *table) shrink() {
	if t.peak < 4096 || len(t.rows) > t.peak/4 {
		return
	}
	t.peak = len(t.rows)
	t.rows = rebuilt(t.rows)
	t.keys = rebuilt(t.keys)
}

func rebuilt[K comparable](m map[K]*row) map[K]*row {
	c := make(map[K]*row, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func into[K comparable](m map[K]*order, k K) *order {
	o := m[k]
	if o == nil {
		o = &order{}
		m[k] = o
	}
	return o
}

// from removes what is at p, and the order with its last row.
func from[K comparable](m map[K]*order, k K, p pos) {
	o := m[k]
	o.remove(p)
	if o.count == 0 {
		delete(m, k)
	}
}

// read makes the record that a reader gets.
func (s *Store) read(r *row, now time.Duration) *storage.Record {
	rec := r.Record
	rec.Position.Seq = r.seq
	if r.open {
		rec.Position.DueAt = s.instant(r.due)
	}
	rec.Age = now - r.added
	return &rec
}

// maxMessageID is the longest message id that is kept as it came.
const maxMessageID = 255

func messageKey(id string) string {
	if len(id) <= maxMessageID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// plus adds durations without overflow.
func plus(a, b time.Duration) time.Duration {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	default:
		return sum
	}
}
