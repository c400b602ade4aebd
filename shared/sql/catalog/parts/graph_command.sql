-- By hand: run, rerun, clear, cancel, skip, mark, fire, pause, resume. An INSERT into mill.command does it, in its own
-- transaction, and stays as the audit trail; functions of the same names wrap it. The row notes who writes it (current_user, in a
-- trigger that runs as the writer), and the work is done for that role. Runs are locked before books of
-- jobs, books before flows, flows before tokens.
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE TABLE mill.command (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action text NOT NULL,
    job text REFERENCES mill.job (name) ON UPDATE CASCADE ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED,
    flow text REFERENCES mill.flow (name) ON UPDATE CASCADE ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED,
    timer text REFERENCES mill.timer (name) ON UPDATE CASCADE ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED,
    at timestamptz,
    how text,
    note text,
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by name NOT NULL,
    result text,
    run bigint
);
COMMENT ON TABLE mill.command IS 'pgmill: what people have done to jobs, flows and timers by hand; an INSERT does it';
COMMENT ON COLUMN mill.command.action IS 'run, rerun, clear, cancel, skip, mark, fire, pause or resume';
COMMENT ON COLUMN mill.command.at IS 'the logical time';
COMMENT ON COLUMN mill.command.how IS 'rerun: only, down or failed; mark: success or failure';
COMMENT ON COLUMN mill.command.result IS 'what it came to';
COMMENT ON COLUMN mill.command.run IS 'the run that it has ordered or ended, if it was one';
COMMENT ON COLUMN mill.command.made_by IS 'the role that wrote the row, and for which it was done';
ALTER TABLE mill.command ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_maker ON mill.command FOR SELECT USING (mill.is_member(made_by)
    OR EXISTS (SELECT FROM mill.job j WHERE j.name = command.job) OR EXISTS (SELECT FROM mill.flow f WHERE f.name = command.flow));
CREATE POLICY inserts ON mill.command FOR INSERT WITH CHECK (true);

-- The runs of these jobs that have not ended, at one time or at all, locked in the order of their ids.
CREATE FUNCTION mill.open_runs(jobs int[], at timestamptz) RETURNS SETOF mill_private.run
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN QUERY SELECT r.* FROM mill_private.run r
                  WHERE r.job = ANY (jobs) AND r.outcome IS NULL AND (open_runs.at IS NULL OR r.at = open_runs.at)
                  ORDER BY r.id FOR NO KEY UPDATE;
END
$function$;

