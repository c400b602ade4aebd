-- Reads the progress of an index of a partition; no row when it does not exist.
-- parameters: schema text, name text
-- locks: none
-- caller: scheduler, when it builds indexes of a large table
SELECT i.indisvalid AS valid, EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhrelid = c.oid) AS attached
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
 WHERE n.nspname = :schema::text AND c.relname = :name::text
