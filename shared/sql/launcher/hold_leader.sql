-- Takes the leader lock: one active launcher per name and server, in the maintenance database, until this session ends,
-- which the server ends after some silence. On a stand-by nobody leads. Schedulers find this session by the number in two
-- halves.
-- parameters: kind int, launcher_name text, silence_ms text, proof_high int, proof_low int
-- locks: advisory, session
-- caller: launcher
SELECT l.silence, l.standby, l.held, CASE WHEN l.held THEN pg_catalog.pg_try_advisory_lock(:proof_high::int, :proof_low::int) END AS proof,
       pg_catalog.pg_backend_pid() AS backend,
       (SELECT a.backend_start::text FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid()) AS began
  FROM (SELECT pg_catalog.set_config('idle_session_timeout', :silence_ms::text, false) AS silence,
               pg_catalog.pg_is_in_recovery() AS standby,
               CASE WHEN pg_catalog.pg_is_in_recovery() THEN false
                    ELSE pg_catalog.pg_try_advisory_lock(:kind::int, pg_catalog.hashtext(:launcher_name)) END AS held OFFSET 0) AS l
