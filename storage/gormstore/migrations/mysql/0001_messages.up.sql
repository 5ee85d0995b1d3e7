-- Moments are microseconds since 1970 in UTC. A row is in work while due_at is
-- set, and final once expires_at is set. Names are bytes, compared as such.
--
-- An index of MySQL has all rows in it. Looks go by generated columns that are
-- NULL in the rows that they are not for, so that those lie outside of every
-- range: free_owner in rows that are not due, or wait for their key's turn,
-- open_key in rows that are final, or have no key.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}published` (
  seq          BIGINT         NOT NULL AUTO_INCREMENT,
  id           BINARY(16)     NOT NULL,
  version      VARBINARY(20)  NOT NULL,
  name         VARBINARY(255) NOT NULL,
  ordering_key VARBINARY(255) NULL,
  status       SMALLINT       NOT NULL,
  retries      INT            NOT NULL DEFAULT 0,
  takeovers    INT            NOT NULL DEFAULT 0,
  due_at       BIGINT         NULL,
  owner        BIGINT         NULL,
  added_at     BIGINT         NOT NULL,
  updated_at   BIGINT         NOT NULL,
  expires_at   BIGINT         NULL,
  free_owner   BIGINT         GENERATED ALWAYS AS (IF(due_at IS NULL OR (ordering_key IS NOT NULL AND expires_at IS NULL), NULL, COALESCE(owner, 0))) STORED,
  open_key     VARBINARY(255) GENERATED ALWAYS AS (IF(expires_at IS NULL, ordering_key, NULL)) STORED,
  size         BIGINT         NOT NULL,
  last_error   VARBINARY(4096) NOT NULL DEFAULT '',
  headers      LONGBLOB       NOT NULL,
  body         LONGBLOB       NOT NULL,
  PRIMARY KEY (seq),
  UNIQUE KEY by_id (id),
  KEY by_due (version, free_owner, due_at, seq),
  KEY by_expiry (version, expires_at),
  KEY by_key (version, open_key, seq)
) ENGINE=InnoDB DEFAULT CHARACTER SET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

-- The open_key of a row that no subscription matched is empty until one does.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}received` (
  seq          BIGINT         NOT NULL AUTO_INCREMENT,
  id           BINARY(16)     NOT NULL,
  version      VARBINARY(20)  NOT NULL,
  group_name   VARBINARY(255) NOT NULL,
  subscriber   VARBINARY(255) NOT NULL,
  name         VARBINARY(255) NOT NULL,
  message_id   VARBINARY(255) NOT NULL,
  ordering_key VARBINARY(255) NULL,
  status       SMALLINT       NOT NULL,
  retries      INT            NOT NULL DEFAULT 0,
  takeovers    INT            NOT NULL DEFAULT 0,
  due_at       BIGINT         NULL,
  owner        BIGINT         NULL,
  added_at     BIGINT         NOT NULL,
  updated_at   BIGINT         NOT NULL,
  expires_at   BIGINT         NULL,
  free_owner   BIGINT         GENERATED ALWAYS AS (IF(due_at IS NULL OR (ordering_key IS NOT NULL AND expires_at IS NULL), NULL, COALESCE(owner, 0))) STORED,
  open_key     VARBINARY(255) GENERATED ALWAYS AS (IF(expires_at IS NULL, IF(subscriber = '', '', ordering_key), NULL)) STORED,
  size         BIGINT         NOT NULL,
  last_error   VARBINARY(4096) NOT NULL DEFAULT '',
  headers      LONGBLOB       NOT NULL,
  body         LONGBLOB       NOT NULL,
  PRIMARY KEY (seq),
  UNIQUE KEY by_message (version, group_name, subscriber, name, message_id),
  UNIQUE KEY by_id (id),
  KEY by_due (version, free_owner, group_name, subscriber, due_at, seq),
  KEY by_expiry (version, expires_at),
  KEY by_key (version, group_name, subscriber, open_key, seq)
) ENGINE=InnoDB DEFAULT CHARACTER SET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

-- Heartbeats of the owners of rows. lease is in microseconds.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}instances` (
  number      BIGINT         NOT NULL,
  box         VARBINARY(20)  NOT NULL,
  version     VARBINARY(20)  NOT NULL,
  transport   VARBINARY(255) NOT NULL,
  destination VARBINARY(255) NOT NULL,
  joined_at   BIGINT         NOT NULL,
  beat_at     BIGINT         NOT NULL,
  lease       BIGINT         NOT NULL,
  ended_at    BIGINT         NULL,
  died        SMALLINT       NOT NULL DEFAULT 0,
  PRIMARY KEY (number),
  KEY by_end (ended_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
