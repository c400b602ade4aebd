-- Many tasks, but for those whose rows are locked.
SELECT e.* FROM {queue} t, unnest(:ids::bigint[], :attempts::int[], :backends::int[]) AS e (id, attempt, backend)
 WHERE t.id = ANY (:ids::bigint[]) AND t.id = e.id AND t.attempt = e.attempt AND {still_claimed} AND t.remote IS NULL
   FOR UPDATE OF t SKIP LOCKED
