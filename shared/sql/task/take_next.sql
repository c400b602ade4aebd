-- A worker that may run another task of its group takes it straight to WORK, in the transaction that finished the
-- one before; plain tasks or runs of one job, never mixed. The candidate's own count and live decide whether this worker
-- is still good for it. A row that still names a backend was planned again by its owner while it ran: that is the
-- scheduler's to judge.
-- The hash is asked for as a range, so that only the index that begins with it has the right order: no other index,
-- whatever the statistics say, makes the worker of a small group read past all rows of a large one.
-- `max` is what the worker was started for, `executed` how many tasks it has run, `first_start` when the first of them began. A worker
-- for a remote has a `remote`, its pid there and what tells its session from later ones. The session setup reads `schema` to `queue`, the scan start
-- the `last_*` of the last row taken; a text without these parts is sent fewer values.
-- parameters: group text, max int, executed int, first_start float8, remote text, remote_pid int,
--     remote_session text, job int, schema text, table text, session_name text, queue regclass, last_max int,
--     last_priority int, last_id bigint
-- locks: the row
-- caller: worker
UPDATE {queue} t SET state = 'WORK', attempt = {next_attempt}, start = statement_timestamp(),
       pid = COALESCE(:remote_pid::int, pg_catalog.pg_backend_pid()), remote_session = :remote_session::text
 WHERE t.id = (
    SELECT t.id FROM {queue} t
     WHERE t.state = 'PLAN' AND NOT t.held AND t.hash >= pg_catalog.hashtext(:group::text || COALESCE(:remote::text, ''))
       AND t.hash <= pg_catalog.hashtext(:group::text || COALESCE(:remote::text, '')) AND t."group" = :group::text
       AND t.remote IS NOT DISTINCT FROM :remote::text AND t.plan <= statement_timestamp() AND t."max" >= :max::int AND NOT {expired} AND t.pid IS NULL
       AND t.job IS NOT DISTINCT FROM :job::int {scan}
       AND CASE WHEN t.count > 0 AND t.live > interval '0' THEN :executed::int < t.count AND {young}
                ELSE :executed::int < t.count OR {young} END {proof}
     ORDER BY t.hash, t."max" DESC, t.priority DESC, t.id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING {task_row}{setup}{setup_of_run}
