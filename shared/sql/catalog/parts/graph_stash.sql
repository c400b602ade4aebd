-- Values that the tasks of one logical time of a flow pass on, and the logical time itself. The run is known by the settings
-- that every run's session has: mill.job, mill.at, mill.attempt.
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE TABLE mill.stash (
    flow text,
    job int,
    at timestamptz NOT NULL,
    key text NOT NULL,
    value text,
    touched timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX stash_once ON mill.stash (COALESCE(flow, ''), COALESCE(job, 0), at, key);
CREATE INDEX ON mill.stash (touched);
COMMENT ON TABLE mill.stash IS 'pgmill: values of one logical time of a flow, set and read by its tasks';
COMMENT ON COLUMN mill.stash.job IS 'the job, where it has no flow: then it stashes for itself';

CREATE FUNCTION mill.at() RETURNS timestamptz
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN NULLIF(current_setting('mill.at', true), '')::timestamptz;
COMMENT ON FUNCTION mill.at() IS 'pgmill: the logical time of the run that asks; NULL outside of a job''s run';

-- Of which flow, job and time is this session's run? Only who may write into the job's queue can be one.
CREATE FUNCTION mill.stash_place(OUT flow text, OUT job int, OUT at timestamptz)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    j mill.job;
BEGIN
    at := mill.at();
    SELECT * INTO j FROM mill.job k WHERE k.id = NULLIF(current_setting('mill.job', true), '')::int;
    IF at IS NULL OR j.id IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = 'mill.stash is for the SQL of jobs: this session runs none', ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF NOT EXISTS (SELECT FROM mill.queue q JOIN pg_roles r ON r.rolname = q.owner
                       WHERE q.relid = to_regclass(j.queue) AND pg_has_role(session_user, r.oid, 'MEMBER')) THEN
        RAISE EXCEPTION USING MESSAGE = format('job "%s" does not run as %s', j.name, session_user), ERRCODE = 'insufficient_privilege';
    END IF;
    flow := j.flow;
    job := CASE WHEN j.flow IS NULL THEN j.id END;
END
$function$;
CREATE FUNCTION mill.stash(key text) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    p record;
BEGIN
    SELECT * INTO p FROM mill.stash_place();
    RETURN (SELECT s.value FROM mill.stash s WHERE COALESCE(s.flow, '') = COALESCE(p.flow, '') AND COALESCE(s.job, 0) = COALESCE(p.job, 0)
               AND s.at = p.at AND s.key = stash.key);
END
$function$;
COMMENT ON FUNCTION mill.stash(text) IS 'pgmill: a value that a task of this flow and logical time has stashed; NULL if none has';
CREATE FUNCTION mill.stash(key text, value text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_column
DECLARE
    p record;
BEGIN
    IF stash.key IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = 'a stashed value needs a key', ERRCODE = 'null_value_not_allowed';
    END IF;
    SELECT * INTO p FROM mill.stash_place();
    INSERT INTO mill.stash AS s (flow, job, at, key, value) VALUES (p.flow, p.job, p.at, stash.key, stash.value)
    ON CONFLICT (COALESCE(flow, ''), COALESCE(job, 0), at, key) DO UPDATE SET value = EXCLUDED.value, touched = EXCLUDED.touched;
    RETURN stash.value;
END
$function$;
COMMENT ON FUNCTION mill.stash(text, text) IS 'pgmill: stashes a value for the tasks of this flow and logical time';
