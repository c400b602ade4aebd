-- Reads the present name of a table, if it exists.
-- parameters: table_oid oid
-- locks: none
-- caller: scheduler, when another table, or none, has the name of its queue
SELECT n.nspname::text AS schema, c.relname::text AS name
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = :table_oid::oid
