-- Returns tasks that a worker has claimed and will not send to PLAN: its batch proves that, so no backend is asked. Not rows
-- that somebody else has locked: nobody waits for him, and they are tried again. Those are the answer.
-- parameters: ids bigint[], attempts int[]
-- locks: the rows
-- caller: scheduler (a task of the batch takes long), worker (it is to end)
WITH ours AS MATERIALIZED (
    SELECT t.id, t.attempt FROM {queue} t JOIN unnest(:ids::bigint[], :attempts::int[]) AS r (id, attempt) ON t.id = r.id AND t.attempt = r.attempt
     WHERE t.id = ANY (:ids::bigint[]) AND {still_working} FOR UPDATE OF t SKIP LOCKED
), planned AS (
    UPDATE {queue} t SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL
      FROM ours o WHERE t.id = ANY (:ids::bigint[]) AND t.id = o.id AND t.attempt = o.attempt AND {still_working}
    RETURNING t.id
)
SELECT t.id::bigint AS id, t.attempt::int AS attempt FROM {queue} t JOIN unnest(:ids::bigint[], :attempts::int[]) AS r (id, attempt)
    ON t.id = r.id AND t.attempt = r.attempt
 WHERE t.id = ANY (:ids::bigint[]) AND {still_working} AND t.id NOT IN (SELECT o.id FROM ours o) AND (SELECT count(*) FROM planned) >= 0
