-- The message is gone, and its answer goes too.
-- parameters: answer's key, the sender's backend; locks: none; caller: launcher
SELECT pg_catalog.pg_advisory_unlock($1::int, $2::int) AS taken
