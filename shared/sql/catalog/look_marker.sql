-- The marker table: is it there, may we read and lock it, and does somebody change it just now?
-- parameters: none; locks: none; caller: scheduler
SELECT c.oid AS marker,
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
           -- a schema mill that is not as we make it may be a stranger's trap: a view would run his functions as us
           AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'enabled')
           AND EXISTS (SELECT FROM pg_catalog.pg_class q
                        WHERE q.relnamespace = n.oid AND q.relname = 'queue' AND q.relkind = 'r')
           AND COALESCE((SELECT pg_catalog.bool_and(p.prosecdef AND p.proowner = n.nspowner)
                           FROM pg_catalog.pg_proc p
                          WHERE p.pronamespace = n.oid AND pg_catalog.starts_with(p.proname::text, 's_')), true) AS may,
       EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database
                WHERE d.datname = pg_catalog.current_database() AND l.relation = c.oid AND l.granted
                  AND l.mode = 'AccessExclusiveLock') AS locked
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'mill' AND c.relname = 'meta' AND c.relkind = 'r'
