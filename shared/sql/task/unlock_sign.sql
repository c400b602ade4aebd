-- Releases a lock of `lock_sign`.
-- parameters: kind int, table_oid oid
-- locks: advisory, session
-- caller: scheduler
SELECT pg_catalog.pg_advisory_unlock(:kind::int, :table_oid::oid::int) AS done
