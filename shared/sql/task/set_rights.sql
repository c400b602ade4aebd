-- Revokes rights on a created table from all roles but its owner, whatever default privileges the database has: a role that
-- may insert into it can do what its queue's user can do.
-- parameters: none
-- locks: the new table
-- caller: scheduler, in the transaction that makes the table
DO $rights$
DECLARE
    g record;
BEGIN
    FOR g IN SELECT c.oid::pg_catalog.regclass AS object, c.relkind, COALESCE(pg_catalog.quote_ident(r.rolname), 'PUBLIC') AS role
               FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
              WHERE a.grantee <> c.relowner
                AND (c.oid = {queue_text}::pg_catalog.regclass
                     OR c.oid IN (SELECT d.objid FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                                     AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.deptype = 'a'
                                     AND d.refobjid = {queue_text}::pg_catalog.regclass)) LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON %s %s FROM %s CASCADE', CASE g.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, g.object, g.role);
    END LOOP;
END
$rights$;
