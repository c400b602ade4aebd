-- It is known now.
-- parameters: lock kind, table OID, id; locks: gives back an advisory one; caller: scheduler
SELECT pg_catalog.pg_advisory_unlock($1::int, pg_catalog.hashtext(pg_catalog.concat($2::oid, ':', $3::bigint))) AS done
