-- Reads the OID of the catalog's marker table, which a scheduler compares with the one that it knows. Nobody tells us of a
-- quick uninstall.
-- parameters: none
-- locks: none
-- caller: scheduler, at most once a second while it looks at its queue
SELECT c.oid AS marker FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'mill' AND c.relname = 'meta'
