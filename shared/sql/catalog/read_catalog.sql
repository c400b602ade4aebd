-- Reads whether the catalog exists, belongs to pgmill, may be used, and could be created. System catalogs only: nothing of a
-- schema `mill` is read before its owner is known. `trusted`: he may make us run what he likes anyway (he is a superuser, we
-- or a role that we belong to), or he may INSERT into our queue, which is the same power; all that is in the schemas is his;
-- and a superuser uses only the catalog of another.
-- parameters: schema name, table name
-- locks: none
-- caller: scheduler, launcher's commands
SELECT n.oid IS NOT NULL AS there,
       EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'meta') AS marked,
       COALESCE(pg_catalog.pg_has_role(n.nspowner, 'USAGE'), false) AS ours,
       COALESCE(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false)
           AND COALESCE((SELECT pg_catalog.bool_and(pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
                           FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace m ON m.oid = p.pronamespace
                          WHERE (m.nspname, p.proname) IN (('mill', 's_version'), ('mill_private', 's_register'))), false) AS admitted,
       COALESCE((SELECT pg_catalog.bool_and(pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
                   FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace m ON m.oid = p.pronamespace
                  WHERE m.nspname = 'mill_private' AND p.proname IN ('s_watch_graph', 's_fire_timers')), false) AS keeps,
       COALESCE((SELECT (o.rolsuper OR NOT me.rolsuper)
                        AND (o.rolsuper OR o.rolname = current_user OR pg_catalog.pg_has_role(o.oid, 'MEMBER')
                             OR COALESCE((SELECT pg_catalog.has_table_privilege(o.oid, c.oid, 'INSERT') FROM pg_catalog.pg_class c
                                            JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
                                           WHERE s.nspname = :schema::name AND c.relname = :table::name), false))
                   FROM pg_catalog.pg_roles o, pg_catalog.pg_roles me
                  WHERE o.oid = n.nspowner AND me.rolname = current_user), true)
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_namespace m WHERE m.nspname = 'mill_private' AND m.nspowner <> n.nspowner)
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace m ON m.oid = c.relnamespace
                            WHERE m.nspname IN ('mill', 'mill_private') AND c.relowner <> n.nspowner)
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace m ON m.oid = p.pronamespace
                            WHERE m.nspname IN ('mill', 'mill_private') AND p.proowner <> n.nspowner) AS trusted,
       COALESCE((SELECT o.rolsuper FROM pg_catalog.pg_roles o WHERE o.rolname = current_user), false) AS superuser,
       pg_catalog.pg_get_userbyid(n.nspowner)::text AS owner,
       current_user::text AS me,
       pg_catalog.current_database()::text AS database,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS may
  FROM (SELECT 1) AS always
  LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'mill'
