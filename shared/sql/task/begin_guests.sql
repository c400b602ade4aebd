-- Tasks that were taken begin, all at once: their workers have connected, and the rows name the backends. No row: it is no
-- longer ours, or somebody has locked it; its worker sees for itself.
-- parameters: ids, attempts, backends; locks: the rows; caller: scheduler
WITH ready AS MATERIALIZED (
    SELECT t.id, b.backend
      FROM {queue} t, unnest($1::bigint[], $2::int[], $3::int[]) AS b (id, attempt, backend)
     WHERE t.id = ANY ($1::bigint[]) AND t.id = b.id AND t.attempt = b.attempt AND {still_taken} AND t.remote IS NULL
       FOR UPDATE OF t SKIP LOCKED
)
UPDATE {queue} t SET state = 'WORK', start = statement_timestamp(), pid = r.backend, remote_session = NULL
  FROM ready r WHERE t.id = r.id AND t.id = ANY ($1::bigint[]) AND {still_taken}
RETURNING t.id::bigint AS id
