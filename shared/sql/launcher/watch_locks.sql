-- Reads messages, work on whole databases (DROP, RENAME, SET TABLESPACE, use as a template), work on marker tables
-- (uninstall, upgrade), and the leader, from pg_locks.
-- parameters: leader_kind oid, message_kinds bigint[], marker_tables oid[], own_backends int[]
-- locks: none
-- caller: launcher, every 200 ms
SELECT l.locktype, COALESCE(l.database, 0) AS database, COALESCE(l.relation, 0) AS relation,
       COALESCE(l.classid, 0) AS classid, COALESCE(l.objid, 0) AS objid, l.pid, l.virtualtransaction AS holder, a.usesysid AS role
  FROM pg_catalog.pg_locks l
  LEFT JOIN LATERAL (SELECT s.usesysid FROM pg_catalog.pg_stat_get_activity(COALESCE(l.pid, -1)) s) AS a ON true
 WHERE l.granted
   AND (l.locktype = 'advisory' AND l.objsubid = 2 AND l.mode = 'ExclusiveLock'
            AND (l.classid = :leader_kind::oid OR l.classid::bigint & ~65280 = ANY (:message_kinds::bigint[]))
        OR l.locktype = 'object' AND l.classid = 1262 AND l.mode IN ('ShareLock', 'AccessExclusiveLock')
            AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
        OR l.locktype = 'relation' AND l.relation = ANY (:marker_tables::oid[]) AND l.mode = 'AccessExclusiveLock'
            AND COALESCE(l.pid <> ALL (:own_backends::int[]), true))
