-- Ends the session that holds this queue, if an earlier leader of this launcher's name has left it behind (a host that
-- froze, or was cut off): it has the mark of that name, but not that of the leading session. That this one holds the
-- leader's lock is looked at in the same moment: a scheduler that has slept through its own launcher's end ends nobody. Half
-- a second is waited for its end. `term` is the server process of the session by which our launcher leads.
-- parameters: queue_kind int, table_oid oid, launcher_kind int, launcher_name text, term_kind int, term int,
--     leader_kind int
-- locks: none
-- caller: scheduler that finds its queue held
SELECT h.pid AS backend, pg_catalog.pg_terminate_backend(h.pid, 500) AS ended
  FROM pg_catalog.pg_locks h
  JOIN pg_catalog.pg_stat_get_activity(NULL) a ON a.pid = h.pid
  JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid
  JOIN pg_catalog.pg_roles me ON me.rolname = current_user
 WHERE h.locktype = 'advisory' AND h.objsubid = 2 AND h.granted AND h.mode = 'ExclusiveLock'
   AND h.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
   AND h.classid = :queue_kind::int::oid AND h.objid = :table_oid::oid
   AND EXISTS (SELECT FROM pg_catalog.pg_locks n WHERE n.locktype = 'advisory' AND n.objsubid = 2 AND n.granted AND n.pid = h.pid
                  AND n.classid = :launcher_kind::int::oid AND n.objid::bigint = pg_catalog.hashtext(:launcher_name)::bigint & 4294967295)
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_locks t WHERE t.locktype = 'advisory' AND t.objsubid = 2 AND t.granted AND t.pid = h.pid
                      AND t.classid = :term_kind::int::oid AND t.objid::bigint = :term::int)
   AND EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.pid = :term::int
                  AND l.classid = :leader_kind::int::oid AND l.objid::bigint = pg_catalog.hashtext(:launcher_name)::bigint & 4294967295)
   AND (me.rolsuper OR NOT r.rolsuper AND (pg_catalog.pg_has_role(a.usesysid, 'USAGE')
                                           OR pg_catalog.pg_has_role('pg_signal_backend', 'USAGE')))
