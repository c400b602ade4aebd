-- Cancels (or terminates) the session of a dead worker on its remote, if it is provably that one. `began_us` is when the
-- session began, in microseconds.
-- parameters: pid int, began_us bigint, terminate bool
-- locks: none
-- caller: scheduler, on the remote
SELECT (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000)::bigint AS server_began,
       a.pid IS NOT NULL AS there,
       CASE WHEN a.pid IS NULL THEN false WHEN :terminate::bool THEN pg_catalog.pg_terminate_backend(a.pid)
            ELSE pg_catalog.pg_cancel_backend(a.pid) END AS sent
  FROM (SELECT 1) AS always
  LEFT JOIN pg_catalog.pg_stat_activity a
    ON a.pid OPERATOR(pg_catalog.=) :pid::int AND (extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000)::bigint OPERATOR(pg_catalog.=) :began_us::bigint
