-- The message is gone, and its answer goes too.
-- parameters: key int, sender int
-- locks: none
-- caller: launcher
SELECT pg_catalog.pg_advisory_unlock(:key::int, :sender::int) AS taken
