-- Reads mill.meta: whether the catalog is enabled.
-- parameters: schema name, table name
-- locks: none
-- caller: scheduler
SELECT m.enabled,
       EXISTS (SELECT FROM mill.queue q JOIN pg_catalog.pg_class c ON c.oid = q.relid
                WHERE (q.schema, q.name) IS DISTINCT FROM (:schema::name, :table::name)) AS others
  FROM mill.meta m
