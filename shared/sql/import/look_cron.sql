-- What there is of pg_cron in this database, and how this session sees it.
-- parameters: none; locks: none; caller: the launcher's import
SELECT pg_catalog.to_regclass('cron.job') IS NOT NULL AS there,
       COALESCE(pg_catalog.row_security_active(pg_catalog.to_regclass('cron.job')), false) AS only_own,
       NULLIF(pg_catalog.current_setting('cron.timezone', true), '') AS zone,
       pg_catalog.current_setting('port')::int AS port, current_user::text AS me
