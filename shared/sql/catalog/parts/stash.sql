-- The stash: values that the tasks of one logical time of a flow pass on, and the logical time itself. The session of a run has the settings
-- mill.job, mill.at and mill.attempt, which name the run.
-- parameters: none; locks: none; caller: installation, once per database

CREATE TABLE mill_private.stash (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    flow text,
    job int,
    at timestamptz NOT NULL,
    key text NOT NULL,
    value text,
    touched timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX stash_once ON mill_private.stash (COALESCE(flow, ''), COALESCE(job, 0), at, key);
CREATE INDEX ON mill_private.stash (touched);
COMMENT ON TABLE mill_private.stash IS 'pgmill: values of one logical time of a flow, set and read by its tasks';
COMMENT ON COLUMN mill_private.stash.id IS 'drawn by the catalog';
COMMENT ON COLUMN mill_private.stash.flow IS 'the flow whose tasks share the value';
COMMENT ON COLUMN mill_private.stash.job IS 'the job, if it has no flow: its runs stash for themselves';
COMMENT ON COLUMN mill_private.stash.at IS 'the logical time';
COMMENT ON COLUMN mill_private.stash.key IS 'the name of the value';
COMMENT ON COLUMN mill_private.stash.value IS 'the value';
COMMENT ON COLUMN mill_private.stash.touched IS 'when it was set last';

CREATE FUNCTION mill.at() RETURNS timestamptz
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN NULLIF(current_setting('mill.at', true), '')::timestamptz;
COMMENT ON FUNCTION mill.at() IS 'pgmill: the logical time of the calling run; NULL outside of a job''s run';

CREATE FUNCTION mill_private.find_stash_place(relid oid, job int, OUT flow text, OUT alone int)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j record;
BEGIN
    SELECT k.name, k.flow, s.queue INTO j FROM mill.job k JOIN mill_private.job_state s ON s.job = k.id WHERE k.id = find_stash_place.job;
    IF j.queue IS DISTINCT FROM relid THEN
        RAISE EXCEPTION USING MESSAGE = format('job %s does not run in this queue', job), ERRCODE = 'insufficient_privilege';
    END IF;
    flow := j.flow;
    alone := CASE WHEN j.flow IS NULL THEN job END;
END
$function$;
COMMENT ON FUNCTION mill_private.find_stash_place(oid, int) IS
    'pgmill: the flow, or the job without one, for which a run of this queue stashes';

CREATE FUNCTION mill_private.get_stash(relid oid, job int, at timestamptz, key text) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    p record;
BEGIN
    SELECT * INTO p FROM mill_private.find_stash_place(relid, job);
    RETURN (SELECT s.value FROM mill_private.stash s WHERE COALESCE(s.flow, '') = COALESCE(p.flow, '') AND COALESCE(s.job, 0) = COALESCE(p.alone, 0)
               AND s.at = get_stash.at AND s.key = get_stash.key);
END
$function$;
COMMENT ON FUNCTION mill_private.get_stash(oid, int, timestamptz, text) IS 'pgmill: reads a stashed value';

CREATE FUNCTION mill_private.set_stash(relid oid, job int, at timestamptz, key text, value text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_column
DECLARE
    p record;
BEGIN
    SELECT * INTO p FROM mill_private.find_stash_place(relid, set_stash.job);
    INSERT INTO mill_private.stash AS s (flow, job, at, key, value) VALUES (p.flow, p.alone, set_stash.at, set_stash.key, set_stash.value)
    ON CONFLICT (COALESCE(flow, ''), COALESCE(job, 0), at, key) DO UPDATE SET value = EXCLUDED.value, touched = EXCLUDED.touched;
END
$function$;
COMMENT ON FUNCTION mill_private.set_stash(oid, int, timestamptz, text, text) IS 'pgmill: stashes a value';

-- The settings of the session name job, logical time and queue. The right to EXECUTE the entry point of that queue proves that the
-- session serves it.
CREATE FUNCTION mill_private.find_stash(OUT job int, OUT at timestamptz, OUT entry text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place oid := to_regclass(format('%I.%I', COALESCE(current_setting('pg_task.schema', true), ''), COALESCE(current_setting('pg_task.table', true), '')));
BEGIN
    job := NULLIF(current_setting('mill.job', true), '')::int;
    at := mill.at();
    IF at IS NULL OR job IS NULL OR place IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = 'mill.stash is for the SQL of jobs: this session runs none', ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF has_function_privilege(to_regprocedure(format('mill_private.q%s_get_stash(int, timestamptz, text)', place)), 'EXECUTE') IS NOT TRUE THEN
        RAISE EXCEPTION USING MESSAGE = format('job %s does not run as %s', job, current_user), ERRCODE = 'insufficient_privilege';
    END IF;
    entry := format('mill_private.q%s', place);
END
$function$;
COMMENT ON FUNCTION mill_private.find_stash() IS
    'pgmill: job and logical time of this session''s run, and how the entry points of its queue begin';

CREATE FUNCTION mill.stash(key text) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    p record;
    value text;
BEGIN
    SELECT * INTO p FROM mill_private.find_stash();
    EXECUTE format('SELECT %s_get_stash($1, $2, $3)', p.entry) INTO value USING p.job, p.at, stash.key;
    RETURN value;
END
$function$;
COMMENT ON FUNCTION mill.stash(text) IS 'pgmill: a value that a task of this flow and logical time has stashed; NULL if none has';

CREATE FUNCTION mill.stash(key text, value text) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    p record;
BEGIN
    IF stash.key IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = 'a stashed value needs a key', ERRCODE = 'null_value_not_allowed';
    END IF;
    SELECT * INTO p FROM mill_private.find_stash();
    EXECUTE format('SELECT %s_set_stash($1, $2, $3, $4)', p.entry) USING p.job, p.at, stash.key, stash.value;
    RETURN stash.value;
END
$function$;
COMMENT ON FUNCTION mill.stash(text, text) IS 'pgmill: stashes a value for the tasks of this flow and logical time';
