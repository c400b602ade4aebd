-- Releases the lock of `mark_unknown`: the outcome is known.
-- parameters: kind int, table_oid oid, id bigint
-- locks: gives back an advisory one
-- caller: scheduler
SELECT pg_catalog.pg_advisory_unlock(:kind::int, pg_catalog.hashtext(pg_catalog.concat(:table_oid::oid, ':', :id::bigint))) AS done
