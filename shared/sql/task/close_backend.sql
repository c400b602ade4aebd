-- Ends a backend whose connection cannot be used again. No row: it is gone, or its pid is another's by now. `began` is in
-- seconds, as the server writes them.
-- parameters: pid int, began text
-- locks: none
-- caller: scheduler
SELECT pg_catalog.pg_terminate_backend(a.pid) AS sent FROM pg_catalog.pg_stat_activity a
 WHERE a.pid = :pid::int AND extract(epoch FROM a.backend_start)::text = :began::text
