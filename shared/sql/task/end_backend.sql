-- Cancels (or terminates) the backend of an attempt, if it is provably the one that runs it.
-- `foreign_backends` do not run it: they are kept, or serve other tasks by now.
-- parameters: id bigint, attempt int, terminate bool, foreign_backends int[]
-- locks: none
-- caller: scheduler, for a task whose worker is gone
SELECT CASE WHEN :terminate THEN pg_catalog.pg_terminate_backend(a.pid) ELSE pg_catalog.pg_cancel_backend(a.pid) END AS sent
  FROM {queue} t
  JOIN pg_catalog.pg_stat_activity a ON t.remote_session IS NULL AND a.pid = t.pid AND a.backend_start <= t.start
   AND a.pid <> ALL (:foreign_backends::int[])
 WHERE t.id = :id::bigint AND t.attempt = :attempt::int AND t.state = 'WORK' AND {own_backend}
