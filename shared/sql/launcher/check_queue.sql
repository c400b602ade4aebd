-- Reads what the user of a queue may do in its database.
-- parameters: schema name, table name
-- locks: none
-- caller: launcher check --connect, as the queue's user
SELECT r.rolsuper AS superuser,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS makes_schemas,
       s.oid IS NOT NULL AS schema,
       COALESCE(pg_catalog.has_schema_privilege(s.oid, 'USAGE'), false) AS enters,
       COALESCE(pg_catalog.has_schema_privilege(s.oid, 'CREATE'), false) AS makes_tables,
       c.oid IS NOT NULL AS queue,
       COALESCE(pg_catalog.pg_has_role(c.relowner, 'USAGE'), false) AS owns,
       COALESCE((SELECT pg_catalog.bool_and(pg_catalog.has_table_privilege(c.oid, p))
                   FROM pg_catalog.unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS p), false) AS serves
  FROM pg_catalog.pg_roles r
  LEFT JOIN pg_catalog.pg_namespace s ON s.nspname = :schema
  LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = s.oid AND c.relname = :table
 WHERE r.rolname = current_user
