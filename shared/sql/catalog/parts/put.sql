-- Rows of jobs come into their task tables here, one or many with one statement. The statement is long (all defaults,
-- checks and triggers of a task table are in it), and to plan it takes longer than to run it: so every queue has a function
-- of its own that keeps the plan, made when its triggers are. Whoever comes before it is made runs the text itself.
-- parameters: none; locks: none; caller: whoever installs, once per database

-- Rows in the order of the arrays, which have the same length; what stands outside of them is the same for all.
CREATE FUNCTION mill.put_text(schema name, name name) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
    RETURN format('INSERT INTO %I.%I AS t (input, plan, active, live, repeat, timeout, count, "max", "delete", "group", remote,
            priority, atomic, job, at, epoch, run_of, failures, attempt, parent, held)
    SELECT COALESCE(j.input, ''''), $7, COALESCE(j.active, interval ''1000 years''), COALESCE(j.live, interval ''0''), ''0'',
           COALESCE(j.timeout, interval ''0''), COALESCE(j."count", 0), COALESCE(j."max", 0), false,
           COALESCE(j."group", concat(''job '', j.id)), j.remote, COALESCE(r.priority, j.priority - CASE WHEN r.low THEN 1000 ELSE 0 END),
           j.atomic, j.id, r.at, r.epoch, $8, $9, $10, $11, r.held
      FROM unnest($1, $2, $3, $4, $5, $6) WITH ORDINALITY AS r (job, at, epoch, held, low, priority, place)
      JOIN mill.job j ON j.id = r.job ORDER BY r.place
    RETURNING t.id::bigint, t.job::int, t.at', schema, name);
-- plpgsql: it is called for every run, and keeps its plan.
CREATE FUNCTION mill.put_name(schema name, name name) RETURNS name
    LANGUAGE plpgsql IMMUTABLE AS $function$
BEGIN
    RETURN 'put_' || md5(format('%I.%I', schema, name));
END
$function$;
-- The function of a queue, made or brought up to date; those of queues that are gone are dropped.
CREATE FUNCTION mill.make_put(schema name, name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $function$
DECLARE
    text text := format(E'\nBEGIN\n    RETURN QUERY %s;\nEND\n', mill.put_text(schema, name));
    made name := mill.put_name(schema, name);
    old record;
BEGIN
    FOR old IN SELECT p.oid::regprocedure AS name FROM pg_proc p WHERE p.pronamespace = 'mill'::regnamespace AND p.proname ~ '^put_[0-9a-f]{32}$'
                AND NOT EXISTS (SELECT FROM mill.queue q WHERE mill.put_name(q.schema, q.name) = p.proname) LOOP
        EXECUTE format('DROP FUNCTION %s', old.name);
    END LOOP;
    IF EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'mill'::regnamespace AND p.proname = made AND p.prosrc = text) THEN
        RETURN;
    END IF;
    -- the plan for any number of rows is good for one as well, and costs no planning
    EXECUTE format('CREATE OR REPLACE FUNCTION mill.%I(jobs int[], ats timestamptz[], epochs int[], held bool[], low bool[], priorities int[],
            plan timestamptz, run_of bigint, failures int, attempt int, parent bigint) RETURNS TABLE (task bigint, job int, at timestamptz)
        LANGUAGE plpgsql ROWS 1 SET plan_cache_mode = force_generic_plan AS %L', made, text);
    EXECUTE format('REVOKE ALL ON FUNCTION mill.%I FROM PUBLIC', made);
END
$function$;

-- The settings pg_task.* of the session, which may be anybody's, have no say in it.
CREATE FUNCTION mill.put(place mill.queue, due timestamptz, jobs int[], ats timestamptz[], epochs int[], held bool[], low bool[],
        priorities int[] DEFAULT NULL, run_of bigint DEFAULT NULL, failures int DEFAULT 0, attempt int DEFAULT 0,
        parent bigint DEFAULT NULL) RETURNS TABLE (task bigint, job int, at timestamptz)
    LANGUAGE plpgsql ROWS 1 AS $function$
DECLARE
    moment timestamptz := mill.now();
    made name := mill.put_name(place.schema, place.name);
    settings text[] := '{header,save,string,drift,delimiter,escape,quote,null}';
    before text;
    saved text[];
BEGIN
    before := concat(current_setting('pg_task.header', true), current_setting('pg_task.save', true), current_setting('pg_task.string', true),
                     current_setting('pg_task.drift', true), current_setting('pg_task.delimiter', true),
                     current_setting('pg_task.escape', true), current_setting('pg_task.quote', true), current_setting('pg_task.null', true));
    IF before <> '' THEN
        saved := ARRAY(SELECT COALESCE(current_setting('pg_task.' || s.name, true), '') FROM unnest(settings) AS s (name));
        PERFORM set_config('pg_task.' || s.name, '', true) FROM unnest(settings) AS s (name);
    END IF;
    -- The take goes by the server's clock, which a test's is ahead of.
    RETURN QUERY EXECUTE CASE WHEN to_regproc(concat('mill.', made)) IS NULL THEN mill.put_text(place.schema, place.name)
                              ELSE format('SELECT * FROM mill.%I($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)', made) END
      USING jobs, ats, epochs, CASE WHEN due > moment THEN array_fill(true, ARRAY[cardinality(jobs)]) ELSE put.held END, low, priorities,
            CASE WHEN due <= moment THEN LEAST(due, statement_timestamp()) ELSE due END, run_of, failures, attempt, parent;
    IF before <> '' THEN
        PERFORM set_config('pg_task.' || s.name, s.value, true) FROM unnest(settings, saved) AS s (name, value);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.put(mill.queue, timestamptz, int[], timestamptz[], int[], bool[], bool[], int[], bigint, int, int, bigint) IS
    'pgmill: puts runs of jobs into a queue; their ids';
