-- Cancels (or terminates) the backend of an attempt, if it is provably the one that runs it.
-- parameters: id, attempt, whether to terminate, backends that do not run it; locks: none; caller: scheduler, for a task whose
-- worker is gone
SELECT CASE WHEN $3 THEN pg_catalog.pg_terminate_backend(a.pid) ELSE pg_catalog.pg_cancel_backend(a.pid) END AS sent
  FROM {queue} t
  JOIN pg_catalog.pg_stat_activity a ON t.remote_session IS NULL AND a.pid = t.pid AND a.backend_start <= t.start
   AND a.pid <> ALL ($4::int[])
 WHERE t.id = $1::bigint AND t.attempt = $2::int AND t.state = 'WORK' AND {ours}
