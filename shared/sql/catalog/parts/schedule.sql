-- What a scheduler asks about the jobs of its queue: when the next one is due, start those that are, which runs are to be
-- ended, next starts that only it can compute, and which old runs may go. All of it as the catalog's owner.
-- parameters: none; locks: none; caller: whoever installs, once per database

-- At every look, as part of a question that is asked anyway: has something changed, and when is something due? And once in a
-- while what runs have tallied is entered, of whatever queue: somebody has to, and whoever sleeps need not wake up for it.
CREATE FUNCTION mill.s_pulse(relid oid, folds bool) RETURNS TABLE (version bigint, moment timestamptz, ms float8, fill bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF folds THEN
        PERFORM mill.fold_all();
    END IF;
    version := COALESCE((SELECT sum(v.n) FROM mill.job_version v WHERE v.queue = relid), 0);
    moment := mill.now();
    ms := (SELECT ceil(extract(epoch FROM s.due - moment) * 1000) FROM mill.job_book s
            WHERE s.queue = relid AND s.due IS NOT NULL ORDER BY s.due LIMIT 1);
    fill := EXISTS (SELECT FROM mill.job_book s WHERE s.queue = relid AND s.fill);
    RETURN NEXT;
END
$function$;
COMMENT ON FUNCTION mill.s_pulse(oid, bool) IS 'pgmill: the version of a queue''s jobs, and when the next one is due';

-- Releases waiting rows whose time has come since the last call, and starts due jobs, the oldest due time first, at most
-- as many as there are slots. A job that cannot be started is paused with the reason, and hurts no other.
CREATE FUNCTION mill.s_start(relid oid, slots int, since timestamptz) RETURNS TABLE (started int, until timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place record;
    due record;
    released int;
    task bigint;
BEGIN
    started := 0;
    until := mill.now();
    SELECT q.schema, q.name INTO place FROM mill.queue q WHERE q.relid = s_start.relid;
    EXECUTE format('UPDATE %1$I.%2$I SET held = false, plan = LEAST(plan, statement_timestamp()) WHERE id IN (
                        SELECT id FROM %1$I.%2$I WHERE state = ''PLAN'' AND held AND job IS NOT NULL AND plan > $1 AND plan <= $2
                           AND mill.may_release(job::int, run_of::bigint) ORDER BY plan LIMIT 1000 FOR UPDATE SKIP LOCKED)',
                   place.schema, place.name) USING since, until;
    GET DIAGNOSTICS released = ROW_COUNT;
    FOR due IN SELECT s.job, s.next_start FROM mill.job_book s WHERE s.queue = s_start.relid AND s.due <= until
                ORDER BY s.due, s.job LIMIT slots FOR NO KEY UPDATE SKIP LOCKED LOOP
        BEGIN
            task := mill.activate(due.job, due.next_start, due.next_start,
                                  held => NOT mill.may_start((SELECT j FROM mill.job j WHERE j.id = due.job)));
            UPDATE mill.job_book s SET run = task WHERE s.job = due.job AND task IS NOT NULL;
            started := started + 1;
        EXCEPTION WHEN OTHERS THEN
            PERFORM mill.pause_job(due.job, format('it cannot be started: %s', SQLERRM));
        END;
    END LOOP;
    -- where a flow limits how many run at once, it also says which
    PERFORM mill.release_flow(f.name) FROM mill.flow f WHERE f.parallel IS NOT NULL AND NOT f.paused;
    IF released = 1000 THEN
        until := since;
    END IF;
    RETURN NEXT;
END
$function$;
COMMENT ON FUNCTION mill.s_start(oid, int, timestamptz) IS 'pgmill: starts the due jobs of a queue';

-- Those of these jobs that are still there, how long a run of theirs may take (0 = unlimited), and whether they are
-- paused.
CREATE FUNCTION mill.s_watch(jobs int[]) RETURNS TABLE (job int, ms float8, scheduled bool)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT j.id, LEAST(extract(epoch FROM j.max_runtime) * 1000, 3e12)::float8, j.scheduled FROM mill.job j WHERE j.id = ANY (jobs);
END;
COMMENT ON FUNCTION mill.s_watch(int[]) IS 'pgmill: which jobs are still there, and their max_runtime';

CREATE FUNCTION mill.s_unfilled(relid oid) RETURNS TABLE (job int, cron text, timezone text, initial_start timestamptz,
                                                          moment timestamptz, fresh bool, stamp bigint)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT j.id, j.cron, j.timezone, j.initial_start, mill.now(),
           s.last_start IS NULL AND NOT EXISTS (SELECT FROM mill.job_tally t WHERE t.job = s.job), s.stamp
      FROM mill.job_book s JOIN mill.job j ON j.id = s.job
     WHERE s.queue = s_unfilled.relid AND s.fill ORDER BY j.id LIMIT 500;
END;
COMMENT ON FUNCTION mill.s_unfilled(oid) IS 'pgmill: jobs whose next start the scheduler computes (cron)';

-- The answer to that. A run that waits to be tried again is tried at that time at the latest.
CREATE FUNCTION mill.s_fill(job int, stamp bigint, next timestamptz, wrong text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    s mill.job_book;
    place record;
BEGIN
    SELECT * INTO s FROM mill.job_book f WHERE f.job = s_fill.job AND f.fill AND f.stamp = s_fill.stamp
       FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE mill.job_book f SET fill = false, stamp = f.stamp + 1,
           next_start = CASE WHEN f.run IS NULL THEN next ELSE LEAST(f.next_start, next) END
     WHERE f.job = s_fill.job;
    IF s.run IS NOT NULL AND next < s.next_start THEN
        PERFORM mill.move_waiting(job, s.run, next);
    END IF;
    IF wrong IS NOT NULL THEN
        PERFORM mill.pause_job(job, wrong);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.s_fill(int, bigint, timestamptz, text) IS 'pgmill: the next start of a job, computed by its scheduler';

-- The waiting row of a job's own activation is moved to another time.
CREATE FUNCTION mill.move_waiting(job int, run bigint, due timestamptz) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place record;
BEGIN
    SELECT q.schema, q.name INTO place FROM mill.job_book s JOIN mill.queue q ON q.relid = s.queue WHERE s.job = move_waiting.job;
    EXECUTE format('UPDATE %1$I.%2$I SET held = held OR $3 > $4, plan = CASE WHEN $3 <= $4 THEN LEAST($3, statement_timestamp()) ELSE $3 END
                     WHERE id IN (SELECT id FROM %1$I.%2$I WHERE job = $1 AND run_of = $2 AND state = ''PLAN''
                                     FOR UPDATE SKIP LOCKED)', place.schema, place.name)
      USING move_waiting.job, run, due, mill.now();
    IF due <= mill.now() AND mill.may_release(job, run) THEN
        EXECUTE format('UPDATE %I.%I SET held = false WHERE job = $1 AND run_of = $2 AND state = ''PLAN'' AND held',
                       place.schema, place.name) USING move_waiting.job, run;
    END IF;
END
$function$;

-- Finished runs that nobody needs any more: older than a month, or behind the newest 1000 that succeeded or failed. A few
-- jobs at a time, from the one after `behind`; `last` is where to go on, NULL when all have had their turn.
CREATE FUNCTION mill.s_old_runs(relid oid, behind int) RETURNS TABLE (tasks bigint[], last int)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place record;
    found bigint[];
    more bigint[] := '{}';
BEGIN
    SELECT q.schema, q.name INTO place FROM mill.queue q WHERE q.relid = s_old_runs.relid;
    tasks := '{}';
    last := behind;
    FOR n IN 1 .. 20 LOOP
        EXECUTE format('SELECT job FROM %I.%I WHERE job > $1 ORDER BY job LIMIT 1', place.schema, place.name) INTO last USING last;
        EXIT WHEN last IS NULL OR cardinality(tasks) >= 1000;
        -- the last row of an activation takes the others along: what is left must tell how it ended
        EXECUTE format('WITH old AS (
                            (SELECT id, run_of FROM %1$I.%2$I WHERE job = $1 AND state IN (''DONE'', ''FAIL'', ''GONE'') AND stop < $2 LIMIT 300)
                            UNION (SELECT id, run_of FROM %1$I.%2$I WHERE job = $1 AND state = ''DONE'' ORDER BY id DESC OFFSET 1000 LIMIT 300)
                            UNION (SELECT id, run_of FROM %1$I.%2$I WHERE job = $1 AND state IN (''FAIL'', ''GONE'')
                                    ORDER BY id DESC OFFSET 1000 LIMIT 300))
                        SELECT array_agg(o.id) FROM (
                            SELECT id FROM old UNION
                            SELECT t.id FROM %1$I.%2$I t JOIN old ON old.run_of = t.run_of AND t.id < old.id
                             WHERE t.job = $1 AND t.state IN (''DONE'', ''FAIL'', ''GONE'')) AS o', place.schema, place.name)
           INTO found USING last, mill.now() - mill.keep(last);
        tasks := tasks || found;
    END LOOP;
    RETURN NEXT;
END
$function$;
COMMENT ON FUNCTION mill.s_old_runs(oid, int) IS 'pgmill: finished runs that may be deleted';

-- How long the runs of a job are kept.
CREATE FUNCTION mill.keep(job int) RETURNS interval
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN interval '1 month';
END
$function$;

CREATE FUNCTION mill.s_clock() RETURNS interval
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN (SELECT m.clock FROM mill.meta m);
COMMENT ON FUNCTION mill.s_clock() IS 'pgmill: how far a test has moved the clock';
