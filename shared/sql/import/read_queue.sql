-- Reads the task table for imported jobs, and its owner.
-- parameters: name text
-- locks: none
-- caller: the launcher's import
SELECT w.name, q.schema::text AS schema, q.name::text AS table, q.owner::text AS owner
  FROM (SELECT COALESCE(:name::text, (SELECT min(pg_catalog.format('%I.%I', q.schema, q.name)) FROM mill.queue q HAVING count(*) = 1),
                        'public.task') AS name) AS w
  LEFT JOIN mill.queue q ON q.relid = pg_catalog.to_regclass(w.name)
