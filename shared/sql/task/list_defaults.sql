-- Lists the defaults of the columns as the server writes them.
-- parameters: none
-- locks: none
-- caller: scheduler, at the start of a session
SELECT a.attname::text AS name, pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS expression
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = {queue_text}::pg_catalog.regclass AND a.attgenerated = ''
