-- Do the triggers of jobs hang on the table, so that nothing has to be changed on it?
-- parameters: table OID; locks: none; caller: scheduler, at the start of a session and when it mends
SELECT count(*) >= 5 AS hung FROM pg_catalog.pg_trigger t WHERE t.tgrelid = $1::oid AND pg_catalog.starts_with(t.tgname::text, 'mill_job_')
