-- Returns an attempt that ended without a result to PLAN, if no backend runs it any more. The run of a job that has begun
-- never does: it is closed with the reason, and its triggers see to what follows. Of a remote one the caller knows that no
-- backend runs it. Not if somebody else has the row locked: nobody waits for him, and it is tried again. A backend that is
-- kept for the next worker, or is used by another task since, is a stranger to it: it does not run it. A task whose attempts kill their
-- worker or their server process waits from the second such death in a row on, 1 s at first, then twice as long each time, 5
-- min at most. After the 20th it is not planned again: the answer says that it is spent. A connection that the server closed
-- without a word counts if the server is still the same: then the task's own server process has died, and one that stopped
-- or crashed because of others would have said so. The time that a repetition is computed from is kept in `at` meanwhile.
-- `died`: its worker died, or lost its connection without a word; of the latter, `server_began_us` is when the server began.
-- `foreign_backends` do not run it.
-- parameters: id bigint, attempt int, reason text, foreign_backends int[], died bool, server_began_us bigint
-- locks: the row
-- caller: scheduler (worker gone), worker (interrupted)
WITH ours AS MATERIALIZED (
    SELECT f.id, f.attempt, f.job IS NOT NULL AND f.state = 'WORK' AS closes,
           CASE WHEN :died::bool AND f.job IS NULL AND f.state = 'WORK'
                 AND COALESCE(:server_began_us::bigint = (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint, true)
                THEN f.crashes + 1 END AS crashes
      FROM {queue} f
     WHERE f.id = :id::bigint AND f.attempt = :attempt::int AND f.state IN ('TAKE', 'WORK')
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
                        WHERE f.state = 'WORK' AND f.remote_session IS NULL AND a.pid = f.pid AND a.backend_start <= f.start
                          AND a.pid <> pg_catalog.pg_backend_pid() AND a.pid <> ALL (:foreign_backends::int[]))
       FOR UPDATE SKIP LOCKED
), planned AS (
    UPDATE {queue} t SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL, remote_session = NULL,
           crashes = COALESCE(o.crashes, t.crashes), held = t.held OR COALESCE(o.crashes > 1, false),
           at = CASE WHEN o.crashes > 1 AND t.repeat > interval '0' AND NOT t.drift THEN COALESCE(t.at, t.plan) ELSE t.at END,
           plan = CASE WHEN o.crashes > 1
                       THEN statement_timestamp() + LEAST(300, 2 ^ LEAST(o.crashes - 2, 9)) * interval '1 s' ELSE t.plan END
      FROM ours o WHERE t.id = o.id AND t.attempt = :attempt::int AND t.state IN ('TAKE', 'WORK') AND NOT o.closes
       AND (o.crashes >= 20) IS NOT TRUE
    RETURNING t.id, o.crashes, t.plan
), closed AS (
    UPDATE {queue} t SET state = 'FAIL', stop = statement_timestamp(), reason = :reason::text, output = COALESCE(t.output, ''),
           error = CASE :reason::text WHEN 'timeout' THEN 'ERROR:  task ended: it took longer than max_runtime'
                                 ELSE pg_catalog.concat('ERROR:  task ', :reason::text) END
      FROM ours o WHERE t.id = o.id AND t.attempt = :attempt::int AND t.state = 'WORK' AND o.closes
    RETURNING t.id
)
SELECT p.id::bigint AS id, false AS closed, false AS spent, p.crashes::int AS crashes,
       ceil(extract(epoch FROM p.plan - statement_timestamp()))::float8 AS wait
  FROM planned p
UNION ALL SELECT c.id::bigint, true, false, NULL, NULL FROM closed c
UNION ALL SELECT o.id::bigint, false, true, o.crashes::int, NULL FROM ours o WHERE o.crashes >= 20
