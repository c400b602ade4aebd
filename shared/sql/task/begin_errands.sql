-- Tasks that run on connections the scheduler lends: TAKE → WORK for all of them at once, by the scheduler, which knows
-- their backends. Only plain tasks, whose end is a change of their own row, and only if they are short enough to be
-- handed down by a fork. The others, and rows that somebody has locked, are left to workers that begin by themselves.
-- parameters: ids, attempts, backends, longest input in bytes; locks: the rows; caller: scheduler, after a take
WITH free AS MATERIALIZED (
    SELECT t.id, e.backend FROM {queue} t, unnest($1::bigint[], $2::int[], $3::int[]) AS e (id, attempt, backend)
     WHERE t.id = ANY ($1::bigint[]) AND t.id = e.id AND t.attempt = e.attempt AND t.state = 'TAKE'
       AND t.remote IS NULL AND NOT t.atomic AND t.job IS NULL AND t."max" >= 0 AND t.repeat = interval '0'
       AND t.count = 0 AND t.live = interval '0' AND octet_length(t.input) <= $4::int
       AND t.delimiter::int >= 0 AND t.escape::int >= 0 AND t.quote::int >= 0
       FOR UPDATE OF t SKIP LOCKED
), begun AS (
    UPDATE {queue} t SET state = 'WORK', start = statement_timestamp(), pid = f.backend, remote_session = NULL
      FROM free f WHERE t.id = f.id AND t.id = ANY ($1::bigint[]) AND t.state = 'TAKE'
    RETURNING {task_row}
)
SELECT id::text, attempt::text, input, "group", remote, atomic::text, header::text, string::text, delimiter::text,
       escape::text, quote::text, "null", timeout_ms::text, verbosity, postmaster::text, start::text, "max"::text,
       reuse::text, save::text, consequences::text, job::text, at, priority::text
  FROM begun
