-- Tasks that were taken begin, all at once: their workers have connected, and the rows name the backends. No row: it is no
-- longer ours, or somebody has locked it; its worker sees for itself.
-- parameters: ids bigint[], attempts int[], backends int[]
-- locks: the rows
-- caller: scheduler
WITH ready AS MATERIALIZED (
    SELECT t.id, b.backend
      FROM {queue} t, unnest(:ids::bigint[], :attempts::int[], :backends::int[]) AS b (id, attempt, backend)
     WHERE t.id = ANY (:ids::bigint[]) AND t.id = b.id AND t.attempt = b.attempt AND {still_claimed} AND t.remote IS NULL
       FOR UPDATE OF t SKIP LOCKED
)
UPDATE {queue} t SET state = 'WORK', start = statement_timestamp(), pid = r.backend, remote_session = NULL
  FROM ready r WHERE t.id = r.id AND t.id = ANY (:ids::bigint[]) AND {still_claimed}
RETURNING t.id::bigint AS id
