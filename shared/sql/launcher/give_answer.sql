-- Answers a message: takes a lock that the sender sees, as long as its message lasts.
-- parameters: key int, sender int
-- locks: advisory, session
-- caller: launcher
SELECT pg_catalog.pg_try_advisory_lock(:key::int, :sender::int) AS given
