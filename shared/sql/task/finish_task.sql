-- The end of an attempt. A row that repeats or pauses its group is only finished together with that ($7): whether it
-- does is decided now, not when the task began. No row: the task is no longer ours (deleted, stopped, taken anew), and nothing is written.
-- parameters: id, attempt, state, output, error, reason, with consequences; locks: the row; caller: worker
UPDATE {queue} t SET state = $3, stop = statement_timestamp(), output = $4, error = $5, reason = $6, crashes = 0
 WHERE t.id = $1::bigint AND t.attempt = $2::int AND {still_runs}
   AND ($7::bool OR (t.repeat > interval '0' OR t."max" < 0) IS NOT TRUE)
RETURNING t.id
