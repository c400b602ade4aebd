-- Reads whether a role may send messages to a database: a superuser, or a member of its owner or of one of the named roles.
-- parameters: sender oid, database oid, roles text[]
-- locks: none
-- caller: launcher, once per message
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_roles s WHERE s.oid = :sender
       AND (s.rolsuper
            OR EXISTS (SELECT FROM pg_catalog.pg_database d WHERE d.oid = :database
                          AND pg_catalog.pg_has_role(s.oid, d.datdba, 'MEMBER'))
            OR EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = ANY (:roles::text[])
                          AND pg_catalog.pg_has_role(s.oid, r.oid, 'MEMBER')))) AS may
