package sqlqueue

import (
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
)

// errEncoding: topics are compared as the bytes that they were sent as.
var errEncoding = errors.New("the database must have encoding UTF8")

// newGeneration is no count: tables that a backup or a standby has set back, or that
// were made anew, would come to the same number again, with other groups.
const newGeneration = `(pg_catalog.random() * 9e15)::bigint`

// tables are the quoted names.
type tables struct {
	messages, deliveries, groups, bindings, receivers, state string

	prefix string // of names without a schema, such as indexes
	schema string
}

func (c Config) tables() tables {
	name := func(s string) string { return tableName(c.Schema, c.TablePrefix+"queue_"+s) }
	return tables{
		messages: name("messages"), deliveries: name("deliveries"), groups: name("groups"),
		bindings: name("bindings"), receivers: name("receivers"), state: name("state"),
		prefix: c.TablePrefix + "queue_", schema: c.Schema,
	}
}

func tableName(schema, name string) string {
	if schema == "" {
		return quote(name)
	}
	return quote(schema) + "." + quote(name)
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// SetupSQL returns the statement that makes the tables, for a user of the
// database that may not. It may be run again, and by many at once. What a service
// needs then is USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on the
// tables.
func SetupSQL(cfg Config) string { return cfg.withDefaults().tables().setup() }

// setup is one statement, because each is prepared and run by itself: the lock
// and the tables belong to one transaction. What is there is looked for in the
// catalog, so that a user without the right to make tables passes.
//
// A row of deliveries is changed once, when a receiver takes it: no index has a
// column that changes, and there is room on the page, so that this touches no
// index. The bodies stand elsewhere and are never changed.
func (t tables) setup() string {
	return `DO $gocap$
BEGIN
PERFORM pg_catalog.pg_advisory_xact_lock(` + t.lockKey() + `);
IF EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relname = '` + t.prefix + `state' AND ` + t.inSchema() + `) THEN
	RETURN;
END IF;
CREATE TABLE ` + t.messages + ` (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	topic text COLLATE "C" NOT NULL,
	message_id text COLLATE "C" NOT NULL,
	headers bytea NOT NULL,
	body bytea NOT NULL,
	groups bigint[] NOT NULL,
	added_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE TABLE ` + t.groups + ` (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version text COLLATE "C" NOT NULL,
	name text COLLATE "C" NOT NULL,
	ordered boolean NOT NULL,
	UNIQUE (version, name)
);
CREATE TABLE ` + t.bindings + ` (
	group_id bigint NOT NULL REFERENCES ` + t.groups + ` ON DELETE CASCADE,
	pattern text COLLATE "C" NOT NULL,
	PRIMARY KEY (group_id, pattern)
);
CREATE TABLE ` + t.receivers + ` (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	group_id bigint NOT NULL REFERENCES ` + t.groups + ` ON DELETE CASCADE,
	lives_until timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX ON ` + t.receivers + ` (group_id);
CREATE TABLE ` + t.deliveries + ` (
	group_id bigint NOT NULL,
	seq bigint NOT NULL,
	size integer NOT NULL,
	receiver bigint,
	due_at timestamptz,
	PRIMARY KEY (group_id, seq)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE TABLE ` + t.state + ` (generation bigint NOT NULL);
INSERT INTO ` + t.state + ` VALUES (` + newGeneration + `);
END
$gocap$`
}

func (t tables) inSchema() string {
	if t.schema == "" {
		return `pg_catalog.pg_table_is_visible(c.oid)`
	}
	return `n.nspname = '` + t.schema + `'`
}

// lockKey has the prefix of the tables in it, but not their schema, which one
// instance may name and another leave to its search_path.
func (t tables) lockKey() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte("gocap sqlqueue " + t.prefix))
	return strconv.FormatInt(int64(h.Sum64()), 10) //nolint:gosec // any bits do
}
