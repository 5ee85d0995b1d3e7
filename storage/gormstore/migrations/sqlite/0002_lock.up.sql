-- Named locks, held by an instance until a moment.
CREATE TABLE "{prefix}lock" (
  name       TEXT    PRIMARY KEY,
  holder     INTEGER NOT NULL,
  held_until INTEGER NOT NULL
);
