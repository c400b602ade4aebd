-- Delays all due rows of the finished task's group that have a negative max: one at a time, with a pause.
-- parameters: id bigint, attempt int
-- locks: the rows
-- caller: worker, in the transaction that finishes the row
UPDATE {queue} t SET plan = CASE WHEN t.drift THEN statement_timestamp() - t."max" * interval '1 ms'
                                 ELSE t.plan - t."max" * interval '1 ms' * (
                                     floor(extract(epoch FROM statement_timestamp() - t.plan) * 1000 / - t."max"::float8) + 1) END
  FROM {queue} done
 WHERE done.id = :id::bigint AND done.attempt = :attempt::int AND done."max" < 0
   AND t.state = 'PLAN' AND t."max" < 0 AND t.hash = done.hash AND t."group" = done."group"
   AND t.remote IS NOT DISTINCT FROM done.remote AND t.plan <= statement_timestamp() AND t.plan > '-infinity'
