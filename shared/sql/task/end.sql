-- The ends of attempts, one or many. A row that repeats or pauses its group is only ended together with that ($9): whether
-- it does is decided now, not when the task began. A batch reports when each task began and ended, in microseconds since its
-- claim; an end without these times is now. A row that is not returned is no longer ours (deleted, stopped, claimed anew), or
-- has consequences by now, or, where locked rows are skipped, is locked: nothing is written to it.
-- t.state is never taken: it lends its type, which is not the same in every table, to the other two.
-- parameters, each an array or the value of one row: id, attempt, whether it failed, output, error, reason, begin, end; with
-- consequences; locks: the rows; callers: worker (waits for a lock), scheduler (skips locked rows: it must not wait)
WITH ended AS ({ended})
UPDATE {queue} t SET state = CASE WHEN e.failed THEN 'FAIL' WHEN true THEN 'DONE' ELSE t.state END,
       start = COALESCE(t.start + e.began * interval '1 microsecond', t.start),
       stop = COALESCE(t.start + e.ended * interval '1 microsecond', statement_timestamp()),
       output = e.output, error = e.error, reason = e.reason, crashes = 0
  FROM ended e
 WHERE t.id = e.id AND t.attempt = e.attempt {among} AND {still_runs}
   AND ($9::bool OR (t.repeat > interval '0' OR t."max" < 0) IS NOT TRUE)
RETURNING t.id::bigint AS id
