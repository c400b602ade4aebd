-- Ends the session by which we led before, if it is still there: it keeps the lock from us.
-- parameters: its server process, when it began; locks: none; caller: launcher that has lost its session
SELECT pg_catalog.pg_terminate_backend(a.pid) AS ended
  FROM pg_catalog.pg_stat_activity a WHERE a.pid = $1::int AND a.backend_start::text = $2::text
