-- An attempt that ended without a result goes back to PLAN, if no backend runs it any more. The run of a job that has
-- begun never does: it is closed with the reason, and its triggers see to what follows. Of a remote one the caller knows
-- that no backend runs it.
-- Not if somebody else has the row locked: nobody waits for him, and it is tried again. A backend that is kept for the next
-- worker, or was lent on since, is a stranger to it: it does not run it.
-- parameters: id, attempt, why it ended, backends that do not run it; locks: the row; caller: scheduler (worker gone), worker (interrupted)
WITH ours AS MATERIALIZED (
    SELECT f.id, f.attempt, f.job IS NOT NULL AND f.state = 'WORK' AS closes FROM {queue} f
     WHERE f.id = $1::bigint AND f.attempt = $2::int AND f.state IN ('TAKE', 'WORK')
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
                        WHERE f.state = 'WORK' AND f.remote_session IS NULL AND a.pid = f.pid AND a.backend_start <= f.start
                          AND a.pid <> pg_catalog.pg_backend_pid() AND a.pid <> ALL ($4::int[]))
       FOR UPDATE SKIP LOCKED
), planned AS (
    UPDATE {queue} t SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL, remote_session = NULL
      FROM ours o WHERE t.id = o.id AND t.attempt = $2::int AND t.state IN ('TAKE', 'WORK') AND NOT o.closes
    RETURNING t.id
), closed AS (
    UPDATE {queue} t SET state = 'FAIL', stop = statement_timestamp(), reason = $3::text, output = COALESCE(t.output, ''),
           error = CASE $3::text WHEN 'timeout' THEN 'ERROR:  task ended: it took longer than max_runtime'
                                 ELSE pg_catalog.concat('ERROR:  task ', $3::text) END
      FROM ours o WHERE t.id = o.id AND t.attempt = $2::int AND t.state = 'WORK' AND o.closes
    RETURNING t.id
)
SELECT p.id::bigint AS id, false AS closed FROM planned p UNION ALL SELECT c.id::bigint, true FROM closed c
