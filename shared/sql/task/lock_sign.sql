-- A session lock on the queue as a sign for others: the bell (whoever holds it sleeps, and inserters that cannot share
-- it ring), no slot, no connection. Never the blocking form.
-- parameters: lock kind, table OID; locks: advisory, session; caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock($1::int, $2::oid::int) AS done
