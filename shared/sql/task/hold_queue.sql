-- Locks the queue: one scheduler per queue, until this session ends.
-- parameters: kind int, table_oid oid
-- locks: advisory, session
-- caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock(:kind::int, :table_oid::oid::int) AS held
