-- The views on jobs and runs. Each role sees the jobs of the roles that it is a member of.
-- parameters: none; locks: none; caller: installation, once per database

-- A role that row security of mill.job does not apply to, such as its owner, sees all rows.
CREATE VIEW mill.job_stat WITH (security_barrier) AS
SELECT s.job, s.last_start, s.last_finish, s.last_successful_finish, s.last_run_success, s.next_start, s.total_runs, s.total_successes,
       s.total_failures, s.total_crashes, s.consecutive_failures, s.consecutive_crashes, s.total_duration, s.total_duration_failures,
       s.reason, s.queue, s.scheduled, s.run, s.running, s.fill, s.stamp, s.due
  FROM mill_private.job_live s
 WHERE (SELECT NOT row_security_active('mill.job'::regclass))
    OR EXISTS (SELECT FROM mill.job j WHERE j.id = s.job AND mill_private.is_member(j.owner));
COMMENT ON VIEW mill.job_stat IS 'pgmill: statistics of every job, and when it starts next; unknown is NULL';
COMMENT ON COLUMN mill.job_stat.job IS 'the id of the job';
COMMENT ON COLUMN mill.job_stat.last_start IS 'when a run began last';
COMMENT ON COLUMN mill.job_stat.last_finish IS 'when a run ended last';
COMMENT ON COLUMN mill.job_stat.last_successful_finish IS 'when a run succeeded last';
COMMENT ON COLUMN mill.job_stat.last_run_success IS 'whether the last run that ended succeeded';
COMMENT ON COLUMN mill.job_stat.next_start IS 'when its schedule starts it next';
COMMENT ON COLUMN mill.job_stat.total_runs IS 'runs that have begun';
COMMENT ON COLUMN mill.job_stat.total_successes IS 'runs that have succeeded';
COMMENT ON COLUMN mill.job_stat.total_failures IS 'runs that have failed';
COMMENT ON COLUMN mill.job_stat.total_crashes IS 'starts without an end: it rises when a run starts and falls when it ends';
COMMENT ON COLUMN mill.job_stat.consecutive_failures IS 'failures since the last success';
COMMENT ON COLUMN mill.job_stat.consecutive_crashes IS 'crashes since the last run that ended without one, and runs under way';
COMMENT ON COLUMN mill.job_stat.total_duration IS 'how long the successful runs took';
COMMENT ON COLUMN mill.job_stat.total_duration_failures IS 'how long the failed runs took';
COMMENT ON COLUMN mill.job_stat.reason IS 'why the catalog has paused the job; NULL if a user did';
COMMENT ON COLUMN mill.job_stat.queue IS 'the OID of the task table';
COMMENT ON COLUMN mill.job_stat.scheduled IS 'as in mill.job';
COMMENT ON COLUMN mill.job_stat.run IS 'the open activation that its schedule has started: the id of its first run';
COMMENT ON COLUMN mill.job_stat.running IS 'runs that have begun and not ended';
COMMENT ON COLUMN mill.job_stat.fill IS 'next_start waits for the scheduler, because SQL cannot compute it (cron)';
COMMENT ON COLUMN mill.job_stat.stamp IS 'rises with every change of the plan; an answer to an older one is ignored';
COMMENT ON COLUMN mill.job_stat.due IS 'when its scheduler starts it: next_start, unless it is paused or an activation is open';

CREATE VIEW mill.job_status WITH (security_barrier) AS
SELECT j.id AS job, j.name, j.owner, j.queue,
       CASE WHEN s.running > 0 THEN 'Running' WHEN j.scheduled THEN 'Scheduled' ELSE 'Paused' END AS status,
       CASE WHEN j.scheduled THEN s.next_start END AS next_start,
       CASE WHEN s.running > 0 THEN format('running since %s', s.last_start)
            WHEN NOT j.scheduled THEN COALESCE(s.reason, 'paused by a user (scheduled = false)')
            WHEN NOT s.served THEN format('no scheduler serves %s: is the launcher running? check with: launcher status', j.queue)
            WHEN s.fill THEN 'its scheduler computes the next start'
            WHEN s.consecutive_crashes > 0 THEN format('the last run crashed: it is retried at %s', s.next_start)
            WHEN s.run IS NOT NULL AND s.next_start > mill.now() THEN format('the last run failed: it is retried at %s', s.next_start)
            WHEN s.next_start <= mill.now() THEN format('due since %s: it waits for a free slot or for its group', s.next_start)
            WHEN s.next_start IS NOT NULL THEN format('planned for %s', s.next_start)
            WHEN j.schedule_interval IS NULL AND j.cron IS NULL THEN 'no schedule: edges or mill.run_job start it'
            ELSE 'its schedule has no times left' END AS why
  FROM mill.job j
  CROSS JOIN LATERAL (
    SELECT s.*, mill_private.is_locked({queue_key}, s.queue, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())) AS served
      FROM mill_private.job_live s WHERE s.job = j.id) AS s
 WHERE mill_private.is_member(j.owner);
