-- Reads whether the marker table exists, may be read and locked, and is locked by another transaction. `may` asks for the
-- same trust as read_catalog: a table of a stranger can run his functions in the session that reads it.
-- parameters: schema name, table name
-- locks: none
-- caller: scheduler
SELECT c.oid AS marker,
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
           AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'enabled')
           AND EXISTS (SELECT FROM pg_catalog.pg_class q
                        WHERE q.relnamespace = n.oid AND q.relname = 'queue' AND q.relkind = 'r')
           AND COALESCE((SELECT (o.rolsuper OR NOT me.rolsuper)
                                AND (o.rolsuper OR o.rolname = current_user OR pg_catalog.pg_has_role(o.oid, 'MEMBER')
                                     OR COALESCE((SELECT pg_catalog.has_table_privilege(o.oid, t.oid, 'INSERT') FROM pg_catalog.pg_class t
                                                    JOIN pg_catalog.pg_namespace s ON s.oid = t.relnamespace
                                                   WHERE s.nspname = :schema::name AND t.relname = :table::name), false))
                           FROM pg_catalog.pg_roles o, pg_catalog.pg_roles me
                          WHERE o.oid = n.nspowner AND me.rolname = current_user), false)
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_class q WHERE q.relnamespace = n.oid AND q.relowner <> n.nspowner) AS may,
       EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database
                WHERE d.datname = pg_catalog.current_database() AND l.relation = c.oid AND l.granted
                  AND l.mode = 'AccessExclusiveLock') AS locked
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'mill' AND c.relname = 'meta' AND c.relkind = 'r'
