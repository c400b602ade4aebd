-- What the scheduler of a queue asks about its jobs: when the next run is due, which runs to insert into the queue or to remove from
-- it, next starts that only the scheduler can compute, and which old runs to delete. Schedulers call these functions through
-- the entry points of their queue (part `entry_point`), which fix `relid`.
-- parameters: none; locks: none; caller: installation, once per database

-- Sent at every full pass as part of a query that is needed anyway. Once in a while (`applies`) it adds the deltas of all jobs, of
-- other queues too, because a scheduler that sleeps cannot do so. `wait_ms` is about held runs that are due after `since`, `orders`
-- about rows to insert, `leftover` about numbers of deleted jobs.
CREATE FUNCTION mill_private.poll_jobs(relid oid, since timestamptz, applies bool)
    RETURNS TABLE (version bigint, due_ms float8, wait_ms float8, fill bool, orders bool, recalls bool, leftover bool)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    moment timestamptz;
    first timestamptz;
BEGIN
    IF applies THEN
        PERFORM mill_private.apply_all_deltas();
    END IF;
    version := COALESCE((SELECT sum(v.n) FROM mill_private.job_version v WHERE v.queue = relid), 0);
    moment := mill.now();
    first := (SELECT r.due FROM mill_private.run r WHERE r.queue = relid AND r.ordered AND NOT r.held AND r.outcome IS NULL
               ORDER BY r.due, r.id LIMIT 1);
    orders := COALESCE(first <= moment, false);
    due_ms := ceil(extract(epoch FROM LEAST(first,
        (SELECT s.due FROM mill_private.job_state s WHERE s.queue = relid AND s.due IS NOT NULL ORDER BY s.due LIMIT 1)) - moment) * 1000);
    wait_ms := (SELECT ceil(extract(epoch FROM r.due - moment) * 1000) FROM mill_private.run r
                 WHERE r.queue = relid AND r.ordered AND r.held AND r.outcome IS NULL AND r.due > since AND r.due < 'infinity'
                 ORDER BY r.due LIMIT 1);
    fill := EXISTS (SELECT FROM mill_private.job_state s WHERE s.queue = relid AND s.fill);
    recalls := EXISTS (SELECT FROM mill_private.run r WHERE r.queue = relid AND r.recall IS NOT NULL);
    leftover := EXISTS (SELECT FROM mill_private.job_delta t WHERE t.gone);
    RETURN NEXT;
END
$function$;
COMMENT ON FUNCTION mill_private.poll_jobs(oid, timestamptz, bool) IS 'pgmill: the version of a queue''s jobs, and when the next run is due';

-- The oldest due time first, as many as there are slots. Releases held runs of flows with a limit as well.
CREATE FUNCTION mill_private.start_jobs(relid oid, slots int) RETURNS TABLE (started int, until timestamptz)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    due record;
    made bigint;
BEGIN
    started := 0;
    until := mill.now();
    -- A crash of the server undoes the order together with the plan of its job, so the commit need not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR due IN SELECT s.job, s.next_start FROM mill_private.job_state s WHERE s.queue = relid AND s.due <= until
                ORDER BY s.due, s.job LIMIT slots FOR NO KEY UPDATE SKIP LOCKED LOOP
        made := mill_private.order_run(due.job, due.next_start, due.next_start,
                              held => NOT mill_private.may_start((SELECT j FROM mill.job j WHERE j.id = due.job)));
        UPDATE mill_private.job_state s SET run = made WHERE s.job = due.job AND made IS NOT NULL;
        started := started + 1;
    END LOOP;
    PERFORM mill_private.release_flow_runs(f.name) FROM mill.flow f WHERE f.parallel IS NOT NULL AND NOT f.paused;
    RETURN NEXT;
END
$function$;
COMMENT ON FUNCTION mill_private.start_jobs(oid, int) IS 'pgmill: orders runs of the due jobs of a queue';

