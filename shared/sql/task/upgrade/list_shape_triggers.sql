-- The triggers of the queue with the text of their functions, and whether a function serves another table as well.
-- parameters: none
-- locks: none
-- caller: scheduler, with read_shape
SELECT g.tgname::text AS name, n.nspname::text AS schema, p.proname::text AS function, p.prosrc AS source,
       EXISTS (SELECT FROM pg_catalog.pg_trigger o WHERE o.tgfoid = p.oid AND o.oid <> g.oid
                  AND o.tgparentid <> g.oid) AS shared
  FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE g.tgrelid = {queue_text}::pg_catalog.regclass AND NOT g.tgisinternal
 ORDER BY g.tgname
