-- May the catalog's owner work with this queue (a job puts its runs there)?
-- parameters: table OID; locks: none; caller: scheduler, as the queue's user
SELECT o.rolname::text AS owner,
       pg_catalog.has_schema_privilege(o.oid, c.relnamespace, 'USAGE') AS schema,
       pg_catalog.has_table_privilege(o.oid, c.oid, 'SELECT') AND pg_catalog.has_table_privilege(o.oid, c.oid, 'INSERT')
           AND pg_catalog.has_table_privilege(o.oid, c.oid, 'UPDATE')
           AND pg_catalog.has_table_privilege(o.oid, c.oid, 'TRIGGER') AS queue,
       (SELECT pg_catalog.array_agg(q.oid::pg_catalog.regclass::text)
          FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class q ON q.oid = d.objid
         WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = c.oid AND d.deptype = 'a'
           AND CASE WHEN q.relkind = 'S' THEN NOT pg_catalog.has_sequence_privilege(o.oid, q.oid, 'USAGE') ELSE false END)
           AS sequences,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') AS ours
  FROM pg_catalog.pg_class c, pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles o ON o.oid = n.nspowner
 WHERE c.oid = $1 AND n.nspname = 'mill'
