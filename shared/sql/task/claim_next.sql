-- A worker that may run more tasks of its group claims them straight to WORK, in the transaction that ended the ones before:
-- one to sixteen rows; plain tasks, or runs of one job, or tasks of one remote, never mixed. Of several it gets the first ones in
-- their order, up to the first that has to be alone (atomic, with a session of its own to keep, with consequences, with a
-- short time limit, or where so many could be beyond its own count); that one is claimed alone when it comes first. The
-- candidate's own count and live decide whether this worker is still good for it. A row that still names a backend was
-- planned again by its owner while it ran: the scheduler judges it.
-- The hash is asked for as a range, so that only the index that begins with it has the right order: no other index,
-- whatever the statistics say, makes the worker of a small group read past all rows of a large one. One statement for any
-- number: it is planned once in a session, and with our settings the number has no say in the plan.
-- parameters: group, max that the worker was started for, tasks run so far, start of the first one; of a worker for a
-- remote: that remote, its pid there, what tells its session from later ones; the job; how many; where a scan start is asked
-- for: max, priority and id of the last row claimed (a hint); locks: the rows; caller: worker
WITH near AS MATERIALIZED (
    SELECT t.id, {key} AS key,
           t.atomic OR t.save OR t.repeat > interval '0' OR (t.count > 0 AND t.count - $9::int < $3::int)
               OR (t.timeout > interval '0' AND t.timeout < interval '1 second') AS alone
      FROM {queue} t
     WHERE t.state = 'PLAN' AND NOT t.held AND t.hash >= pg_catalog.hashtext($1::text || COALESCE($5::text, ''))
       AND t.hash <= pg_catalog.hashtext($1::text || COALESCE($5::text, '')) AND t."group" = $1::text
       AND t.remote IS NOT DISTINCT FROM $5::text AND t.plan <= statement_timestamp() AND t."max" >= $2::int AND NOT {expired}
       AND t.pid IS NULL AND t.job IS NOT DISTINCT FROM $8::int {scan_start}
       AND CASE WHEN t.count > 0 AND t.live > interval '0' THEN $3::int < t.count AND {young}
                ELSE $3::int < t.count OR {young} END {beside}
     ORDER BY t.hash, t."max" DESC, t.priority DESC, t.id LIMIT $9::int FOR UPDATE SKIP LOCKED
)
UPDATE {queue} t SET state = 'WORK', attempt = {next_attempt}, start = statement_timestamp(),
       pid = COALESCE($6::int, pg_catalog.pg_backend_pid()), remote_session = $7::text
  FROM near n
 WHERE t.id = n.id AND (COALESCE(n.key < (SELECT min(a.key) FROM near a WHERE a.alone), true)
                        OR n.key = (SELECT min(f.key) FROM near f))
RETURNING {returned}{setup}
