-- The sign is taken down.
-- parameters: kind int, table_oid oid
-- locks: advisory, session
-- caller: scheduler
SELECT pg_catalog.pg_advisory_unlock(:kind::int, :table_oid::oid::int) AS done
