-- Ends sessions of a scheduler and its workers that do not end by themselves, where the launcher may.
-- parameters: backends int[], user text
-- locks: none
-- caller: launcher
SELECT count(pg_catalog.pg_terminate_backend(a.pid)) AS ended
  FROM pg_catalog.pg_stat_get_activity(NULL) a JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid
  JOIN pg_catalog.pg_roles me ON me.rolname = current_user
 WHERE a.pid = ANY (:backends::int[]) AND r.rolname = :user::text
   AND (me.rolsuper OR NOT r.rolsuper AND (pg_catalog.pg_has_role(a.usesysid, 'USAGE')
                                           OR pg_catalog.pg_has_role('pg_signal_backend', 'USAGE')))
