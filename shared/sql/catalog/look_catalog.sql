-- Is there a catalog, is it one of ours, may we use it, and could we make it?
-- parameters: none; locks: none; caller: scheduler, launcher's commands
SELECT n.oid IS NOT NULL AS there,
       EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'meta') AS marked,
       COALESCE(pg_catalog.pg_has_role(n.nspowner, 'USAGE'), false) AS ours,
       COALESCE(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false)
           AND COALESCE((SELECT pg_catalog.bool_and(pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
                           FROM pg_catalog.pg_proc p
                          WHERE p.pronamespace = n.oid AND p.proname IN ('s_version', 's_register')), false) AS admitted,
       -- what we call must run as the catalog's owner, not as us; and a superuser calls nothing that another could change
       COALESCE((SELECT pg_catalog.bool_and(p.prosecdef AND p.proowner = n.nspowner)
                   FROM pg_catalog.pg_proc p
                  WHERE p.pronamespace = n.oid AND pg_catalog.starts_with(p.proname::text, 's_')), true)
           AND COALESCE((SELECT o.rolsuper OR NOT me.rolsuper FROM pg_catalog.pg_roles o, pg_catalog.pg_roles me
                          WHERE o.oid = n.nspowner AND me.rolname = current_user), true) AS trusted,
       pg_catalog.pg_get_userbyid(n.nspowner)::text AS owner,
       current_user::text AS me,
       pg_catalog.current_database()::text AS database,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS may
  FROM (SELECT 1) AS always
  LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'mill'
