-- For operators: the rows that are delayed or failed, in order of seq, which ends
-- every index. A message that is sent or handled at once is never in it.
CREATE INDEX "{prefix}published_held" ON "{prefix}published" (status) WHERE status IN (1, 3);
CREATE INDEX "{prefix}received_held" ON "{prefix}received" (status) WHERE status IN (1, 3);
