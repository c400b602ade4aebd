-- The task tables of a database and their owners. Only system catalogs are read: a table or function of schema mill
-- may be anybody's, and reading a table runs its owner's index predicates and policies as the reader. A table without
-- the columns of a queue is passed over: a role with the right TRIGGER on it could have put the trigger there.
-- parameters: at most so many; locks: none; caller: launcher, in a database that it has found by itself
SELECT n.nspname::text AS schema, c.relname::text AS name, o.rolname::text AS owner,
       o.rolname = session_user AS own, o.rolcanlogin AS logs_in, o.rolsuper AS superuser
  FROM pg_catalog.pg_trigger t
  JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
 WHERE t.tgname = 'mill_ring_insert' AND NOT t.tgisinternal AND t.tgparentid = 0
   AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
   AND 4 = (SELECT count(*) FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname IN ('id', 'input', 'plan', 'state'))
 ORDER BY c.oid LIMIT $1
