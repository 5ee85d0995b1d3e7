package gormstore

import (
	"context"

	"github.com/capbus/gocap/storage"
)

// mysqlGlances is how many statements a glance takes at most, when owners appear
// that the last one did not know.
const mysqlGlances = 8

// glance: MySQL cannot hop over the living numbers in one statement, so it looks
// between those that it knew before.
func (d *mysql) glance(ctx context.Context, db querier, at glancePlace, k *known, g glancing) (sights, error) {
	for range mysqlGlances {
		all, gone := k.get()
		s, err := d.glanceBetween(at, all, gone, g).sights(ctx, db)
		if err != nil || len(g.orphans) == 0 || k.learn(s.beats, s.between) {
			return s, err
		}
	}
	return sights{Glance: storage.Glance{Orphans: true, Keys: true, Unmatched: true}}, nil
}

func (d *mysql) glanceBetween(at glancePlace, known, gone []int64, g glancing) query {
	var u union
	table := d.table(at.box)
	u.add("SELECT ?, number, beat_at, lease, beat_at + lease <= "+mysqlNow+" FROM "+d.instances+" AS i WHERE ended_at IS NULL", glanceBeat)
	for _, l := range g.own {
		where, args := d.lane(at.box, at.version, at.number, l.Group, l.Subscriber)
		u.add("SELECT ?, due_at - "+mysqlNow+", 0, 0, 0 FROM "+table+mysqlByDue+" WHERE "+where+" ORDER BY due_at LIMIT 1",
			append([]any{glanceOwn}, args...)...)
	}
	for _, owner := range append(gone, 0) {
		for _, l := range g.orphans {
			where, args := d.lane(at.box, at.version, owner, l.Group, l.Subscriber)
			u.add("SELECT ?, ?, 0, 0, 0 FROM "+table+mysqlByDue+" WHERE "+where+" AND due_at <= "+mysqlNow+" LIMIT 1",
				append([]any{glanceOrphan, owner}, args...)...)
		}
	}
	if len(g.orphans) > 0 {
		for _, r := range between(known) {
			where, args := r.condition()
			u.add("SELECT ?, free_owner, 0, 0, 0 FROM "+table+mysqlByDue+" WHERE version = ? AND "+where+" ORDER BY free_owner LIMIT 1",
				append([]any{glanceBetween, []byte(at.version)}, args...)...)
		}
	}
	for _, l := range g.keys {
		where, args := d.keyLane(at.box, at.version, l.Group, l.Subscriber)
		u.add("SELECT ?, 0, 0, 0, 0 FROM "+table+mysqlByKey+" WHERE "+where+" AND open_key > '' LIMIT 1", append([]any{glanceKey}, args...)...)
	}
	for _, group := range g.groups {
		u.add("SELECT ?, 0, 0, 0, 0 FROM "+table+mysqlByKey+
			" WHERE version = ? AND group_name = ? AND subscriber = '' AND open_key = '' AND owner IS NULL LIMIT 1",
			glanceUnmatched, []byte(at.version), []byte(group))
	}
	return u.query()
}
