-- One scheduler per queue, wherever it runs: the lock lives in the server and ends with this session.
-- parameters: kind int, table_oid oid
-- locks: advisory, session
-- caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock(:kind::int, :table_oid::oid::int) AS held
