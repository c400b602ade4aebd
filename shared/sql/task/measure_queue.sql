-- Reads rows and bytes of the table for `status`: counted while it is small, estimated when it is large.
-- parameters: none
-- locks: none
-- caller: scheduler, once a minute at most
SELECT CASE WHEN pg_catalog.pg_relation_size(c.oid) < 8388608 THEN (SELECT count(*) FROM {queue})
            ELSE GREATEST(c.reltuples, 0)::bigint END AS rows,
       pg_catalog.pg_total_relation_size(c.oid) AS bytes
  FROM pg_catalog.pg_class c WHERE c.oid = {queue_text}::pg_catalog.regclass
