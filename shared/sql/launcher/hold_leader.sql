-- One active launcher per name and server: the lock lives in the maintenance database and ends with this session.
-- On a stand-by nobody leads.
-- parameters: lock kind, the launcher's name; locks: advisory, session; caller: launcher
SELECT pg_catalog.pg_is_in_recovery() AS standby,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN false
            ELSE pg_catalog.pg_try_advisory_lock($1::int, pg_catalog.hashtext($2)) END AS held
