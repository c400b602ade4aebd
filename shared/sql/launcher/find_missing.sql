-- Reads whether the role and the database of a queue exist, and whether the launcher may create them.
-- parameters: role name, database name
-- locks: none
-- caller: launcher
SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = :role) AS role,
       EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = :database) AS database,
       pg_catalog.current_setting('server_version_num')::int >= 160000 AS inherits,
       r.rolsuper AS superuser
  FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
