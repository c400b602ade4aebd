-- Ends the former session of this launcher, which still holds the leader lock.
-- parameters: backend int, began text
-- locks: none
-- caller: launcher that has lost its session
SELECT pg_catalog.pg_terminate_backend(a.pid) AS ended
  FROM pg_catalog.pg_stat_activity a WHERE a.pid = :backend::int AND a.backend_start::text = :began::text
