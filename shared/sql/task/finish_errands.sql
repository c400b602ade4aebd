-- The ends of tasks whose workers have handed in their results: all at once. No row: the task is no longer ours, or
-- somebody has locked it, or it repeats or pauses its group by now; such an end is written by a worker of its own.
-- parameters: ids bigint[], attempts int[], failures bool[], outputs text[], errors text[]
-- locks: the rows
-- caller: scheduler
WITH handed AS MATERIALIZED (
    SELECT t.id, h.failed, h.output, h.error
      FROM {queue} t, unnest(:ids::bigint[], :attempts::int[], :failures::bool[], :outputs::text[], :errors::text[])
               AS h (id, attempt, failed, output, error)
     WHERE t.id = ANY (:ids::bigint[]) AND t.id = h.id AND t.attempt = h.attempt AND {still_working}
       AND (t.repeat > interval '0' OR t."max" < 0) IS NOT TRUE
       FOR UPDATE OF t SKIP LOCKED
)
-- t.state is never taken: it lends its type, which is not the same in every table, to the other two
UPDATE {queue} t SET state = CASE WHEN h.failed THEN 'FAIL' WHEN true THEN 'DONE' ELSE t.state END, stop = statement_timestamp(),
       output = h.output, error = h.error, reason = NULL, crashes = 0
  FROM handed h WHERE t.id = h.id AND t.id = ANY (:ids::bigint[]) AND {still_working}
RETURNING t.id::bigint AS id
