-- Commands of people: run, rerun, clear, cancel, skip, mark, fire, pause, resume. An INSERT into mill.command performs one in its
-- own transaction, and the row stays as the audit trail. Functions of the same names insert the row (part `command_function`). A
-- trigger that runs as the writer notes current_user, and the command is performed for that role.
-- Lock order: runs, job states, flows, tokens.
-- parameters: none; locks: none; caller: installation, once per database

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
COMMENT ON TABLE mill.command IS 'pgmill: commands of users to jobs, flows and timers; an INSERT performs one';
COMMENT ON COLUMN mill.command.id IS 'drawn by the catalog';
COMMENT ON COLUMN mill.command.action IS 'run, rerun, clear, cancel, skip, mark, fire, pause or resume';
COMMENT ON COLUMN mill.command.job IS 'the job that it was done to';
COMMENT ON COLUMN mill.command.flow IS 'the flow that it was done to';
COMMENT ON COLUMN mill.command.timer IS 'the timer that it was done to';
COMMENT ON COLUMN mill.command.at IS 'the logical time';
COMMENT ON COLUMN mill.command.how IS 'rerun: only, down or failed; mark: success or failure';
COMMENT ON COLUMN mill.command.note IS 'for people';
COMMENT ON COLUMN mill.command.made IS 'when it was done';
COMMENT ON COLUMN mill.command.made_by IS 'the role that wrote the row, and for which it was done';
COMMENT ON COLUMN mill.command.result IS 'what the command has done';
COMMENT ON COLUMN mill.command.run IS 'the run that it has ordered or ended, if it was one run';
ALTER TABLE mill.command ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_author ON mill.command FOR SELECT USING (mill_private.is_member(made_by)
    OR EXISTS (SELECT FROM mill.job j WHERE j.name = command.job) OR EXISTS (SELECT FROM mill.flow f WHERE f.name = command.flow));
CREATE POLICY inserts ON mill.command FOR INSERT WITH CHECK (true);

-- At one logical time, or at all if that is NULL. In the order of their ids.
CREATE FUNCTION mill_private.lock_open_runs(jobs int[], at timestamptz) RETURNS SETOF mill_private.run
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN QUERY SELECT r.* FROM mill_private.run r
                  WHERE r.job = ANY (jobs) AND r.outcome IS NULL AND (lock_open_runs.at IS NULL OR r.at = lock_open_runs.at)
                  ORDER BY r.id FOR NO KEY UPDATE;
END
$function$;
COMMENT ON FUNCTION mill_private.lock_open_runs(int[], timestamptz) IS 'pgmill: locks the runs of jobs that have not ended';

CREATE FUNCTION mill_private.list_downstream(jobs int[], times timestamptz[]) RETURNS TABLE (job int, at timestamptz)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    WITH RECURSIVE part (job, at) AS (
        SELECT * FROM unnest(jobs, times)
        UNION
        SELECT k.job, k.at FROM part p JOIN mill.job s ON s.id = p.job JOIN mill.edge e ON e.from_job = s.name
          JOIN mill.job t ON t.name = e.job
          JOIN mill.token k ON k.job = t.id
           AND k.at = CASE WHEN e.shift = interval '0' THEN p.at ELSE mill_private.shift_time(p.at, e.shift, mill_private.get_job_zone(s.name)) END)
    SELECT job, at FROM part
$function$;
COMMENT ON FUNCTION mill_private.list_downstream(int[], timestamptz[]) IS
    'pgmill: the part of the graph that tokens from these jobs and times have reached so far, with these';

