-- Lists the roles that may put tasks into a queue besides its owner, its user and superusers: PUBLIC, and each role with
-- INSERT on the table or one of its columns, itself or through a membership.
-- parameters: schema name, table name
-- locks: none
-- caller: launcher check --connect, as the queue's user
WITH queue AS (
    SELECT c.oid, c.relowner, c.relacl FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
     WHERE s.nspname = :schema AND c.relname = :table
), granted AS (
    SELECT a.grantee FROM queue q, pg_catalog.aclexplode(q.relacl) a WHERE a.privilege_type = 'INSERT'
    UNION
    SELECT a.grantee FROM queue q JOIN pg_catalog.pg_attribute t ON t.attrelid = q.oid AND NOT t.attisdropped,
           pg_catalog.aclexplode(t.attacl) a WHERE a.privilege_type = 'INSERT'
    UNION
    SELECT q.relowner FROM queue q
    UNION
    SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = 'pg_write_all_data'
)
SELECT NULL AS role FROM granted g WHERE g.grantee = 0
UNION ALL
(SELECT r.rolname::text FROM pg_catalog.pg_roles r, queue q
  WHERE NOT r.rolsuper AND r.oid <> q.relowner AND r.rolname <> current_user
    AND NOT pg_catalog.starts_with(r.rolname::text, 'pg_')
    AND EXISTS (SELECT FROM granted g WHERE g.grantee <> 0 AND pg_catalog.pg_has_role(r.oid, g.grantee, 'MEMBER'))
  ORDER BY r.rolname)
