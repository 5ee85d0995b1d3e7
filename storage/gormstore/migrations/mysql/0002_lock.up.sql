-- Named locks, held by an instance until a moment.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}lock` (
  name       VARBINARY(600) NOT NULL,
  holder     BIGINT         NOT NULL,
  held_until BIGINT         NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARACTER SET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