-- The oldest first; they count as inserted when this transaction commits. `single`: this run alone. Returns rows only once in a
-- transaction: a rule on the task table can make the server evaluate the source of an INSERT twice.
CREATE FUNCTION mill_private.insert_runs(relid oid, most int, single bigint)
    RETURNS TABLE (run bigint, job int, at timestamptz, epoch int, run_of bigint, failures int, attempt int, priority int,
                   due timestamptz, input text, active interval, live interval, timeout interval, count int, max int,
                   "group" text, remote text, atomic bool)
    LANGUAGE plpgsql ROWS 10 SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
#variable_conflict use_column
DECLARE
    moment timestamptz := mill.now();
    place text := concat(relid, ' ', pg_current_xact_id());
BEGIN
    IF current_setting('mill.put', true) = place THEN
        RETURN;
    END IF;
    -- A crash of the server undoes order and row together, so the commit need not wait for the disk.
    PERFORM set_config('mill.put', place, true), set_config('synchronous_commit', 'off', true);
    RETURN QUERY
    WITH picked AS (
        SELECT r.id, r.job FROM mill_private.run r
         WHERE r.queue = relid AND r.ordered AND NOT r.held AND r.outcome IS NULL AND r.due <= moment AND (single IS NULL OR r.id = single)
         ORDER BY r.due, r.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED
    ), put AS (
        UPDATE mill_private.run r SET ordered = false, definition = j.input
          FROM picked p JOIN mill.job j ON j.id = p.job WHERE r.id = p.id
        RETURNING r.id, r.job, r.at, r.epoch, COALESCE(r.activation, r.id) AS root, r.failures, r.attempt, r.priority, r.due,
                  COALESCE(j.input, ''), COALESCE(j.active, interval '1000 years'), COALESCE(j.live, interval '0'),
                  COALESCE(j.timeout, interval '0'), COALESCE(j."count", 0), COALESCE(j."max", 0),
                  COALESCE(j."group", concat('job ', j.id)), j.remote, j.atomic)
    SELECT * FROM put p ORDER BY p.due, p.id;
END
$function$;
COMMENT ON FUNCTION mill_private.insert_runs(oid, int, bigint) IS 'pgmill: the runs whose rows the scheduler inserts into its queue now';

CREATE FUNCTION mill_private.next_order(relid oid) RETURNS bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN (SELECT r.id FROM mill_private.run r
             WHERE r.queue = relid AND r.ordered AND NOT r.held AND r.outcome IS NULL AND r.due <= mill.now() ORDER BY r.due, r.id LIMIT 1);
END
$function$;
COMMENT ON FUNCTION mill_private.next_order(oid) IS 'pgmill: the run that insert_runs would take first';

