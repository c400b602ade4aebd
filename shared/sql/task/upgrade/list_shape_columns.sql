-- Lists the columns of the queue: types, sources and checks.
-- parameters: none
-- locks: none
-- caller: scheduler, with read_shape
WITH RECURSIVE types AS (
    SELECT a.attnum, t.oid, t.typbasetype, 0 AS depth FROM pg_catalog.pg_attribute a
      JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
     WHERE a.attrelid = {queue_text}::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT y.attnum, t.oid, t.typbasetype, y.depth + 1 FROM types y JOIN pg_catalog.pg_type t ON t.oid = y.typbasetype
)
SELECT a.attname::text AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       pg_catalog.format_type(b.oid, NULL) AS base, b.typcategory::text AS category,
       a.attnotnull AS not_null, a.attgenerated <> '' AS generated,
       CASE WHEN a.attgenerated = '' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END AS expression,
       pg_catalog.col_description(a.attrelid, a.attnum) IS NOT NULL AS commented,
       (SELECT bool_or(k.convalidated OR k.conname <> 'mill_check_' || a.attname) FROM pg_catalog.pg_constraint k
         WHERE k.conrelid = a.attrelid AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum]) AS checked,
       ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum e WHERE e.enumtypid = b.oid ORDER BY e.enumsortorder) AS labels
  FROM pg_catalog.pg_attribute a
  JOIN types y ON y.attnum = a.attnum AND y.typbasetype = 0
  JOIN pg_catalog.pg_type b ON b.oid = y.oid
  LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = {queue_text}::pg_catalog.regclass
 ORDER BY a.attnum
