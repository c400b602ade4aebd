-- Claimed tasks begin, one or many: from here on the rows name the backends that run them (a remote task's is not known yet).
-- A worker reads everything it must know of its task from its row. A row that is not returned is no longer ours, or, where
-- locked rows are skipped, is locked: its worker begins it itself.
-- parameters: id, attempt (worker); ids, attempts, backends (scheduler); locks: the rows; callers: worker (waits for a lock),
-- scheduler (skips locked rows and remote tasks)
WITH beginning AS ({beginning})
UPDATE {queue} t SET state = 'WORK', start = statement_timestamp(), pid = CASE WHEN t.remote IS NULL THEN b.backend END,
       remote_session = NULL
  FROM beginning b
 WHERE t.id = b.id AND t.attempt = b.attempt {among} AND {still_taken}
RETURNING {returned}
