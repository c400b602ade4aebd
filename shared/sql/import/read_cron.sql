-- Reads how pg_cron is installed in this database, and what this session may see of it. Its zone is a setting since 1.5,
-- which only some roles may read (`hidden`: not this one); before, it was always GMT. A table without the extension was
-- copied from somewhere, and then a setting of that name is what somebody says about it.
-- parameters: none
-- locks: none
-- caller: the launcher's import
SELECT pg_catalog.to_regclass('cron.job') IS NOT NULL AS there,
       COALESCE(pg_catalog.row_security_active(pg_catalog.to_regclass('cron.job')), false) AS only_own,
       NULLIF(CASE WHEN e.version IS NULL THEN pg_catalog.current_setting('cron.timezone', true) ELSE s.setting END, '') AS zone,
       COALESCE(e.version >= ARRAY[1, 5] AND s.setting IS NULL, false) AS hidden,
       pg_catalog.current_setting('port')::int AS port, current_user::text AS me
  FROM (SELECT 1) AS one
  LEFT JOIN (SELECT pg_catalog.string_to_array(pg_catalog.regexp_replace(extversion, '[^0-9.].*$', ''), '.')::int[] AS version
               FROM pg_catalog.pg_extension WHERE extname = 'pg_cron') AS e ON true
  LEFT JOIN pg_catalog.pg_settings s ON s.name = 'cron.timezone'
