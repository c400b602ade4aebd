-- Reads whether the queue (or a partition of it) is published with its changes, but has no replica identity. Then the server
-- refuses every UPDATE. The index that could be the identity, if there is one.
-- parameters: none
-- locks: none
-- caller: scheduler, with read_shape
SELECT l.oid::pg_catalog.regclass::text AS name,
       (SELECT pg_catalog.quote_ident(x.relname) FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
         WHERE i.indrelid = l.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a
                            WHERE a.attrelid = l.oid AND a.attnum = ANY (i.indkey::int2[]) AND NOT a.attnotnull)
         ORDER BY i.indisprimary DESC, i.indnatts, x.relname LIMIT 1) AS index,
       p.publications
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_class l ON l.oid = c.oid OR l.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(c.oid) t)
 CROSS JOIN LATERAL (
    -- All published tables are listed only where one has no identity.
    SELECT CASE WHEN l.relkind = 'r' AND l.relpersistence = 'p'
                     AND CASE l.relreplident
                         WHEN 'f' THEN false
                         WHEN 'd' THEN NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = l.oid AND i.indisprimary)
                         WHEN 'i' THEN NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = l.oid AND i.indisreplident)
                         ELSE true END
           THEN (SELECT pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(b.pubname), ', ')
                   FROM pg_catalog.pg_publication_tables s JOIN pg_catalog.pg_publication b ON b.pubname = s.pubname
                   JOIN pg_catalog.pg_class k ON k.oid IN (c.oid, l.oid) AND k.relname = s.tablename
                   JOIN pg_catalog.pg_namespace n ON n.oid = k.relnamespace AND n.nspname = s.schemaname
                  WHERE b.pubupdate OR b.pubdelete) END AS publications) AS p
 WHERE c.oid = {queue_text}::pg_catalog.regclass AND p.publications IS NOT NULL ORDER BY 1 LIMIT 1
