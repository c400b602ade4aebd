-- A job of the graph is activated: its row, what holds it back, and jobs without input, which need no worker.
-- parameters: none; locks: none; caller: whoever installs, once per database

-- Rows of jobs without input, which the scheduler that keeps the timers brings to their end.
CREATE TABLE mill.errand (
    job int NOT NULL,
    at timestamptz NOT NULL,
    queue oid NOT NULL,
    task bigint NOT NULL,
    reason text,
    not_before timestamptz,
    trouble text,
    PRIMARY KEY (job, at, task)
);
COMMENT ON TABLE mill.errand IS 'pgmill: rows of jobs that need no worker, because they have no input or are skipped, and are to be set DONE';

-- How many tasks of a flow may start yet; NULL: no limit. The caller has the flow's lock alone.
CREATE FUNCTION mill.places(flow text) RETURNS int
    LANGUAGE plpgsql STABLE AS $function$
DECLARE
    most int := (SELECT f.parallel FROM mill.flow f WHERE f.name = places.flow);
    q record;
    found int;
BEGIN
    IF most IS NULL THEN
        RETURN NULL;
    END IF;
    FOR q IN SELECT k.schema, k.name, array_agg(j.id) AS jobs FROM mill.job j JOIN mill.job_book s ON s.job = j.id
               JOIN mill.queue k ON k.relid = s.queue WHERE j.flow = places.flow AND j.input IS NOT NULL GROUP BY 1, 2 LOOP
        EXECUTE format('SELECT count(*) FROM %I.%I WHERE job IS NOT NULL AND job = ANY ($1)
                           AND state IN (''PLAN'', ''TAKE'', ''WORK'', ''STOP'') AND (state IN (''TAKE'', ''WORK'') OR state = ''PLAN'' AND NOT held)',
                       q.schema, q.name) INTO found USING q.jobs;
        most := most - found;
    END LOOP;
    RETURN GREATEST(most, 0);
END
$function$;

