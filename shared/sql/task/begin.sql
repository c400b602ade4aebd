-- Begins claimed tasks, one or many: from here on the rows name the backends that run them (that of a remote task is not
-- known yet). A worker reads everything it must know of its task from its row. A row that is not returned is no longer ours,
-- or, where locked rows are skipped, is locked: its worker begins it itself. In the form for one row, that of a worker, id
-- and attempt are one value each, and the backend is its own.
-- parameters: ids bigint[], attempts int[], backends int[]
-- locks: the rows
-- caller: worker (waits for a lock), scheduler (skips locked rows and remote tasks)
WITH beginning AS ({beginning})
UPDATE {queue} t SET state = 'WORK', start = statement_timestamp(), pid = CASE WHEN t.remote IS NULL THEN b.backend END,
       remote_session = NULL
  FROM beginning b
 WHERE t.id = b.id AND t.attempt = b.attempt {of_many} AND {still_claimed}
RETURNING {returned}
