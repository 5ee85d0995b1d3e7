-- Moments are microseconds since 1970 in UTC. A row is in work while due_at is
-- set, and final once expires_at is set. Unfinished rows with a key are found by
-- it, never by due_at: there may be any number of them behind one that waits.
CREATE TABLE "{prefix}published" (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  id           BLOB    NOT NULL UNIQUE,
  version      TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  ordering_key BLOB,
  status       INTEGER NOT NULL,
  retries      INTEGER NOT NULL DEFAULT 0,
  takeovers    INTEGER NOT NULL DEFAULT 0,
  due_at       INTEGER,
  owner        INTEGER,
  added_at     INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  expires_at   INTEGER,
  last_error   TEXT    NOT NULL DEFAULT '',
  headers      BLOB    NOT NULL,
  body         BLOB    NOT NULL
);

-- The rowid, seq, ends every index.
CREATE INDEX "{prefix}published_due" ON "{prefix}published" (version, owner, due_at)
  WHERE due_at IS NOT NULL AND (ordering_key IS NULL OR expires_at IS NOT NULL);
CREATE INDEX "{prefix}published_expiry" ON "{prefix}published" (version, expires_at) WHERE due_at IS NULL;
CREATE INDEX "{prefix}published_key" ON "{prefix}published" (version, ordering_key)
  WHERE ordering_key IS NOT NULL AND expires_at IS NULL;

-- The key of a message comes before UNIQUE (id): constraints are checked in
-- this order, so that a record that is stored once more is skipped by its key.
CREATE TABLE "{prefix}received" (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  id           BLOB    NOT NULL,
  version      TEXT    NOT NULL,
  group_name   TEXT    NOT NULL,
  subscriber   TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  message_id   TEXT    NOT NULL,
  ordering_key BLOB,
  status       INTEGER NOT NULL,
  retries      INTEGER NOT NULL DEFAULT 0,
  takeovers    INTEGER NOT NULL DEFAULT 0,
  due_at       INTEGER,
  owner        INTEGER,
  added_at     INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  expires_at   INTEGER,
  last_error   TEXT    NOT NULL DEFAULT '',
  headers      BLOB    NOT NULL,
  body         BLOB    NOT NULL,
  UNIQUE (version, group_name, subscriber, name, message_id),
  UNIQUE (id)
);

CREATE INDEX "{prefix}received_due" ON "{prefix}received" (version, owner, group_name, subscriber, due_at)
  WHERE due_at IS NOT NULL AND (ordering_key IS NULL OR expires_at IS NOT NULL);
CREATE INDEX "{prefix}received_expiry" ON "{prefix}received" (version, expires_at) WHERE due_at IS NULL;
CREATE INDEX "{prefix}received_unowned" ON "{prefix}received" (version, group_name, subscriber)
  WHERE owner IS NULL AND expires_at IS NULL;
CREATE INDEX "{prefix}received_key" ON "{prefix}received" (version, group_name, subscriber, ordering_key)
  WHERE ordering_key IS NOT NULL AND expires_at IS NULL;

-- Heartbeats of the owners of rows. lease is in microseconds.
CREATE TABLE "{prefix}instances" (
  number      INTEGER PRIMARY KEY,
  box         TEXT    NOT NULL,
  version     TEXT    NOT NULL,
  transport   TEXT    NOT NULL,
  destination TEXT    NOT NULL,
  joined_at   INTEGER NOT NULL,
  beat_at     INTEGER NOT NULL,
  lease       INTEGER NOT NULL,
  ended_at    INTEGER,
  died        INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX "{prefix}instances_ended" ON "{prefix}instances" (ended_at);
