-- Lists the partitions of the queue, a parent before its children. No row for a plain table.
-- parameters: none
-- locks: none
-- caller: scheduler, when it builds indexes of a large table
SELECT t.relid::oid AS oid, t.parentrelid::oid AS parent, t.isleaf AS leaf, n.nspname::text AS schema, c.relname::text AS name
  FROM pg_catalog.pg_partition_tree({queue_text}::pg_catalog.regclass) t
  JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') ORDER BY t.level, t.relid
