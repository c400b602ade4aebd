-- Takes a lock for `mill.why`: the remote of this task cannot be reached, so its outcome is unknown. It ends with this
-- session. Taken once, however often it is asked for.
-- parameters: kind int, table_oid oid, id bigint
-- locks: advisory, session
-- caller: scheduler
SELECT pg_catalog.pg_try_advisory_lock(:kind::int, k.key) AS done
  FROM (SELECT pg_catalog.hashtext(pg_catalog.concat(:table_oid::oid, ':', :id::bigint)) AS key) AS k
 WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_locks l
                    WHERE l.locktype = 'advisory' AND l.pid = pg_catalog.pg_backend_pid() AND l.objsubid = 2
                      AND l.classid = :kind::int::oid AND l.objid = k.key::oid)
