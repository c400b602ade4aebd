-- A worker that may run another task of its group takes it straight to WORK, in the transaction that finished the
-- one before; plain tasks or runs of one job, never mixed. The candidate's own count and live decide whether this worker
-- is still good for it. A row that still names a backend was planned again by its owner while it ran: that is the
-- scheduler's to judge.
-- The hash is asked for as a range, so that only the index that begins with it has the right order: no other index,
-- whatever the statistics say, makes the worker of a small group read past all rows of a large one.
-- parameters: group, max that the worker was started for, tasks run so far, start of the first one; of a worker for
-- a remote: that remote, its pid there, what tells its session from later ones; the job; and what the dressing and the
-- floor ask for (from where on the waiting rows are looked at, a hint);
-- locks: the row; caller: worker
UPDATE {queue} t SET state = 'WORK', attempt = {next_attempt}, start = statement_timestamp(),
       pid = COALESCE($6::int, pg_catalog.pg_backend_pid()), remote_session = $7::text
 WHERE t.id = (
    SELECT t.id FROM {queue} t
     WHERE t.state = 'PLAN' AND NOT t.held AND t.hash >= pg_catalog.hashtext($1::text || COALESCE($5::text, ''))
       AND t.hash <= pg_catalog.hashtext($1::text || COALESCE($5::text, '')) AND t."group" = $1::text
       AND t.remote IS NOT DISTINCT FROM $5::text AND t.plan <= statement_timestamp() AND t."max" >= $2::int AND NOT {expired} AND t.pid IS NULL
       AND t.job IS NOT DISTINCT FROM $8::int {floor}
       AND CASE WHEN t.count > 0 AND t.live > interval '0' THEN $3::int < t.count AND {young}
                ELSE $3::int < t.count OR {young} END {beside}
     ORDER BY t.hash, t."max" DESC, t.priority DESC, t.id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING {task_row}{dressing}
