-- A server process `a` is one of ours for the task `t`, and no innocent session whose pid stands in the row: it shows
-- the lock of that task, or it shows none and bears the name of this queue's sessions.
CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory'
                         AND l.objsubid = 2 AND l.granted AND l.classid = {task_key}::oid)
    THEN EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.objsubid = 2
                    AND l.granted AND l.classid = {task_key}::oid AND l.objid = pg_catalog.hashtext(pg_catalog.concat(
                        {queue_text}::pg_catalog.regclass::pg_catalog.oid, ':', t.id))::oid)
    ELSE pg_catalog.starts_with(a.application_name,
             pg_catalog."left"(pg_catalog.concat('pg_task ', {schema_text}, ' ', {table_text}), 63)) END
