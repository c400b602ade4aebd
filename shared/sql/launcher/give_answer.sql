-- An answer to a message: a lock that the sender sees, for as long as its message stands.
-- parameters: answer's key, the sender's backend; locks: advisory, session; caller: launcher
SELECT pg_catalog.pg_try_advisory_lock($1::int, $2::int) AS given
