-- Nobody serves a queue of this database until this transaction has ended; whoever still does is waited for.
-- parameters: kind int
-- locks: all queues' locks
-- caller: whoever upgrades
SELECT pg_catalog.pg_advisory_xact_lock(:kind::int, q.relid::int) FROM (SELECT relid FROM mill.queue ORDER BY relid) AS q
