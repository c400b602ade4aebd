-- The second key of a running task's lock.
pg_catalog.hashtext(pg_catalog.concat(
           {queue_text}::pg_catalog.regclass::pg_catalog.oid, ':', t.id::pg_catalog.text))
