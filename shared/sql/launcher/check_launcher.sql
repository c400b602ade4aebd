-- Reads which roles and databases of the queues exist, and whether the launcher may end the sessions of each role.
-- parameters: roles text[], databases text[]
-- locks: none
-- caller: launcher check --connect, as the launcher's login
SELECT w.role, w.database,
       r.oid IS NOT NULL AS there, COALESCE(r.rolsuper, false) AS superuser,
       EXISTS (SELECT FROM pg_catalog.pg_database d WHERE d.datname = w.database) AS database_there,
       COALESCE(me.rolsuper OR pg_catalog.pg_has_role(r.oid, 'USAGE'), false)
           OR NOT COALESCE(r.rolsuper, false) AND pg_catalog.pg_has_role('pg_signal_backend', 'USAGE')
              AND pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') AS ends,
       me.rolsuper OR me.rolcreaterole AS makes_roles,
       me.rolsuper OR me.rolcreatedb AS makes_databases,
       current_user::text AS me
  FROM ROWS FROM (pg_catalog.unnest(:roles::text[]), pg_catalog.unnest(:databases::text[])) AS w (role, database)
  JOIN pg_catalog.pg_roles me ON me.rolname = current_user
  LEFT JOIN pg_catalog.pg_roles r ON r.rolname = w.role
