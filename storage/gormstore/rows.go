package gormstore

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

// The first column of a look says what a row of its answer is.
const (
	kindRow  = 0
	kindNext = 1 // the wait until the next row is due, in the place of the age
)

// reader collects the answer to a look.
type reader struct {
	recs  []*storage.Record
	next  time.Duration // until the next row is due; negative: none
	bytes int           // of headers and bodies so far
	limit int           // ends the reading when there are more; 0: none
}

// read takes the rows in, and closes them.
func (r *reader) read(rows *sql.Rows) error {
	defer rows.Close()
	for !r.full() && rows.Next() {
		if err := r.scan(rows); err != nil {
			return err
		}
	}
	if r.full() {
		return rows.Close()
	}
	return rows.Err()
}

func (r *reader) full() bool { return r.limit > 0 && r.bytes > r.limit }

// scan reads a row of the columns kind and rowColumns.
func (r *reader) scan(rows *sql.Rows) error {
	var (
		rec      storage.Record
		kind     int
		id, key  []byte
		owner    sql.NullInt64
		due, age int64
	)
	err := rows.Scan(&kind, &rec.Position.Seq, &id, &rec.Version, &rec.Topic, &owner, &rec.Headers, &rec.Body,
		&rec.Status, &rec.Retries, &rec.Takeovers, &rec.LastError, &due, &age, &rec.Final, &key,
		&rec.Group, &rec.Subscriber, &rec.MessageID)
	if err != nil {
		return err
	}
	if kind == kindNext {
		if wait := max(micros(age), 0); r.next < 0 || wait < r.next {
			r.next = wait
		}
		return nil
	}
	copy(rec.ID[:], id)
	rec.Key = string(key)
	rec.Owner = owner.Int64
	rec.Position.DueAt = time.UnixMicro(due).UTC()
	rec.Age = max(micros(age), 0)
	r.bytes += len(rec.Headers) + len(rec.Body)
	r.recs = append(r.recs, &rec)
	return nil
}

// ids notes the ids that a statement answers with.
func (q query) ids(ctx context.Context, db querier, into idSet) error {
	var b []byte
	return q.each(ctx, db, func(rows *sql.Rows) error {
		if err := rows.Scan(&b); err != nil {
			return err
		}
		into[storage.ID(b)] = true
		return nil
	})
}

func micros(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}

// bytesOf makes an empty value of a missing one: the columns are NOT NULL.
func bytesOf(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// keyOf makes NULL of no key.
func keyOf(key string) any {
	if key == "" {
		return nil
	}
	return []byte(key)
}

// keyed reports whether a record has a key. A statement names the column only
// then: publishing without keys costs what it did.
func keyed(recs []*storage.Record) bool {
	return slices.ContainsFunc(recs, func(r *storage.Record) bool { return r.Key != "" })
}

// ownerOf makes NULL of nobody.
func ownerOf(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}
