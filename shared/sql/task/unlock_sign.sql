-- The sign is taken down.
-- parameters: lock kind, table OID; locks: advisory, session; caller: scheduler
SELECT pg_catalog.pg_advisory_unlock($1::int, $2::oid::int) AS done
