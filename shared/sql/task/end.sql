-- Records the ends of attempts, one or many. A row that repeats or pauses its group is only ended together with that
-- (`consequences`): whether it does is decided now, not when the task began. A batch reports when each task began and ended,
-- in microseconds since its claim; an end without these times is now. A row that is not returned is no longer ours (deleted,
-- stopped, claimed anew), or has consequences by now, or, where locked rows are skipped, is locked. In the form for one row
-- each parameter but the last is one value: a long output need not be copied into an array.
-- parameters: ids bigint[], attempts int[], failures bool[], outputs text[], errors text[], reasons text[],
--     begins bigint[], ends bigint[], consequences bool
-- locks: the rows
-- caller: worker (waits for a lock), scheduler (skips locked rows: it must not wait)
WITH ended AS ({ended})
-- t.state is never taken: it gives its type, which is not the same in every table, to the other two
UPDATE {queue} t SET state = CASE WHEN e.failed THEN 'FAIL' WHEN true THEN 'DONE' ELSE t.state END,
       start = COALESCE(t.start + e.began * interval '1 microsecond', t.start),
       stop = COALESCE(t.start + e.ended * interval '1 microsecond', statement_timestamp()),
       output = e.output, error = e.error, reason = e.reason, crashes = 0
  FROM ended e
 WHERE t.id = e.id AND t.attempt = e.attempt {of_many} AND {still_working}
   AND (:consequences::bool OR (t.repeat > interval '0' OR t."max" < 0) IS NOT TRUE)
RETURNING t.id::bigint AS id
