-- Reads whether the table has the row triggers of jobs with our functions, so that nothing has to be changed, and the OID of
-- our user. And the OID of our user.
-- parameters: table_oid oid
-- locks: none
-- caller: scheduler, at the start of a session
SELECT (SELECT count(*) = 5 FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
         WHERE t.tgrelid = :table_oid::oid AND pg_catalog.starts_with(t.tgname::text, 'mill_job_') AND p.proowner = r.oid
           AND pg_catalog.starts_with(p.proname::text, pg_catalog.concat('mill_run_', :table_oid::oid, '_', r.oid, '_'))
           AND p.prosrc LIKE '%pgmill run triggers 3%') AS there, r.oid AS me
  FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
