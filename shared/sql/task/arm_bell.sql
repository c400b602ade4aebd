-- Whoever holds this lock sleeps: inserters that cannot share it ring. Never the blocking form.
-- parameters: lock kind, table OID; locks: advisory, session; caller: scheduler, before it waits
SELECT pg_catalog.pg_try_advisory_lock($1::int, $2::oid::int) AS armed