-- The row of an activation. NULL: the job may not run there any more, and has paused itself.
CREATE FUNCTION mill.activate_node(j mill.job, at timestamptz, epoch int, low bool, loops bool, skips bool DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql AS $function$
DECLARE
    moment timestamptz := mill.now();
    q mill.queue;
    task bigint;
BEGIN
    task := mill.activate(j.id, activate_node.at, moment, epoch => CASE WHEN loops THEN -2 ELSE activate_node.epoch END,
        held => loops OR skips OR j.input IS NULL OR COALESCE(mill.places(j.flow) = 0, false),
        priority => CASE WHEN low THEN j.priority - 1000 END);
    IF task IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT k.* INTO q FROM mill.queue k JOIN mill.job_book s ON s.queue = k.relid WHERE s.job = j.id;
    IF loops THEN
        EXECUTE format('UPDATE %I.%I SET state = ''FAIL'', start = $2, stop = $2, reason = ''loop'', error = $3 WHERE id = $1', q.schema, q.name)
          USING task, clock_timestamp(),
                format('ERROR:  job "%s" has been activated 100 times for %s; it is stopped here', j.name, activate_node.at);
    ELSIF skips OR j.input IS NULL THEN
        INSERT INTO mill.errand (job, at, queue, task, reason) VALUES (j.id, activate_node.at, q.relid, task, CASE WHEN skips THEN 'skipped' END);
        PERFORM mill.ring(0);
    END IF;
    RETURN task;
END
$function$;

-- The rows of first activations, in this order, of jobs whose flows do not count; their tokens are spent. Those of a job
-- that may not run there any more, which has paused itself, wait again. How many it came to.
CREATE FUNCTION mill.activate_all(jobs int[], ats timestamptz[], lows bool[]) RETURNS int
    LANGUAGE plpgsql AS $function$
DECLARE
    q record;
    wrong text;
    refused int[] := '{}';
    moment timestamptz := mill.now();
    done int := 0;
BEGIN
    FOR q IN SELECT s.queue, j.owner, array_agg(j.id) AS jobs FROM mill.job j JOIN mill.job_book s ON s.job = j.id
               LEFT JOIN mill.queue k ON k.relid = s.queue LEFT JOIN pg_roles r ON r.rolname = j.owner
              WHERE j.id = ANY (activate_all.jobs) AND has_table_privilege(r.oid, k.relid, 'INSERT') IS NOT TRUE GROUP BY 1, 2 LOOP
        wrong := mill.refusal(q.owner, q.queue);
        IF wrong IS NOT NULL THEN
            PERFORM mill.pause_job(u, wrong) FROM unnest(q.jobs) AS u;
            UPDATE mill.token k SET waiting = k.delivered, consumed = '{}', activations = 0, since = clock_timestamp()
              FROM unnest(activate_all.jobs, ats) AS u (job, at) WHERE k.job = u.job AND k.at = u.at AND u.job = ANY (q.jobs);
            refused := refused || q.jobs;
        END IF;
    END LOOP;
    FOR q IN SELECT k AS place, count(*)::int AS n, bool_or(j.input IS NULL) AS idle, array_agg(u.job ORDER BY u.place) AS jobs,
                    array_agg(u.at ORDER BY u.place) AS ats, array_agg(u.low ORDER BY u.place) AS lows,
                    array_agg(j.input IS NULL ORDER BY u.place) AS held
               FROM unnest(activate_all.jobs, ats, lows) WITH ORDINALITY AS u (job, at, low, place)
               JOIN mill.job j ON j.id = u.job JOIN mill.job_book s ON s.job = j.id JOIN mill.queue k ON k.relid = s.queue
              WHERE NOT u.job = ANY (refused) GROUP BY k ORDER BY k LOOP
        IF q.idle THEN
            INSERT INTO mill.errand (job, at, queue, task)
            SELECT p.job, p.at, (q.place).relid, p.task
              FROM mill.put(q.place, moment, q.jobs, q.ats, array_fill(0, ARRAY[q.n]), q.held, q.lows) p
              JOIN mill.job j ON j.id = p.job WHERE j.input IS NULL;
            PERFORM mill.ring(0);
        ELSE
            PERFORM mill.put(q.place, moment, q.jobs, q.ats, array_fill(0, ARRAY[q.n]), q.held, q.lows);
        END IF;
        done := done + q.n;
    END LOOP;
    RETURN done;
END
$function$;

-- Who ends many rows of jobs at once writes down which transaction it is, and does itself what the triggers would do for
-- each row. Nobody else can write here, so nobody else can keep the triggers from their work.
CREATE TABLE mill.settling (xid xid8 PRIMARY KEY);
COMMENT ON TABLE mill.settling IS 'pgmill: the transaction that is ending many runs at once; empty to everybody else';

-- Rows of jobs without input come to their end, all or none of them: the rows in one statement, the books job by job, and
-- all that they deliver as one level of the graph. Their jobs have no schedule of their own.
CREATE FUNCTION mill.settle_errands(errands mill.errand[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
    q record;
    ended record;
    moment timestamptz := mill.now();
    jobs int[] := '{}';
    ats timestamptz[] := '{}';
    epochs int[] := '{}';
    counted bool[] := '{}';
BEGIN
    INSERT INTO mill.settling (xid) VALUES (pg_current_xact_id());
    PERFORM set_config('mill.settling', 'on', true);
    FOR q IN SELECT k.relid, k.schema, k.name, array_agg(e.task ORDER BY e.task) AS tasks, array_agg(e.reason ORDER BY e.task) AS reasons
               FROM unnest(errands) AS e JOIN mill.queue k ON k.relid = e.queue JOIN pg_class c ON c.oid = k.relid
              GROUP BY 1, 2, 3 ORDER BY 1 LOOP
        EXECUTE format('WITH ended AS (UPDATE %I.%I AS t SET state = ''DONE'', held = false, start = $3, stop = $3, reason = r.reason
                             FROM unnest($1, $2) AS r (task, reason) WHERE t.id = r.task AND t.state = ''PLAN''
                        RETURNING t.job::int AS job, t.at, COALESCE(t.epoch::int, 0) AS epoch, t.reason IS NULL AS counted)
            SELECT array_agg(e.job) AS jobs, array_agg(e.at) AS ats, array_agg(e.epoch) AS epochs, array_agg(e.counted) AS counted
              FROM ended e', q.schema, q.name) INTO ended USING q.tasks, q.reasons, clock_timestamp();
        jobs := jobs || ended.jobs;
        ats := ats || ended.ats;
        epochs := epochs || ended.epochs;
        counted := counted || ended.counted;
    END LOOP;
    PERFORM set_config('mill.settling', '', true);
    DELETE FROM mill.settling s WHERE s.xid = pg_current_xact_id();
    DELETE FROM mill.errand r USING unnest(errands) AS e WHERE r.job = e.job AND r.at = e.at AND r.task = e.task;
    IF cardinality(jobs) = 0 THEN
        RETURN;
    END IF;
    PERFORM mill.open_book(u.job) FROM (SELECT DISTINCT n AS job FROM unnest(jobs) AS n ORDER BY 1) AS u;
    UPDATE mill.job_book s SET total_runs = s.total_runs + u.n, total_successes = s.total_successes + u.n, consecutive_failures = 0,
           last_start = GREATEST(s.last_start, moment), last_finish = GREATEST(s.last_finish, moment),
           last_successful_finish = GREATEST(s.last_successful_finish, moment), last_run_success = true
      FROM (SELECT c.job, count(*) AS n FROM unnest(jobs, counted) AS c (job, counted) WHERE c.counted GROUP BY 1) AS u
     WHERE s.job = u.job;
    PERFORM mill.all_succeeded(jobs, ats, epochs);
END
$function$;

-- One alone, with the triggers. If it is refused, that is said, and it is tried again later.
CREATE FUNCTION mill.end_errand(e mill.errand) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    q mill.queue := (SELECT k FROM mill.queue k JOIN pg_class c ON c.oid = k.relid WHERE k.relid = e.queue);
BEGIN
    IF q.relid IS NOT NULL THEN
        EXECUTE format('UPDATE %I.%I SET state = ''DONE'', held = false, start = $2, stop = $2, reason = $3
                         WHERE id = $1 AND state = ''PLAN''', q.schema, q.name) USING e.task, clock_timestamp(), e.reason;
    END IF;
    DELETE FROM mill.errand r WHERE r.job = e.job AND r.at = e.at AND r.task = e.task;
EXCEPTION WHEN OTHERS THEN
    UPDATE mill.errand r SET trouble = SQLERRM, not_before = clock_timestamp()
           + CASE WHEN SQLSTATE IN ('40001', '40P01') THEN interval '200 ms' ELSE interval '30 s' END
     WHERE r.job = e.job AND r.at = e.at AND r.task = e.task;
END
$function$;

-- Brings rows of jobs without input to their end, up to so many, ordered by job and time. How many.
CREATE FUNCTION mill.run_errands(most int) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    r record;
    e mill.errand;
    together mill.errand[] := '{}';
    done int := 0;
BEGIN
    FOR r IN SELECT n AS errand, j.id IS NULL OR mill.has_schedule(j) AS alone FROM mill.errand n
               LEFT JOIN mill.job j ON j.id = n.job LEFT JOIN mill.flow f ON f.name = j.flow
              WHERE COALESCE(j.scheduled, true) AND NOT COALESCE(f.paused, false) AND COALESCE(n.not_before <= clock_timestamp(), true)
              ORDER BY n.job, n.at, n.task LIMIT most FOR UPDATE OF n SKIP LOCKED LOOP
        done := done + 1;
        IF r.alone THEN
            PERFORM mill.end_errand(r.errand);
        ELSE
            together := together || r.errand;
        END IF;
    END LOOP;
    IF cardinality(together) = 0 THEN
        RETURN done;
    END IF;
    BEGIN
        PERFORM mill.settle_errands(together);
    EXCEPTION WHEN OTHERS THEN
        -- one that the data refuse keeps no other from its end
        FOREACH e IN ARRAY together LOOP
            PERFORM mill.end_errand(e);
        END LOOP;
    END;
    RETURN done;
END
$function$;

CREATE FUNCTION mill.s_run_errands(most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN mill.run_errands(most);
END
$function$;

-- What was finished long ago: tokens of which none waits, stashed values, and what timers have fired. A small batch; how many.
CREATE FUNCTION mill.s_sweep_graph(most int) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    gone int;
    more int;
BEGIN
    WITH old AS (
        SELECT k.job, k.at FROM mill.token k LEFT JOIN mill.job j ON j.id = k.job LEFT JOIN mill.flow f ON f.name = j.flow
         WHERE k.touched < clock_timestamp() - LEAST(interval '1 month', (SELECT min(keep) FROM mill.flow)) AND k.waiting = '{}'
           AND k.touched < clock_timestamp() - COALESCE(f.keep, interval '1 month')
         ORDER BY k.touched LIMIT most FOR UPDATE OF k SKIP LOCKED)
    DELETE FROM mill.token k USING old WHERE k.job = old.job AND k.at = old.at;
    GET DIAGNOSTICS gone = ROW_COUNT;
    WITH old AS (
        SELECT s.ctid FROM mill.stash s LEFT JOIN mill.flow f ON f.name = s.flow
         WHERE s.touched < clock_timestamp() - COALESCE(f.keep, interval '1 month') LIMIT most FOR UPDATE OF s SKIP LOCKED)
    DELETE FROM mill.stash s USING old WHERE s.ctid = old.ctid;
    GET DIAGNOSTICS more = ROW_COUNT;
    gone := gone + more;
    WITH old AS (
        SELECT d.timer, d.at FROM mill.fired d LEFT JOIN mill.timer t ON t.id = d.timer
         WHERE d.made < clock_timestamp() - LEAST(interval '1 month', (SELECT min(keep) FROM mill.flow))
           AND d.made < clock_timestamp() - COALESCE((SELECT max(mill.keep(j.id)) FROM mill.edge e JOIN mill.job j ON j.name = e.job
                                                       WHERE e.from_timer = t.name), interval '0')
         ORDER BY d.made LIMIT most FOR UPDATE OF d SKIP LOCKED)
    DELETE FROM mill.fired d USING old WHERE d.timer = old.timer AND d.at = old.at;
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN gone + more;
END
$function$;

-- A flow's waiting rows whose time has come, as far as it is not paused and has places: the higher priority first. The
-- caller need not have its lock.
CREATE FUNCTION mill.release_flow(flow text) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    f mill.flow;
    q record;
    places int;
    found int;
    done int := 0;
BEGIN
    PERFORM mill.enter(ARRAY[release_flow.flow]);
    SELECT * INTO f FROM mill.flow k WHERE k.name = release_flow.flow;
    places := mill.places(f.name);
    IF f.name IS NULL OR f.paused OR places = 0 THEN
        RETURN 0;
    END IF;
    FOR q IN SELECT k.schema, k.name, array_agg(j.id) AS jobs FROM mill.job j JOIN mill.job_book s ON s.job = j.id
               JOIN mill.queue k ON k.relid = s.queue WHERE j.flow = f.name AND j.scheduled GROUP BY 1, 2 ORDER BY 1, 2 LOOP
        EXECUTE format('UPDATE %1$I.%2$I SET held = false, plan = LEAST(plan, statement_timestamp()) WHERE id IN (
                SELECT id FROM %1$I.%2$I t WHERE job IS NOT NULL AND job = ANY ($1) AND state = ''PLAN'' AND held AND plan <= $2
                   AND NOT EXISTS (SELECT FROM mill.errand e WHERE e.job = t.job AND e.at = t.at AND e.task = t.id)
                 ORDER BY priority DESC, id LIMIT $3 FOR UPDATE SKIP LOCKED)', q.schema, q.name)
          USING q.jobs, mill.now(), places;
        GET DIAGNOSTICS found = ROW_COUNT;
        places := places - found;
        done := done + found;
    END LOOP;
    RETURN done;
END
$function$;
-- A run of a job has ended, for good or not: its place in the flow is free.
CREATE OR REPLACE FUNCTION mill.run_ended(j mill.job) RETURNS void
    LANGUAGE plpgsql AS $function$
BEGIN
    IF EXISTS (SELECT FROM mill.flow f WHERE f.name = j.flow AND f.parallel IS NOT NULL) THEN
        PERFORM mill.release_flow(j.flow);
    END IF;
END
$function$;
-- What else, beside its time, keeps a waiting row of the job back: the job is paused, or its flow, or that has no place
-- (`release_flow` sees to that).
CREATE OR REPLACE FUNCTION mill.may_start(job mill.job) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN job.scheduled AND NOT EXISTS (SELECT FROM mill.flow f WHERE f.name = job.flow AND (f.paused OR f.parallel IS NOT NULL));
END
$function$;
-- The same for a row: one that somebody asked for by hand runs also while the schedule is paused; what needs no worker is
-- never released to one.
CREATE OR REPLACE FUNCTION mill.may_release(job int, run_of bigint) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job := (SELECT f FROM mill.job f WHERE f.id = may_release.job);
BEGIN
    RETURN (j.id IS NULL OR mill.may_start(j) OR (mill.has_schedule(j)
       AND may_release.run_of IS DISTINCT FROM (SELECT s.run FROM mill.job_book s WHERE s.job = may_release.job)))
       AND NOT EXISTS (SELECT FROM mill.errand e WHERE e.job = may_release.job AND e.task = may_release.run_of);
END
$function$;
-- A flow is paused: its waiting rows stand aside; resumed: those whose time has come go on, and tokens that are ready.
-- More places: more of them.
CREATE FUNCTION mill.flow_follow() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    jobs int[] := (SELECT array_agg(j.id ORDER BY j.id) FROM mill.job j WHERE j.flow = NEW.name);
    q record;
BEGIN
    PERFORM mill.enter(ARRAY[NEW.name], true);
    IF jobs IS NULL THEN
        RETURN NULL;
    ELSIF NEW.paused AND NOT OLD.paused THEN
        FOR q IN SELECT DISTINCT k.schema, k.name FROM mill.queue k JOIN mill.job_book s ON s.queue = k.relid WHERE s.job = ANY (jobs) LOOP
            EXECUTE format('UPDATE %1$I.%2$I SET held = true WHERE id IN (SELECT id FROM %1$I.%2$I
                             WHERE job IS NOT NULL AND job = ANY ($1) AND state = ''PLAN'' AND NOT held FOR UPDATE SKIP LOCKED)', q.schema, q.name) USING jobs;
        END LOOP;
    ELSIF NOT NEW.paused THEN
        PERFORM mill.release_flow(NEW.name);
        IF OLD.paused THEN
            PERFORM mill.consider(jobs);
        END IF;
    END IF;
    RETURN NULL;
END
$function$;
CREATE TRIGGER follow AFTER UPDATE OF paused, parallel ON mill.flow FOR EACH ROW
    WHEN (NEW.paused <> OLD.paused OR NEW.parallel IS DISTINCT FROM OLD.parallel) EXECUTE FUNCTION mill.flow_follow();
-- How long the runs of a job are kept.
CREATE OR REPLACE FUNCTION mill.keep(job int) RETURNS interval
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN COALESCE((SELECT f.keep FROM mill.job j JOIN mill.flow f ON f.name = j.flow WHERE j.id = keep.job), interval '1 month');
END
$function$;
