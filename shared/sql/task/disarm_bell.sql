-- Awake: inserters need not ring.
-- parameters: lock kind, table OID; locks: advisory, session; caller: scheduler, when it wakes up
SELECT pg_catalog.pg_advisory_unlock($1::int, $2::oid::int)
