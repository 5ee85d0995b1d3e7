-- For operators: the rows that are delayed or failed, in order of seq. held is
-- NULL in all others. A message that is sent or handled at once never moves in
-- the index. Each table is changed by one statement, which happens in full or
-- not at all.
ALTER TABLE {schema}`{prefix}published`
  ADD COLUMN held SMALLINT GENERATED ALWAYS AS (IF(status IN (1, 3), status, NULL)) STORED,
  ADD KEY by_held (held, seq);
ALTER TABLE {schema}`{prefix}received`
  ADD COLUMN held SMALLINT GENERATED ALWAYS AS (IF(status IN (1, 3), status, NULL)) STORED,
  ADD KEY by_held (held, seq);
