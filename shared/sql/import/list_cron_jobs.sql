-- Lists the jobs of pg_cron, whatever columns its version has.
-- parameters: none
-- locks: none
-- caller: the launcher's import
SELECT pg_catalog.to_jsonb(j)::text AS job FROM cron.job j ORDER BY j.jobid
