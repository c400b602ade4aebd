-- Reads which server this session is on. A promoted copy has the same system identifier, another timeline and another start.
-- The timeline of the checkpoint lags behind a promotion, so it is read from the name of the present WAL file.
-- parameters: none
-- locks: none
-- caller: launcher, scheduler and worker, once per session of their own
SELECT c.system_identifier::pg_catalog.text AS system,
       CASE WHEN NOT pg_catalog.pg_is_in_recovery()
            THEN pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8) END AS timeline,
       pg_catalog.to_char(pg_catalog.pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') AS started
  FROM pg_catalog.pg_control_system() c
