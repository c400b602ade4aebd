-- The partial indexes of the queue: their columns, in order, with the direction, and what they leave out.
-- parameters: none; locks: none; caller: scheduler, with look_shape
SELECT c.relname::text AS name, i.indisvalid AS valid, pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS predicate,
       ARRAY(SELECT a.attname || CASE WHEN (i.indoption::int2[])[k - 1] & 1 = 1 THEN ' DESC' ELSE '' END
               FROM generate_series(1, i.indnkeyatts) AS k
               JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = (i.indkey::int2[])[k - 1]
              ORDER BY k) AS columns
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
 WHERE i.indrelid = {queue_text}::pg_catalog.regclass AND i.indpred IS NOT NULL AND i.indexprs IS NULL
