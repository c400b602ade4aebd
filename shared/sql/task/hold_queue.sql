-- One scheduler per queue, wherever it runs: the lock lives in the server and ends with this session.
-- parameters: lock kind, table OID; locks: advisory, session; caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock($1::int, $2::oid::int) AS held
