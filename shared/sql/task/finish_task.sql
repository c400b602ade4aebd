-- The end of an attempt. A row that repeats or pauses its group is only finished together with that (`with_consequences`): whether it
-- does is decided now, not when the task began. No row: the task is no longer ours (deleted, stopped, taken anew), and nothing is written.
-- parameters: id bigint, attempt int, state state, output text, error text, reason text, with_consequences bool
-- locks: the row
-- caller: worker
UPDATE {queue} t SET state = :state, stop = statement_timestamp(), output = :output, error = :error, reason = :reason, crashes = 0
 WHERE t.id = :id::bigint AND t.attempt = :attempt::int AND {still_working}
   AND (:with_consequences::bool OR (t.repeat > interval '0' OR t."max" < 0) IS NOT TRUE)
RETURNING t.id