-- An end locks the book of its job before a flow; so do commands that end runs under the lock of a flow.
CREATE FUNCTION mill_private.open_books(jobs int[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM FROM mill.job_book b WHERE b.job = ANY (jobs) ORDER BY b.job FOR NO KEY UPDATE;
END
$function$;

-- The part of the graph that tokens from these jobs and times have reached so far, they included.
CREATE FUNCTION mill.downstream(jobs int[], times timestamptz[]) RETURNS TABLE (job int, at timestamptz)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    WITH RECURSIVE part (job, at) AS (
        SELECT * FROM unnest(jobs, times)
        UNION
        SELECT k.job, k.at FROM part p JOIN mill.job s ON s.id = p.job JOIN mill.edge e ON e.from_job = s.name
          JOIN mill.job t ON t.name = e.job
          JOIN mill.token k ON k.job = t.id
           AND k.at = CASE WHEN e.shift = interval '0' THEN p.at ELSE mill.land(p.at, e.shift, mill.zone_of(s.name)) END)
    SELECT job, at FROM part
$function$;

-- Begins a part of the graph anew: another epoch, so that what still runs delivers nothing; rows that wait are closed;
-- what came along edges inside of the part is forgotten; what came from outside waits again, so that joins are complete
-- once the inside has delivered (never so much that a job would start from it alone). Timers count as outside only where
-- they will not fire again.
CREATE FUNCTION mill.begin_anew(jobs int[], times timestamptz[], timers_fire bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    p record;
    k mill.token;
    j mill.job;
    e mill.edge;
    r record;
    source int;
    seeds int[];
    kept int[];
    spent int[];
    one int;
    place int;
BEGIN
    FOR p IN SELECT u.job, u.at FROM unnest(jobs, times) AS u (job, at) ORDER BY u.job, u.at LOOP
        SELECT * INTO j FROM mill.job n WHERE n.id = p.job;
        INSERT INTO mill.token AS n (job, at, epoch) VALUES (p.job, p.at, 1)
        ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET epoch = n.epoch + 1 RETURNING * INTO k;
        kept := '{}';
        seeds := '{}';
        FOR e IN SELECT * FROM mill.edge n WHERE n.job = j.name ORDER BY n.id LOOP
            source := (SELECT n.id FROM mill.job n WHERE n.name = e.from_job);
            CONTINUE WHEN source IS NOT NULL AND EXISTS (
                SELECT FROM unnest(jobs, times) AS u (job, at) WHERE u.job = source AND p.at
                    = CASE WHEN e.shift = interval '0' THEN u.at ELSE mill.land(u.at, e.shift, mill.zone_of(e.from_job)) END);
            kept := kept || (SELECT COALESCE(array_agg(d), '{}') FROM unnest(k.delivered) AS d WHERE d = e.id);
            IF e.id = ANY (k.delivered) AND (e.from_job IS NOT NULL OR NOT timers_fire)
                    AND cardinality(seeds) < COALESCE(j.threshold - 1, 2147483647) THEN
                seeds := seeds || e.id;
            END IF;
        END LOOP;
        IF mill.ready(j, p.at, seeds) IS NOT NULL THEN
            seeds := '{}';
        END IF;
        spent := kept;
        FOREACH one IN ARRAY seeds LOOP
            place := array_position(spent, one);
            spent := spent[:place - 1] || spent[place + 1:];
        END LOOP;
        UPDATE mill.token n SET delivered = kept, waiting = seeds, consumed = spent, activations = 0, by_hand = 0, skips = 0,
               since = CASE WHEN seeds <> '{}' THEN clock_timestamp() END, touched = clock_timestamp()
         WHERE n.job = p.job AND n.at = p.at;
        FOR r IN SELECT o.id FROM mill.open_runs(ARRAY[p.job], p.at) o WHERE o.start IS NULL LOOP
            PERFORM mill_private.close_run(r.id, false, 'cancelled', 'ERROR:  task cleared');
        END LOOP;
    END LOOP;
END
$function$;

-- A person starts a job for a time: counted, so that the books balance. The epoch of that time.
CREATE FUNCTION mill.by_hand(job int, at timestamptz) RETURNS int
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.token AS k (job, at, by_hand) VALUES ($1, $2, 1)
    ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET by_hand = k.by_hand + 1, touched = clock_timestamp() RETURNING k.epoch
$function$;

-- Jobs of these whose last run at a time has failed for good.
CREATE FUNCTION mill.failed_of(jobs int[], at timestamptz) RETURNS int[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN COALESCE((SELECT array_agg(l.job) FROM (
        SELECT DISTINCT ON (r.job) r.job, r.outcome FROM mill_private.run r
         WHERE r.job = ANY (jobs) AND r.at = failed_of.at ORDER BY r.job, r.id DESC) AS l
     WHERE l.outcome NOT IN ('succeeded', 'skipped')), '{}');
END
$function$;

CREATE FUNCTION mill.rerun_jobs(starts int[], at timestamptz) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    part_jobs int[];
    part_times timestamptz[];
    first_ones int[];
    j mill.job;
    epoch int;
BEGIN
    -- those that another one of them leads to are started by it
    SELECT array_agg(s) INTO first_ones FROM unnest(starts) AS s
     WHERE NOT EXISTS (SELECT FROM unnest(starts) AS o WHERE o <> s AND EXISTS (
               SELECT FROM mill.downstream(ARRAY[o], ARRAY[rerun_jobs.at]) d WHERE d.job = s AND d.at = rerun_jobs.at));
    first_ones := COALESCE(first_ones, starts[1:1]);
    SELECT array_agg(d.job), array_agg(d.at) INTO part_jobs, part_times
      FROM mill.downstream(first_ones, array_fill(rerun_jobs.at, ARRAY[cardinality(first_ones)])) d;
    -- runs first
    PERFORM FROM unnest(part_jobs, part_times) AS u (job, at), LATERAL mill.open_runs(ARRAY[u.job], u.at) o;
    PERFORM mill_private.open_books(part_jobs);
    PERFORM mill.enter((SELECT array_agg(DISTINCT n.flow) FROM mill.job n WHERE n.id = ANY (part_jobs)), true);
    PERFORM mill.begin_anew(part_jobs, part_times, false);
    FOR j IN SELECT * FROM mill.job n WHERE n.id = ANY (first_ones) ORDER BY n.id LOOP
        -- it is started here: what it had waited for is spent
        UPDATE mill.token k SET waiting = '{}', consumed = k.delivered, since = NULL, by_hand = k.by_hand + 1
         WHERE k.job = j.id AND k.at = rerun_jobs.at RETURNING k.epoch INTO epoch;
        IF mill.activate_node(j, rerun_jobs.at, epoch, false, false) IS NULL THEN
            PERFORM mill.refuse(format('job "%s" cannot run: %s', j.name, (SELECT s.reason FROM mill.job_book s WHERE s.job = j.id)));
        END IF;
    END LOOP;
    RETURN format('%s started, %s in all begun anew: %s', cardinality(first_ones), cardinality(part_jobs),
        (SELECT string_agg(DISTINCT format('"%s"', n.name), ', ') FROM mill.job n WHERE n.id = ANY (part_jobs)));
END
$function$;

CREATE FUNCTION mill_private.check_commander(role name, what text, owner name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF NOT mill_private.is_member_of(role, owner) THEN
        RAISE EXCEPTION USING MESSAGE = format('%s belongs to %s, and %s is not a member of it', what, owner, role),
            ERRCODE = 'insufficient_privilege';
    END IF;
END
$function$;
CREATE FUNCTION mill.do_command() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job;
    f mill.flow;
    t mill.timer;
    jobs int[];
    n int := 0;
    asked int := 0;
    r record;
    wrong text;
    needs text[];
BEGIN
    NEW.made := clock_timestamp();
    SELECT * INTO j FROM mill.job k WHERE k.name = NEW.job;
    SELECT * INTO f FROM mill.flow k WHERE k.name = NEW.flow;
    SELECT * INTO t FROM mill.timer k WHERE k.name = NEW.timer;
    wrong := CASE
        WHEN NEW.job IS NOT NULL AND j.id IS NULL THEN format('there is no job "%s"', NEW.job)
        WHEN NEW.flow IS NOT NULL AND f.name IS NULL THEN format('there is no flow "%s"', NEW.flow)
        WHEN NEW.timer IS NOT NULL AND t.id IS NULL THEN format('there is no timer "%s"', NEW.timer)
        WHEN NEW.at IS NOT NULL AND NOT isfinite(NEW.at) THEN 'at is a finite time' END;
    IF wrong IS NOT NULL THEN
        PERFORM mill.refuse(wrong);
    END IF;
    needs := CASE NEW.action
        WHEN 'run' THEN ARRAY['job'] WHEN 'rerun' THEN ARRAY['job', 'flow'] WHEN 'clear' THEN ARRAY['flow', 'job']
        WHEN 'cancel' THEN ARRAY['job', 'flow'] WHEN 'skip' THEN ARRAY['job'] WHEN 'mark' THEN ARRAY['job']
        WHEN 'fire' THEN ARRAY['timer'] WHEN 'pause' THEN ARRAY['flow', 'job'] WHEN 'resume' THEN ARRAY['flow', 'job'] END;
    wrong := CASE
        WHEN needs IS NULL THEN format('there is no action "%s"; there are run, rerun, clear, cancel, skip, mark, fire, pause and resume', NEW.action)
        WHEN num_nonnulls(NEW.job, NEW.flow, NEW.timer) <> 1
          OR NOT CASE WHEN NEW.job IS NOT NULL THEN 'job' WHEN NEW.flow IS NOT NULL THEN 'flow' ELSE 'timer' END = ANY (needs)
            THEN format('%s needs a %s', NEW.action, array_to_string(needs, ' or a '))
        WHEN NEW.at IS NULL AND NEW.action IN ('rerun', 'clear', 'skip', 'mark') THEN format('%s needs the logical time: at', NEW.action)
        WHEN NEW.action = 'rerun' AND COALESCE(NEW.how, 'down') NOT IN ('only', 'down', 'failed')
            THEN format('rerun goes only, down or failed, not "%s"', NEW.how)
        WHEN NEW.action = 'rerun' AND NEW.flow IS NOT NULL AND COALESCE(NEW.how, '') <> 'failed'
            THEN 'rerun of a flow is of what has failed: how => ''failed'''
        WHEN NEW.action = 'mark' AND COALESCE(NEW.how, '') NOT IN ('success', 'failure') THEN 'mark is for success or failure'
        WHEN NEW.action NOT IN ('rerun', 'mark') AND NEW.how IS NOT NULL THEN format('%s has no "how"', NEW.action) END;
    IF wrong IS NOT NULL THEN
        PERFORM mill.refuse(wrong);
    END IF;
    IF j.id IS NOT NULL THEN
        PERFORM mill_private.check_commander(NEW.made_by, format('job "%s"', j.name), j.owner);
        jobs := ARRAY[j.id];
        IF NEW.action IN ('run', 'rerun') THEN
            wrong := mill.refusal(j.owner, (SELECT s.queue FROM mill.job_book s WHERE s.job = j.id));
            IF wrong IS NOT NULL THEN
                RAISE EXCEPTION USING MESSAGE = format('job "%s": %s', j.name, wrong), ERRCODE = 'insufficient_privilege';
            END IF;
        END IF;
    ELSIF f.name IS NOT NULL THEN
        -- its jobs have joined it, and with that agreed
        PERFORM mill_private.check_commander(NEW.made_by, format('flow "%s"', f.name), f.owner);
        jobs := COALESCE((SELECT array_agg(k.id ORDER BY k.id) FROM mill.job k WHERE k.flow = f.name), '{}');
    ELSE
        PERFORM mill_private.check_commander(NEW.made_by, format('timer "%s"', t.name), t.owner);
    END IF;

    CASE NEW.action
    WHEN 'run' THEN
        NEW.at := COALESCE(NEW.at, mill.now());
        PERFORM mill.enter(ARRAY[j.flow]);
        NEW.run := mill.activate_node(j, NEW.at, mill.by_hand(j.id, NEW.at), false, false);
        NEW.result := format('run %s', NEW.run);
    WHEN 'rerun' THEN
        IF NEW.how = 'only' THEN
            PERFORM mill.enter(ARRAY[j.flow]);
            NEW.run := mill.activate_node(j, NEW.at, -1, false, false);
            NEW.result := format('run %s, which delivers nothing', NEW.run);
        ELSE
            IF NEW.how = 'failed' THEN
                IF j.id IS NOT NULL THEN
                    jobs := (SELECT array_agg(DISTINCT d.job) FROM mill.downstream(jobs, ARRAY[NEW.at]) d WHERE d.at = NEW.at);
                END IF;
                jobs := mill.failed_of(jobs, NEW.at);
            END IF;
            IF cardinality(jobs) = 0 THEN
                NEW.result := 'nothing has failed';
            ELSE
                NEW.result := mill.rerun_jobs(jobs, NEW.at);
            END IF;
        END IF;
    WHEN 'clear' THEN
        n := (SELECT count(*) FROM mill.open_runs(jobs, NEW.at) o WHERE o.start IS NOT NULL);
        PERFORM mill_private.open_books(jobs);
        PERFORM mill.enter(ARRAY[COALESCE(f.name, j.flow)], true);
        PERFORM mill.begin_anew(jobs, array_fill(NEW.at, ARRAY[cardinality(jobs)]), true);
        NEW.result := format('%s jobs cleared, %s of them are running and will deliver nothing', cardinality(jobs), n);
    WHEN 'cancel' THEN
        FOR r IN SELECT o.id FROM mill.open_runs(jobs, NEW.at) o LOOP
            n := n + 1;
            asked := asked + mill_private.close_run(r.id, false, 'cancelled', {cancelled_text})::int;
        END LOOP;
        NEW.result := format('%s runs cancelled', n) || CASE WHEN asked > 0 THEN format(' (asked to stop, because they are running: %s)', asked) ELSE '' END;
    WHEN 'skip' THEN
        FOR r IN SELECT o.id FROM mill.open_runs(jobs, NEW.at) o LOOP
            PERFORM mill_private.close_run(r.id, true, 'skipped', NULL);
            n := n + 1;
        END LOOP;
        IF n = 0 THEN
            INSERT INTO mill.token AS k (job, at, skips) VALUES (j.id, NEW.at, 1)
            ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET skips = k.skips + 1;
            NEW.result := 'its next activation for this time will be skipped';
        ELSE
            NEW.result := format('%s runs skipped', n);
        END IF;
    WHEN 'mark' THEN
        FOR r IN SELECT o.id FROM mill.open_runs(jobs, NEW.at) o LOOP
            PERFORM mill_private.close_run(r.id, NEW.how = 'success', 'marked',
                CASE NEW.how WHEN 'failure' THEN format('ERROR:  marked as failed by %s', NEW.made_by) END);
            NEW.run := r.id;
        END LOOP;
        IF NEW.run IS NULL THEN
            -- a run of its own: the old one stays as it ended
            PERFORM mill.enter(ARRAY[j.flow]);
            NEW.run := mill.activate(j.id, NEW.at, mill.now(), held => true, epoch => mill.by_hand(j.id, NEW.at));
            PERFORM mill_private.close_run(NEW.run, NEW.how = 'success', 'marked',
                CASE NEW.how WHEN 'failure' THEN format('ERROR:  marked as failed by %s', NEW.made_by) END);
        END IF;
        NEW.result := format('run %s: %s', NEW.run, NEW.how);
    WHEN 'fire' THEN
        NEW.at := COALESCE(NEW.at, date_trunc('second', mill.now()));
        UPDATE mill.timer k SET first = LEAST(k.first, NEW.at) WHERE k.id = t.id;
        n := mill.fire_now(ARRAY[t.name], ARRAY[NEW.at], 'by_hand');
        NEW.result := format('%s jobs activated', n);
    WHEN 'pause', 'resume' THEN
        IF f.name IS NOT NULL THEN
            UPDATE mill.flow k SET paused = (NEW.action = 'pause') WHERE k.name = f.name AND k.paused <> (NEW.action = 'pause');
        ELSE
            UPDATE mill.job k SET scheduled = (NEW.action = 'resume') WHERE k.id = j.id AND k.scheduled <> (NEW.action = 'resume');
        END IF;
        NEW.result := CASE WHEN NOT FOUND THEN 'it was so already' WHEN NEW.action = 'pause' THEN 'paused' ELSE 'resumed' END;
    END CASE;
    RETURN NEW;
END
$function$;
CREATE TRIGGER by_writer BEFORE INSERT ON mill.command FOR EACH ROW EXECUTE FUNCTION mill_private.note_writer();
CREATE TRIGGER does BEFORE INSERT ON mill.command FOR EACH ROW EXECUTE FUNCTION mill.do_command();
CREATE FUNCTION mill.keep_command() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF (OLD.id, OLD.action, OLD.at, OLD.how, OLD.note, OLD.made, OLD.made_by, OLD.result, OLD.run)
            IS DISTINCT FROM (NEW.id, NEW.action, NEW.at, NEW.how, NEW.note, NEW.made, NEW.made_by, NEW.result, NEW.run) THEN
        PERFORM mill.refuse('what was done stays written');
    END IF;
    RETURN NEW;
END
$function$;
CREATE TRIGGER keeps BEFORE UPDATE ON mill.command FOR EACH ROW EXECUTE FUNCTION mill.keep_command();

CREATE FUNCTION mill.run(job text, at timestamptz DEFAULT NULL) RETURNS bigint
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at) VALUES ('run', $1, $2) RETURNING run
$function$;
COMMENT ON FUNCTION mill.run(text, timestamptz) IS 'pgmill: runs a job for a logical time, and what follows from it; the id of the run';
CREATE FUNCTION mill.rerun(job text DEFAULT NULL, at timestamptz DEFAULT NULL, how text DEFAULT 'down', flow text DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at, how, flow) VALUES ('rerun', $1, $2, $3, $4) RETURNING result
$function$;
COMMENT ON FUNCTION mill.rerun(text, timestamptz, text, text) IS 'pgmill: runs a job of a logical time again: only it, all that is down from it, or what has failed';
CREATE FUNCTION mill.clear(flow text, at timestamptz) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, flow, at) VALUES ('clear', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.clear(text, timestamptz) IS 'pgmill: forgets a logical time of a flow; what still runs is recorded and delivers nothing';
CREATE FUNCTION mill.cancel(job text DEFAULT NULL, at timestamptz DEFAULT NULL, flow text DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at, flow) VALUES ('cancel', $1, $2, $3) RETURNING result
$function$;
COMMENT ON FUNCTION mill.cancel(text, timestamptz, text) IS 'pgmill: cancels the runs of a job or flow, of one logical time or all; failure edges fire';
CREATE FUNCTION mill.skip(job text, at timestamptz) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at) VALUES ('skip', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.skip(text, timestamptz) IS 'pgmill: leaves a job of a logical time out; it counts as a success';
CREATE FUNCTION mill.mark(job text, at timestamptz, how text) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, job, at, how) VALUES ('mark', $1, $2, $3) RETURNING result
$function$;
COMMENT ON FUNCTION mill.mark(text, timestamptz, text) IS 'pgmill: a job of a logical time has ended, says a person: success or failure';
CREATE FUNCTION mill.fire(timer text, at timestamptz DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, timer, at) VALUES ('fire', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.fire(text, timestamptz) IS 'pgmill: delivers a timer''s tokens for a logical time, now';
CREATE FUNCTION mill.pause(flow text DEFAULT NULL, job text DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, flow, job) VALUES ('pause', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.pause(text, text) IS 'pgmill: no new starts of a flow or job; what runs goes on, tokens wait';
CREATE FUNCTION mill.resume(flow text DEFAULT NULL, job text DEFAULT NULL) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.command (action, flow, job) VALUES ('resume', $1, $2) RETURNING result
$function$;
COMMENT ON FUNCTION mill.resume(text, text) IS 'pgmill: a paused flow or job goes on; missed times by the rule of their timers';
