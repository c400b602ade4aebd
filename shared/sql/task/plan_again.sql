-- An attempt that ended without a result goes back to PLAN, if no backend runs it any more. Of a remote one the
-- caller knows that.
-- Not if somebody else has the row locked: nobody waits for him, and it is tried again.
-- parameters: id, attempt; locks: the row; caller: scheduler (worker gone), worker (interrupted)
UPDATE {queue} t SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL, remote_session = NULL
 WHERE t.id = (SELECT f.id FROM {queue} f WHERE f.id = $1::bigint AND f.attempt = $2::int AND f.state IN ('TAKE', 'WORK')
                  FOR UPDATE SKIP LOCKED)
   AND t.attempt = $2::int AND t.state IN ('TAKE', 'WORK')
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
                    WHERE t.state = 'WORK' AND t.remote_session IS NULL AND a.pid = t.pid AND a.backend_start <= t.start
                      AND a.pid <> pg_catalog.pg_backend_pid())
RETURNING t.id
