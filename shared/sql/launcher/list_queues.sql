-- Lists the task tables of a database, their owners, and why one cannot be served as its owner. Only system catalogs are
-- read: a table or function of schema mill may be anybody's, and reading a table runs its owner's index predicates and
-- policies as the reader. A table without the columns of a queue is passed over: a role with the right TRIGGER on it could
-- have put the trigger there. `known`: the owner was let in by the catalog's owner, the operator or the database's owner; a
-- stranger's tables would take the slots of others.
-- parameters: rows bigint
-- locks: none
-- caller: launcher, in a database that it has found by itself
SELECT n.nspname::text AS schema, c.relname::text AS name, o.rolname::text AS owner, session_user::text AS login,
       m.oid IS NOT NULL AS installed, o.rolname = session_user AS own, o.rolsuper AS superuser, o.rolcanlogin AS logs_in,
       COALESCE(pg_catalog.has_schema_privilege(o.oid, m.oid, 'USAGE'), false)
           OR NOT me.rolsuper AND pg_catalog.pg_has_role(me.oid, o.oid, 'MEMBER')
           OR o.oid = d.datdba AS known
  FROM pg_catalog.pg_trigger t
  JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
  JOIN pg_catalog.pg_roles me ON me.rolname = session_user
  JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
  LEFT JOIN pg_catalog.pg_namespace m ON m.nspname = 'mill'
 WHERE t.tgname IN ('mill_wakeup_insert', 'mill_ring_insert') AND NOT t.tgisinternal AND t.tgparentid = 0
   AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
   AND 4 = (SELECT count(*) FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname IN ('id', 'input', 'plan', 'state'))
 ORDER BY known DESC, c.oid LIMIT :rows
