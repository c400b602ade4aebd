-- Lists transactions of others whose locks on the queue or its partitions would make DDL wait. A strong one (ALTER TABLE)
-- bears nobody, a weak one (CREATE INDEX, CREATE TRIGGER) readers. `strong`: the DDL is a strong one.
-- parameters: table_oid oid, strong bool
-- locks: none
-- caller: scheduler, before DDL
SELECT DISTINCT l.virtualtransaction AS transaction,
       concat('pid ', l.pid, ' ' || NULLIF(concat('(', NULLIF(a.application_name, ''), ')'), '()')) AS holder
  FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_catalog.pg_backend_pid()
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
   AND (l.relation = :table_oid::oid OR l.relation IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(:table_oid::oid) t))
   AND (:strong::bool OR l.mode NOT IN ('AccessShareLock', 'RowShareLock'))
