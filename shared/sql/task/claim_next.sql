-- A worker that may run more tasks of its group claims them straight to WORK, in the transaction that ended the ones before:
-- one to sixteen rows; plain tasks, or runs of one job, or tasks of one remote, never mixed. Of several it gets the first ones in
-- their order, up to the first that has to be alone (atomic, with a session of its own to keep, with consequences, with a
-- short time limit, or where so many could be beyond its own count); that one is claimed alone when it comes first. The
-- candidate's own count and live decide whether this worker is still good for it. A row that still names a backend was
-- planned again by its owner while it ran: the scheduler judges it.
-- The hash is asked for as a range, so that only the index that begins with it has the right order: no other index,
-- whatever the statistics say, makes the worker of a small group read past all rows of a large one. One statement for any
-- number: it is planned once in a session, and with our settings the number has no say in the plan.
-- `max` is what the worker was started for, `executed` how many tasks it has run, `first_start` when the first of them
-- began. A worker for a remote has a `remote`, its pid there and what tells its session from later ones. `last_*` are of the
-- last row claimed, where a scan start is asked for.
-- parameters: group text, max int, executed int, first_start float8, remote text, remote_pid int,
--     remote_session text, job int, rows int, last_max int, last_priority int, last_id bigint
-- locks: the rows
-- caller: worker
WITH near AS MATERIALIZED (
    SELECT t.id, {key} AS key,
           t.atomic OR t.save OR t.repeat > interval '0' OR (t.count > 0 AND t.count - :rows::int < :executed::int)
               OR (t.timeout > interval '0' AND t.timeout < interval '1 second') AS alone
      FROM {queue} t
     WHERE t.state = 'PLAN' AND NOT t.held AND t.hash >= pg_catalog.hashtext(:group::text || COALESCE(:remote::text, ''))
       AND t.hash <= pg_catalog.hashtext(:group::text || COALESCE(:remote::text, '')) AND t."group" = :group::text
       AND t.remote IS NOT DISTINCT FROM :remote::text AND t.plan <= statement_timestamp() AND t."max" >= :max::int
       AND NOT {expired} AND t.pid IS NULL AND t.job IS NOT DISTINCT FROM :job::int {scan}
       AND CASE WHEN t.count > 0 AND t.live > interval '0' THEN :executed::int < t.count AND {young}
                ELSE :executed::int < t.count OR {young} END {proof}
     ORDER BY t.hash, t."max" DESC, t.priority DESC, t.id LIMIT :rows::int FOR UPDATE SKIP LOCKED
)
UPDATE {queue} t SET state = 'WORK', attempt = {next_attempt}, start = statement_timestamp(),
       pid = COALESCE(:remote_pid::int, pg_catalog.pg_backend_pid()), remote_session = :remote_session::text
  FROM near n
 WHERE t.id = n.id AND (COALESCE(n.key < (SELECT min(a.key) FROM near a WHERE a.alone), true)
                        OR n.key = (SELECT min(f.key) FROM near f))
RETURNING {returned}{setup}{setup_of_run}