-- The epoch rises, so that runs under way deliver nothing, and waiting runs are closed. Tokens from inside of the part are forgotten.
-- Tokens from outside wait again, so that a join is complete once the inside has delivered; never so many that a job would
-- start from them alone. Timers count as outside only where they will not fire again.
CREATE FUNCTION mill_private.reset_tokens(jobs int[], times timestamptz[], timers_fire bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    node record;
    token_row mill.token;
    job_row mill.job;
    edge_row mill.edge;
    waiting_run record;
    source int;
    seeds int[];
    kept int[];
    spent int[];
    one int;
    place int;
BEGIN
    FOR node IN SELECT given.job, given.at FROM unnest(jobs, times) AS given (job, at) ORDER BY given.job, given.at LOOP
        SELECT * INTO job_row FROM mill.job stored WHERE stored.id = node.job;
        INSERT INTO mill.token AS stored (job, at, epoch) VALUES (node.job, node.at, 1)
        ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET epoch = stored.epoch + 1 RETURNING * INTO token_row;
        kept := '{}';
        seeds := '{}';
        FOR edge_row IN SELECT * FROM mill.edge stored WHERE stored.job = job_row.name ORDER BY stored.id LOOP
            source := (SELECT stored.id FROM mill.job stored WHERE stored.name = edge_row.from_job);
            CONTINUE WHEN source IS NOT NULL AND EXISTS (
                SELECT FROM unnest(jobs, times) AS given (job, at) WHERE given.job = source AND node.at
                    = CASE WHEN edge_row.shift = interval '0' THEN given.at
                           ELSE mill_private.shift_time(given.at, edge_row.shift, mill_private.get_job_zone(edge_row.from_job)) END);
            kept := kept || (SELECT COALESCE(array_agg(edge_id), '{}') FROM unnest(token_row.delivered) AS edge_id WHERE edge_id = edge_row.id);
            IF edge_row.id = ANY (token_row.delivered) AND (edge_row.from_job IS NOT NULL OR NOT timers_fire)
                    AND (job_row.threshold IS NULL OR cardinality(seeds) < job_row.threshold - 1) THEN
                seeds := seeds || edge_row.id;
            END IF;
        END LOOP;
        IF mill_private.pick_tokens(job_row, node.at, seeds) IS NOT NULL THEN
            seeds := '{}';
        END IF;
        spent := kept;
        FOREACH one IN ARRAY seeds LOOP
            place := array_position(spent, one);
            spent := spent[:place - 1] || spent[place + 1:];
        END LOOP;
        UPDATE mill.token stored SET delivered = kept, waiting = seeds, consumed = spent, activations = 0, by_hand = 0, skips = 0,
               since = CASE WHEN seeds <> '{}' THEN clock_timestamp() END, touched = clock_timestamp()
         WHERE stored.job = node.job AND stored.at = node.at;
        FOR waiting_run IN SELECT open_run.id FROM mill_private.lock_open_runs(ARRAY[node.job], node.at) open_run WHERE open_run.start IS NULL LOOP
            PERFORM mill_private.close_run(waiting_run.id, false, 'cancelled', 'ERROR:  task cleared');
        END LOOP;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill_private.reset_tokens(int[], timestamptz[], bool) IS 'pgmill: resets a part of the graph';

CREATE FUNCTION mill_private.count_manual_start(job int, at timestamptz) RETURNS int
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO mill.token AS k (job, at, by_hand) VALUES ($1, $2, 1)
    ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET by_hand = k.by_hand + 1, touched = clock_timestamp() RETURNING k.epoch
$function$;
COMMENT ON FUNCTION mill_private.count_manual_start(int, timestamptz) IS
    'pgmill: counts that a person starts a job for a logical time; returns the epoch of that time';

CREATE FUNCTION mill_private.list_failed_jobs(jobs int[], at timestamptz) RETURNS int[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN COALESCE((SELECT array_agg(l.job) FROM (
        SELECT DISTINCT ON (r.job) r.job, r.outcome FROM mill_private.run r
         WHERE r.job = ANY (jobs) AND r.at = list_failed_jobs.at ORDER BY r.job, r.id DESC) AS l
     WHERE l.outcome NOT IN ('succeeded', 'skipped')), '{}');
END
$function$;
COMMENT ON FUNCTION mill_private.list_failed_jobs(int[], timestamptz) IS
    'pgmill: jobs of these whose last run at a logical time has failed for good';

CREATE FUNCTION mill_private.rerun_jobs(starts int[], at timestamptz) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    part_jobs int[];
    part_times timestamptz[];
    first_ones int[];
    job_row mill.job;
    epoch int;
BEGIN
    -- A job downstream of another one of them is started by its tokens.
    SELECT array_agg(start_id) INTO first_ones FROM unnest(starts) AS start_id
     WHERE NOT EXISTS (SELECT FROM unnest(starts) AS other_id WHERE other_id <> start_id AND EXISTS (
               SELECT FROM mill_private.list_downstream(ARRAY[other_id], ARRAY[rerun_jobs.at]) below WHERE below.job = start_id AND below.at = rerun_jobs.at));
    first_ones := COALESCE(first_ones, starts[1:1]);
    SELECT array_agg(below.job), array_agg(below.at) INTO part_jobs, part_times
      FROM mill_private.list_downstream(first_ones, array_fill(rerun_jobs.at, ARRAY[cardinality(first_ones)])) below;
    -- Lock order: runs first.
    PERFORM FROM unnest(part_jobs, part_times) AS node (job, at), LATERAL mill_private.lock_open_runs(ARRAY[node.job], node.at) other_id;
    PERFORM mill_private.lock_job_states(part_jobs);
    PERFORM mill_private.lock_flows((SELECT array_agg(DISTINCT stored.flow) FROM mill.job stored WHERE stored.id = ANY (part_jobs)), true);
    PERFORM mill_private.reset_tokens(part_jobs, part_times, false);
    FOR job_row IN SELECT * FROM mill.job stored WHERE stored.id = ANY (first_ones) ORDER BY stored.id LOOP
        -- It is started here, so the tokens that it has waited for are consumed.
        UPDATE mill.token token_row SET waiting = '{}', consumed = token_row.delivered, since = NULL, by_hand = token_row.by_hand + 1
         WHERE token_row.job = job_row.id AND token_row.at = rerun_jobs.at RETURNING token_row.epoch INTO epoch;
        IF mill_private.order_graph_run(job_row, rerun_jobs.at, epoch, false, false) IS NULL THEN
            PERFORM mill_private.raise_violation(format('job "%s" cannot run: %s', job_row.name, 
                (SELECT state_row.reason FROM mill_private.job_state state_row WHERE state_row.job = job_row.id)));
        END IF;
    END LOOP;
    RETURN format('%s started, %s reset in total: %s', mill_private.count_of(cardinality(first_ones), 'job'), cardinality(part_jobs),
        (SELECT string_agg(DISTINCT format('"%s"', stored.name), ', ') FROM mill.job stored WHERE stored.id = ANY (part_jobs)));
END
$function$;
COMMENT ON FUNCTION mill_private.rerun_jobs(int[], timestamptz) IS
    'pgmill: starts jobs of a logical time again, and resets everything downstream';

-- `below`: of these jobs and of all that is downstream of them.
CREATE FUNCTION mill_private.rerun_failed_jobs(jobs int[], at timestamptz, below bool) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    failed int[];
BEGIN
    IF below THEN
        jobs := (SELECT array_agg(DISTINCT reached.job) FROM mill_private.list_downstream(jobs, ARRAY[rerun_failed_jobs.at]) reached
                  WHERE reached.at = rerun_failed_jobs.at);
    END IF;
    failed := mill_private.list_failed_jobs(jobs, rerun_failed_jobs.at);
    IF cardinality(failed) = 0 THEN
        RETURN 'nothing has failed';
    END IF;
    RETURN mill_private.rerun_jobs(failed, rerun_failed_jobs.at);
END
$function$;
COMMENT ON FUNCTION mill_private.rerun_failed_jobs(int[], timestamptz, bool) IS 'pgmill: starts the failed jobs of a logical time again';

CREATE FUNCTION mill_private.clear_jobs(jobs int[], at timestamptz, flow text) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    under_way bigint := (SELECT count(*) FROM mill_private.lock_open_runs(jobs, clear_jobs.at) open_run WHERE open_run.start IS NOT NULL);
BEGIN
    PERFORM mill_private.lock_job_states(jobs);
    PERFORM mill_private.lock_flows(ARRAY[clear_jobs.flow], true);
    PERFORM mill_private.reset_tokens(jobs, array_fill(clear_jobs.at, ARRAY[cardinality(jobs)]), true);
    RETURN format('%s cleared; runs under way, which will deliver nothing: %s', mill_private.count_of(cardinality(jobs), 'job'), under_way);
END
$function$;
COMMENT ON FUNCTION mill_private.clear_jobs(int[], timestamptz, text) IS 'pgmill: clears a logical time of jobs of one flow';

CREATE FUNCTION mill_private.cancel_runs(jobs int[], at timestamptz) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    run_row record;
    affected int := 0;
    asked int := 0;
BEGIN
    FOR run_row IN SELECT open_run.id FROM mill_private.lock_open_runs(jobs, cancel_runs.at) open_run LOOP
        affected := affected + 1;
        asked := asked + mill_private.close_run(run_row.id, false, 'cancelled', {cancelled_text})::int;
    END LOOP;
    RETURN format('%s cancelled', mill_private.count_of(affected, 'run'))
           || CASE WHEN asked > 0 THEN format(' (%s under way, asked to stop)', asked) ELSE '' END;
END
$function$;
COMMENT ON FUNCTION mill_private.cancel_runs(int[], timestamptz) IS 'pgmill: cancels the open runs of jobs';

CREATE FUNCTION mill_private.skip_job(job int, at timestamptz) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    run_row record;
    affected int := 0;
BEGIN
    FOR run_row IN SELECT open_run.id FROM mill_private.lock_open_runs(ARRAY[skip_job.job], skip_job.at) open_run LOOP
        PERFORM mill_private.close_run(run_row.id, true, 'skipped', NULL);
        affected := affected + 1;
    END LOOP;
    IF affected > 0 THEN
        RETURN format('%s skipped', mill_private.count_of(affected, 'run'));
    END IF;
    INSERT INTO mill.token AS stored (job, at, skips) VALUES (skip_job.job, skip_job.at, 1)
    ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET skips = stored.skips + 1;
    RETURN 'the next activation for this time will be skipped';
END
$function$;
COMMENT ON FUNCTION mill_private.skip_job(int, timestamptz) IS 'pgmill: skips the open runs of a job, or its next activation if none is open';

-- Returns the id of the run.
CREATE FUNCTION mill_private.mark_job(job_row mill.job, at timestamptz, success bool, author name) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    run_row record;
    marked bigint;
    error text := CASE WHEN NOT success THEN format('ERROR:  marked as failed by %s', author) END;
BEGIN
    FOR run_row IN SELECT open_run.id FROM mill_private.lock_open_runs(ARRAY[job_row.id], mark_job.at) open_run LOOP
        PERFORM mill_private.close_run(run_row.id, success, 'marked', error);
        marked := run_row.id;
    END LOOP;
    IF marked IS NULL THEN
        -- A new run is marked: the earlier one stays as it ended.
        PERFORM mill_private.lock_flows(ARRAY[job_row.flow]);
        marked := mill_private.order_run(job_row.id, mark_job.at, mill.now(), held => true, epoch => mill_private.count_manual_start(job_row.id, mark_job.at));
        PERFORM mill_private.close_run(marked, success, 'marked', error);
    END IF;
    RETURN marked;
END
$function$;
COMMENT ON FUNCTION mill_private.mark_job(mill.job, timestamptz, bool, name) IS 'pgmill: ends the open runs of a job for a user, or records such a run if none is open';

CREATE FUNCTION mill_private.set_paused(job int, flow text, paused bool) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF set_paused.flow IS NOT NULL THEN
        UPDATE mill.flow stored SET paused = set_paused.paused WHERE stored.name = set_paused.flow AND stored.paused <> set_paused.paused;
    ELSE
        UPDATE mill.job stored SET scheduled = NOT set_paused.paused WHERE stored.id = set_paused.job AND stored.scheduled = set_paused.paused;
    END IF;
    RETURN CASE WHEN NOT FOUND THEN 'no change' WHEN set_paused.paused THEN 'paused' ELSE 'resumed' END;
END
$function$;
COMMENT ON FUNCTION mill_private.set_paused(int, text, bool) IS 'pgmill: pauses or resumes a flow, or else a job';

-- `perform_command` has checked that the named job, flow or timer exists.
CREATE FUNCTION mill_private.explain_bad_command(command mill.command) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    needs text[] := CASE command.action
        WHEN 'run' THEN ARRAY['job'] WHEN 'rerun' THEN ARRAY['job', 'flow'] WHEN 'clear' THEN ARRAY['flow', 'job']
        WHEN 'cancel' THEN ARRAY['job', 'flow'] WHEN 'skip' THEN ARRAY['job'] WHEN 'mark' THEN ARRAY['job']
        WHEN 'fire' THEN ARRAY['timer'] WHEN 'pause' THEN ARRAY['flow', 'job'] WHEN 'resume' THEN ARRAY['flow', 'job'] END;
BEGIN
    RETURN CASE
        WHEN needs IS NULL THEN format('unknown action "%s": use run, rerun, clear, cancel, skip, mark, fire, pause or resume', command.action)
        WHEN num_nonnulls(command.job, command.flow, command.timer) <> 1
          OR NOT CASE WHEN command.job IS NOT NULL THEN 'job' WHEN command.flow IS NOT NULL THEN 'flow' ELSE 'timer' END = ANY (needs)
            THEN format('%s needs a %s', command.action, array_to_string(needs, ' or a '))
        WHEN command.at IS NULL AND command.action IN ('rerun', 'clear', 'skip', 'mark') THEN format('%s needs the logical time: at', command.action)
        WHEN command.action = 'rerun' AND COALESCE(command.how, 'down') NOT IN ('only', 'down', 'failed')
            THEN format('how of rerun must be only, down or failed, not "%s"', command.how)
        WHEN command.action = 'rerun' AND command.flow IS NOT NULL AND COALESCE(command.how, '') <> 'failed'
            THEN 'rerun of a flow needs how => ''failed'''
        WHEN command.action = 'mark' AND COALESCE(command.how, '') NOT IN ('success', 'failure') THEN 'mark needs how => ''success'' or ''failure'''
        WHEN command.action NOT IN ('rerun', 'mark') AND command.how IS NOT NULL THEN format('%s has no "how"', command.action) END;
END
$function$;
COMMENT ON FUNCTION mill_private.explain_bad_command(mill.command) IS 'pgmill: why a command is refused; NULL: it is valid';

CREATE FUNCTION mill_private.perform_command() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    job_row mill.job;
    flow_row mill.flow;
    timer_row mill.timer;
    jobs int[];
    wrong text;
    delivers_nothing CONSTANT int := -1;
BEGIN
    NEW.made := clock_timestamp();
    SELECT * INTO job_row FROM mill.job stored WHERE stored.name = NEW.job;
    SELECT * INTO flow_row FROM mill.flow stored WHERE stored.name = NEW.flow;
    SELECT * INTO timer_row FROM mill.timer stored WHERE stored.name = NEW.timer;
    wrong := CASE
        WHEN NEW.job IS NOT NULL AND job_row.id IS NULL THEN format('job "%s" does not exist', NEW.job)
        WHEN NEW.flow IS NOT NULL AND flow_row.name IS NULL THEN format('flow "%s" does not exist', NEW.flow)
        WHEN NEW.timer IS NOT NULL AND timer_row.id IS NULL THEN format('timer "%s" does not exist', NEW.timer)
        WHEN NEW.at IS NOT NULL AND NOT isfinite(NEW.at) THEN 'at must be a finite time'
        ELSE mill_private.explain_bad_command(NEW) END;
    IF wrong IS NOT NULL THEN
        PERFORM mill_private.raise_violation(wrong);
    END IF;
    IF job_row.id IS NOT NULL THEN
        PERFORM mill_private.check_role(NEW.made_by, format('job "%s"', job_row.name), job_row.owner);
        jobs := ARRAY[job_row.id];
        IF NEW.action IN ('run', 'rerun') THEN
            wrong := mill_private.check_queue_right(job_row.owner, (SELECT state_row.queue FROM mill_private.job_state state_row WHERE state_row.job = job_row.id));
            IF wrong IS NOT NULL THEN
                RAISE EXCEPTION USING MESSAGE = format('job "%s": %s', job_row.name, wrong), ERRCODE = 'insufficient_privilege';
            END IF;
        END IF;
    ELSIF flow_row.name IS NOT NULL THEN
        -- Jobs that join a flow agree to the commands of its owner.
        PERFORM mill_private.check_role(NEW.made_by, format('flow "%s"', flow_row.name), flow_row.owner);
        jobs := COALESCE((SELECT array_agg(stored.id ORDER BY stored.id) FROM mill.job stored WHERE stored.flow = flow_row.name), '{}');
    ELSE
        PERFORM mill_private.check_role(NEW.made_by, format('timer "%s"', timer_row.name), timer_row.owner);
    END IF;

    CASE NEW.action
    WHEN 'run' THEN
        NEW.at := COALESCE(NEW.at, mill.now());
        PERFORM mill_private.lock_flows(ARRAY[job_row.flow]);
        NEW.run := mill_private.order_graph_run(job_row, NEW.at, mill_private.count_manual_start(job_row.id, NEW.at), false, false);
        NEW.result := format('run %s', NEW.run);
    WHEN 'rerun' THEN
        IF NEW.how = 'only' THEN
            PERFORM mill_private.lock_flows(ARRAY[job_row.flow]);
            NEW.run := mill_private.order_graph_run(job_row, NEW.at, delivers_nothing, false, false);
            NEW.result := format('run %s, which delivers nothing', NEW.run);
        ELSIF NEW.how = 'failed' THEN
            NEW.result := mill_private.rerun_failed_jobs(jobs, NEW.at, job_row.id IS NOT NULL);
        ELSE
            NEW.result := mill_private.rerun_jobs(jobs, NEW.at);
        END IF;
    WHEN 'clear' THEN
        NEW.result := mill_private.clear_jobs(jobs, NEW.at, COALESCE(flow_row.name, job_row.flow));
    WHEN 'cancel' THEN
        NEW.result := mill_private.cancel_runs(jobs, NEW.at);
    WHEN 'skip' THEN
        NEW.result := mill_private.skip_job(job_row.id, NEW.at);
    WHEN 'mark' THEN
        NEW.run := mill_private.mark_job(job_row, NEW.at, NEW.how = 'success', NEW.made_by);
        NEW.result := format('run %s: %s', NEW.run, NEW.how);
    WHEN 'fire' THEN
        NEW.at := COALESCE(NEW.at, date_trunc('second', mill.now()));
        UPDATE mill.timer stored SET first = LEAST(stored.first, NEW.at) WHERE stored.id = timer_row.id;
        NEW.result := format('%s activated', mill_private.count_of(mill_private.fire_times(ARRAY[timer_row.name], ARRAY[NEW.at], 'by_hand'), 'job'));
    WHEN 'pause', 'resume' THEN
        NEW.result := mill_private.set_paused(job_row.id, flow_row.name, NEW.action = 'pause');
    END CASE;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.perform_command() IS 'pgmill: does what a row of mill.command asks for';
CREATE TRIGGER by_writer BEFORE INSERT ON mill.command FOR EACH ROW EXECUTE FUNCTION mill_private.note_writer();
CREATE TRIGGER does BEFORE INSERT ON mill.command FOR EACH ROW EXECUTE FUNCTION mill_private.perform_command();

CREATE FUNCTION mill_private.protect_command() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF (OLD.id, OLD.action, OLD.at, OLD.how, OLD.note, OLD.made, OLD.made_by, OLD.result, OLD.run)
            IS DISTINCT FROM (NEW.id, NEW.action, NEW.at, NEW.how, NEW.note, NEW.made, NEW.made_by, NEW.result, NEW.run) THEN
        PERFORM mill_private.raise_violation('mill.command is the audit trail: its rows cannot be changed');
    END IF;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.protect_command() IS 'pgmill: what was done cannot be changed in mill.command';
CREATE TRIGGER keeps BEFORE UPDATE ON mill.command FOR EACH ROW EXECUTE FUNCTION mill_private.protect_command();
