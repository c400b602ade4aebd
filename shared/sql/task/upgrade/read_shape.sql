-- Reads the kind of the table under the queue's name, beside its columns.
-- parameters: none
-- locks: none
-- caller: scheduler, at the start of a session and before it repairs the table
SELECT c.oid AS relid, c.relkind = 'p' AS partitioned,
       COALESCE((SELECT sum(pg_catalog.pg_relation_size(i.relid)) FROM pg_catalog.pg_partition_tree(c.oid) i),
                pg_catalog.pg_relation_size(c.oid))::bigint AS bytes,
       EXISTS (SELECT FROM pg_catalog.pg_index i
                WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
                  AND 'id' IN (SELECT a.attname FROM pg_catalog.pg_attribute a
                                WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[]))
                  AND NOT EXISTS (SELECT FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
                                    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                                   WHERE k.place <= i.indnkeyatts AND a.attname <> 'id'
                                     AND a.attnum <> ALL (COALESCE(p.partattrs::int2[], ARRAY[]::int2[])))) AS unique_id,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum = ANY (p.partattrs::int2[])) AS partition_key,
       COALESCE(0 = ANY (p.partattrs::int2[]), false) AS partition_expression,
       ARRAY(SELECT DISTINCT COALESCE(r.rolname::text, 'PUBLIC') FROM pg_catalog.aclexplode(c.relacl) x
               LEFT JOIN pg_catalog.pg_roles r ON r.oid = x.grantee
              WHERE x.privilege_type IN ('INSERT', 'UPDATE') AND x.grantee <> c.relowner
                AND r.rolname IS DISTINCT FROM current_user AND r.rolsuper IS NOT TRUE) AS writers,
       EXISTS (SELECT FROM pg_catalog.pg_stat_activity s
                WHERE s.datname = pg_catalog.current_database() AND s.backend_type <> 'client backend'
                  AND s.application_name LIKE 'pg_work %'
                  AND pg_catalog.starts_with(s.application_name,
                                             left(concat('pg_work ', {schema_text}, ' ', {table_text}, ' '), 63))) AS upstream
  FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = c.oid
 WHERE c.oid = {queue_text}::pg_catalog.regclass
