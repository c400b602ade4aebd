-- Is there a catalog, is it ours, and could we make it?
-- parameters: none; locks: none; caller: scheduler
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'mill') AS there,
       COALESCE(pg_catalog.pg_has_role((SELECT nspowner FROM pg_catalog.pg_namespace WHERE nspname = 'mill'), 'USAGE'),
                false) AS ours,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS may
