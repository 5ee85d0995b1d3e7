-- Named locks, held by an instance until a moment.
CREATE TABLE {schema}"{prefix}lock" (
  name       bytea       PRIMARY KEY,
  holder     bigint      NOT NULL,
  held_until timestamptz NOT NULL
);
