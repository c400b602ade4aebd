-- Locks all queues of this database until the transaction ends, and waits for schedulers that serve them.
-- parameters: kind int
-- locks: all queues' locks
-- caller: whoever upgrades
SELECT pg_catalog.pg_advisory_xact_lock(:kind::int, q.relid::int) FROM (SELECT relid FROM mill.queue ORDER BY relid) AS q
