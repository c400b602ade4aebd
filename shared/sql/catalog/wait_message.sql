-- Waits for the end of the transaction that asked for our start; seen by everybody as a wait for its lock.
-- parameters: the message's key, the database's OID; locks: advisory, shared, for this statement; caller: scheduler
SELECT pg_catalog.pg_advisory_xact_lock_shared($1::int, $2::int)
