-- Reads what exists under the name of the queue.
-- parameters: none
-- locks: none
-- caller: scheduler, at every start of a session
SELECT c.oid AS relid,
       (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = {schema_text}) AS schema,
       (SELECT t.oid FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
         WHERE n.nspname = {schema_text} AND t.typname = 'state' AND t.typtype = 'e') AS state,
       c.relkind::text AS kind,
       COALESCE(pg_catalog.row_security_active(c.oid), false) AS guarded,
       -- whoever owns the table decides what its triggers do, and they run as us
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
       COALESCE((SELECT o.rolsuper OR o.rolname = current_user
                        OR NOT me.rolsuper AND pg_catalog.pg_has_role(current_user, o.oid, 'MEMBER')
                   FROM pg_catalog.pg_roles o, pg_catalog.pg_roles me
                  WHERE o.oid = c.relowner AND me.rolname = current_user), false) AS trusted,
       (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user) AS superuser,
       pg_catalog.pg_is_in_recovery() AS standby,
       pg_catalog.pg_backend_pid() AS backend
  FROM (SELECT 1) AS always
  LEFT JOIN (pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace)
    ON s.nspname = {schema_text} AND c.relname = {table_text}
