-- Reads the start of the server only: its owner has revoked the functions that name the system.
-- parameters: none
-- locks: none
-- caller: launcher, scheduler and worker
SELECT NULL::pg_catalog.text AS system, NULL::pg_catalog.text AS timeline,
       pg_catalog.to_char(pg_catalog.pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') AS started
