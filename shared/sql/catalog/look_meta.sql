-- What the catalog says about itself.
-- parameters: schema, table; locks: none; caller: scheduler
SELECT m.enabled,
       EXISTS (SELECT FROM mill.queue q JOIN pg_catalog.pg_class c ON c.oid = q.relid
                WHERE (q.schema, q.name) IS DISTINCT FROM ($1::name, $2::name)) AS others
  FROM mill.meta m
