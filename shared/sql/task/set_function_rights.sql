-- Revokes EXECUTE on trigger functions from all roles but their owner, whatever default privileges the database has: a role
-- that may EXECUTE one could use it as a trigger of its own table.
-- parameters: none
-- locks: none
-- caller: scheduler, in the transaction that makes the functions
DO $rights$
DECLARE
    g record;
BEGIN
    FOR g IN SELECT DISTINCT p.oid::pg_catalog.regprocedure AS object, COALESCE(pg_catalog.quote_ident(r.rolname), 'PUBLIC') AS role
               FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace,
                    pg_catalog.aclexplode(COALESCE(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
                    LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
              WHERE n.nspname = {schema_text} AND p.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype
                AND pg_catalog.starts_with(p.proname::text, 'mill_') AND a.grantee <> p.proowner
                AND pg_catalog.pg_get_userbyid(p.proowner) = current_user LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', g.object, g.role);
    END LOOP;
END
$rights$;
