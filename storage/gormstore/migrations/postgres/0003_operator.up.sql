-- For operators: the rows that are delayed or failed, in order of seq. A message
-- that is sent or handled at once is never in it.
CREATE INDEX "{prefix}published_held" ON {schema}"{prefix}published" (status, seq) WHERE status IN (1, 3);
CREATE INDEX "{prefix}received_held" ON {schema}"{prefix}received" (status, seq) WHERE status IN (1, 3);