CREATE FUNCTION mill_private.refuse_run(relid oid, run bigint, why text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    refused int;
BEGIN
    UPDATE mill_private.run u SET held = true
     WHERE u.id = refuse_run.run AND u.queue = refuse_run.relid AND u.ordered AND NOT u.held AND u.outcome IS NULL RETURNING u.job INTO refused;
    IF FOUND THEN
        PERFORM mill_private.pause_job(refused, format('cannot be started: %s', why));
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.refuse_run(oid, bigint, text) IS 'pgmill: pauses the job of a run whose row the queue refuses';

-- STABLE: it sees what the calling statement sees.
CREATE FUNCTION mill_private.list_recalls(relid oid)
    RETURNS TABLE (run bigint, what text, reason text, error text)
    LANGUAGE plpgsql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN QUERY SELECT r.id, r.recall, r.reason, r.error FROM mill_private.run r
                  WHERE r.queue = relid AND r.recall IS NOT NULL ORDER BY r.id LIMIT 1000;
END
$function$;
COMMENT ON FUNCTION mill_private.list_recalls(oid) IS 'pgmill: rows of runs that are to leave the queue, or to end';

-- The scheduler has locked the rows or found them gone. Returns those it may delete. A run that has not ended is ordered again.
CREATE FUNCTION mill_private.withdraw_runs(relid oid, runs bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    done bigint[];
BEGIN
    WITH free AS (
        SELECT r.id FROM mill_private.run r WHERE r.id = ANY (runs) AND r.queue = relid AND r.recall = 'WITHDRAW'
           FOR NO KEY UPDATE SKIP LOCKED
    ), changed AS (
        UPDATE mill_private.run r SET recall = NULL, ordered = r.ordered OR r.outcome IS NULL FROM free f WHERE r.id = f.id RETURNING r.id)
    SELECT array_agg(c.id) INTO done FROM changed c;
    RETURN COALESCE(done, '{}');
END
$function$;
COMMENT ON FUNCTION mill_private.withdraw_runs(oid, bigint[]) IS 'pgmill: rows of runs leave their queue before they have begun';

-- STABLE: it sees what the calling statement sees.
CREATE FUNCTION mill_private.list_open_runs(relid oid) RETURNS TABLE (run bigint, begun bool, recalled bool)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN QUERY SELECT r.id, r.start IS NOT NULL, r.recall IS NOT NULL FROM mill_private.run r
                  WHERE r.outcome IS NULL AND NOT r.ordered AND r.queue = relid;
END
$function$;
COMMENT ON FUNCTION mill_private.list_open_runs(oid) IS 'pgmill: runs that should have a row in the queue';

-- `ms` is the longest time that a run may take (0: no limit), `why` the reason for which the catalog has paused the job.
CREATE FUNCTION mill_private.watch_jobs(relid oid, jobs int[])
    RETURNS TABLE (job int, ms float8, scheduled bool, name text, why text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    -- 3e12 ms are a century
    RETURN QUERY SELECT j.id, LEAST(extract(epoch FROM j.max_runtime) * 1000, 3e12)::float8, j.scheduled, j.name,
                        (SELECT s.reason FROM mill_private.job_state s WHERE s.job = j.id AND NOT j.scheduled)
                   FROM mill.job j WHERE j.id = ANY (jobs)
                    AND (EXISTS (SELECT FROM mill_private.job_state s WHERE s.job = j.id AND s.queue = relid)
                         OR EXISTS (SELECT FROM mill_private.run r WHERE r.job = j.id AND r.outcome IS NULL AND r.queue = relid));
END
$function$;
COMMENT ON FUNCTION mill_private.watch_jobs(oid, int[]) IS 'pgmill: which jobs still exist, and their max_runtime';

CREATE FUNCTION mill_private.list_unfilled_jobs(relid oid) RETURNS TABLE (job int, cron text, timezone text, initial_start timestamptz,
                                                          moment timestamptz, fresh bool, stamp bigint)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN QUERY
    SELECT j.id, j.cron, j.timezone, j.initial_start, mill.now(),
           s.last_start IS NULL AND NOT EXISTS (SELECT FROM mill_private.job_delta t WHERE t.job = s.job)
               AND NOT EXISTS (SELECT FROM mill_private.run r WHERE r.job = s.job AND r.outcome IS NULL AND r.start IS NOT NULL), s.stamp
      FROM mill_private.job_state s JOIN mill.job j ON j.id = s.job
     WHERE s.queue = list_unfilled_jobs.relid AND s.fill ORDER BY j.id LIMIT 500;
END
$function$;
COMMENT ON FUNCTION mill_private.list_unfilled_jobs(oid) IS 'pgmill: jobs whose next start the scheduler computes (cron)';

-- A run that waits for its retry starts at that time at the latest.
CREATE FUNCTION mill_private.fill_next_start(relid oid, job int, stamp bigint, next timestamptz, wrong text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    s mill_private.job_state;
BEGIN
    SELECT * INTO s FROM mill_private.job_state f
     WHERE f.job = fill_next_start.job AND f.fill AND f.stamp = fill_next_start.stamp AND f.queue = relid
       FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE mill_private.job_state f SET fill = false, stamp = f.stamp + 1,
           next_start = CASE WHEN f.run IS NULL THEN next ELSE LEAST(f.next_start, next) END
     WHERE f.job = fill_next_start.job;
    IF s.run IS NOT NULL AND next < s.next_start THEN
        PERFORM mill_private.move_waiting_run(job, s.run, next);
    END IF;
    IF wrong IS NOT NULL THEN
        PERFORM mill_private.pause_job(job, wrong);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.fill_next_start(oid, int, bigint, timestamptz, text) IS 'pgmill: the next start of a job, computed by its scheduler';

CREATE FUNCTION mill_private.set_next_start(relid oid, job int, next timestamptz) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    s record;
BEGIN
    SELECT f.run, f.queue INTO s FROM mill_private.job_state f WHERE f.job = set_next_start.job AND (relid IS NULL OR f.queue = relid);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE mill_private.job_state f SET next_start = set_next_start.next, fill = false, stamp = f.stamp + 1 WHERE f.job = set_next_start.job;
    IF s.run IS NOT NULL THEN
        PERFORM mill_private.move_waiting_run(job, s.run, next);
    END IF;
    PERFORM mill_private.bump_version(s.queue);
    RETURN true;
END
$function$;
COMMENT ON FUNCTION mill_private.set_next_start(oid, int, timestamptz) IS 'pgmill: when a job starts next, once';

-- Runs that are older than their retention, or behind the newest 1000 that succeeded or the newest 1000 that did not. A few jobs at a
-- time, from the one after `behind`; `last` is where to go on, NULL after the last job. The scheduler may delete their rows too.
CREATE FUNCTION mill_private.delete_old_runs(relid oid, behind int) RETURNS TABLE (tasks bigint[], runs bigint[], last int)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    found_tasks bigint[];
    found_runs bigint[];
BEGIN
    tasks := '{}';
    runs := '{}';
    last := behind;
    FOR n IN 1 .. 20 LOOP
        last := (SELECT r.job FROM mill_private.run r WHERE r.job > last ORDER BY r.job LIMIT 1);
        EXIT WHEN last IS NULL OR cardinality(runs) >= 1000;
        -- With the last run of an activation the earlier ones go: what is left must show how it ended.
        WITH old AS (
            (SELECT r.id, COALESCE(r.activation, r.id) AS root FROM mill_private.run r
              WHERE r.job = last AND r.queue = relid AND r.outcome IS NOT NULL AND r.recall IS NULL
                AND r.stop < mill.now() - mill_private.get_retention(last) ORDER BY r.id LIMIT 300)
            UNION (SELECT r.id, COALESCE(r.activation, r.id) FROM mill_private.run r
                    WHERE r.job = last AND r.queue = relid AND r.outcome IN ('succeeded', 'skipped') AND r.recall IS NULL
                    ORDER BY r.id DESC OFFSET 1000 LIMIT 300)
            UNION (SELECT r.id, COALESCE(r.activation, r.id) FROM mill_private.run r
                    WHERE r.job = last AND r.queue = relid AND r.outcome NOT IN ('succeeded', 'skipped') AND r.recall IS NULL
                    ORDER BY r.id DESC OFFSET 1000 LIMIT 300)
        ), gone AS (
            DELETE FROM mill_private.run d WHERE d.id IN (
                SELECT o.id FROM old o
                UNION SELECT r.id FROM mill_private.run r JOIN old o ON COALESCE(r.activation, r.id) = o.root AND r.id < o.id
                 WHERE r.job = last AND r.outcome IS NOT NULL AND r.recall IS NULL)
            RETURNING d.id, d.task)
        SELECT array_agg(g.task), array_agg(g.id) INTO found_tasks, found_runs FROM gone g;
        tasks := tasks || found_tasks;
        runs := runs || found_runs;
    END LOOP;
    RETURN NEXT;
END
$function$;
COMMENT ON FUNCTION mill_private.delete_old_runs(oid, int) IS 'pgmill: deletes runs that are older than they are kept';
