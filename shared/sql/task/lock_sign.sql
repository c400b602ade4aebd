-- A session lock on the queue as a sign for others: the wake-up lock (its holder sleeps, and inserters that cannot share
-- it notify), no slot, no connection. Never the blocking form.
-- parameters: kind int, table_oid oid
-- locks: advisory, session
-- caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock(:kind::int, :table_oid::oid::int) AS done