COMMENT ON VIEW mill.job_status IS 'pgmill: whether each job runs, waits or is paused, when it starts next, and why';
COMMENT ON COLUMN mill.job_status.job IS 'the id of the job';
COMMENT ON COLUMN mill.job_status.name IS 'the name of the job';
COMMENT ON COLUMN mill.job_status.owner IS 'the owner of the job';
COMMENT ON COLUMN mill.job_status.queue IS 'the task table, as schema.table';
COMMENT ON COLUMN mill.job_status.status IS 'Running, Scheduled or Paused';
COMMENT ON COLUMN mill.job_status.next_start IS 'when its schedule starts it next; NULL while it is paused';
COMMENT ON COLUMN mill.job_status.why IS 'why it is not running, in one sentence';

-- On PostgreSQL 15 and later the view runs as its reader, so that the planner can inline it and the row security of the tables
-- applies. PostgreSQL 14 has no such views: a security barrier hides the runs of other roles, and a join with mill.job by its name
-- reads all runs of the reader.
DO $function$
BEGIN
    EXECUTE format($view$
        CREATE VIEW mill.run WITH (%s) AS
        SELECT r.id, j.name, j.flow, format('%%I.%%I', q.schema, q.name) AS queue, r.job, r.task, r.attempt, r.at,
               COALESCE(r.outcome, 'running') AS state, r.start, r.stop, r.sqlstate, r.reason, r.error, r.output, r.definition,
               COALESCE(r.activation, r.id) AS run_of
          FROM mill_private.run r JOIN mill.job j ON j.id = r.job LEFT JOIN mill.queue q ON q.relid = r.queue
         WHERE (r.start IS NOT NULL OR r.outcome IS NOT NULL) %s$view$,
        CASE WHEN current_setting('server_version_num')::int >= 150000 THEN 'security_invoker' ELSE 'security_barrier' END,
        CASE WHEN current_setting('server_version_num')::int >= 150000 THEN ''
             ELSE $right$AND j.owner = ANY (ARRAY(SELECT o.rolname FROM pg_roles o WHERE pg_has_role(o.oid, 'MEMBER')))$right$ END);
END
$function$;
COMMENT ON VIEW mill.run IS 'pgmill: every run of every job that has begun or ended';
COMMENT ON COLUMN mill.run.id IS 'what mill.run and mill.run_job return; never used again';
COMMENT ON COLUMN mill.run.name IS 'the name of the job';
COMMENT ON COLUMN mill.run.flow IS 'the flow of the job';
COMMENT ON COLUMN mill.run.queue IS 'the task table that it ran in; NULL = it needed no worker';
COMMENT ON COLUMN mill.run.job IS 'the id of the job';
COMMENT ON COLUMN mill.run.task IS 'its row in the task table, which may be deleted by now';
COMMENT ON COLUMN mill.run.attempt IS 'counts the runs of one activation';
COMMENT ON COLUMN mill.run.at IS 'the logical time that it ran for';
COMMENT ON COLUMN mill.run.state IS 'running, succeeded, failed, crashed, interrupted, cancelled or skipped';
COMMENT ON COLUMN mill.run.start IS 'when it began';
COMMENT ON COLUMN mill.run.stop IS 'when it ended';
COMMENT ON COLUMN mill.run.sqlstate IS 'SQLSTATE of the error, if the server gave one';
COMMENT ON COLUMN mill.run.reason IS 'why it ended other than by its own SQL';
COMMENT ON COLUMN mill.run.error IS 'the error, as the server reported it';
COMMENT ON COLUMN mill.run.output IS 'the result of the input';
COMMENT ON COLUMN mill.run.definition IS 'the input that was run';
COMMENT ON COLUMN mill.run.run_of IS 'the first run of the same activation';
