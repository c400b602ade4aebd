-- What a worker has taken and will not send goes back to PLAN: the word of its batch says so, no backend need be asked.
-- Not rows that somebody else has locked: nobody waits for him, and they are tried again. Those are the answer.
-- parameters: ids, attempts; locks: the rows; caller: scheduler (a task of the batch takes long), worker (it is to end)
WITH ours AS MATERIALIZED (
    SELECT t.id, t.attempt FROM {queue} t JOIN unnest($1::bigint[], $2::int[]) AS r (id, attempt) ON t.id = r.id AND t.attempt = r.attempt
     WHERE t.id = ANY ($1::bigint[]) AND {still_runs} FOR UPDATE OF t SKIP LOCKED
), planned AS (
    UPDATE {queue} t SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL
      FROM ours o WHERE t.id = ANY ($1::bigint[]) AND t.id = o.id AND t.attempt = o.attempt AND {still_runs}
    RETURNING t.id
)
SELECT t.id::bigint AS id, t.attempt::int AS attempt FROM {queue} t JOIN unnest($1::bigint[], $2::int[]) AS r (id, attempt)
    ON t.id = r.id AND t.attempt = r.attempt
 WHERE t.id = ANY ($1::bigint[]) AND {still_runs} AND t.id NOT IN (SELECT o.id FROM ours o) AND (SELECT count(*) FROM planned) >= 0
