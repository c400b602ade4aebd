-- Withdraws the answer to a message that has ended.
-- parameters: key int, sender int
-- locks: none
-- caller: launcher
SELECT pg_catalog.pg_advisory_unlock(:key::int, :sender::int) AS taken
