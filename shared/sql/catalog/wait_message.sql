-- Waits for the end of the transaction that asked for our start; seen by everybody as a wait for its lock.
-- parameters: key int, database int
-- locks: advisory, shared, for this statement
-- caller: scheduler
SELECT pg_catalog.pg_advisory_xact_lock_shared(:key::int, :database::int)
