-- A row is in work while due_at is set, and final once expires_at is set.
-- Unfinished rows with a key are found by it, never by due_at: there may be any
-- number of them behind one that waits.
--
-- A look passes by what settled rows have left in the index on due times until a
-- VACUUM. The default would leave a fifth of all rows there, retained ones
-- counted.
CREATE TABLE {schema}"{prefix}published" (
  seq          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id           uuid        NOT NULL UNIQUE,
  owner        bigint,
  due_at       timestamptz,
  added_at     timestamptz NOT NULL,
  updated_at   timestamptz NOT NULL,
  expires_at   timestamptz,
  retries      integer     NOT NULL DEFAULT 0,
  takeovers    smallint    NOT NULL DEFAULT 0,
  status       smallint    NOT NULL,
  version      text        COLLATE "C" NOT NULL,
  name         text        COLLATE "C" NOT NULL,
  ordering_key bytea,
  last_error   text        NOT NULL DEFAULT '',
  headers      bytea       NOT NULL,
  body         bytea       NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX "{prefix}published_due" ON {schema}"{prefix}published" (version, owner, due_at, seq)
  WHERE due_at IS NOT NULL AND (ordering_key IS NULL OR expires_at IS NOT NULL);
CREATE INDEX "{prefix}published_expiry" ON {schema}"{prefix}published" (version, expires_at)
  WHERE due_at IS NULL;
CREATE INDEX "{prefix}published_key" ON {schema}"{prefix}published" (version, ordering_key, seq)
  WHERE ordering_key IS NOT NULL AND expires_at IS NULL;

-- message_id is whatever a broker delivered.
CREATE TABLE {schema}"{prefix}received" (
  seq          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id           uuid        NOT NULL UNIQUE,
  owner        bigint,
  due_at       timestamptz,
  added_at     timestamptz NOT NULL,
  updated_at   timestamptz NOT NULL,
  expires_at   timestamptz,
  retries      integer     NOT NULL DEFAULT 0,
  takeovers    smallint    NOT NULL DEFAULT 0,
  status       smallint    NOT NULL,
  version      text        COLLATE "C" NOT NULL,
  group_name   text        COLLATE "C" NOT NULL,
  subscriber   text        COLLATE "C" NOT NULL,
  name         text        COLLATE "C" NOT NULL,
  message_id   bytea       NOT NULL,
  ordering_key bytea,
  last_error   text        NOT NULL DEFAULT '',
  headers      bytea       NOT NULL,
  body         bytea       NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE UNIQUE INDEX "{prefix}received_message" ON {schema}"{prefix}received"
  (version, group_name, subscriber, name, message_id);
CREATE INDEX "{prefix}received_due" ON {schema}"{prefix}received" (version, owner, group_name, subscriber, due_at, seq)
  WHERE due_at IS NOT NULL AND (ordering_key IS NULL OR expires_at IS NOT NULL);
CREATE INDEX "{prefix}received_expiry" ON {schema}"{prefix}received" (version, expires_at)
  WHERE due_at IS NULL;
CREATE INDEX "{prefix}received_unowned" ON {schema}"{prefix}received" (version, group_name, subscriber, seq)
  WHERE owner IS NULL AND expires_at IS NULL;
CREATE INDEX "{prefix}received_key" ON {schema}"{prefix}received" (version, group_name, subscriber, ordering_key, seq)
  WHERE ordering_key IS NOT NULL AND expires_at IS NULL;

-- Heartbeats of the owners of rows. lease is in microseconds.
CREATE TABLE {schema}"{prefix}instances" (
  number      bigint      PRIMARY KEY,
  box         text        NOT NULL,
  version     text        COLLATE "C" NOT NULL,
  transport   text        NOT NULL,
  destination text        NOT NULL,
  joined_at   timestamptz NOT NULL,
  beat_at     timestamptz NOT NULL,
  lease       bigint      NOT NULL,
  ended_at    timestamptz,
  died        boolean     NOT NULL DEFAULT false
);

CREATE INDEX "{prefix}instances_ended" ON {schema}"{prefix}instances" (ended_at);
