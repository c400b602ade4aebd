-- Lists the partial indexes of the queue: their columns, in order, with the direction; all columns that they depend on, also
-- in the predicate; and the predicate, without the quotes that a server may put around names.
-- parameters: none
-- locks: none
-- caller: scheduler, with read_shape
SELECT c.relname::text AS name, i.indisvalid AS valid,
       pg_catalog.replace(pg_catalog.pg_get_expr(i.indpred, i.indrelid), '"', '') AS predicate,
       ARRAY(SELECT DISTINCT a.attname::text FROM pg_catalog.pg_depend d
               JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
              WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = i.indexrelid
                AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = i.indrelid AND d.refobjsubid > 0) AS uses,
       ARRAY(SELECT a.attname || CASE WHEN (i.indoption::int2[])[k - 1] & 1 = 1 THEN ' DESC' ELSE '' END
               FROM generate_series(1, i.indnkeyatts) AS k
               JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = (i.indkey::int2[])[k - 1]
              ORDER BY k) AS columns
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
 WHERE i.indrelid = {queue_text}::pg_catalog.regclass AND i.indpred IS NOT NULL AND i.indexprs IS NULL
