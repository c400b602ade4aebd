-- Reads a number over what ALTER ROLE .. SET and ALTER DATABASE .. SET give to a new session: a connection with another
-- number is not pooled any more.
-- parameters: none
-- locks: none
-- caller: scheduler, in every full pass
SELECT COALESCE(pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat(s.setdatabase, ' ', s.setrole, ' ', s.setconfig), 0)
         % 1000000007), 0)::bigint AS defaults
  FROM pg_catalog.pg_db_role_setting s
 WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()))
   AND s.setrole IN (0, (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = session_user))
