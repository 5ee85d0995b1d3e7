package gormstore

import (
	"context"
	"database/sql"

	"github.com/capbus/gocap/storage"
)

// waiting takes a statement for each owner, group and subscriber: MySQL cannot
// hop in one.
func (d *mysql) waiting(ctx context.Context, db querier, b storage.Box, version string, most int) ([]firstRow, error) {
	columns, names := []string{"free_owner"}, "'', ''"
	at := []any{int64(-1)}
	if b == storage.Inbox {
		columns, names = []string{"free_owner", "group_name", "subscriber"}, "group_name, subscriber"
		at = []any{int64(-1), []byte{}, []byte{}}
	}
	order := ""
	for _, c := range columns {
		order += c + ", "
	}
	var firsts []firstRow
	for {
		behind, args := mysqlBehind(columns, at)
		var f firstRow
		var owner int64
		var subscriber string
		found := false
		err := textOf("SELECT free_owner, "+names+", due_at - "+mysqlNow+", "+mysqlNow+" - added_at, status FROM "+d.table(b)+mysqlByDue+
			" WHERE version = ? AND "+behind+" ORDER BY "+order+"due_at, seq LIMIT 1", append([]any{[]byte(version)}, args...)...).
			each(ctx, db, func(rows *sql.Rows) error {
				found = true
				return rows.Scan(&owner, &f.group, &subscriber, &f.in, &f.age, &f.status)
			})
		if err != nil || !found {
			return firsts, err
		}
		if b == storage.Inbox && owner == 0 && subscriber == "" {
			if f.unmatched, err = d.countUnmatched(ctx, db, version, f.group, most); err != nil {
				return nil, err
			}
		}
		firsts = append(firsts, f)
		at = []any{owner, []byte(f.group), []byte(subscriber)}[:len(columns)]
	}
}

func (d *mysql) countUnmatched(ctx context.Context, db querier, version, group string, most int) (int, error) {
	n, err := readAll[int](ctx, db, textOf("SELECT count(*) FROM (SELECT 1 FROM "+d.received+mysqlByKey+
		" WHERE version = ? AND group_name = ? AND subscriber = '' AND open_key = '' AND owner IS NULL LIMIT ?) AS few",
		[]byte(version), []byte(group), most))
	if err != nil {
		return 0, err
	}
	return n[0], nil
}

func (d *mysql) versions(ctx context.Context, db querier, b storage.Box, most int) ([]storage.VersionRows, error) {
	in, err := d.apart(ctx, db, b, "")
	if err != nil {
		return nil, err
	}
	var list []storage.VersionRows
	count := func(version, rows string, args ...any) error {
		found, err := textOf("SELECT n.version, n.few, EXISTS (SELECT 1 FROM "+d.instances+
			" WHERE box = ? AND version = n.version AND ended_at IS NULL AND beat_at + lease > "+mysqlNow+
			") FROM (SELECT CAST(? AS BINARY) AS version, count(*) AS few FROM ("+rows+" LIMIT ?) AS f WHERE f.counts) AS n WHERE n.few > 0",
			append(append([]any{[]byte(b.String()), []byte(version)}, args...), most)...).versionRows(ctx, db)
		list = append(list, found...)
		return err
	}
	for _, v := range in.versions {
		if err := count(v, "SELECT TRUE AS counts FROM "+d.table(b)+mysqlByDue+" WHERE version = ? AND free_owner >= 0", []byte(v)); err != nil {
			return nil, err
		}
	}
	for _, l := range in.lanes {
		where, args := d.inLanes(b, []keyedLane{l})
		if err := count(l.version, "SELECT ordering_key IS NOT NULL AS counts FROM "+d.table(b)+mysqlByKey+" WHERE "+where, args...); err != nil {
			return nil, err
		}
	}
	return list, nil
}
