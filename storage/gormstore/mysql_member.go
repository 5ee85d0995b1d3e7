package gormstore

import (
	"github.com/capbus/gocap/storage"
)

// lockJoin holds one row until the end of the transaction, so that of two that
// join at once the second sees the first.
func (d *mysql) lockJoin() query {
	return textOf("INSERT INTO " + d.locks + " (name, holder, held_until) VALUES ('join', 0, 0) ON DUPLICATE KEY UPDATE name = name")
}

func (d *mysql) rivals(in storage.Instance) query {
	transport, destination := placeOf(in)
	return textOf("SELECT transport, destination FROM "+d.instances+
		" WHERE box = ? AND version = ? AND ended_at IS NULL AND beat_at + lease > "+mysqlNow+
		" AND destination <> '' AND (transport <> ? OR destination <> ?) LIMIT 1",
		[]byte(in.Box.String()), []byte(in.Version), transport, destination)
}

// placeOf is where an instance sends to, in the form that is stored.
func placeOf(in storage.Instance) (transport, destination []byte) {
	return []byte(messageKey(in.Transport)), []byte(messageKey(in.Destination))
}

func (d *mysql) join(number int64, in storage.Instance) query {
	transport, destination := placeOf(in)
	return textOf("INSERT INTO "+d.instances+
		" (number, box, version, transport, destination, joined_at, beat_at, lease)"+
		" VALUES (?, ?, ?, ?, ?, "+mysqlNow+", "+mysqlNow+", ?)",
		number, []byte(in.Box.String()), []byte(in.Version), transport, destination, microsUp(in.Lease))
}

// beat changes a value even within one microsecond: the server does not count a
// row that stays as it is, and the beat would seem lost.
func (d *mysql) beat(number int64) query {
	return textOf("UPDATE "+d.instances+" SET beat_at = IF(beat_at = "+mysqlNow+", beat_at + 1, "+mysqlNow+
		") WHERE number = ? AND ended_at IS NULL", number)
}

func (d *mysql) leave(number int64) query {
	return textOf("UPDATE "+d.instances+" SET ended_at = "+mysqlNow+" WHERE number = ? AND ended_at IS NULL", number)
}

func (d *mysql) running() query {
	return textOf("SELECT number, beat_at, lease, beat_at + lease <= " + mysqlNow +
		" FROM " + d.instances + " WHERE ended_at IS NULL")
}

func (d *mysql) declareDead(b heartbeat) query {
	return textOf("UPDATE "+d.instances+" SET ended_at = "+mysqlNow+", died = 1"+
		" WHERE number = ? AND ended_at IS NULL AND (beat_at = ? OR beat_at + lease <= "+mysqlNow+")", b.number, b.beat)
}

func (d *mysql) endings(numbers []int64) query {
	return textOf("SELECT number, ended_at IS NULL, died FROM "+d.instances+
		" WHERE number IN ("+marks(len(numbers))+")", anys(numbers)...)
}

func (d *mysql) forgetInstances() query {
	return textOf("DELETE FROM " + d.instances + " WHERE ended_at <= " + mysqlNow + " - 86400000000")
}

func (d *mysql) others(b storage.Box, version string, number int64) query {
	return textOf("SELECT number FROM "+d.instances+
		" WHERE ended_at IS NULL AND box = ? AND version = ? AND number <> ?",
		[]byte(b.String()), []byte(version), number)
}

func (d *mysql) lockStates(names []string) query {
	return textOf("SELECT name, holder, held_until - "+mysqlNow+" FROM "+d.locks+
		" WHERE name IN ("+marks(len(names))+")", byteArgs(names)...)
}

// acquire: assignments take place in the order of their writing, so the second
// condition sees the new holder.
func (d *mysql) acquire(names []string, holder, ttl int64) query {
	var args []any
	for _, n := range names {
		args = append(args, []byte(n), holder, ttl)
	}
	return query{"INSERT INTO " + d.locks + " (" + lockColumns + ") VALUES " +
		tuples(len(names), "(?, ?, "+mysqlNow+" + ?)") + " ON DUPLICATE KEY UPDATE" +
		" holder = IF(holder = VALUES(holder) OR held_until <= " + mysqlNow + ", VALUES(holder), holder)," +
		" held_until = IF(holder = VALUES(holder), VALUES(held_until), held_until)", args}
}

func (d *mysql) unlock(holder int64) query {
	return textOf("DELETE FROM "+d.locks+" WHERE holder = ?", holder)
}

func byteArgs(list []string) []any {
	args := make([]any, len(list))
	for i, s := range list {
		args[i] = []byte(s)
	}
	return args
}
