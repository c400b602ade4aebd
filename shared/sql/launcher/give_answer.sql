-- An answer to a message: a lock that the sender sees, for as long as its message stands.
-- parameters: key int, sender int
-- locks: advisory, session
-- caller: launcher
SELECT pg_catalog.pg_try_advisory_lock(:key::int, :sender::int) AS given
