-- Takes a session lock on the queue that other sessions read: asleep, no slot, no connection and the like. Never the
-- blocking form.
-- parameters: kind int, table_oid oid
-- locks: advisory, session
-- caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock(:kind::int, :table_oid::oid::int) AS done
