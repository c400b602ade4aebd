-- One active launcher per name and server: the lock lives in the maintenance database and ends with this session, which the
-- server itself ends once it has been silent for a while. On a stand-by nobody leads.
-- parameters: lock kind, the launcher's name, the silence in ms, two halves of a number by which schedulers find this session; locks: advisory, session; caller: launcher
SELECT l.silence, l.standby, l.held, CASE WHEN l.held THEN pg_catalog.pg_try_advisory_lock($4::int, $5::int) END AS proof,
       pg_catalog.pg_backend_pid() AS backend,
       (SELECT a.backend_start::text FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid()) AS began
  FROM (SELECT pg_catalog.set_config('idle_session_timeout', $3::text, false) AS silence,
               pg_catalog.pg_is_in_recovery() AS standby,
               CASE WHEN pg_catalog.pg_is_in_recovery() THEN false
                    ELSE pg_catalog.pg_try_advisory_lock($1::int, pg_catalog.hashtext($2)) END AS held OFFSET 0) AS l
