-- Waits for the end of the transaction that sent the start; other sessions see the wait in pg_locks.
-- parameters: key int, database int
-- locks: advisory, shared, for this statement
-- caller: scheduler
SELECT pg_catalog.pg_advisory_xact_lock_shared(:key::int, :database::int)
