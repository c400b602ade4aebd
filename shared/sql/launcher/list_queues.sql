-- The task tables that a database's catalog knows and that are still there.
-- parameters: none; locks: none; caller: launcher, in a database that it has found by itself
SELECT q.schema::text, q.name::text FROM mill.queue q JOIN pg_catalog.pg_class c ON c.oid = q.relid ORDER BY q.relid
