-- The ends of several attempts at once, all with the same state, as `finish_task` writes one: not of rows that repeat by
-- now, or that are no longer ours. When each began and ended is told in microseconds since it was taken;
-- one without an end ends now.
-- parameters: ids bigint[], attempts int[], outputs text[], errors text[], reasons text[], begins bigint[],
--     ends bigint[]
-- locks: the rows
-- caller: worker
UPDATE {queue} t SET state = {final}, output = r.output, error = r.error, reason = r.reason, crashes = 0,
       start = t.start + r.began * interval '1 microsecond', stop = COALESCE(t.start + r.ended * interval '1 microsecond', statement_timestamp())
  FROM unnest(:ids::bigint[], :attempts::int[], :outputs::text[], :errors::text[], :reasons::text[], :begins::bigint[], :ends::bigint[])
       AS r (id, attempt, output, error, reason, began, ended)
 WHERE t.id = r.id AND t.attempt = r.attempt AND {still_working}
   AND (t.repeat > interval '0' OR t."max" < 0) IS NOT TRUE
RETURNING t.id
