-- An earlier attempt still runs: somebody planned the row again before its worker had let go of it (`assigned_ids`:
-- tasks that live workers are at or have in their batches). A backend that has a row in WORK is at that one, and one
-- that is kept for the next worker (`idle_backends`) is at none. Of a remote task's backend nothing is seen here: its
-- worker holds the task's lock as long as it is at it, and the scheduler another one while nobody knows.
(t.pid IS NOT NULL AND CASE WHEN t.remote_session IS NULL
    THEN t.id = ANY (:assigned_ids::bigint[]) OR EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
        WHERE a.pid = t.pid AND a.backend_start <= t.start AND a.pid <> pg_catalog.pg_backend_pid()
          AND a.pid <> ALL (:idle_backends::int[])
          AND NOT EXISTS (SELECT FROM {queue} w WHERE w.state = 'WORK' AND w.remote_session IS NULL AND w.pid = t.pid))
    ELSE EXISTS (SELECT FROM pg_catalog.pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND (l.pid <> pg_catalog.pg_backend_pid() OR l.classid = {unknown_key}::oid)
          AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
          AND l.classid IN ({task_key}::oid, {unknown_key}::oid) AND l.objid = pg_catalog.hashtext(pg_catalog.concat(
              {queue_text}::pg_catalog.regclass::pg_catalog.oid, ':', t.id))::oid) END)
