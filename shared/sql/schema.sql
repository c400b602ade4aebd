-- Generated: the catalog of a fresh installation and the task table public.task, as pg_dump of PostgreSQL 15 writes them.
-- A test compares it; PGMILL_WRITE_SCHEMA=1 makes that test write it. The sources are in catalog/parts. Registering a queue
-- adds its entry points, mill_private.q<oid>_*, and the row triggers of jobs.
--
-- PostgreSQL database dump
--

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: mill; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA mill;

--
-- Name: SCHEMA mill; Type: COMMENT; Schema: -; Owner: -
--

COMMENT ON SCHEMA mill IS 'pgmill: jobs, graphs and task tables of this database';

--
-- Name: mill_private; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA mill_private;

--
-- Name: SCHEMA mill_private; Type: COMMENT; Schema: -; Owner: -
--

COMMENT ON SCHEMA mill_private IS 'pgmill: runs of jobs, functions that schedulers call, and helpers';

--
-- Name: public; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA public;

--
-- Name: SCHEMA public; Type: COMMENT; Schema: -; Owner: -
--

COMMENT ON SCHEMA public IS 'standard public schema';

--
-- Name: state; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.state AS ENUM (
    'PLAN',
    'TAKE',
    'WORK',
    'DONE',
    'FAIL',
    'GONE',
    'STOP'
);

--
-- Name: add_job(regproc, interval, jsonb, timestamp with time zone, boolean, regproc, boolean, text, text, text, text, interval, integer, interval, interval); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.add_job(proc regproc, schedule_interval interval DEFAULT NULL::interval, config jsonb DEFAULT NULL::jsonb, initial_start timestamp with time zone DEFAULT NULL::timestamp with time zone, scheduled boolean DEFAULT true, check_config regproc DEFAULT NULL::regproc, fixed_schedule boolean DEFAULT true, timezone text DEFAULT NULL::text, job_name text DEFAULT NULL::text, cron text DEFAULT NULL::text, queue text DEFAULT NULL::text, max_runtime interval DEFAULT NULL::interval, max_retries integer DEFAULT NULL::integer, retry_period interval DEFAULT NULL::interval, crash_wait interval DEFAULT NULL::interval) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    verb text := (SELECT CASE p.prokind WHEN 'p' THEN 'CALL ' WHEN 'f' THEN 'SELECT ' END FROM pg_proc p WHERE p.oid = add_job.proc);
    made int;
BEGIN
    IF verb IS NULL THEN
        RAISE EXCEPTION '"%" is neither a procedure nor a function', proc USING ERRCODE = '42883';
    END IF;
    INSERT INTO mill.job (name, routine, schedule_interval, config, initial_start, scheduled, check_config, fixed_schedule,
                          timezone, cron, queue, max_runtime, max_retries, retry_period, crash_wait)
    VALUES (job_name, verb || proc::text, add_job.schedule_interval, add_job.config, add_job.initial_start,
            COALESCE(add_job.scheduled, true), add_job.check_config::text, COALESCE(add_job.fixed_schedule, true),
            add_job.timezone, add_job.cron, add_job.queue, COALESCE(add_job.max_runtime, '0'), add_job.max_retries,
            COALESCE(add_job.retry_period, '5 min'), COALESCE(add_job.crash_wait, '5 min'))
    RETURNING id INTO made;
    RETURN made;
END
$$;

--
-- Name: FUNCTION add_job(proc regproc, schedule_interval interval, config jsonb, initial_start timestamp with time zone, scheduled boolean, check_config regproc, fixed_schedule boolean, timezone text, job_name text, cron text, queue text, max_runtime interval, max_retries integer, retry_period interval, crash_wait interval); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.add_job(proc regproc, schedule_interval interval, config jsonb, initial_start timestamp with time zone, scheduled boolean, check_config regproc, fixed_schedule boolean, timezone text, job_name text, cron text, queue text, max_runtime interval, max_retries integer, retry_period interval, crash_wait interval) IS 'pgmill: a job that calls proc(job id, config) on a schedule; its id';

--
-- Name: admit(name, boolean); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.admit(role name, keeps boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM mill_private.grant_levels(role, ARRAY['serve']);
    IF keeps THEN
        PERFORM mill_private.grant_levels(role, ARRAY['keep']);
    ELSE
        PERFORM mill_private.revoke_levels(role, ARRAY['keep']);
    END IF;
END
$$;

--
-- Name: FUNCTION admit(role name, keeps boolean); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.admit(role name, keeps boolean) IS 'pgmill: lets the user of a queue serve it with this catalog; keeps: it may also fire timers and move tokens';

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: job; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.job (
    id integer NOT NULL,
    name text NOT NULL,
    flow text,
    input text,
    queue text NOT NULL,
    schedule_interval interval,
    cron text,
    timezone text,
    initial_start timestamp with time zone,
    fixed_schedule boolean DEFAULT true NOT NULL,
    max_runtime interval DEFAULT '00:00:00'::interval NOT NULL,
    max_retries integer,
    retry_period interval DEFAULT '00:05:00'::interval NOT NULL,
    crash_wait interval DEFAULT '00:05:00'::interval NOT NULL,
    scheduled boolean DEFAULT true NOT NULL,
    config jsonb,
    check_config text,
    owner name DEFAULT CURRENT_USER NOT NULL,
    "group" text,
    max integer,
    active interval,
    live interval,
    count integer,
    timeout interval,
    remote text,
    atomic boolean DEFAULT false NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    threshold integer,
    routine text
);

--
-- Name: TABLE job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.job IS 'pgmill: SQL that runs repeatedly; an INSERT creates a job, and a change takes effect at once';

--
-- Name: COLUMN job.id; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.id IS 'drawn by the catalog, and never used again';

--
-- Name: COLUMN job.name; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.name IS 'unique; edges name jobs by it';

--
-- Name: COLUMN job.flow; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.flow IS 'the flow: jobs that are drawn, paused and limited together';

--
-- Name: COLUMN job.input; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.input IS 'SQL, run as the user of the queue; NULL = a node that does nothing';

--
-- Name: COLUMN job.queue; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.queue IS 'the task table that its runs are rows of, as schema.table';

--
-- Name: COLUMN job.schedule_interval; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.schedule_interval IS 'how often it runs; or cron, or neither: then edges or mill.run_job start it';

--
-- Name: COLUMN job.cron; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.cron IS 'five fields, or six with seconds first, on the wall clock of timezone';

--
-- Name: COLUMN job.timezone; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.timezone IS 'whose wall clock counts; NULL = UTC';

--
-- Name: COLUMN job.initial_start; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.initial_start IS 'the first time; a fixed schedule counts from it';

--
-- Name: COLUMN job.fixed_schedule; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.fixed_schedule IS 'true: on the grid initial_start + k * interval; false: interval after the end of the last run';

--
-- Name: COLUMN job.max_runtime; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.max_runtime IS 'a run that takes longer is ended, and has failed; 0 = unlimited';

--
-- Name: COLUMN job.max_retries; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.max_retries IS '-1 = without end, n = the job is paused after n failures in a row; NULL = -1 with a schedule of its own, else 0';

--
-- Name: COLUMN job.retry_period; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.retry_period IS 'the wait after the first failure; it doubles with each';

--
-- Name: COLUMN job.crash_wait; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.crash_wait IS 'the least wait after a crash, so that a person can pause the job';

--
-- Name: COLUMN job.scheduled; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.scheduled IS 'false = paused; set to true it starts from zero';

--
-- Name: COLUMN job.config; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.config IS 'the argument of the routine that add_job was called with';

--
-- Name: COLUMN job.check_config; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.check_config IS 'a function of the config that may refuse it by an error';

--
-- Name: COLUMN job.owner; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.owner IS 'the role whose members may alter, run and delete it; it runs as the user of its queue';

--
-- Name: COLUMN job."group"; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job."group" IS 'the group of its tasks; NULL = job <id>';

--
-- Name: COLUMN job.max; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.max IS 'max of its tasks; NULL = 0';

--
-- Name: COLUMN job.active; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.active IS 'active of its tasks; NULL = 1000 years';

--
-- Name: COLUMN job.live; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.live IS 'live of its tasks; NULL = 0';

--
-- Name: COLUMN job.count; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.count IS 'count of its tasks; NULL = 0';

--
-- Name: COLUMN job.timeout; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.timeout IS 'timeout of its tasks; NULL = 0';

--
-- Name: COLUMN job.remote; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.remote IS 'remote of its tasks';

--
-- Name: COLUMN job.atomic; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.atomic IS 'atomic of its tasks';

--
-- Name: COLUMN job.priority; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.priority IS 'priority of its tasks; higher first';

--
-- Name: COLUMN job.threshold; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.threshold IS 'how many tokens start it; NULL = one from every edge';

--
-- Name: COLUMN job.routine; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job.routine IS 'the routine that add_job was called with; input is built from it, id and config';

--
-- Name: alter_job(integer, interval, interval, integer, interval, boolean, jsonb, timestamp with time zone, boolean, regproc, boolean, timestamp with time zone, text, text, text, interval); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.alter_job(job_id integer, schedule_interval interval DEFAULT NULL::interval, max_runtime interval DEFAULT NULL::interval, max_retries integer DEFAULT NULL::integer, retry_period interval DEFAULT NULL::interval, scheduled boolean DEFAULT NULL::boolean, config jsonb DEFAULT NULL::jsonb, next_start timestamp with time zone DEFAULT NULL::timestamp with time zone, if_exists boolean DEFAULT false, check_config regproc DEFAULT NULL::regproc, fixed_schedule boolean DEFAULT NULL::boolean, initial_start timestamp with time zone DEFAULT NULL::timestamp with time zone, timezone text DEFAULT NULL::text, job_name text DEFAULT NULL::text, cron text DEFAULT NULL::text, crash_wait interval DEFAULT NULL::interval) RETURNS SETOF mill.job
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    -- A new interval removes cron, and the other way round.
    cron_now text := alter_job.cron;
    interval_now interval := alter_job.schedule_interval;
BEGIN
    IF num_nonnulls(schedule_interval, max_runtime, max_retries, retry_period, scheduled, config, check_config, fixed_schedule,
                    initial_start, timezone, job_name, cron, crash_wait) > 0 THEN
        UPDATE mill.job j SET
               schedule_interval = COALESCE(interval_now, CASE WHEN cron_now IS NULL THEN j.schedule_interval END),
               cron = COALESCE(cron_now, CASE WHEN interval_now IS NULL THEN j.cron END),
               max_runtime = COALESCE(alter_job.max_runtime, j.max_runtime),
               max_retries = COALESCE(alter_job.max_retries, j.max_retries),
               retry_period = COALESCE(alter_job.retry_period, j.retry_period),
               crash_wait = COALESCE(alter_job.crash_wait, j.crash_wait),
               scheduled = COALESCE(alter_job.scheduled, j.scheduled),
               config = COALESCE(alter_job.config, j.config),
               check_config = COALESCE(alter_job.check_config::text, j.check_config),
               fixed_schedule = COALESCE(alter_job.fixed_schedule, j.fixed_schedule),
               initial_start = COALESCE(alter_job.initial_start, j.initial_start),
               timezone = COALESCE(alter_job.timezone, j.timezone),
               name = COALESCE(job_name, j.name)
         WHERE j.id = job_id;
        IF NOT FOUND THEN
            IF if_exists THEN
                RAISE NOTICE 'job % does not exist, or you are not a member of its owner', job_id;
                RETURN;
            END IF;
            RAISE EXCEPTION 'job % does not exist, or you are not a member of its owner', job_id USING ERRCODE = '42704';
        END IF;
    END IF;
    IF next_start IS NOT NULL AND NOT mill.set_next_start(job_id, next_start) AND NOT if_exists THEN
        RAISE EXCEPTION 'job % does not exist, or you are not a member of its owner', job_id USING ERRCODE = '42704';
    END IF;
    RETURN QUERY SELECT j.* FROM mill.job j WHERE j.id = job_id;
END
$$;

--
-- Name: FUNCTION alter_job(job_id integer, schedule_interval interval, max_runtime interval, max_retries integer, retry_period interval, scheduled boolean, config jsonb, next_start timestamp with time zone, if_exists boolean, check_config regproc, fixed_schedule boolean, initial_start timestamp with time zone, timezone text, job_name text, cron text, crash_wait interval); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.alter_job(job_id integer, schedule_interval interval, max_runtime interval, max_retries integer, retry_period interval, scheduled boolean, config jsonb, next_start timestamp with time zone, if_exists boolean, check_config regproc, fixed_schedule boolean, initial_start timestamp with time zone, timezone text, job_name text, cron text, crash_wait interval) IS 'pgmill: changes what is given, NULL = as it is; the changed job';

--
-- Name: apply(jsonb); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.apply(document jsonb) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    SET "IntervalStyle" TO 'postgres'
    SET "DateStyle" TO 'ISO'
    AS $_$
DECLARE
    whole text := document ->> 'flow';
    part record;
    item record;
    given jsonb;
    known jsonb;
    key jsonb;
    other text;
    results text[] := '{}';
    removed int;
BEGIN
    PERFORM mill_private.check_document('document', document, mill_private.document_columns('flow')
        || '{"flow": null, "paused": null, "jobs": null, "timers": null, "edges": null}');
    IF whole IS NULL THEN
        PERFORM mill_private.raise_violation('document.flow: missing; it is the name of the flow');
    END IF;
    given := mill_private.document_columns('flow') || (document - '{flow,jobs,timers,edges}'::text[]);
    results := results || mill_private.upsert_row('flow', jsonb_build_object('name', whole), given);
    FOR part IN SELECT * FROM (VALUES ('timer', 'timers', 'enabled'), ('job', 'jobs', 'scheduled'), ('edge', 'edges', NULL)) AS parts (kind, list, state) LOOP
        IF jsonb_typeof(COALESCE(document -> part.list, '[]')) <> 'array' THEN
            PERFORM mill_private.raise_violation(format('%s: a list is expected', part.list));
        END IF;
        known := mill_private.document_columns(part.kind) || CASE part.kind WHEN 'edge' THEN '{"job": null}'::jsonb
                                                     ELSE jsonb_build_object('name', NULL, part.state, NULL) END;
        FOR item IN SELECT element.value, element.ordinality - 1 AS place
                      FROM jsonb_array_elements(COALESCE(document -> part.list, '[]')) WITH ORDINALITY AS element LOOP
            PERFORM mill_private.check_document(format('%s[%s]', part.list, item.place), item.value, known);
            given := mill_private.document_columns(part.kind) || item.value;
            IF part.kind = 'edge' THEN
                key := mill_private.check_document_edge(whole, item.place, given);
                given := jsonb_build_object('first', given -> 'first');
            ELSE
                IF item.value ->> 'name' IS NULL THEN
                    PERFORM mill_private.raise_violation(format('%s[%s].name: missing', part.list, item.place));
                END IF;
                EXECUTE format('SELECT COALESCE(''the flow '' || stored.flow, ''no flow'') FROM mill.%I stored WHERE stored.name = $1 AND stored.flow IS DISTINCT FROM $2', part.kind)
                   INTO other USING item.value ->> 'name', whole;
                IF other IS NOT NULL THEN
                    PERFORM mill_private.raise_violation(format('%s[%s].name: "%s" exists already and belongs to %s', part.list, item.place, item.value ->> 'name', other));
                END IF;
                key := jsonb_build_object('name', given -> 'name');
                given := given - 'name' || jsonb_build_object('flow', whole);
                -- A document without these leaves the values that the server has chosen.
                IF given -> 'queue' = 'null' THEN given := given - 'queue'; END IF;
                IF given -> 'start' = 'null' THEN given := given - 'start'; END IF;
                IF given -> 'initial_start' = 'null' THEN given := given - 'initial_start'; END IF;
            END IF;
            results := results || mill_private.upsert_row(part.kind, key, given);
        END LOOP;
    END LOOP;
    removed := mill_private.delete_absent_rows(whole, document);
    RETURN format('flow "%s": %s created, %s changed, %s unchanged, %s removed', whole, cardinality(array_positions(results, 'made')),
        cardinality(array_positions(results, 'changed')), cardinality(array_positions(results, 'same')), removed);
END
$_$;

--
-- Name: FUNCTION apply(document jsonb); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.apply(document jsonb) IS 'pgmill: creates or changes a flow with its jobs, timers and edges from a document; jobs, timers and edges that it lacks are deleted';

--
-- Name: at(); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.at() RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (NULLIF(current_setting('mill.at'::text, true), ''::text))::timestamp with time zone;

--
-- Name: FUNCTION at(); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.at() IS 'pgmill: the logical time of the calling run; NULL outside of a job''s run';

--
-- Name: cancel(text, timestamp with time zone, text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.cancel(job text DEFAULT NULL::text, at timestamp with time zone DEFAULT NULL::timestamp with time zone, flow text DEFAULT NULL::text) RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.command (action, job, at, flow) VALUES ('cancel', $1, $2, $3) RETURNING result
$_$;

--
-- Name: FUNCTION cancel(job text, at timestamp with time zone, flow text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.cancel(job text, at timestamp with time zone, flow text) IS 'pgmill: cancels the runs of a job or flow, of one logical time or all; failure edges fire';

--
-- Name: check_cron(text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.check_cron(cron text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    most_characters CONSTANT int := 1000;
    day CONSTANT int := 4;
    month CONSTANT int := 5;
    weekday CONSTANT int := 6;
    month_lengths CONSTANT int[] := ARRAY[31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    trimmed text := btrim(cron, E' \t\n\r');
    fields text[];
    item text;
    parsed record;
    day_set bigint := 0;
    month_set bigint := 0;
    last_day bool := false;
BEGIN
    IF char_length(cron) > most_characters THEN
        RETURN format('it is longer than %s characters', most_characters);
    END IF;
    IF starts_with(trimmed, '@') THEN
        CASE lower(trimmed COLLATE "C")
        WHEN '@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly' THEN
            RETURN NULL;
        ELSE
            RETURN format('unknown shortcut %s; known are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly',
                          trimmed);
        END CASE;
    END IF;
    fields := CASE WHEN trimmed = '' THEN '{}'::text[] ELSE regexp_split_to_array(trimmed, E'[ \t\n\r]+') END;
    IF cardinality(fields) = 5 THEN
        fields := '0'::text || fields;
    ELSIF cardinality(fields) <> 6 THEN
        RETURN format('it has %s fields; five are needed, or six with seconds in front', cardinality(fields));
    END IF;
    FOR field IN 1 .. cardinality(fields) LOOP
        FOREACH item IN ARRAY string_to_array(fields[field], ',') LOOP
            IF field = day AND item IN ('L', 'l', '$') THEN
                last_day := true;
                CONTINUE;
            END IF;
            parsed := mill_private.parse_cron_item(field, item);
            IF parsed.wrong IS NOT NULL THEN
                RETURN parsed.wrong;
            ELSIF field = day THEN
                day_set := day_set | parsed.members;
            ELSIF field = month THEN
                month_set := month_set | parsed.members;
            END IF;
        END LOOP;
    END LOOP;
    -- If both day and weekday are restricted, one of them is enough.
    IF last_day OR NOT starts_with(fields[day], '*') AND NOT starts_with(fields[weekday], '*')
       OR EXISTS (SELECT FROM unnest(month_lengths) WITH ORDINALITY AS known (length, number)
                   WHERE month_set & (1::bigint << known.number::int) <> 0 AND day_set & ((2::bigint << known.length) - 1) <> 0) THEN
        RETURN NULL;
    END IF;
    RETURN 'it never fires: none of its months has such a day';
END
$_$;

--
-- Name: FUNCTION check_cron(cron text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.check_cron(cron text) IS 'pgmill: why a cron expression is refused; NULL if it is valid';

--
-- Name: check_step(interval); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.check_step(step interval) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    months numeric;
    clock numeric;
BEGIN
    IF NOT isfinite(step) THEN
        RETURN 'an infinite interval cannot be repeated';
    END IF;
    months := extract(year FROM step) * 12 + extract(month FROM step);
    clock := extract(day FROM step) * 86400 + extract(hour FROM step) * 3600 + extract(minute FROM step) * 60 + extract(second FROM step);
    IF months < 0 OR clock < 0 OR months = 0 AND clock = 0 THEN
        RETURN 'a repeated interval must be more than 0';
    ELSIF months > 0 AND (extract(day FROM step) <> 0 OR clock <> 0) THEN
        RETURN 'months cannot be mixed with days or hours in a schedule';
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION check_step(step interval); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.check_step(step interval) IS 'pgmill: why an interval cannot be the step of a fixed schedule; NULL if it can';

--
-- Name: check_zone(text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.check_zone(zone text) RETURNS text
    LANGUAGE plpgsql STABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
BEGIN
    -- The server also accepts abbreviations and rules such as "XYZ-3", which are no zones. A word with a slash and no digit can only
    -- be a name. Everything else is looked up in the list, which the server needs some time to make.
    IF zone ~ '^[A-Za-z_]+(/[A-Za-z_]+)+$' THEN
        PERFORM timezone(zone, timestamptz 'epoch');
        RETURN NULL;
    ELSIF lower(zone) = 'utc' OR EXISTS (SELECT FROM pg_timezone_names n WHERE lower(n.name) = lower(zone)) THEN
        RETURN NULL;
    END IF;
    RETURN format('time zone "%s" does not exist', left(zone, 80));
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN format('time zone "%s" does not exist', left(zone, 80));
END
$_$;

--
-- Name: FUNCTION check_zone(zone text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.check_zone(zone text) IS 'pgmill: why a name is not a time zone; NULL if it is one';

--
-- Name: clear(text, timestamp with time zone); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.clear(flow text, at timestamp with time zone) RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.command (action, flow, at) VALUES ('clear', $1, $2) RETURNING result
$_$;

--
-- Name: FUNCTION clear(flow text, at timestamp with time zone); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.clear(flow text, at timestamp with time zone) IS 'pgmill: clears a logical time of a flow; runs under way are recorded and deliver nothing';

--
-- Name: delete_job(integer); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.delete_job(job_id integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    DELETE FROM mill.job j WHERE j.id = job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % does not exist, or you are not a member of its owner', job_id USING ERRCODE = '42704';
    END IF;
END
$$;

--
-- Name: FUNCTION delete_job(job_id integer); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.delete_job(job_id integer) IS 'pgmill: deletes a job; a running one is cancelled, and not waited for';

--
-- Name: export(text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.export(flow text) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    SET "IntervalStyle" TO 'postgres'
    SET "DateStyle" TO 'ISO'
    AS $$
DECLARE
    f mill.flow;
BEGIN
    SELECT * INTO f FROM mill.flow k WHERE k.name = export.flow;
    IF f.name IS NULL THEN
        PERFORM mill_private.raise_violation(format('flow "%s" does not exist, or you are not a member of its owner', flow));
    END IF;
    RETURN mill_private.export_row('flow', to_jsonb(f)) - 'name' || jsonb_build_object('flow', f.name,
        'jobs', COALESCE((SELECT jsonb_agg(mill_private.export_row('job', to_jsonb(j)) ORDER BY j.id)
                            FROM mill.job j WHERE j.flow = f.name), '[]'),
        'timers', COALESCE((SELECT jsonb_agg(mill_private.export_row('timer', to_jsonb(t)) ORDER BY t.id) FROM mill.timer t
                             WHERE t.flow = f.name), '[]'),
        'edges', COALESCE((SELECT jsonb_agg(mill_private.export_row('edge', to_jsonb(e)) ORDER BY e.id) FROM mill.edge e JOIN mill.job j ON j.name = e.job
                            WHERE j.flow = f.name), '[]'));
END
$$;

--
-- Name: FUNCTION export(flow text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.export(flow text) IS 'pgmill: a flow with its jobs, timers and edges, as a document that mill.apply takes';

--
-- Name: fire(text, timestamp with time zone); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.fire(timer text, at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.command (action, timer, at) VALUES ('fire', $1, $2) RETURNING result
$_$;

--
-- Name: FUNCTION fire(timer text, at timestamp with time zone); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.fire(timer text, at timestamp with time zone) IS 'pgmill: delivers a timer''s tokens for a logical time, now';

--
-- Name: fsck(); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.fsck() RETURNS TABLE(queue text, task bigint, problem text)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    known record;
BEGIN
    FOR known IN SELECT queue_row.relid, format('%I.%I', queue_row.schema, queue_row.name) AS name, relation.oid AS actual
                   FROM mill.queue queue_row LEFT JOIN pg_namespace namespace ON namespace.nspname = queue_row.schema
                   LEFT JOIN pg_class relation ON relation.relnamespace = namespace.oid AND relation.relname = queue_row.name ORDER BY 2 LOOP
        RETURN QUERY SELECT known.name, audit.task, audit.problem FROM mill_private.audit_queue(known.relid, known.actual) audit;
    END LOOP;
    RETURN QUERY SELECT NULL::text, NULL::bigint, audit.problem FROM mill_private.audit_jobs() AS audit (problem);
    -- and the tokens of the graph
    IF to_regclass('mill.integrity') IS NOT NULL THEN
        FOR problem IN EXECUTE 'SELECT format(''tokens are not accounted for: %s'', to_jsonb(i)) FROM mill.integrity i' LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
END
$$;

--
-- Name: FUNCTION fsck(); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.fsck() IS 'pgmill: what is wrong with tasks and jobs of this database, a sentence each; nothing is changed';

--
-- Name: grant(name, text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill."grant"(role name, level text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF level IS NULL OR level NOT IN ('use', 'operate') THEN
        RAISE EXCEPTION 'unknown level "%": choose use or operate', level USING ERRCODE = '22023';
    END IF;
    PERFORM mill_private.grant_levels(role, ARRAY['use', level]);
END
$$;

--
-- Name: FUNCTION "grant"(role name, level text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill."grant"(role name, level text) IS 'pgmill: lets a role use the catalog (use), or also start, stop and restart schedulers (operate)';

--
-- Name: mark(text, timestamp with time zone, text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.mark(job text, at timestamp with time zone, how text) RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.command (action, job, at, how) VALUES ('mark', $1, $2, $3) RETURNING result
$_$;

--
-- Name: FUNCTION mark(job text, at timestamp with time zone, how text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.mark(job text, at timestamp with time zone, how text) IS 'pgmill: records a job of a logical time as ended, by a person: success or failure';

--
-- Name: now(); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.now() RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN clock_timestamp() + (SELECT m.clock FROM mill.meta m);
END
$$;

--
-- Name: FUNCTION now(); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.now() IS 'pgmill: the clock that decides what is due; ahead of or behind the server''s only in tests';

--
-- Name: pause(text, text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.pause(flow text DEFAULT NULL::text, job text DEFAULT NULL::text) RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.command (action, flow, job) VALUES ('pause', $1, $2) RETURNING result
$_$;

--
-- Name: FUNCTION pause(flow text, job text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.pause(flow text, job text) IS 'pgmill: pauses a flow or job: no new starts; runs under way go on, tokens wait';

--
-- Name: picture(text, timestamp with time zone); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.picture(flow text, at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    AS $$
DECLARE
    f mill.flow := (SELECT k FROM mill.flow k WHERE k.name = picture.flow);
    states jsonb;
BEGIN
    IF f.name IS NULL THEN
        PERFORM mill_private.raise_violation(format('flow "%s" does not exist, or you are not a member of its owner', flow));
    END IF;
    at := COALESCE(picture.at, (SELECT max(k.at) FROM mill.token k JOIN mill.job j ON j.id = k.job WHERE j.flow = f.name));
    SELECT COALESCE(jsonb_object_agg(l.name, l.state), '{}') INTO states FROM (
        SELECT DISTINCT ON (r.job) j.name, CASE WHEN r.outcome = 'skipped' THEN 'skipped' WHEN r.outcome = 'succeeded' THEN 'succeeded'
               WHEN r.outcome IS NOT NULL THEN 'failed' WHEN r.start IS NOT NULL THEN 'running' ELSE 'planned' END AS state
          FROM mill_private.run r JOIN mill.job j ON j.id = r.job
         WHERE r.at = picture.at AND (j.flow = f.name OR EXISTS (SELECT FROM mill.edge e JOIN mill.job o ON o.name IN (e.job, e.from_job) AND o.flow = f.name
                                                                  WHERE j.name IN (e.job, e.from_job)))
         ORDER BY r.job, r.id DESC) AS l;
    RETURN jsonb_build_object('flow', f.name, 'paused', f.paused, 'at', at,
        'jobs', (SELECT jsonb_agg(jsonb_build_object('name', j.name, 'flow', j.flow, 'threshold', j.threshold, 'empty', j.input IS NULL,
                            'schedule', COALESCE(j.cron, j.schedule_interval::text),
                            'state', COALESCE(states ->> j.name, CASE WHEN EXISTS (SELECT FROM mill.token k WHERE k.job = j.id AND k.at = picture.at
                                                                         AND k.since IS NOT NULL) THEN 'waiting' END)) ORDER BY j.id)
                   FROM mill.job j WHERE j.flow = f.name OR EXISTS (SELECT FROM mill.edge e JOIN mill.job o ON o.name IN (e.job, e.from_job) AND o.flow = f.name
                                                                    WHERE j.name IN (e.job, e.from_job))),
        'timers', (SELECT jsonb_agg(jsonb_build_object('name', t.name, 'schedule', COALESCE(t.cron, 'every ' || t.period), 'timezone', t.timezone,
                                                       'enabled', t.enabled, 'next', t.next) ORDER BY t.id)
                     FROM mill.timer t WHERE t.flow = f.name OR EXISTS (SELECT FROM mill.edge e JOIN mill.job o ON o.name = e.job AND o.flow = f.name
                                                                        WHERE e.from_timer = t.name)),
        'edges', (SELECT jsonb_agg(jsonb_build_object('job', e.job, 'from_job', e.from_job, 'from_timer', e.from_timer, 'on', e."on",
                                                      'shift', CASE WHEN e.shift <> interval '0' THEN e.shift::text END) ORDER BY e.id)
                    FROM mill.edge e WHERE EXISTS (SELECT FROM mill.job o WHERE o.name IN (e.job, e.from_job) AND o.flow = f.name)));
END
$$;

--
-- Name: FUNCTION picture(flow text, at timestamp with time zone); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.picture(flow text, at timestamp with time zone) IS 'pgmill: nodes and edges of a flow with their states at a logical time, for launcher graph';

--
-- Name: post_restore(); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.post_restore() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    old record;
BEGIN
    UPDATE mill.meta SET enabled = true;
    -- Restored tables have other OIDs, and some may not have been restored.
    FOR old IN SELECT q.relid, c.oid AS found FROM mill.queue q LEFT JOIN pg_namespace n ON n.nspname = q.schema
                 LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = q.name LOOP
        IF old.found IS NULL THEN
            DELETE FROM mill.queue q WHERE q.relid = old.relid;
        ELSIF old.found <> old.relid THEN
            DELETE FROM mill.queue q WHERE q.relid = old.found;
            UPDATE mill.queue q SET relid = old.found WHERE q.relid = old.relid;
            UPDATE mill_private.run r SET queue = old.found WHERE r.queue = old.relid;
        END IF;
    END LOOP;
    RETURN mill.restart();
END
$$;

--
-- Name: FUNCTION post_restore(); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.post_restore() IS 'pgmill: call it after a restore: schedulers run again once this transaction is committed';

--
-- Name: pre_restore(); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.pre_restore() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    UPDATE mill.meta SET enabled = false;
    PERFORM mill.stop();
    RETURN NOT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                        WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid = 2
                          AND l.classid = 1835597826::oid);
END
$$;

--
-- Name: FUNCTION pre_restore(); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.pre_restore() IS 'pgmill: call it before a dump is restored into this database: no scheduler runs until post_restore; true: none is left';

--
-- Name: rerun(text, timestamp with time zone, text, text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.rerun(job text DEFAULT NULL::text, at timestamp with time zone DEFAULT NULL::timestamp with time zone, how text DEFAULT 'down'::text, flow text DEFAULT NULL::text) RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.command (action, job, at, how, flow) VALUES ('rerun', $1, $2, $3, $4) RETURNING result
$_$;

--
-- Name: FUNCTION rerun(job text, at timestamp with time zone, how text, flow text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.rerun(job text, at timestamp with time zone, how text, flow text) IS 'pgmill: runs a job of a logical time again: only it, everything downstream as well, or what has failed';

--
-- Name: send_message(integer, name); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.send_message(kind integer, target name) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    place oid := (SELECT known.oid FROM pg_database known WHERE known.datname = target);
    -- the same 32 bits with a sign
    place_key int := place::bigint::bit(32)::int;
    most_messages CONSTANT int := 64;
    -- the bits of the number in a first key
    number_mask CONSTANT bigint := 65280;
    launchers bigint;
    open_messages bigint;
    number int;
    answer bigint;
BEGIN
    IF place IS NULL THEN
        RAISE WARNING 'pgmill: database "%" does not exist', target;
        RETURN false;
    END IF;
    SELECT count(*) FILTER (WHERE held.classid = 1835597825::oid),
           count(*) FILTER (WHERE held.pid = pg_backend_pid() AND held.classid::bigint & ~number_mask
               IN (1835597840, 1835597841, 1835597842))
      INTO launchers, open_messages
      FROM pg_locks held
     WHERE held.locktype = 'advisory' AND held.objsubid = 2 AND held.granted AND held.mode = 'ExclusiveLock';
    IF launchers = 0 THEN
        RAISE NOTICE 'pgmill: no launcher runs on this server';
        RETURN false;
    END IF;
    IF open_messages >= most_messages THEN
        RAISE WARNING 'pgmill: this transaction has sent % messages already; commit, then send more', most_messages;
        RETURN false;
    END IF;
    number := mill_private.lock_message(kind, place_key);
    IF number IS NULL THEN
        RAISE WARNING 'pgmill: too many messages at once; try again';
        RETURN false;
    END IF;
    answer := mill_private.wait_for_answer(place, number);
    IF answer = 1835597858 THEN
        RAISE WARNING 'pgmill: role "%" may not start or stop schedulers of database "%": only its owner, users of its queues, and members of operators may', session_user, target;
    END IF;
    -- The new scheduler waits for the end of this transaction, so only this function can warn that it will be switched off.
    IF answer = 1835597856 AND kind = 1835597842 AND target = current_database()
       AND has_table_privilege('mill.meta', 'SELECT') THEN
        IF NOT (SELECT meta_row.enabled FROM mill.meta meta_row) THEN
            RAISE WARNING 'pgmill: mill.meta.enabled is false, so no scheduler runs in database "%"; set it to true, then start it', target;
            RETURN false;
        END IF;
    END IF;
    RETURN COALESCE(answer = 1835597856, false);
END
$$;

--
-- Name: FUNCTION send_message(kind integer, target name); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.send_message(kind integer, target name) IS 'pgmill: sends the launcher a message; called by start, stop and restart';

--
-- Name: restart(name); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.restart(database name DEFAULT current_database()) RETURNS boolean
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN mill_private.send_message(1835597842, database);

--
-- Name: FUNCTION restart(database name); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.restart(database name) IS 'pgmill: stops the schedulers of a database at once; true: they have ended, and new ones wait for the end of this transaction';

--
-- Name: resume(text, text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.resume(flow text DEFAULT NULL::text, job text DEFAULT NULL::text) RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.command (action, flow, job) VALUES ('resume', $1, $2) RETURNING result
$_$;

--
-- Name: FUNCTION resume(flow text, job text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.resume(flow text, job text) IS 'pgmill: resumes a flow or job; timers treat missed times as their catchup says';

--
-- Name: revoke(name); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.revoke(role name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    serves bool := EXISTS (SELECT FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = 'mill_private.registration'::regclass
                      AND a.grantee = (SELECT r.oid FROM pg_roles r WHERE r.rolname = role));
    keeps bool := serves AND has_function_privilege(role, 'mill_private.s_watch_graph(bool, bool)', 'EXECUTE');
BEGIN
    PERFORM mill_private.revoke_levels(role, ARRAY['use', 'operate']);
    -- The user of a queue can still serve it.
    IF serves THEN
        PERFORM mill.admit(role, keeps);
    END IF;
END
$$;

--
-- Name: FUNCTION revoke(role name); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.revoke(role name) IS 'pgmill: takes back what mill.grant has given';

--
-- Name: run(text, timestamp with time zone); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.run(job text, at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.command (action, job, at) VALUES ('run', $1, $2) RETURNING run
$_$;

--
-- Name: FUNCTION run(job text, at timestamp with time zone); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.run(job text, at timestamp with time zone) IS 'pgmill: runs a job for a logical time, and what follows from it; the id of the run';

--
-- Name: run_job(integer); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.run_job(job_id integer) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO mill_private.request (action, job) VALUES ('run', job_id);
    IF COALESCE(current_setting('mill.result', true), '') = '' THEN
        RAISE EXCEPTION 'job % does not exist, or you are not a member of its owner', job_id USING ERRCODE = '42704';
    END IF;
    RETURN current_setting('mill.result')::bigint;
END
$$;

--
-- Name: FUNCTION run_job(job_id integer); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.run_job(job_id integer) IS 'pgmill: runs a job now, also when it is paused; the id of the run';

--
-- Name: meta; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.meta (
    one boolean DEFAULT true NOT NULL,
    version text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    clock interval DEFAULT '00:00:00'::interval NOT NULL,
    CONSTRAINT meta_one_check CHECK (one)
);

--
-- Name: TABLE meta; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.meta IS 'pgmill: the version of this catalog; one row';

--
-- Name: COLUMN meta.one; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.meta.one IS 'always true: the table has one row';

--
-- Name: COLUMN meta.version; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.meta.version IS 'the version of the catalog';

--
-- Name: COLUMN meta.enabled; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.meta.enabled IS 'false: no scheduler of this database runs';

--
-- Name: COLUMN meta.clock; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.meta.clock IS 'how far a test has moved the clock of jobs and timers';

--
-- Name: s_version(); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.s_version() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT m.version FROM mill.meta m);

--
-- Name: FUNCTION s_version(); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.s_version() IS 'pgmill: the version of this catalog; the same in every version';

--
-- Name: set_next_start(integer, timestamp with time zone); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.set_next_start(job integer, next_start timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    place oid;
    done bool;
BEGIN
    INSERT INTO mill_private.request (action, job, moment) VALUES ('next_start', set_next_start.job, set_next_start.next_start);
    IF current_setting('mill.result', true) = 'true' THEN
        RETURN true;
    END IF;
    FOR place IN SELECT q.relid FROM mill.queue q
                  WHERE has_function_privilege(to_regprocedure(format('mill_private.q%s_set_next_start(int, timestamptz)', q.relid)), 'EXECUTE') LOOP
        EXECUTE format('SELECT mill_private.q%s_set_next_start($1, $2)', place) INTO done USING job, next_start;
        IF done THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$_$;

--
-- Name: FUNCTION set_next_start(job integer, next_start timestamp with time zone); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.set_next_start(job integer, next_start timestamp with time zone) IS 'pgmill: when a job starts next, once';

--
-- Name: skip(text, timestamp with time zone); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.skip(job text, at timestamp with time zone) RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.command (action, job, at) VALUES ('skip', $1, $2) RETURNING result
$_$;

--
-- Name: FUNCTION skip(job text, at timestamp with time zone); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.skip(job text, at timestamp with time zone) IS 'pgmill: skips a job of a logical time; it counts as a success';

--
-- Name: start(name); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.start(database name DEFAULT current_database()) RETURNS boolean
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN mill_private.send_message(1835597840, database);

--
-- Name: FUNCTION start(database name); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.start(database name) IS 'pgmill: starts the schedulers of a database; true: its queues are served';

--
-- Name: stash(text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.stash(key text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    p record;
    value text;
BEGIN
    SELECT * INTO p FROM mill_private.find_stash();
    EXECUTE format('SELECT %s_get_stash($1, $2, $3)', p.entry) INTO value USING p.job, p.at, stash.key;
    RETURN value;
END
$_$;

--
-- Name: FUNCTION stash(key text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.stash(key text) IS 'pgmill: a value that a task of this flow and logical time has stashed; NULL if none has';

--
-- Name: stash(text, text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.stash(key text, value text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

--
-- Name: FUNCTION stash(key text, value text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.stash(key text, value text) IS 'pgmill: stashes a value for the tasks of this flow and logical time';

--
-- Name: stop(name); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.stop(database name DEFAULT current_database()) RETURNS boolean
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN mill_private.send_message(1835597841, database);

--
-- Name: FUNCTION stop(database name); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.stop(database name) IS 'pgmill: stops the schedulers of a database until mill.start or a restart of the launcher; their tasks are planned again; true: they have ended';

--
-- Name: uninstall(); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.uninstall() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '2s'
    SET client_min_messages TO 'warning'
    AS $$
DECLARE
    own oid[] := ARRAY['mill'::regnamespace, 'mill_private'::regnamespace];
    strange text;
    served record;
BEGIN
    PERFORM pg_advisory_xact_lock(1835597829, 0);
    LOCK TABLE mill.meta IN ACCESS EXCLUSIVE MODE;
    WITH ours AS (
        SELECT 'pg_class'::regclass AS classid, relation.oid FROM pg_class relation WHERE relation.relnamespace = ANY (own)
        UNION ALL SELECT 'pg_proc'::regclass, routine.oid FROM pg_proc routine WHERE routine.pronamespace = ANY (own)
        UNION ALL SELECT 'pg_type'::regclass, kind.oid FROM pg_type kind WHERE kind.typnamespace = ANY (own)),
    built AS (
        SELECT DISTINCT dependency.classid, dependency.objid, dependency.objsubid
          FROM pg_depend dependency JOIN ours ON (dependency.refclassid, dependency.refobjid) = (ours.classid, ours.oid)
         WHERE dependency.deptype IN ('n', 'a') AND (dependency.classid, dependency.objid) NOT IN (SELECT ours.classid, ours.oid FROM ours))
    SELECT string_agg(pg_describe_object(built.classid, built.objid, built.objsubid), ', ') INTO strange
      FROM built
     WHERE CASE built.classid
           WHEN 'pg_trigger'::regclass THEN false
           WHEN 'pg_rewrite'::regclass THEN EXISTS (SELECT FROM pg_rewrite rule JOIN pg_class relation ON relation.oid = rule.ev_class
                                                     WHERE rule.oid = built.objid AND relation.relnamespace <> ALL (own))
           WHEN 'pg_constraint'::regclass THEN EXISTS (SELECT FROM pg_constraint key WHERE key.oid = built.objid
                                                          AND key.connamespace <> ALL (own))
           WHEN 'pg_attrdef'::regclass THEN EXISTS (SELECT FROM pg_attrdef preset JOIN pg_class relation ON relation.oid = preset.adrelid
                                                     WHERE preset.oid = built.objid AND relation.relnamespace <> ALL (own))
           WHEN 'pg_class'::regclass THEN EXISTS (SELECT FROM pg_class relation WHERE relation.oid = built.objid
                                                     AND relation.relnamespace <> ALL (own || 'pg_toast'::regnamespace::oid))
           WHEN 'pg_proc'::regclass THEN EXISTS (SELECT FROM pg_proc routine WHERE routine.oid = built.objid
                                                    AND routine.pronamespace <> ALL (own))
           ELSE false END;
    IF strange IS NOT NULL THEN
        RAISE EXCEPTION 'cannot drop the catalog because other objects depend on it: %', strange
            USING ERRCODE = '2BP01', HINT = 'Drop them first.';
    END IF;
    -- The row triggers of jobs belong to the users of the queues. Those that the caller may drop are dropped; the others do nothing
    -- without the catalog. Triggers of partitions go with those of their parent.
    FOR served IN SELECT trigger_row.tgname, trigger_row.tgrelid::regclass AS relation, routine.oid AS function FROM mill.queue queue_row
                    JOIN pg_class relation_row ON relation_row.oid = queue_row.relid JOIN pg_trigger trigger_row ON trigger_row.tgrelid = relation_row.oid
                    JOIN pg_proc routine ON routine.oid = trigger_row.tgfoid
                   WHERE trigger_row.tgname ^@ 'mill_job_' AND NOT trigger_row.tgisinternal AND trigger_row.tgparentid = 0
                     AND pg_has_role(relation_row.relowner, 'USAGE') AND pg_has_role(routine.proowner, 'USAGE') LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', served.tgname, served.relation);
        IF NOT EXISTS (SELECT FROM pg_trigger trigger_row WHERE trigger_row.tgfoid = served.function) THEN
            EXECUTE format('DROP FUNCTION %s', served.function::regprocedure);
        END IF;
    END LOOP;
    DROP SCHEMA mill, mill_private CASCADE;
END
$$;

--
-- Name: FUNCTION uninstall(); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.uninstall() IS 'pgmill: drops this catalog; task tables and their rows stay';

--
-- Name: why(bigint, regclass); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.why(task bigint, queue regclass DEFAULT NULL::regclass) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    relid oid := COALESCE(queue::oid, (SELECT min(queue_row.relid) FROM mill.queue queue_row HAVING count(*) = 1),
                          to_regclass('public.task')::oid);
    relation text := relid::regclass::text;
    trouble text := (SELECT queue_row.trouble FROM mill.queue queue_row WHERE queue_row.relid = relation::regclass);
    task_row record;
    others bigint;
    ahead bigint;
    wrong text;
    here oid := (SELECT known.oid FROM pg_database known WHERE known.datname = current_database());
BEGIN
    IF relid IS NULL THEN
        RETURN 'no task table given: call mill.why(id, ''schema.table'')';
    END IF;
    wrong := mill_private.why_not_plain(relid);
    IF wrong IS NOT NULL THEN
        RETURN format('%s is not read here: that could run code of its owner with your rights (%s); call it as the owner', relation, wrong);
    END IF;
    EXECUTE format('SELECT id, state::text AS state, plan, active, start, stop, pid, "max", priority, "group", remote,
        hash, held, reason, job, crashes FROM %s WHERE id = $1', relation) INTO task_row USING task;
    CASE
    WHEN task_row.id IS NULL THEN
        RETURN format('task %s does not exist in %s: it has finished and was deleted, or was never inserted', task, relation);
    WHEN task_row.state IN ('DONE', 'FAIL') THEN
        RETURN format('finished at %s: %s%s', task_row.stop, task_row.state, ' (' || task_row.reason || ')');
    WHEN task_row.state = 'GONE' THEN
        RETURN format('expired: not started within %s of its plan, %s', task_row.active, task_row.plan);
    WHEN task_row.state = 'STOP' AND task_row.reason = 'completion' THEN
        RETURN 'stopped: it has run, but its table refused the record of its end; the launcher''s log shows why; set its state to PLAN to run it again';
    WHEN task_row.state = 'STOP' THEN
        RETURN 'stopped by a user: set its state to PLAN to run it';
    WHEN task_row.state IN ('TAKE', 'WORK') THEN
        RETURN mill_private.explain_claimed_task(relid, task_row.id, task_row.state, task_row.pid, task_row.start, task_row.remote);
    WHEN NOT mill_private.is_locked(1835597826, relid, here) AND trouble IS NOT NULL THEN
        RETURN format('no scheduler serves %s on this server: %s', relation, trouble);
    WHEN NOT mill_private.is_locked(1835597826, relid, here) THEN
        RETURN format('no scheduler serves %s: is the launcher running? check with: launcher status', relation);
    WHEN task_row.plan > clock_timestamp() AND task_row.crashes > 1 THEN
        RETURN format('the last %s attempts killed their worker or backend: it is retried at %s, and fails after 20 in a row',
                      task_row.crashes, task_row.plan);
    WHEN task_row.plan > clock_timestamp() THEN
        RETURN format('planned for %s', task_row.plan);
    WHEN task_row."max" >= 0 AND task_row.active < interval '200000 years' AND task_row.plan + task_row.active <= clock_timestamp() THEN
        RETURN format('expired: it had to start within %s of %s, and becomes GONE at the next pass', task_row.active, task_row.plan);
    WHEN task_row.held THEN
        RETURN 'held: the next pass of its scheduler releases it';
    WHEN mill_private.is_locked(1835597832, relid, here) AND trouble IS NOT NULL THEN
        RETURN format('workers cannot connect to the server of their scheduler: %s', trouble);
    WHEN mill_private.is_locked(1835597832, relid, here) THEN
        RETURN 'workers cannot connect to the server, or cannot start: launcher status and the log show the reason';
    ELSE
    END CASE;
    EXECUTE format('SELECT count(*) FILTER (WHERE state IN (''TAKE'', ''WORK'')),
        count(*) FILTER (WHERE state = ''PLAN'' AND NOT held AND ("max", priority, -id) > ($1, $2, -$3))
        FROM %s WHERE hash = $4 AND "group" = $5 AND remote IS NOT DISTINCT FROM $6
         AND state IN (''PLAN'', ''TAKE'', ''WORK'')', relation)
        INTO others, ahead USING task_row."max", task_row.priority, task_row.id, task_row.hash, task_row."group", task_row.remote;
    IF others > GREATEST(task_row."max", 0) THEN
        RETURN format('group "%s" is full: %s running, max = %s', task_row."group", others, task_row."max");
    ELSIF mill_private.is_locked(1835597838, relid, here) THEN
        RETURN 'no task of this queue starts: its limit is 0; raise limit';
    ELSIF mill_private.is_locked(1835597837, relid, here) THEN
        RETURN 'the queue runs as many tasks at once as its setting run allows: wait until a task ends, or raise run';
    ELSIF mill_private.is_locked(1835597831, relid, here) THEN
        RETURN 'no slot is free: wait until a task ends, or raise max_workers';
    ELSIF ahead > 0 THEN
        RETURN CASE ahead WHEN 1 THEN format('1 task of group "%s" comes first', task_row."group")
                          ELSE format('%s tasks of group "%s" come first', ahead, task_row."group") END;
    END IF;
    RETURN 'due: starts at the next pass';
END
$_$;

--
-- Name: FUNCTION why(task bigint, queue regclass); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.why(task bigint, queue regclass) IS 'pgmill: why a task is not running, in one sentence';

--
-- Name: why(text, timestamp with time zone); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.why(job text, at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    job_row mill.job := (SELECT stored FROM mill.job stored WHERE stored.name = why.job);
    flow_row mill.flow := (SELECT stored FROM mill.flow stored WHERE stored.name = job_row.flow);
    here oid := (SELECT known.oid FROM pg_database known WHERE known.datname = current_database());
    reason text := (SELECT stat.reason FROM mill.job_stat stat WHERE stat.job = job_row.id);
    waiting_row record;
    row_found record;
BEGIN
    IF job_row.id IS NULL THEN
        RETURN format('job "%s" does not exist, or you are not a member of its owner', job);
    END IF;
    SELECT one_run.id, one_run.at, one_run.due, one_run.task, one_run.start, one_run.ordered, one_run.held, one_run.recall,
           one_run.queue, queue_row.schema, queue_row.name INTO row_found
      FROM mill_private.run one_run LEFT JOIN mill.queue queue_row ON queue_row.relid = one_run.queue
     WHERE one_run.job = job_row.id AND one_run.outcome IS NULL AND (why.at IS NULL OR one_run.at = why.at) ORDER BY one_run.start IS NULL, one_run.id LIMIT 1;
    IF FOUND THEN
        RETURN format('run %s for %s: ', row_found.id, row_found.at) || CASE
            WHEN row_found.start IS NOT NULL AND row_found.recall IS NOT NULL
                THEN format('task %s has been running since %s, and its scheduler will end it', row_found.task, row_found.start)
            WHEN row_found.start IS NOT NULL THEN format('task %s has been running since %s', row_found.task, row_found.start)
            WHEN row_found.held AND NOT job_row.scheduled THEN 'the job is paused' || COALESCE(': ' || reason, '')
            WHEN row_found.held AND flow_row.paused THEN format('flow "%s" is paused; resume it with: SELECT mill.resume(%L)', flow_row.name, flow_row.name)
            WHEN row_found.held AND row_found.due <= mill.now() THEN format('flow "%s" is full: parallel = %s', flow_row.name, flow_row.parallel)
            WHEN row_found.due > mill.now() THEN format('planned for %s', row_found.due)
            WHEN row_found.queue = 0 AND NOT mill_private.is_locked(1835597830, 0, here) THEN mill_private.explain_no_keeper()
            WHEN row_found.queue = 0 THEN 'it needs no worker, and ends at the next pass over the graph'
            WHEN row_found.name IS NULL THEN 'its queue does not exist any more'
            WHEN NOT mill_private.is_locked(1835597826, row_found.queue, here)
                THEN format('no scheduler serves %I.%I: is the launcher running? check with: launcher status', row_found.schema, row_found.name)
            WHEN row_found.ordered THEN format('its scheduler inserts it into %I.%I at the next pass', row_found.schema, row_found.name)
            ELSE format('it waits in %I.%I for a free slot or for its group', row_found.schema, row_found.name) END;
    END IF;
    SELECT * INTO waiting_row FROM mill.waiting stored WHERE stored.job = job_row.name AND (why.at IS NULL OR stored.at = why.at) ORDER BY stored.at LIMIT 1;
    IF waiting_row.job IS NOT NULL THEN
        RETURN CASE waiting_row.why WHEN 'not all edges have delivered'
                    THEN format('for %s: waiting since %s for %s', waiting_row.at, waiting_row.since, array_to_string(waiting_row.missing, ' and '))
                    ELSE format('for %s: waiting since %s: %s', waiting_row.at, waiting_row.since, waiting_row.why) END;
    END IF;
    IF mill_private.has_schedule(job_row) THEN
        RETURN (SELECT stat.why FROM mill.job_status stat WHERE stat.job = job_row.id);
    ELSIF NOT job_row.scheduled THEN
        RETURN 'paused' || COALESCE(': ' || reason, '');
    ELSIF flow_row.paused THEN
        RETURN format('flow "%s" is paused', flow_row.name);
    END IF;
    IF why.at IS NOT NULL THEN
        SELECT one_run.id, one_run.state, one_run.stop, one_run.reason, one_run.task INTO row_found
          FROM mill.run one_run WHERE one_run.job = job_row.id AND one_run.at = why.at ORDER BY one_run.id DESC LIMIT 1;
        IF FOUND THEN
            RETURN format('run %s for %s', row_found.id, why.at) || COALESCE(', task ' || row_found.task, '') 
                   || format(': finished at %s: %s', row_found.stop, row_found.state)
                   || COALESCE(' (' || NULLIF(row_found.reason, row_found.state) || ')', '');
        END IF;
    END IF;
    IF NOT EXISTS (SELECT FROM mill.edge edge_row WHERE edge_row.job = job_row.name) THEN
        RETURN 'no schedule and no edges: start it with mill.run';
    END IF;
    IF NOT mill_private.is_locked(1835597830, 0, here) THEN
        RETURN mill_private.explain_no_keeper();
    END IF;
    SELECT timer_row.name, timer_row.next, timer_row.due, timer_row.enabled, timer_row.trouble INTO row_found
      FROM mill_private.list_upstream_timers(job_row.name) timer_row ORDER BY timer_row.due NULLS LAST LIMIT 1;
    RETURN CASE WHEN row_found.name IS NULL THEN format('no token from %s yet',
            (SELECT string_agg(mill_private.describe_edge(edge_row), ', ') FROM mill.edge edge_row WHERE edge_row.job = job_row.name))
        WHEN row_found.trouble IS NOT NULL THEN format('timer "%s" cannot fire: %s', row_found.name, row_found.trouble)
        WHEN NOT row_found.enabled THEN format('timer "%s" is disabled', row_found.name)
        WHEN row_found.due IS NULL THEN format('timer "%s" has no times left', row_found.name)
        ELSE format('no token%s yet: timer "%s" fires next at %s, for %s', COALESCE(' for ' || why.at, ''), row_found.name, row_found.due, row_found.next) END;
END
$$;

--
-- Name: FUNCTION why(job text, at timestamp with time zone); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.why(job text, at timestamp with time zone) IS 'pgmill: why a job is not running, for a logical time or at all, in one sentence';

--
-- Name: why(text, text); Type: FUNCTION; Schema: mill; Owner: -
--

CREATE FUNCTION mill.why(job text, at text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN mill.why(job, (at)::timestamp with time zone);

--
-- Name: FUNCTION why(job text, at text); Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON FUNCTION mill.why(job text, at text) IS 'pgmill: why a job is not running for a logical time, in one sentence';

--
-- Name: add_interval(timestamp with time zone, interval, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.add_interval(moment timestamp with time zone, step interval, zone text) RETURNS timestamp with time zone
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    clock text := COALESCE(zone, 'UTC');
    calendar interval := make_interval(months => (extract(year FROM step) * 12 + extract(month FROM step))::int,
                                       days => extract(day FROM step)::int);
    wall timestamp := timezone(clock, moment) + calendar;
BEGIN
    -- Of a time that is shown twice the same one is kept, unless the calendar has moved it.
    RETURN CASE WHEN wall = timezone(clock, moment) THEN moment ELSE mill_private.first_moment(wall, clock) END + (step - calendar);
END
$$;

--
-- Name: FUNCTION add_interval(moment timestamp with time zone, step interval, zone text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.add_interval(moment timestamp with time zone, step interval, zone text) IS 'pgmill: a moment plus an interval: months and days on the calendar of the zone, hours by the stopwatch';

--
-- Name: add_steps(timestamp without time zone, bigint, numeric, bigint); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.add_steps(origin timestamp without time zone, months bigint, span numeric, k bigint) RETURNS timestamp without time zone
    LANGUAGE sql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (((origin + make_interval(months => ((k * months))::integer)) + (((div(((k)::numeric * span), ('86400000000'::bigint)::numeric))::integer)::double precision * '1 day'::interval)) + ((mod(((k)::numeric * span), ('86400000000'::bigint)::numeric))::double precision * '00:00:00.000001'::interval));

--
-- Name: FUNCTION add_steps(origin timestamp without time zone, months bigint, span numeric, k bigint); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.add_steps(origin timestamp without time zone, months bigint, span numeric, k bigint) IS 'pgmill: k steps after a wall clock time, on a clock whose days have 24 hours';

--
-- Name: apply_all_deltas(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.apply_all_deltas() RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    one int;
    done int := 0;
BEGIN
    -- Most often there is nothing to add, and then nothing is written.
    IF NOT EXISTS (SELECT FROM mill_private.job_delta) THEN
        RETURN 0;
    END IF;
    -- A crash of the server undoes all of it or nothing, so the commit need not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR one IN SELECT b.job FROM mill_private.job_state b WHERE b.job IN (SELECT t.job FROM mill_private.job_delta t)
                  AND EXISTS (SELECT FROM mill.job j WHERE j.id = b.job)
                ORDER BY b.job FOR NO KEY UPDATE OF b SKIP LOCKED LOOP
        PERFORM mill_private.apply_deltas(one);
        done := done + 1;
    END LOOP;
    FOR one IN SELECT DISTINCT t.job FROM mill_private.job_delta t WHERE NOT EXISTS (SELECT FROM mill.job j WHERE j.id = t.job) LOOP
        PERFORM mill_private.forget_job(one);
        done := done + 1;
    END LOOP;
    RETURN done;
END
$$;

--
-- Name: FUNCTION apply_all_deltas(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.apply_all_deltas() IS 'pgmill: adds the deltas of all jobs, and deletes the numbers of deleted jobs';

--
-- Name: apply_deltas(integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.apply_deltas(job integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM mill_private.job_delta t WHERE t.job = apply_deltas.job AND NOT t.gone) THEN
        RETURN false;
    END IF;
    -- One statement has one snapshot: it deletes exactly the rows that it adds.
    WITH entered AS (DELETE FROM mill_private.job_delta t WHERE t.job = apply_deltas.job AND NOT t.gone)
    UPDATE mill_private.job_state b SET (last_start, last_finish, last_successful_finish, last_run_success, total_runs, total_successes,
            consecutive_failures, consecutive_crashes, total_duration)
        = (n.last_start, n.last_finish, n.last_successful_finish, n.last_run_success, n.total_runs, n.total_successes,
           n.consecutive_failures, n.consecutive_crashes, n.total_duration)
      FROM mill_private.job_counters n WHERE n.job = apply_deltas.job AND b.job = apply_deltas.job;
    RETURN true;
END
$$;

--
-- Name: FUNCTION apply_deltas(job integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.apply_deltas(job integer) IS 'pgmill: adds the deltas of a job to its state, which the caller has locked';

--
-- Name: audit_graph(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.audit_graph() RETURNS TABLE(edge integer, job text, at timestamp with time zone, what text, delivered bigint, consumed bigint, waiting bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN QUERY
    SELECT balance.edge, target.name, balance.at, 'delivered is not consumed + waiting', balance.delivered, balance.consumed, balance.waiting
      FROM (SELECT counted.edge, stored.job, stored.at, sum(counted.was_delivered)::bigint AS delivered,
                   sum(counted.was_consumed)::bigint AS consumed, sum(counted.waits)::bigint AS waiting
              FROM mill.token stored, LATERAL (
                SELECT edge_id AS edge, 1 AS was_delivered, 0 AS was_consumed, 0 AS waits FROM unnest(stored.delivered) AS edge_id
                UNION ALL SELECT edge_id, 0, 1, 0 FROM unnest(stored.consumed) AS edge_id
                UNION ALL SELECT edge_id, 0, 0, 1 FROM unnest(stored.waiting) AS edge_id) AS counted
             GROUP BY counted.edge, stored.job, stored.at) AS balance
      JOIN mill.job target ON target.id = balance.job
     WHERE balance.delivered <> balance.consumed + balance.waiting;
    RETURN QUERY
    WITH arrows AS MATERIALIZED (
        SELECT arrow.id, arrow.shift, arrow.made, arrow.made_in, target.id AS job, target.name, clock.id AS timer, clock.timezone, clock.revision,
               clock_timestamp() - mill_private.get_retention(target.id) * 0.9 AS since
          FROM mill.edge arrow JOIN mill.job target ON target.name = arrow.job JOIN mill.timer clock ON clock.name = arrow.from_timer
    ), fires AS (
        SELECT arrow.id AS edge, arrow.name, arrow.job, fire.live + fire.filled + fire.by_hand AS n, arrow.shift = interval '0' AS plain,
               CASE WHEN arrow.shift = interval '0' THEN fire.at ELSE mill_private.shift_time(fire.at, arrow.shift, arrow.timezone) END AS at
          FROM arrows arrow JOIN mill.fired fire ON fire.timer = arrow.timer
         WHERE fire.made > arrow.made AND pg_visible_in_snapshot(arrow.made_in, fire.seen) AND fire.made > arrow.since
           AND (arrow.shift = interval '0' OR fire.revision = arrow.revision))
    SELECT compared.edge, compared.name, compared.at, CASE WHEN compared.found < compared.n THEN 'less was delivered than the timer has fired'
                                      ELSE 'more was delivered than the timer has fired' END, compared.found, NULL::bigint, NULL::bigint
      FROM (SELECT fire.edge, fire.name, fire.at, fire.n, fire.plain, COALESCE(cardinality(array_positions(stored.delivered, fire.edge)), 0)::bigint AS found
              FROM fires fire LEFT JOIN mill.token stored ON stored.job = fire.job AND stored.at = fire.at) AS compared
     -- A shift may move several times to the same one.
     WHERE compared.found < compared.n OR compared.plain AND compared.found > compared.n;
    RETURN QUERY
    SELECT NULL::int, NULL::text, fire.at, format('timer "%s" has fired this time %s times by its own clock', clock.name, fire.live),
           NULL::bigint, NULL::bigint, NULL::bigint
      FROM mill.fired fire JOIN mill.timer clock ON clock.id = fire.timer WHERE fire.live > 1;
    -- An activation whose runs have all ended has delivered along every edge that existed by then.
    RETURN QUERY
    WITH ended AS (
        SELECT one_run.job, one_run.at, COALESCE(one_run.activation, one_run.id) AS root, max(one_run.stop) AS stop, max(one_run.epoch) AS epoch,
               (array_agg(one_run.outcome ORDER BY one_run.id DESC))[1] IN ('succeeded', 'skipped') AS success
          FROM mill_private.run one_run WHERE one_run.at IS NOT NULL GROUP BY one_run.job, one_run.at, COALESCE(one_run.activation, one_run.id)
        HAVING bool_and(one_run.outcome IS NOT NULL)
    ), owed AS (
        SELECT arrow.id AS edge, arrow.job, CASE WHEN arrow.shift = interval '0' THEN activation.at
               ELSE mill_private.shift_time(activation.at, arrow.shift, mill_private.get_job_zone(arrow.from_job)) END AS at, count(*) AS n
          FROM ended activation JOIN mill.job source ON source.id = activation.job JOIN mill.edge arrow ON arrow.from_job = source.name AND arrow.made < activation.stop
           AND arrow."on" IN ('done', CASE WHEN activation.success THEN 'success' ELSE 'failure' END)
         WHERE NOT mill_private.is_overtaken(activation.job, activation.at, activation.epoch) GROUP BY 1, 2, 3)
    SELECT debt.edge, debt.job, debt.at, 'less was delivered than runs have ended', COALESCE(paid.n, 0), NULL::bigint, NULL::bigint
      FROM owed debt JOIN mill.job target ON target.name = debt.job
      LEFT JOIN LATERAL (SELECT count(*) AS n FROM mill.token stored, unnest(stored.delivered) AS edge_id
                          WHERE stored.job = target.id AND stored.at = debt.at AND edge_id = debt.edge) AS paid ON true
     WHERE COALESCE(paid.n, 0) < debt.n;
    RETURN QUERY
    SELECT NULL::int, target.name, activated.at, 'more runs than tokens have activated', NULL::bigint, stored.activations::bigint, activated.n
      FROM (SELECT one_run.job, one_run.at, one_run.epoch, count(DISTINCT COALESCE(one_run.activation, one_run.id)) AS n
              FROM mill_private.run one_run WHERE one_run.epoch >= 0 GROUP BY 1, 2, 3) AS activated
      JOIN mill.token stored ON stored.job = activated.job AND stored.at = activated.at AND stored.epoch = activated.epoch
      JOIN mill.job target ON target.id = activated.job
     WHERE activated.n > stored.activations + stored.by_hand;
END
$$;

--
-- Name: FUNCTION audit_graph(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.audit_graph() IS 'pgmill: what is wrong with the tokens of the graph';

--
-- Name: audit_jobs(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.audit_jobs() RETURNS SETOF text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT format('job "%s": %s runs, but %s successes, %s failures and %s crashes', known.name, stat.total_runs,
                  stat.total_successes, stat.total_failures, stat.total_crashes)
      FROM mill.job_stat stat JOIN mill.job known ON known.id = stat.job
     WHERE stat.total_runs <> stat.total_successes + stat.total_failures + stat.total_crashes
    UNION ALL
    SELECT format('job "%s" has no statistics', known.name) FROM mill.job known
     WHERE NOT EXISTS (SELECT FROM mill.job_stat stat WHERE stat.job = known.id)
    UNION ALL
    SELECT format('statistics of job %s, which does not exist', stat.job) FROM mill.job_stat stat
     WHERE NOT EXISTS (SELECT FROM mill.job known WHERE known.id = stat.job)
    UNION ALL
    SELECT format('job "%s" has a negative number in its statistics', known.name)
      FROM mill.job_stat stat JOIN mill.job known ON known.id = stat.job
     WHERE LEAST(stat.running, stat.total_runs, stat.total_successes, stat.total_failures, stat.total_crashes,
                 stat.consecutive_failures, stat.consecutive_crashes) < 0
     ORDER BY 1
$$;

--
-- Name: FUNCTION audit_jobs(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.audit_jobs() IS 'pgmill: what is wrong with the numbers of jobs, a sentence each';

--
-- Name: audit_queue(oid, oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.audit_queue(relid oid, actual oid) RETURNS TABLE(task bigint, problem text)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    not_plain text;
    here oid := (SELECT known.oid FROM pg_database known WHERE known.datname = current_database());
BEGIN
    IF actual IS NULL OR actual <> relid THEN
        problem := format('the catalog has the OID %s for the table, but no table has that OID', relid);
        RETURN NEXT;
        RETURN;
    ELSIF NOT has_table_privilege(relid, 'SELECT') THEN
        problem := format('%I may not SELECT from the table, so its tasks are not checked', current_user);
        RETURN NEXT;
        RETURN;
    END IF;
    not_plain := mill_private.why_not_plain(relid);
    IF not_plain IS NOT NULL THEN
        problem := format('the table is not read here: that could run code of its owner with the rights of %I (%s); call it as the owner',
                          current_user, not_plain);
        RETURN NEXT;
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format($query$
        WITH claimed AS MATERIALIZED (
            SELECT task.id, task.state::text AS state, task.attempt, task.pid, task.start, task.remote FROM %1$s task
             WHERE task.state IN ('TAKE', 'WORK')
        ), live AS MATERIALIZED (
            SELECT backend.pid, backend.backend_start, backend.state FROM pg_catalog.pg_stat_activity backend
        ), signs AS MATERIALIZED (
            SELECT held.pid, held.objid FROM pg_catalog.pg_locks held
             WHERE held.locktype = 'advisory' AND held.classid = 1835597828::oid AND held.objsubid = 2 AND held.granted
        ), differences AS (
            SELECT claim.id, format('%%s, but no scheduler serves the table', claim.state) AS problem
              FROM claimed claim WHERE NOT $1
            UNION ALL
            SELECT claim.id, 'WORK without a backend pid or a start' FROM claimed claim
             WHERE claim.state = 'WORK' AND (claim.pid IS NULL OR claim.start IS NULL)
            UNION ALL
            SELECT claim.id, 'TAKE with a backend pid or a start' FROM claimed claim
             WHERE claim.state = 'TAKE' AND (claim.pid IS NOT NULL OR claim.start IS NOT NULL)
            UNION ALL
            SELECT claim.id, format('WORK in backend pid %%s, which does not exist', claim.pid) FROM claimed claim
             WHERE claim.state = 'WORK' AND claim.remote IS NULL AND claim.pid IS NOT NULL
               AND NOT EXISTS (SELECT FROM live WHERE live.pid = claim.pid AND COALESCE(live.backend_start <= claim.start, true))
            UNION ALL
            SELECT claim.id, format('WORK in backend pid %%s, which is idle and does not hold the lock of the task', claim.pid)
              FROM claimed claim JOIN live ON live.pid = claim.pid
             WHERE claim.state = 'WORK' AND claim.remote IS NULL AND live.state = 'idle'
               AND NOT EXISTS (SELECT FROM signs WHERE signs.pid = claim.pid)
            UNION ALL
            SELECT min(claim.id), format('WORK in backend pid %%s, like %%s others', claim.pid, count(*) - 1)
              FROM claimed claim WHERE claim.state = 'WORK' AND claim.remote IS NULL GROUP BY claim.pid HAVING count(*) > 1
            UNION ALL
            SELECT task.id, format('%%s with %%s', task.state, CASE WHEN task.stop IS NULL THEN 'no stop'
                                   WHEN task.error IS NULL THEN 'no error' ELSE 'an error' END)
              FROM %1$s task
             WHERE task.state IN ('DONE', 'FAIL', 'GONE')
               AND (task.stop IS NULL OR (task.error IS NULL) <> (task.state = 'DONE'))
            UNION ALL
            SELECT task.id, 'PLAN with a start or a backend pid' FROM %1$s task
             WHERE task.state = 'PLAN' AND (task.start IS NOT NULL OR task.pid IS NOT NULL)
            UNION ALL
            SELECT overdue.id, 'due since ' || overdue.plan || ', and nothing keeps it from starting'
              FROM (SELECT task.id, task.plan FROM %1$s task
                     WHERE task.state = 'PLAN' AND NOT task.held AND task.plan < clock_timestamp() - interval '1 minute'
                     ORDER BY task."max" DESC, task.priority DESC, task.id LIMIT 100) overdue
             WHERE $1 AND mill.why(overdue.id::bigint, $2) = 'due: starts at the next pass'
        )
        SELECT difference.id::bigint, difference.problem FROM differences difference ORDER BY 1, 2 $query$, relid::regclass)
        USING mill_private.is_locked(1835597826, relid, here), relid::regclass;
END
$_$;

--
-- Name: FUNCTION audit_queue(relid oid, actual oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.audit_queue(relid oid, actual oid) IS 'pgmill: what is wrong with the tasks of a queue, a sentence each';

--
-- Name: backfill_moved_timer(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.backfill_moved_timer() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    hi timestamptz := LEAST(OLD.start, mill.now() - NEW.shift);
BEGIN
    IF OLD.stale IS DISTINCT FROM 'new' AND NEW.catchup <> 'none' AND NEW.start < hi THEN
        INSERT INTO mill.backfill (timer, lo, hi, "order")
        VALUES (NEW.name, GREATEST(NEW.start, mill.now() - NEW.shift - NEW.catchup_age), hi,
                CASE NEW.catchup WHEN 'last' THEN 'earliest' ELSE NEW.catchup END);
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION backfill_moved_timer(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.backfill_moved_timer() IS 'pgmill: a timer whose start moves back gets a back-fill of the new range';

--
-- Name: begin_run(oid, bigint, bigint, integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.begin_run(relid oid, run bigint, task bigint, attempt integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_variable
DECLARE
    candidate record;
BEGIN
    -- A run that edges or a person have ordered has an epoch, and does not touch the state of its job.
    UPDATE mill_private.run stored SET start = clock_timestamp(), task = task, attempt = attempt
     WHERE stored.id = (SELECT waiting.id FROM mill_private.run waiting
                    WHERE waiting.id = run AND waiting.queue = relid AND NOT waiting.ordered AND NOT waiting.held AND waiting.recall IS NULL
                      AND waiting.start IS NULL AND waiting.outcome IS NULL AND waiting.epoch IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED);
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT stored.id, stored.job, COALESCE(stored.activation, stored.id) AS root INTO candidate FROM mill_private.run stored
     WHERE stored.id = run AND stored.queue = relid AND NOT stored.ordered AND NOT stored.held AND stored.recall IS NULL
       AND stored.start IS NULL AND stored.outcome IS NULL AND stored.epoch IS NULL
       FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF EXISTS (SELECT FROM mill_private.job_state plan WHERE plan.job = candidate.job AND plan.run = candidate.root) THEN
        -- The start of a schedule's own run changes the plan of its job.
        PERFORM FROM mill_private.job_state plan WHERE plan.job = candidate.job AND plan.run = candidate.root FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        UPDATE mill_private.job_state plan SET next_start = NULL WHERE plan.job = candidate.job;
    END IF;
    UPDATE mill_private.run stored SET start = clock_timestamp(), task = task, attempt = attempt WHERE stored.id = candidate.id;
    RETURN true;
END
$$;

--
-- Name: FUNCTION begin_run(relid oid, run bigint, task bigint, attempt integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.begin_run(relid oid, run bigint, task bigint, attempt integer) IS 'pgmill: a run begins; false: it may not, or not now';

--
-- Name: bump_version(oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.bump_version(relid oid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    UPDATE mill_private.job_version v SET n = v.n + 1
     WHERE v.id = (SELECT f.id FROM mill_private.job_version f WHERE f.queue = bump_version.relid LIMIT 1 FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        INSERT INTO mill_private.job_version (queue) VALUES (relid);
    END IF;
    PERFORM mill_private.wake_scheduler(relid);
END
$$;

--
-- Name: FUNCTION bump_version(relid oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.bump_version(relid oid) IS 'pgmill: a job of this queue has changed; its scheduler is to read it';

--
-- Name: cancel_runs(integer[], timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.cancel_runs(jobs integer[], at timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    run_row record;
    affected int := 0;
    asked int := 0;
BEGIN
    FOR run_row IN SELECT open_run.id FROM mill_private.lock_open_runs(jobs, cancel_runs.at) open_run LOOP
        affected := affected + 1;
        asked := asked + mill_private.close_run(run_row.id, false, 'cancelled', 'ERROR:  task cancelled')::int;
    END LOOP;
    RETURN format('%s cancelled', mill_private.count_of(affected, 'run'))
           || CASE WHEN asked > 0 THEN format(' (%s under way, asked to stop)', asked) ELSE '' END;
END
$$;

--
-- Name: FUNCTION cancel_runs(jobs integer[], at timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.cancel_runs(jobs integer[], at timestamp with time zone) IS 'pgmill: cancels the open runs of jobs';

--
-- Name: cancel_waiting_runs(integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.cancel_waiting_runs(job integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    UPDATE mill_private.run r SET outcome = 'cancelled', stop = clock_timestamp(), reason = 'cancelled', error = 'ERROR:  task cancelled',
           held = false, recall = CASE WHEN NOT r.ordered THEN 'WITHDRAW' END
     WHERE r.id IN (SELECT w.id FROM mill_private.run w
                     WHERE w.job = cancel_waiting_runs.job AND w.outcome IS NULL AND w.start IS NULL FOR NO KEY UPDATE SKIP LOCKED);
END
$$;

--
-- Name: FUNCTION cancel_waiting_runs(job integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.cancel_waiting_runs(job integer) IS 'pgmill: cancels the runs of a job that have not begun';

--
-- Name: check_backfill(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_backfill() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    t mill.timer;
BEGIN
    SELECT * INTO t FROM mill.timer WHERE name = CASE TG_OP WHEN 'DELETE' THEN OLD.timer ELSE NEW.timer END;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    ELSIF t.id IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = format('timer "%s" does not exist, or you are not a member of its owner', NEW.timer), ERRCODE = 'foreign_key_violation';
    ELSE
        PERFORM mill_private.check_member(format('timer "%s"', t.name), t.owner);
    END IF;
    IF NEW.lo IS NULL OR NEW.hi IS NULL OR NOT isfinite(NEW.lo) OR NOT isfinite(NEW.hi) OR NEW.lo >= NEW.hi THEN
        PERFORM mill_private.raise_violation(format('a back-fill of timer "%s" needs a range from lo up to a later hi', NEW.timer));
    ELSIF NEW."order" NOT IN ('earliest', 'latest', 'random') THEN
        PERFORM mill_private.raise_violation(format('order of a back-fill must be earliest, latest or random, not "%s"', NEW."order"));
    END IF;
    IF TG_OP = 'INSERT' THEN
        NEW.fired := 0; NEW.at := NULL; NEW.span := 0; NEW.pos := 0; NEW.finished := NULL; NEW.trouble := NULL;
        NEW.made_by := current_user;
        NEW.start := t.start; NEW.period := t.period; NEW.cron := t.cron; NEW.timezone := t.timezone;
    ELSIF (NEW.lo, NEW.hi, NEW."order", NEW.timer) IS DISTINCT FROM (OLD.lo, OLD.hi, OLD."order", OLD.timer) AND NEW.timer = OLD.timer THEN
        PERFORM mill_private.raise_violation('a back-fill that has begun cannot be moved', 'Delete it and insert another one.');
    END IF;
    RETURN NEW;
END
$$;

--
-- Name: FUNCTION check_backfill(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_backfill() IS 'pgmill: checks a back-fill and the rights of its writer';

--
-- Name: check_cycles(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_cycles() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    names text[];
    source int[];
    target int[];
    shifts float8[];
    kept bool[];
    incoming int[];
    outgoing int[];
    n int;
    removed bool;
    part int[];
    seen int[] := '{}';
    part_source int[];
    part_target int[];
    part_shifts float8[];
    low float8[];
    high float8[];
    half_microsecond CONSTANT float8 := 0.0000005;
BEGIN
    SELECT array_agg(name ORDER BY name) INTO names
      FROM (SELECT from_job AS name FROM mill.edge WHERE from_job IS NOT NULL
            INTERSECT SELECT job FROM mill.edge WHERE from_job IS NOT NULL) AS both_ways;
    n := COALESCE(cardinality(names), 0);
    IF n = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(from_place.place::int ORDER BY edge_row.id), array_agg(to_place.place::int ORDER BY edge_row.id),
           array_agg(extract(epoch FROM edge_row.shift)::float8 ORDER BY edge_row.id)
      INTO source, target, shifts
      FROM mill.edge edge_row JOIN unnest(names) WITH ORDINALITY AS from_place (name, place) ON from_place.name = edge_row.from_job
      JOIN unnest(names) WITH ORDINALITY AS to_place (name, place) ON to_place.name = edge_row.job;
    IF source IS NULL THEN
        RETURN;
    END IF;
    -- A node without incoming or without outgoing edges is on no cycle: remove such edges until nothing changes.
    kept := array_fill(true, ARRAY[cardinality(source)]);
    LOOP
        incoming := array_fill(0, ARRAY[n]);
        outgoing := array_fill(0, ARRAY[n]);
        FOR i IN 1..cardinality(source) LOOP
            IF kept[i] THEN
                outgoing[source[i]] := outgoing[source[i]] + 1;
                incoming[target[i]] := incoming[target[i]] + 1;
            END IF;
        END LOOP;
        removed := false;
        FOR i IN 1..cardinality(source) LOOP
            IF kept[i] AND (incoming[source[i]] = 0 OR outgoing[target[i]] = 0) THEN
                kept[i] := false;
                removed := true;
            END IF;
        END LOOP;
        EXIT WHEN NOT removed;
    END LOOP;
    FOR start IN 1..n LOOP
        CONTINUE WHEN incoming[start] = 0 OR outgoing[start] = 0 OR start = ANY (seen);
        -- The strongly connected component: nodes that are reached from here and from which this one is reached.
        WITH RECURSIVE arrow AS (
            SELECT one.tail, one.head FROM unnest(source, target, kept) AS one (tail, head, stays) WHERE one.stays
        ), forth (node) AS (SELECT start UNION SELECT arrow.head FROM forth JOIN arrow ON arrow.tail = forth.node
        ), back (node) AS (SELECT start UNION SELECT arrow.tail FROM back JOIN arrow ON arrow.head = back.node)
        SELECT array_agg(node) INTO part FROM (SELECT node FROM forth INTERSECT SELECT node FROM back) AS nodes;
        seen := seen || part;
        SELECT array_agg(arrow.tail), array_agg(arrow.head), array_agg(arrow.shift) INTO part_source, part_target, part_shifts
          FROM unnest(source, target, shifts, kept) AS arrow (tail, head, shift, stays)
         WHERE arrow.stays AND arrow.tail = ANY (part) AND arrow.head = ANY (part);
        CONTINUE WHEN part_source IS NULL;
        -- Half a microsecond per edge: too small to matter, and enough to make a sum of 0 negative.
        SELECT array_agg(shift - half_microsecond), array_agg(-shift - half_microsecond) INTO low, high FROM unnest(part_shifts) AS shift;
        IF mill_private.has_cycle(n, part_source, part_target, low) AND mill_private.has_cycle(n, part_source, part_target, high) THEN
            PERFORM mill_private.raise_violation(format('the jobs %s form a cycle whose shifts add up to 0: a token would come back to the same job and time',
                (SELECT string_agg(format('"%s"', names[node]), ', ' ORDER BY names[node]) FROM unnest(part) AS node)),
                'Give an edge of the cycle a shift, such as 1 day, or remove one.');
        END IF;
    END LOOP;
END
$$;

--
-- Name: FUNCTION check_cycles(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_cycles() IS 'pgmill: raises an error if edges form a cycle whose shifts add up to 0';

--
-- Name: check_document(text, jsonb, jsonb); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_document(place text, given jsonb, known jsonb) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    strange text;
BEGIN
    IF jsonb_typeof(given) IS DISTINCT FROM 'object' THEN
        PERFORM mill_private.raise_violation(format('%s: an object is expected', place));
    END IF;
    SELECT k INTO strange FROM jsonb_object_keys(given) AS k WHERE NOT known ? k ORDER BY k LIMIT 1;
    IF strange IS NOT NULL THEN
        PERFORM mill_private.raise_violation(format('%s.%s: unknown key', place, strange),
            format('Known keys: %s.', (SELECT string_agg(k, ', ' ORDER BY k) FROM jsonb_object_keys(known) AS k)));
    END IF;
END
$$;

--
-- Name: FUNCTION check_document(place text, given jsonb, known jsonb); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_document(place text, given jsonb, known jsonb) IS 'pgmill: raises an error with the place of a mistake in a document';

--
-- Name: check_document_edge(text, bigint, jsonb); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_document_edge(whole text, place bigint, given jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    key jsonb := jsonb_build_object('job', given -> 'job', 'from_job', given -> 'from_job', 'from_timer', given -> 'from_timer',
                                    'on', given -> 'on', 'shift', given -> 'shift');
BEGIN
    IF (SELECT stored.flow FROM mill.job stored WHERE stored.name = key ->> 'job') IS DISTINCT FROM whole THEN
        PERFORM mill_private.raise_violation(format('edges[%s].job: "%s" is not a job of this document', place, key ->> 'job'));
    ELSIF NOT EXISTS (SELECT FROM mill.job stored WHERE stored.name = key ->> 'from_job') AND key ->> 'from_job' IS NOT NULL THEN
        PERFORM mill_private.raise_violation(format('edges[%s].from_job: job "%s" does not exist, or you are not a member of its owner',
            place, key ->> 'from_job'));
    ELSIF NOT EXISTS (SELECT FROM mill.timer stored WHERE stored.name = key ->> 'from_timer') AND key ->> 'from_timer' IS NOT NULL THEN
        PERFORM mill_private.raise_violation(format('edges[%s].from_timer: timer "%s" does not exist, or you are not a member of its owner',
            place, key ->> 'from_timer'));
    END IF;
    RETURN key;
END
$$;

--
-- Name: FUNCTION check_document_edge(whole text, place bigint, given jsonb); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_document_edge(whole text, place bigint, given jsonb) IS 'pgmill: raises an error unless both ends of an edge of a document exist; returns its key';

--
-- Name: check_edge(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_edge() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    reason text;
BEGIN
    -- A renamed job or timer renames the ends of its edges: the foreign key does that as the catalog's owner, and the writers of the
    -- edges stay the same.
    IF TG_OP = 'UPDATE' AND pg_trigger_depth() > 1
            AND current_user = (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = 'mill') THEN
        RETURN NEW;
    END IF;
    NEW.made_by := current_user;
    reason := CASE
        WHEN NEW.job IS NULL THEN 'an edge needs a job'
        WHEN (NEW.from_job IS NULL) = (NEW.from_timer IS NULL)
            THEN format('an edge to job "%s" needs either from_job or from_timer', NEW.job)
        WHEN NEW."on" NOT IN ('success', 'failure', 'done')
            THEN format('on of an edge must be success, failure or done, not "%s"', NEW."on")
        WHEN NEW.from_timer IS NOT NULL AND NEW."on" <> 'success'
            THEN format('an edge from timer "%s" must be on success: a timer does not fail', NEW.from_timer) END;
    IF reason IS NOT NULL THEN
        PERFORM mill_private.raise_violation(reason);
    END IF;
    IF TG_OP = 'UPDATE' AND (NEW.job, NEW.from_job, NEW.from_timer, NEW."on", NEW.shift)
            IS DISTINCT FROM (OLD.job, OLD.from_job, OLD.from_timer, OLD."on", OLD.shift) THEN
        NEW.made := clock_timestamp();
        NEW.made_in := pg_current_xact_id();
    END IF;
    RETURN NEW;
END
$$;

--
-- Name: FUNCTION check_edge(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_edge() IS 'pgmill: checks an edge and notes its writer';

--
-- Name: check_edge_at_commit(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_edge_at_commit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    e mill.edge;
    j mill.job;
BEGIN
    SELECT * INTO e FROM mill.edge WHERE id = NEW.id;
    SELECT * INTO j FROM mill.job WHERE name = e.job;
    IF j.id IS NULL THEN
        RETURN NULL;
    END IF;
    -- Skip an edge that the foreign key has changed because its job was renamed: its writer may have left the role since.
    IF TG_OP = 'UPDATE' AND (NEW.made_by, NEW.made_in) = (OLD.made_by, OLD.made_in) AND (NEW.job, NEW.from_job, NEW.from_timer)
            IS DISTINCT FROM (OLD.job, OLD.from_job, OLD.from_timer) THEN
        RETURN NULL;
    END IF;
    PERFORM mill_private.check_role(e.made_by, format('job "%s"', j.name), j.owner);
    PERFORM mill_private.check_role(e.made_by, format('job "%s"', s.name), s.owner) FROM mill.job s WHERE s.name = e.from_job;
    PERFORM mill_private.check_role(e.made_by, format('timer "%s"', t.name), t.owner) FROM mill.timer t WHERE t.name = e.from_timer;
    PERFORM mill_private.check_schedule_or_edges(j);
    IF current_setting('mill_private.note_changed_edges', true) = 'yes' THEN
        PERFORM set_config('mill_private.note_changed_edges', '', true);
        PERFORM mill_private.check_cycles();
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION check_edge_at_commit(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_edge_at_commit() IS 'pgmill: checks an edge at the end of the transaction';

--
-- Name: check_flow(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_flow() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM mill_private.check_member(format('flow "%s"', OLD.name), OLD.owner);
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    PERFORM mill_private.check_member(format('flow "%s"', NEW.name), NEW.owner);
    PERFORM mill_private.check_name('flow', NEW.name);
    IF NEW.parallel < 1 THEN
        PERFORM mill_private.raise_violation(format('parallel of flow "%s" must be at least 1; NULL means no limit', NEW.name));
    ELSIF NEW."window" < 1 THEN
        PERFORM mill_private.raise_violation(format('window of flow "%s" must be at least 1; NULL means no limit', NEW.name));
    ELSIF NEW.keep <= interval '0' THEN
        PERFORM mill_private.raise_violation(format('keep of flow "%s" must be more than 0', NEW.name));
    END IF;
    RETURN NEW;
END
$$;

--
-- Name: FUNCTION check_flow(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_flow() IS 'pgmill: checks a flow and the rights of its writer';

--
-- Name: check_flow_owner(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_flow_owner() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    part text;
BEGIN
    SELECT p.what INTO part
      FROM mill.flow f, LATERAL (
        SELECT format('job "%s" of %s', j.name, j.owner) AS what, j.owner FROM mill.job j WHERE j.flow = f.name
        UNION ALL SELECT format('timer "%s" of %s', t.name, t.owner), t.owner FROM mill.timer t WHERE t.flow = f.name) AS p
     WHERE f.name = NEW.name AND NOT mill_private.is_member_of(p.owner, f.owner) ORDER BY 1 LIMIT 1;
    IF part IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = format('flow "%s" cannot belong to %s: its %s has an owner that is not a member of that role',
            NEW.name, NEW.owner, part), ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION check_flow_owner(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_flow_owner() IS 'pgmill: checks a new owner of a flow against the owners of its jobs and timers';

--
-- Name: check_job(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_job() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    place oid;
    wrong text;
BEGIN
    IF TG_OP = 'INSERT' AND NEW.id IS NULL THEN
        NEW.id := nextval('mill.job_id_seq');
    ELSIF TG_OP = 'INSERT' OR NEW.id IS DISTINCT FROM OLD.id THEN
        RAISE EXCEPTION 'job "%": its id is drawn by the catalog and cannot be set', NEW.name USING ERRCODE = '428C9';
    END IF;
    IF NEW.queue IS NULL THEN
        NEW.queue := COALESCE((SELECT min(format('%I.%I', q.schema, q.name)) FROM mill.queue q HAVING count(*) = 1), 'public.task');
    END IF;
    IF NEW.routine IS NOT NULL THEN
        NEW.input := format('%s(%s, %s::jsonb)', NEW.routine, NEW.id, quote_nullable(NEW.config::text));
    END IF;
    IF NEW.name IS NULL THEN
        NEW.name := concat_ws(' ', COALESCE(regexp_replace(NEW.routine, '^(CALL|SELECT) (public[.])?', ''), 'job'), NEW.id);
    END IF;
    place := mill_private.queue_oid(NEW.queue);
    CASE
    WHEN NEW.name = '' OR length(NEW.name) > 200 THEN
        wrong := 'its name must have 1 to 200 characters';
    WHEN NEW.schedule_interval IS NOT NULL AND NEW.cron IS NOT NULL THEN
        wrong := 'it has a schedule_interval and a cron; choose one';
    WHEN NEW.schedule_interval <= interval '0' THEN
        wrong := 'schedule_interval must be more than 0';
    WHEN NEW.fixed_schedule AND NEW.schedule_interval IS NOT NULL AND mill.check_step(NEW.schedule_interval) IS NOT NULL THEN
        wrong := mill.check_step(NEW.schedule_interval);
    WHEN NEW.timezone IS NOT NULL AND mill.check_zone(NEW.timezone) IS NOT NULL THEN
        wrong := mill.check_zone(NEW.timezone);
    WHEN NEW.cron IS NOT NULL AND mill.check_cron(NEW.cron) IS NOT NULL THEN
        wrong := format('cron "%s": %s', NEW.cron, mill.check_cron(NEW.cron));
    WHEN NEW.initial_start IN ('infinity', '-infinity') THEN
        wrong := 'initial_start must be a finite time';
    WHEN NEW.max_runtime < interval '0' THEN
        wrong := 'max_runtime must be 0 (unlimited) or more';
    WHEN NEW.max_retries < -1 THEN
        wrong := 'max_retries must be -1 (for ever) or more';
    WHEN NEW.retry_period < interval '0' THEN
        wrong := 'retry_period must be 0 or more';
    WHEN NEW.crash_wait < interval '0' THEN
        wrong := 'crash_wait must be 0 or more';
    WHEN NEW.active <= interval '0' THEN
        wrong := 'active must be more than 0';
    WHEN NEW.live < interval '0' OR NEW."count" < 0 OR NEW.timeout < interval '0' THEN
        wrong := 'live, count and timeout must be 0 or more';
    WHEN NEW.threshold < 1 THEN
        wrong := 'threshold must be 1 or more';
    WHEN place IS NULL THEN
        wrong := format('table "%s" does not exist; name its queue as schema.table', NEW.queue);
    WHEN NOT EXISTS (SELECT FROM mill.queue q WHERE q.relid = place) THEN
        wrong := format('%s is not a task table that a scheduler of pgmill has served', NEW.queue);
    ELSE
    END CASE;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'job "%": %', NEW.name, wrong USING ERRCODE = '22023';
    END IF;
    IF TG_OP = 'INSERT' OR (NEW.queue, NEW.owner) IS DISTINCT FROM (OLD.queue, OLD.owner) THEN
        wrong := mill_private.check_queue_right(NEW.owner, place);
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION 'job "%": %', NEW.name, wrong USING ERRCODE = '42501';
        END IF;
    END IF;
    IF NEW.schedule_interval IS NOT NULL AND NEW.fixed_schedule AND NEW.initial_start IS NULL THEN
        NEW.initial_start := mill.now();
    END IF;
    RETURN NEW;
END
$$;

--
-- Name: FUNCTION check_job(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_job() IS 'pgmill: checks a job and fills in defaults';

--
-- Name: check_job_at_commit(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_job_at_commit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    j mill.job;
BEGIN
    SELECT * INTO j FROM mill.job WHERE id = NEW.id;
    IF j.id IS NOT NULL THEN
        PERFORM mill_private.check_schedule_or_edges(j);
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION check_job_at_commit(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_job_at_commit() IS 'pgmill: checks a job''s schedule against its edges at the end of the transaction';

--
-- Name: check_job_joins_flow(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_job_joins_flow() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    joins record;
BEGIN
    SELECT j.name, j.owner, f.name AS flow, f.owner AS flow_owner INTO joins
      FROM mill.job j JOIN mill.flow f ON f.name = j.flow WHERE j.id = NEW.id;
    IF FOUND AND NOT mill_private.is_member_of(joins.owner, joins.flow_owner) THEN
        RAISE EXCEPTION USING MESSAGE = format('job "%s" cannot join flow "%s": its owner %s is not a member of %s, the owner of the flow',
            joins.name, joins.flow, joins.owner, joins.flow_owner), ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION check_job_joins_flow(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_job_joins_flow() IS 'pgmill: checks that the owner of a job is a member of the owner of its flow';

--
-- Name: check_job_writer(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_job_writer() RETURNS trigger
    LANGUAGE plpgsql
    AS $_$
BEGIN
    IF (TG_OP = 'INSERT' OR NEW.owner IS DISTINCT FROM OLD.owner) AND NOT mill_private.is_member(NEW.owner) THEN
        RAISE EXCEPTION 'the owner of a job must be a role that you are a member of, not "%"', NEW.owner
            USING ERRCODE = '42501';
    END IF;
    IF NEW.check_config IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.config IS DISTINCT FROM OLD.config
            OR NEW.check_config IS DISTINCT FROM OLD.check_config) THEN
        IF pg_catalog.to_regproc(NEW.check_config) IS NULL THEN
            RAISE EXCEPTION 'check_config: function "%" does not exist or is overloaded; give its name with its schema', NEW.check_config
                USING ERRCODE = '42883';
        END IF;
        IF NEW.owner OPERATOR(pg_catalog.=) current_user AND NOT (SELECT r.rolsuper FROM pg_catalog.pg_roles r
                WHERE r.rolname OPERATOR(pg_catalog.=) current_user) THEN
            EXECUTE pg_catalog.concat('SELECT ', pg_catalog.to_regproc(NEW.check_config)::pg_catalog.text, '($1)') USING NEW.config;
        ELSE
            RAISE NOTICE 'job "%": check_config was not run: it runs only when "%" itself writes the job', NEW.name, NEW.owner;
        END IF;
    END IF;
    RETURN NEW;
END
$_$;

--
-- Name: FUNCTION check_job_writer(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_job_writer() IS 'pgmill: checks the owner of a job and calls its check_config';

--
-- Name: check_member(text, name); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_member(what text, owner name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = owner) THEN
        RAISE EXCEPTION USING MESSAGE = format('role "%s" does not exist', owner), ERRCODE = 'undefined_object';
    ELSIF NOT pg_has_role(owner, 'MEMBER') THEN
        RAISE EXCEPTION USING MESSAGE = format('%s belongs to %s, and %s is not a member of it', what, owner, current_user),
            ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;

--
-- Name: FUNCTION check_member(what text, owner name); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_member(what text, owner name) IS 'pgmill: raises an error unless the writer is a member of the owner';

--
-- Name: check_name(text, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_name(what text, name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF name IS NULL OR name = '' THEN
        PERFORM mill_private.raise_violation(format('a %s needs a name', what));
    ELSIF length(name) > 200 THEN
        PERFORM mill_private.raise_violation(format('the name of a %s must have at most 200 characters, this one has %s', what, length(name)));
    ELSIF name ~ '[[:cntrl:]]' THEN
        PERFORM mill_private.raise_violation(format('the name of a %s must not have control characters', what));
    END IF;
END
$$;

--
-- Name: FUNCTION check_name(what text, name text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_name(what text, name text) IS 'pgmill: raises an error if this cannot be a name';

--
-- Name: check_queue_right(name, oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_queue_right(owner name, relid oid) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    role oid := (SELECT r.oid FROM pg_roles r WHERE r.rolname = owner);
    here record;
BEGIN
    SELECT q.schema, q.name INTO here FROM mill.queue q JOIN pg_class c ON c.oid = q.relid WHERE q.relid = check_queue_right.relid;
    IF NOT FOUND THEN
        RETURN 'its queue does not exist any more';
    ELSIF role IS NULL THEN
        RETURN format('its owner "%s" does not exist any more', owner);
    ELSIF NOT has_table_privilege(role, relid, 'INSERT') THEN
        RETURN format('its owner "%s" may not INSERT into %I.%I, its queue', owner, here.schema, here.name);
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION check_queue_right(owner name, relid oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_queue_right(owner name, relid oid) IS 'pgmill: why an owner may not run jobs in a queue; NULL if it may';

--
-- Name: check_role(name, text, name); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_role(role name, what text, owner name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NOT mill_private.is_member_of(role, owner) THEN
        RAISE EXCEPTION USING MESSAGE = format('%s belongs to %s, and %s is not a member of it', what, owner, role),
            ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;

--
-- Name: FUNCTION check_role(role name, what text, owner name); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_role(role name, what text, owner name) IS 'pgmill: raises an error unless a role is a member of the owner';

--
-- Name: check_schedule_or_edges(mill.job); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_schedule_or_edges(j mill.job) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF (j.schedule_interval IS NOT NULL OR j.cron IS NOT NULL) AND EXISTS (SELECT FROM mill.edge WHERE job = j.name) THEN
        PERFORM mill_private.raise_violation(format('job "%s" has a schedule of its own and incoming edges: it can have only one of them', j.name),
            'Put the schedule into mill.timer and an edge from there.');
    END IF;
END
$$;

--
-- Name: FUNCTION check_schedule_or_edges(j mill.job); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_schedule_or_edges(j mill.job) IS 'pgmill: raises an error if a job has a schedule of its own and incoming edges';

--
-- Name: check_timer(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_timer() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    reason text;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM mill_private.check_member(format('timer "%s"', OLD.name), OLD.owner);
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    PERFORM mill_private.check_member(format('timer "%s"', NEW.name), NEW.owner);
    PERFORM mill_private.check_name('timer', NEW.name);
    NEW.start := COALESCE(NEW.start, date_trunc('second', mill.now()));
    reason := CASE
        WHEN (NEW.period IS NULL) = (NEW.cron IS NULL) THEN 'needs either a period or a cron expression'
        WHEN NEW.period <= interval '0' THEN format('has a period of %s: it must be more than 0', NEW.period)
        WHEN NEW.period < interval '1 ms' THEN 'has a period of less than a millisecond'
        WHEN NOT isfinite(NEW.start) THEN 'needs a finite start'
        WHEN NEW.stop <= NEW.start THEN 'stops before it starts'
        WHEN NEW.catchup NOT IN ('none', 'last', 'earliest', 'latest', 'random')
            THEN format('has the unknown catchup "%s": use none, last, earliest, latest or random', NEW.catchup)
        WHEN NEW.catchup_age <= interval '0' THEN 'has a catchup_age that is not more than 0'
        ELSE COALESCE(mill.check_zone(NEW.timezone), mill.check_step(NEW.period), mill.check_cron(NEW.cron)) END;
    IF reason IS NOT NULL THEN
        PERFORM mill_private.raise_violation(format('timer "%s" %s', NEW.name, reason));
    END IF;
    IF TG_OP = 'INSERT' THEN
        NEW.stale := 'new';
        NEW.revision := 0;
        NEW.first := NULL; NEW.last := NULL; NEW.next := NULL; NEW.due := NULL; NEW.skipped := 0; NEW.trouble := NULL;
    ELSIF (NEW.start, NEW.stop, NEW.period, NEW.cron, NEW.timezone, NEW.shift, NEW.enabled)
            IS DISTINCT FROM (OLD.start, OLD.stop, OLD.period, OLD.cron, OLD.timezone, OLD.shift, OLD.enabled) THEN
        NEW.stale := COALESCE(OLD.stale, 'edited');
        NEW.revision := OLD.revision + 1;
        NEW.next := NULL; NEW.due := NULL; NEW.trouble := NULL;
    END IF;
    RETURN NEW;
END
$$;

--
-- Name: FUNCTION check_timer(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_timer() IS 'pgmill: checks a timer and the rights of its writer';

--
-- Name: check_timer_joins_flow(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.check_timer_joins_flow() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    joins record;
BEGIN
    SELECT t.name, t.owner, f.name AS flow, f.owner AS flow_owner INTO joins
      FROM mill.timer t JOIN mill.flow f ON f.name = t.flow WHERE t.id = NEW.id;
    IF FOUND AND NOT mill_private.is_member_of(joins.owner, joins.flow_owner) THEN
        RAISE EXCEPTION USING MESSAGE = format('timer "%s" cannot join flow "%s": its owner %s is not a member of %s, the owner of the flow',
            joins.name, joins.flow, joins.owner, joins.flow_owner), ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION check_timer_joins_flow(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.check_timer_joins_flow() IS 'pgmill: checks that the owner of a timer is a member of the owner of its flow';

--
-- Name: clear_jobs(integer[], timestamp with time zone, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.clear_jobs(jobs integer[], at timestamp with time zone, flow text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    under_way bigint := (SELECT count(*) FROM mill_private.lock_open_runs(jobs, clear_jobs.at) open_run WHERE open_run.start IS NOT NULL);
BEGIN
    PERFORM mill_private.lock_job_states(jobs);
    PERFORM mill_private.lock_flows(ARRAY[clear_jobs.flow], true);
    PERFORM mill_private.reset_tokens(jobs, array_fill(clear_jobs.at, ARRAY[cardinality(jobs)]), true);
    RETURN format('%s cleared; runs under way, which will deliver nothing: %s', mill_private.count_of(cardinality(jobs), 'job'), under_way);
END
$$;

--
-- Name: FUNCTION clear_jobs(jobs integer[], at timestamp with time zone, flow text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.clear_jobs(jobs integer[], at timestamp with time zone, flow text) IS 'pgmill: clears a logical time of jobs of one flow';

--
-- Name: close_run(bigint, boolean, text, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.close_run(run bigint, success boolean, reason text, error text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    r mill_private.run;
BEGIN
    UPDATE mill_private.run u SET recall = CASE WHEN success THEN 'DONE' ELSE 'FAIL' END, reason = close_run.reason, error = close_run.error
     WHERE u.id = close_run.run AND u.outcome IS NULL AND u.start IS NOT NULL RETURNING * INTO r;
    IF FOUND THEN
        PERFORM mill_private.wake_scheduler(r.queue);
        RETURN true;
    END IF;
    UPDATE mill_private.run u SET outcome = CASE WHEN close_run.reason IN ('cancelled', 'skipped') THEN close_run.reason
                                                 WHEN success THEN 'succeeded' ELSE 'failed' END,
           stop = clock_timestamp(), reason = close_run.reason, error = close_run.error, held = false,
           recall = CASE WHEN NOT u.ordered THEN 'WITHDRAW' END
     WHERE u.id = close_run.run AND u.outcome IS NULL RETURNING * INTO r;
    IF FOUND THEN
        PERFORM mill_private.settle_run(r, success, true);
        PERFORM mill_private.wake_scheduler(r.queue);
    END IF;
    RETURN false;
END
$$;

--
-- Name: FUNCTION close_run(run bigint, success boolean, reason text, error text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.close_run(run bigint, success boolean, reason text, error text) IS 'pgmill: ends a run for a user; true: it is under way, and the scheduler of its queue will end it';

--
-- Name: compute_first_start(mill.job, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.compute_first_start(job mill.job, moment timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN ((job).schedule_interval IS NOT NULL) THEN COALESCE((job).initial_start, moment) ELSE NULL::timestamp with time zone END;

--
-- Name: FUNCTION compute_first_start(job mill.job, moment timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.compute_first_start(job mill.job, moment timestamp with time zone) IS 'pgmill: when a job that has never run starts first; NULL: the scheduler computes it (cron), or it has no schedule';

--
-- Name: compute_next_start(mill.job, timestamp with time zone, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.compute_next_start(job mill.job, finished timestamp with time zone, after timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF job.schedule_interval IS NULL THEN
        RETURN NULL;
    ELSIF job.fixed_schedule THEN
        RETURN mill_private.next_slot(job.initial_start, job.schedule_interval, job.timezone, after);
    ELSIF finished IS NULL THEN
        RETURN COALESCE(job.initial_start, after);
    END IF;
    -- On the calendar of the job's zone, not of this session's.
    RETURN mill_private.add_interval(finished, job.schedule_interval, job.timezone);
END
$$;

--
-- Name: FUNCTION compute_next_start(job mill.job, finished timestamp with time zone, after timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.compute_next_start(job mill.job, finished timestamp with time zone, after timestamp with time zone) IS 'pgmill: the next scheduled start after a moment; NULL: the scheduler computes it (cron), or there is none';

--
-- Name: compute_retry_delay(mill.job, integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.compute_retry_delay(job mill.job, n integer) RETURNS interval
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    jitter CONSTANT float8 := 0.125;
    most_doublings CONSTANT int := 20;
    most_intervals CONSTANT int := 5;
    -- still an interval
    most_seconds CONSTANT float8 := 3e9;
BEGIN
    RETURN make_interval(secs => (1 + (2 * random() - 1) * jitter) * LEAST(
        extract(epoch FROM (job).retry_period)::float8 * 2 ^ LEAST(GREATEST(n - 1, 0), most_doublings),
        most_intervals * extract(epoch FROM (job).schedule_interval)::float8, most_seconds));
END
$$;

--
-- Name: FUNCTION compute_retry_delay(job mill.job, n integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.compute_retry_delay(job mill.job, n integer) IS 'pgmill: the delay after n failures or crashes in a row: doubled each time, at most 5 intervals, with a jitter of 12.5 %';

--
-- Name: job_state; Type: TABLE; Schema: mill_private; Owner: -
--

CREATE TABLE mill_private.job_state (
    job integer NOT NULL,
    last_start timestamp with time zone,
    last_finish timestamp with time zone,
    last_successful_finish timestamp with time zone,
    last_run_success boolean,
    next_start timestamp with time zone,
    total_runs bigint DEFAULT 0 NOT NULL,
    total_successes bigint DEFAULT 0 NOT NULL,
    total_failures bigint DEFAULT 0 NOT NULL,
    total_crashes bigint DEFAULT 0 NOT NULL,
    consecutive_failures integer DEFAULT 0 NOT NULL,
    consecutive_crashes integer DEFAULT 0 NOT NULL,
    total_duration interval DEFAULT '00:00:00'::interval NOT NULL,
    total_duration_failures interval DEFAULT '00:00:00'::interval NOT NULL,
    reason text,
    queue oid NOT NULL,
    scheduled boolean NOT NULL,
    run bigint,
    fill boolean DEFAULT false NOT NULL,
    stamp bigint DEFAULT 0 NOT NULL,
    due timestamp with time zone GENERATED ALWAYS AS (
CASE
    WHEN (scheduled AND (run IS NULL) AND (next_start < 'infinity'::timestamp with time zone)) THEN next_start
    ELSE NULL::timestamp with time zone
END) STORED
)
WITH (fillfactor='70');

--
-- Name: TABLE job_state; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON TABLE mill_private.job_state IS 'pgmill: the plan of every job, and its numbers without mill_private.job_delta; mill.job_stat shows the sum';

--
-- Name: COLUMN job_state.job; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.job IS 'the id of the job';

--
-- Name: COLUMN job_state.last_start; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.last_start IS 'when a run began last';

--
-- Name: COLUMN job_state.last_finish; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.last_finish IS 'when a run ended last';

--
-- Name: COLUMN job_state.last_successful_finish; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.last_successful_finish IS 'when a run succeeded last';

--
-- Name: COLUMN job_state.last_run_success; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.last_run_success IS 'whether the last run that ended succeeded';

--
-- Name: COLUMN job_state.next_start; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.next_start IS 'when its schedule starts it next';

--
-- Name: COLUMN job_state.total_runs; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.total_runs IS 'runs that have ended';

--
-- Name: COLUMN job_state.total_successes; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.total_successes IS 'runs that have succeeded';

--
-- Name: COLUMN job_state.total_failures; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.total_failures IS 'runs that have failed';

--
-- Name: COLUMN job_state.total_crashes; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.total_crashes IS 'runs that have crashed';

--
-- Name: COLUMN job_state.consecutive_failures; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.consecutive_failures IS 'failures since the last success';

--
-- Name: COLUMN job_state.consecutive_crashes; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.consecutive_crashes IS 'crashes since the last run that ended without one';

--
-- Name: COLUMN job_state.total_duration; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.total_duration IS 'how long the successful runs took';

--
-- Name: COLUMN job_state.total_duration_failures; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.total_duration_failures IS 'how long the failed runs took';

--
-- Name: COLUMN job_state.reason; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.reason IS 'why the catalog has paused the job';

--
-- Name: COLUMN job_state.queue; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.queue IS 'the OID of the task table';

--
-- Name: COLUMN job_state.scheduled; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.scheduled IS 'as in mill.job';

--
-- Name: COLUMN job_state.run; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.run IS 'the open activation that its schedule has started: the id of its first run';

--
-- Name: COLUMN job_state.fill; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.fill IS 'next_start waits for the scheduler, because SQL cannot compute it (cron)';

--
-- Name: COLUMN job_state.stamp; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.stamp IS 'rises with every change of the plan; an answer to an older one is ignored';

--
-- Name: COLUMN job_state.due; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_state.due IS 'when its scheduler starts it: next_start, unless it is paused or an activation is open';

--
-- Name: run; Type: TABLE; Schema: mill_private; Owner: -
--

CREATE TABLE mill_private.run (
    id bigint NOT NULL,
    job integer NOT NULL,
    owner text NOT NULL,
    queue oid NOT NULL,
    activation bigint,
    at timestamp with time zone,
    epoch integer,
    attempt integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    due timestamp with time zone NOT NULL,
    ordered boolean DEFAULT true NOT NULL,
    held boolean DEFAULT false NOT NULL,
    recall text,
    task bigint,
    start timestamp with time zone,
    stop timestamp with time zone,
    outcome text,
    sqlstate text,
    reason text,
    error text,
    output text,
    definition text
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

--
-- Name: TABLE run; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON TABLE mill_private.run IS 'pgmill: every run of every job: ordered, under way, or ended; mill.run shows those that have begun';

--
-- Name: COLUMN run.id; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.id IS 'never used again';

--
-- Name: COLUMN run.job; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.job IS 'the id of the job';

--
-- Name: COLUMN run.owner; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.owner IS 'the owner of the job, whose members see the run';

--
-- Name: COLUMN run.queue; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.queue IS 'the task table, by OID; 0 = it needs no worker';

--
-- Name: COLUMN run.activation; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.activation IS 'the first run of the same activation; NULL = this one';

--
-- Name: COLUMN run.at; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.at IS 'the logical time that it runs for';

--
-- Name: COLUMN run.epoch; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.epoch IS 'the generation of the logical time; NULL = ordered by a schedule or by run_job; -1 = delivers nothing; -2 = not retried either';

--
-- Name: COLUMN run.attempt; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.attempt IS 'counts the runs of one activation';

--
-- Name: COLUMN run.failures; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.failures IS 'failed runs of the activation before this one';

--
-- Name: COLUMN run.priority; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.priority IS 'higher first';

--
-- Name: COLUMN run.due; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.due IS 'when it may start';

--
-- Name: COLUMN run.ordered; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.ordered IS 'its row is not in the queue yet';

--
-- Name: COLUMN run.held; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.held IS 'not started: the job or its flow is paused, or the flow has as many runs as it may';

--
-- Name: COLUMN run.recall; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.recall IS 'what the scheduler is to do with its row: remove it (WITHDRAW), or end it as DONE or FAIL';

--
-- Name: COLUMN run.task; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.task IS 'its row in the task table, known once it has begun';

--
-- Name: COLUMN run.start; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.start IS 'when it began';

--
-- Name: COLUMN run.stop; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.stop IS 'when it ended';

--
-- Name: COLUMN run.outcome; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.outcome IS 'succeeded, failed, crashed, interrupted, cancelled or skipped; NULL = it has not ended';

--
-- Name: COLUMN run.sqlstate; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.sqlstate IS 'SQLSTATE of the error, if the server gave one';

--
-- Name: COLUMN run.reason; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.reason IS 'why it ended other than by its own SQL';

--
-- Name: COLUMN run.error; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.error IS 'the error that ended it';

--
-- Name: COLUMN run.output; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.output IS 'the result of the input';

--
-- Name: COLUMN run.definition; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.run.definition IS 'the input that was run';

--
-- Name: compute_retry_start(mill.job, mill_private.job_state, mill_private.run, boolean, boolean, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.compute_retry_start(job_row mill.job, stat mill_private.job_state, ended mill_private.run, own boolean, by_user boolean, moment timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    has_schedule bool := mill_private.has_schedule(job_row);
    tries int := CASE WHEN has_schedule THEN stat.consecutive_failures ELSE ended.failures + 1 END;
    allowed int := COALESCE(job_row.max_retries, CASE WHEN has_schedule THEN -1 ELSE 0 END);
    again timestamptz;
BEGIN
    IF ended.outcome = 'interrupted' THEN
        -- As soon as the queue is served.
        RETURN LEAST(ended.due, moment);
    ELSIF ended.outcome = 'crashed' THEN
        RETURN GREATEST(moment + job_row.crash_wait, moment + mill_private.compute_retry_delay(job_row, stat.consecutive_crashes));
    -- A run that a person starts of a scheduled job is not retried: that person sees the failure, and the schedule goes on.
    ELSIF by_user OR has_schedule AND NOT own OR allowed >= 0 AND tries >= GREATEST(allowed, 1) THEN
        RETURN NULL;
    END IF;
    again := moment + mill_private.compute_retry_delay(job_row, tries);
    IF job_row.fixed_schedule AND job_row.schedule_interval IS NOT NULL THEN
        again := LEAST(again, mill_private.compute_next_start(job_row, moment, moment));
    END IF;
    -- A next start that the run has set itself wins.
    RETURN CASE WHEN own THEN COALESCE(stat.next_start, again) ELSE again END;
END
$$;

--
-- Name: FUNCTION compute_retry_start(job_row mill.job, stat mill_private.job_state, ended mill_private.run, own boolean, by_user boolean, moment timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.compute_retry_start(job_row mill.job, stat mill_private.job_state, ended mill_private.run, own boolean, by_user boolean, moment timestamp with time zone) IS 'pgmill: when a run that has failed, crashed or was interrupted is retried; NULL: it is not';

--
-- Name: token; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.token (
    job integer NOT NULL,
    at timestamp with time zone NOT NULL,
    waiting integer[] DEFAULT '{}'::integer[] NOT NULL,
    since timestamp with time zone,
    delivered integer[] DEFAULT '{}'::integer[] NOT NULL,
    consumed integer[] DEFAULT '{}'::integer[] NOT NULL,
    activations integer DEFAULT 0 NOT NULL,
    skips integer DEFAULT 0 NOT NULL,
    by_hand integer DEFAULT 0 NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    low boolean DEFAULT false NOT NULL,
    touched timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='70');

--
-- Name: TABLE token; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.token IS 'pgmill: what the edges of a job have delivered for a logical time';

--
-- Name: COLUMN token.job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.job IS 'the id of the job';

--
-- Name: COLUMN token.at; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.at IS 'the logical time';

--
-- Name: COLUMN token.waiting; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.waiting IS 'edges whose tokens wait; one that has delivered twice is listed twice';

--
-- Name: COLUMN token.since; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.since IS 'when the oldest waiting token arrived; NULL: none waits';

--
-- Name: COLUMN token.delivered; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.delivered IS 'all edges that have delivered: consumed and waiting';

--
-- Name: COLUMN token.consumed; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.consumed IS 'edges whose tokens have become activations';

--
-- Name: COLUMN token.activations; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.activations IS 'how often tokens have activated the job for this time';

--
-- Name: COLUMN token.skips; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.skips IS 'how many of its next activations are skipped, by mill.skip';

--
-- Name: COLUMN token.by_hand; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.by_hand IS 'how often people have started the job for this time';

--
-- Name: COLUMN token.epoch; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.epoch IS 'raised by clear and rerun: runs of an older epoch deliver nothing';

--
-- Name: COLUMN token.low; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.low IS 'it was delivered by a back-fill, and its run starts after live work';

--
-- Name: COLUMN token.touched; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.token.touched IS 'when a token was delivered last, to within ten seconds';

--
-- Name: consume_tokens(mill.token, mill.job); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.consume_tokens(token_row mill.token, job_row mill.job) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    picked int[];
    left_over int[];
    one int;
    place int;
    done int := 0;
    most_activations CONSTANT int := 100;
BEGIN
    WHILE cardinality(token_row.waiting) > 0 LOOP
        picked := mill_private.pick_tokens(job_row, token_row.at, token_row.waiting);
        EXIT WHEN picked IS NULL OR done = 0 AND mill_private.is_paused(job_row);
        left_over := token_row.waiting;
        FOREACH one IN ARRAY picked LOOP
            place := array_position(left_over, one);
            left_over := left_over[:place - 1] || left_over[place + 1:];
        END LOOP;
        -- A job that may not run in its queue any more has been paused: its tokens wait.
        EXIT WHEN mill_private.order_graph_run(job_row, token_row.at, token_row.epoch, token_row.low, token_row.activations >= most_activations,
                                                token_row.skips > 0) IS NULL;
        token_row.skips := GREATEST(token_row.skips - 1, 0);
        token_row.waiting := left_over;
        token_row.consumed := token_row.consumed || picked;
        token_row.activations := token_row.activations + 1;
        done := done + 1;
    END LOOP;
    IF done > 0 THEN
        UPDATE mill.token stored SET waiting = token_row.waiting, consumed = token_row.consumed, activations = token_row.activations, skips = token_row.skips,
               since = CASE WHEN cardinality(token_row.waiting) > 0 THEN stored.since END
         WHERE stored.job = token_row.job AND stored.at = token_row.at;
    END IF;
    RETURN done;
END
$$;

--
-- Name: FUNCTION consume_tokens(token_row mill.token, job_row mill.job); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.consume_tokens(token_row mill.token, job_row mill.job) IS 'pgmill: activates a job for a logical time as often as its waiting tokens allow';

--
-- Name: count_ended_run(mill_private.job_state, mill_private.run, boolean, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.count_ended_run(stat mill_private.job_state, ended mill_private.run, success boolean, moment timestamp with time zone) RETURNS mill_private.job_state
    LANGUAGE plpgsql
    AS $$
DECLARE
    began bool := ended.start IS NOT NULL;
    lasted interval := ended.stop - ended.start;
    succeeded bool := success AND ended.reason IS NULL;
BEGIN
    IF began THEN
        stat.last_start := GREATEST(stat.last_start, moment - lasted);
        IF NOT success AND ended.outcome = 'interrupted' THEN
            RETURN stat;
        END IF;
    ELSIF NOT succeeded THEN
        RETURN stat;
    ELSE
        stat.last_start := GREATEST(stat.last_start, moment);
    END IF;
    stat.total_runs := stat.total_runs + 1;
    stat.last_finish := GREATEST(stat.last_finish, moment);
    stat.last_run_success := success;
    IF began AND NOT success AND ended.outcome = 'crashed' THEN
        stat.total_crashes := stat.total_crashes + 1;
        stat.consecutive_crashes := stat.consecutive_crashes + 1;
        RETURN stat;
    END IF;
    IF began THEN
        stat.consecutive_crashes := 0;
    END IF;
    IF succeeded THEN
        stat.total_successes := stat.total_successes + 1;
        stat.consecutive_failures := 0;
        stat.last_successful_finish := GREATEST(stat.last_successful_finish, moment);
        stat.total_duration := stat.total_duration + COALESCE(lasted, interval '0');
    ELSE
        stat.total_failures := stat.total_failures + 1;
        stat.consecutive_failures := stat.consecutive_failures + 1;
        stat.total_duration_failures := stat.total_duration_failures + COALESCE(lasted, interval '0');
    END IF;
    RETURN stat;
END
$$;

--
-- Name: FUNCTION count_ended_run(stat mill_private.job_state, ended mill_private.run, success boolean, moment timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.count_ended_run(stat mill_private.job_state, ended mill_private.run, success boolean, moment timestamp with time zone) IS 'pgmill: adds the end of a run to the numbers of its job';

--
-- Name: count_free_times(text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.count_free_times(timer text) RETURNS integer
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    f record;
    room int;
BEGIN
    FOR f IN SELECT DISTINCT w.name, w."window" FROM mill.edge e JOIN mill.job j ON j.name = e.job JOIN mill.flow w ON w.name = j.flow
              WHERE e.from_timer = count_free_times.timer AND w."window" IS NOT NULL LOOP
        room := LEAST(room, f."window" - mill_private.count_open_times(f.name));
    END LOOP;
    RETURN CASE WHEN room < 0 THEN 0 ELSE room END;
END
$$;

--
-- Name: FUNCTION count_free_times(timer text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.count_free_times(timer text) IS 'pgmill: how many more logical times a back-fill of this timer may open; NULL: no limit';

--
-- Name: count_manual_start(integer, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.count_manual_start(job integer, at timestamp with time zone) RETURNS integer
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    INSERT INTO mill.token AS k (job, at, by_hand) VALUES ($1, $2, 1)
    ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET by_hand = k.by_hand + 1, touched = clock_timestamp() RETURNING k.epoch
$_$;

--
-- Name: FUNCTION count_manual_start(job integer, at timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.count_manual_start(job integer, at timestamp with time zone) IS 'pgmill: counts that a person starts a job for a logical time; returns the epoch of that time';

--
-- Name: count_of(bigint, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.count_of(n bigint, noun text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN concat(n, ' ', noun, CASE WHEN (n <> 1) THEN 's'::text ELSE NULL::text END);

--
-- Name: FUNCTION count_of(n bigint, noun text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.count_of(n bigint, noun text) IS 'pgmill: a number with its noun: 1 run, 2 runs';

--
-- Name: count_open_times(text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.count_open_times(flow text) RETURNS integer
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN (SELECT count(DISTINCT r.at) FROM mill.job j JOIN mill_private.run r ON r.job = j.id
             WHERE j.flow = count_open_times.flow AND r.outcome IS NULL);
END
$$;

--
-- Name: FUNCTION count_open_times(flow text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.count_open_times(flow text) IS 'pgmill: how many logical times of a flow are open';

--
-- Name: delete_absent_rows(text, jsonb); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.delete_absent_rows(whole text, document jsonb) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    removed int;
    more int;
BEGIN
    DELETE FROM mill.edge stored USING mill.job target WHERE target.name = stored.job AND target.flow = whole AND NOT EXISTS (
        SELECT FROM jsonb_array_elements(COALESCE(document -> 'edges', '[]')) item,
               jsonb_populate_record(NULL::mill.edge, mill_private.document_columns('edge') || item) given
         WHERE (given.job, given."on", given.shift) = (stored.job, stored."on", stored.shift)
           AND (given.from_job, given.from_timer) IS NOT DISTINCT FROM (stored.from_job, stored.from_timer));
    GET DIAGNOSTICS removed = ROW_COUNT;
    DELETE FROM mill.job stored WHERE stored.flow = whole
       AND NOT EXISTS (SELECT FROM jsonb_array_elements(COALESCE(document -> 'jobs', '[]')) item WHERE item ->> 'name' = stored.name);
    GET DIAGNOSTICS more = ROW_COUNT;
    removed := removed + more;
    DELETE FROM mill.timer stored WHERE stored.flow = whole
       AND NOT EXISTS (SELECT FROM jsonb_array_elements(COALESCE(document -> 'timers', '[]')) item WHERE item ->> 'name' = stored.name);
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN removed + more;
END
$$;

--
-- Name: FUNCTION delete_absent_rows(whole text, document jsonb); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.delete_absent_rows(whole text, document jsonb) IS 'pgmill: deletes the edges, jobs and timers of a flow that a document does not contain';

--
-- Name: delete_old_runs(oid, integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.delete_old_runs(relid oid, behind integer) RETURNS TABLE(tasks bigint[], runs bigint[], last integer)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION delete_old_runs(relid oid, behind integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.delete_old_runs(relid oid, behind integer) IS 'pgmill: deletes runs that are older than they are kept';

--
-- Name: deliver_tokens(boolean, text[], timestamp with time zone[], text[], boolean[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.deliver_tokens(timers boolean, sources text[], ats timestamp with time zone[], outcomes text[], lows boolean[]) RETURNS integer
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    ready_jobs int[];
    ready_ats timestamptz[];
    ready_lows bool[];
    others mill.token[];
    other mill.token;
    done int := 0;
BEGIN
    WITH edges AS (
        SELECT edge.id, edge.job, edge.shift, source.place, source.name, source.at, source.low
          FROM unnest(sources, ats, lows) WITH ORDINALITY AS source (name, at, low, place)
          JOIN mill.edge ON edge.from_timer = source.name WHERE timers
        UNION ALL
        SELECT edge.id, edge.job, edge.shift, source.place, source.name, source.at, source.low
          FROM unnest(sources, ats, outcomes, lows) WITH ORDINALITY AS source (name, at, outcome, low, place)
          JOIN mill.edge ON edge.from_job = source.name AND edge."on" IN (source.outcome, 'done') WHERE NOT timers
    ), arrived AS (
        SELECT edge.job, CASE WHEN edge.shift = interval '0' THEN edge.at ELSE mill_private.shift_time(edge.at, edge.shift,
                   CASE WHEN timers THEN (SELECT timer.timezone FROM mill.timer WHERE timer.name = edge.name)
                        ELSE mill_private.get_job_zone(edge.name) END) END AS at,
               array_agg(edge.id ORDER BY edge.id) AS edges, bool_and(edge.low) AS low, min(edge.place) AS place
          FROM edges AS edge GROUP BY 1, 2
    ), judged AS MATERIALIZED (
        -- The most frequent case is one write: the first tokens to arrive, enough for one activation, and a flow without `parallel`.
        SELECT target.id AS job, arrival.at, arrival.edges, arrival.low, arrival.place,
               (target.threshold IS NULL AND arrival.edges = ARRAY(SELECT edge.id FROM mill.edge
                       WHERE edge.job = arrival.job AND edge."on" <> 'failure' ORDER BY edge.id)
                   OR arrival.edges = mill_private.pick_tokens(target, arrival.at, arrival.edges))
               AND target.scheduled AND NOT EXISTS (SELECT FROM mill.flow target_flow
                       WHERE target_flow.name = target.flow AND (target_flow.paused OR target_flow.parallel IS NOT NULL)) AS enough
          FROM arrived arrival JOIN mill.job target ON target.name = arrival.job
    ), kept AS (
        INSERT INTO mill.token AS stored (job, at, waiting, delivered, consumed, activations, since, low)
        SELECT verdict.job, verdict.at, CASE WHEN verdict.enough THEN '{}' ELSE verdict.edges END, verdict.edges,
               CASE WHEN verdict.enough THEN verdict.edges ELSE '{}' END,
               CASE WHEN verdict.enough THEN 1 ELSE 0 END, CASE WHEN verdict.enough THEN NULL ELSE clock_timestamp() END, verdict.low
          FROM judged verdict ORDER BY verdict.job, verdict.at
        ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET waiting = stored.waiting || EXCLUDED.delivered,
            delivered = stored.delivered || EXCLUDED.delivered, since = COALESCE(stored.since, clock_timestamp()), low = stored.low AND EXCLUDED.low,
            touched = CASE WHEN stored.touched < EXCLUDED.touched - interval '10 s' THEN EXCLUDED.touched ELSE stored.touched END
        RETURNING stored AS token)
    -- Only a row that was inserted with all the tokens it needs has no `since`.
    SELECT array_agg(verdict.job ORDER BY verdict.place, verdict.job, verdict.at) FILTER (WHERE (stored.token).since IS NULL),
           array_agg(verdict.at ORDER BY verdict.place, verdict.job, verdict.at) FILTER (WHERE (stored.token).since IS NULL),
           array_agg(verdict.low ORDER BY verdict.place, verdict.job, verdict.at) FILTER (WHERE (stored.token).since IS NULL),
           array_agg(stored.token ORDER BY verdict.job, verdict.at) FILTER (WHERE (stored.token).since IS NOT NULL)
      INTO ready_jobs, ready_ats, ready_lows, others
      FROM kept stored JOIN judged verdict ON verdict.job = (stored.token).job AND verdict.at = (stored.token).at;
    IF ready_jobs IS NOT NULL THEN
        done := mill_private.order_graph_runs(ready_jobs, ready_ats, ready_lows);
    END IF;
    IF others IS NOT NULL THEN
        FOREACH other IN ARRAY others LOOP
            done := done + mill_private.consume_tokens(other, (SELECT target FROM mill.job target WHERE target.id = other.job));
        END LOOP;
    END IF;
    RETURN done;
END
$$;

--
-- Name: FUNCTION deliver_tokens(timers boolean, sources text[], ats timestamp with time zone[], outcomes text[], lows boolean[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.deliver_tokens(timers boolean, sources text[], ats timestamp with time zone[], outcomes text[], lows boolean[]) IS 'pgmill: delivers tokens along the edges of these sources';

--
-- Name: edge; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.edge (
    id integer NOT NULL,
    job text NOT NULL,
    from_job text,
    from_timer text,
    "on" text DEFAULT 'success'::text NOT NULL,
    shift interval DEFAULT '00:00:00'::interval NOT NULL,
    first boolean DEFAULT false NOT NULL,
    made timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    made_in xid8 DEFAULT pg_current_xact_id() NOT NULL,
    made_by name DEFAULT CURRENT_USER NOT NULL
);

--
-- Name: TABLE edge; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.edge IS 'pgmill: arrows from a timer or a job to a job';

--
-- Name: COLUMN edge.id; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge.id IS 'drawn by the catalog';

--
-- Name: COLUMN edge.job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge.job IS 'the job that gets the token';

--
-- Name: COLUMN edge.from_job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge.from_job IS 'the job whose end delivers; or from_timer';

--
-- Name: COLUMN edge.from_timer; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge.from_timer IS 'the timer whose times deliver; or from_job';

--
-- Name: COLUMN edge."on"; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge."on" IS 'which end of from_job delivers: success, failure, or done (either)';

--
-- Name: COLUMN edge.shift; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge.shift IS 'the token lands at logical time + shift; 1 day: depends on the day before';

--
-- Name: COLUMN edge.first; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge.first IS 'the edge counts as delivered where the time of its source would lie before the first one';

--
-- Name: COLUMN edge.made; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge.made IS 'when it was inserted or changed';

--
-- Name: COLUMN edge.made_in; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge.made_in IS 'the transaction that made it: a timer that fires knows the edge if that transaction has ended by then';

--
-- Name: COLUMN edge.made_by; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.edge.made_by IS 'the role that inserted or changed it last';

--
-- Name: describe_edge(mill.edge); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.describe_edge(e mill.edge) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (CASE WHEN ((e).from_timer IS NOT NULL) THEN format('timer "%s"'::text, (e).from_timer) ELSE format('job "%s"%s'::text, (e).from_job, CASE (e)."on" WHEN 'success'::text THEN ''::text ELSE (' on '::text || (e)."on") END) END || CASE WHEN ((e).shift = '00:00:00'::interval) THEN ''::text ELSE format(' shifted by %s'::text, (e).shift) END);

--
-- Name: FUNCTION describe_edge(e mill.edge); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.describe_edge(e mill.edge) IS 'pgmill: describes an edge';

--
-- Name: document_columns(text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.document_columns(part text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (CASE part WHEN 'flow'::text THEN '{"parallel": null, "window": null, "keep": null, "note": null}'::text WHEN 'job'::text THEN '{"input": null, "queue": null, "schedule_interval": null, "cron": null, "timezone": null,
            "initial_start": null, "fixed_schedule": true, "max_runtime": "00:00:00", "max_retries": null,
            "retry_period": "00:05:00", "crash_wait": "00:05:00", "config": null, "check_config": null, "group": null,
            "max": null, "active": null, "live": null, "count": null, "timeout": null, "remote": null, "atomic": false,
            "priority": 0, "threshold": null}'::text WHEN 'timer'::text THEN '{"start": null, "stop": null, "period": null, "cron": null, "timezone": "UTC", "shift": "00:00:00",
            "catchup": "last", "catchup_age": null}'::text WHEN 'edge'::text THEN '{"from_job": null, "from_timer": null, "on": "success", "shift": "00:00:00", "first": false}'::text ELSE NULL::text END)::jsonb;

--
-- Name: FUNCTION document_columns(part text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.document_columns(part text) IS 'pgmill: the keys of a part of a document, with their defaults';

--
-- Name: end_idle_level(bigint[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.end_idle_level(runs bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    moment timestamptz := mill.now();
    jobs int[];
    ats timestamptz[];
    epochs int[];
    counted bool[];
BEGIN
    WITH ended AS (
        UPDATE mill_private.run u SET outcome = CASE WHEN u.reason = 'skipped' THEN 'skipped' ELSE 'succeeded' END, start = clock_timestamp(),
               stop = clock_timestamp(), error = NULL WHERE u.id = ANY (runs) AND u.outcome IS NULL
        RETURNING u.job, u.at, COALESCE(u.epoch, 0) AS epoch, u.reason IS NULL AS counted)
    SELECT array_agg(e.job), array_agg(e.at), array_agg(e.epoch), array_agg(e.counted) INTO jobs, ats, epochs, counted FROM ended e;
    IF jobs IS NULL THEN
        RETURN;
    END IF;
    PERFORM mill_private.lock_job_state(u.job) FROM (SELECT DISTINCT n AS job FROM unnest(jobs) AS n ORDER BY 1) AS u;
    UPDATE mill_private.job_state s SET total_runs = s.total_runs + u.n, total_successes = s.total_successes + u.n, consecutive_failures = 0,
           last_start = GREATEST(s.last_start, moment), last_finish = GREATEST(s.last_finish, moment),
           last_successful_finish = GREATEST(s.last_successful_finish, moment), last_run_success = true
      FROM (SELECT c.job, count(*) AS n FROM unnest(jobs, counted) AS c (job, counted) WHERE c.counted GROUP BY 1) AS u
     WHERE s.job = u.job;
    PERFORM mill_private.finish_activations(jobs, ats, epochs);
END
$$;

--
-- Name: FUNCTION end_idle_level(runs bigint[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.end_idle_level(runs bigint[]) IS 'pgmill: ends runs that need no worker, together';

--
-- Name: end_idle_run(bigint); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.end_idle_run(run bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    r mill_private.run;
    pause interval := interval '30 s';
BEGIN
    UPDATE mill_private.run u SET outcome = CASE WHEN u.reason = 'skipped' THEN 'skipped' ELSE 'succeeded' END,
           start = CASE WHEN u.reason IS NULL THEN clock_timestamp() END, stop = clock_timestamp(), error = NULL
     WHERE u.id = end_idle_run.run AND u.outcome IS NULL RETURNING * INTO r;
    IF FOUND THEN
        PERFORM mill_private.settle_run(r, true, false);
    END IF;
EXCEPTION WHEN OTHERS THEN
    -- Only keepers of the graph call this, and owners of jobs trust them. A serialization failure or a deadlock (40001, 40P01) is
    -- retried sooner.
    IF SQLSTATE IN ('40001', '40P01') THEN
        pause := interval '200 ms';
    END IF;
    UPDATE mill_private.run u SET error = SQLERRM, due = mill.now() + pause WHERE u.id = end_idle_run.run;
END
$$;

--
-- Name: FUNCTION end_idle_run(run bigint); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.end_idle_run(run bigint) IS 'pgmill: ends one run that needs no worker';

--
-- Name: end_idle_runs(integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.end_idle_runs(most integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    moment timestamptz := mill.now();
    level bigint[];
    single bigint[];
BEGIN
    WITH idle AS (
        SELECT n.id, n.job, n.at FROM mill_private.run n
         WHERE n.queue = 0 AND n.ordered AND NOT n.held AND n.outcome IS NULL AND n.due <= moment
         ORDER BY n.due, n.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED)
    SELECT array_agg(i.id ORDER BY i.job, i.at, i.id) FILTER (WHERE NOT d.plans), array_agg(i.id ORDER BY i.job, i.at, i.id) FILTER (WHERE d.plans)
      INTO level, single
      FROM idle i, LATERAL (SELECT COALESCE(bool_or(mill_private.has_schedule(j)), true) AS plans FROM mill.job j WHERE j.id = i.job) AS d;
    IF level IS NOT NULL THEN
        BEGIN
            PERFORM mill_private.end_idle_level(level);
        EXCEPTION WHEN OTHERS THEN
            -- One run whose end is refused must not keep the others from theirs.
            PERFORM mill_private.end_idle_run(u) FROM unnest(level) AS u;
        END;
    END IF;
    PERFORM mill_private.end_idle_run(u) FROM unnest(single) AS u;
    RETURN COALESCE(cardinality(level), 0) + COALESCE(cardinality(single), 0);
END
$$;

--
-- Name: FUNCTION end_idle_runs(most integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.end_idle_runs(most integer) IS 'pgmill: ends runs that need no worker and are due, up to a number; returns how many';

--
-- Name: end_run(oid, bigint, bigint, text, timestamp with time zone, text, text, text, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.end_run(relid oid, run bigint, task bigint, state text, began timestamp with time zone, reason text, error text, output text, code text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
#variable_conflict use_variable
DECLARE
    ended record;
    whole mill_private.run;
BEGIN
    UPDATE mill_private.run stored SET outcome = CASE WHEN reason IN ('crashed', 'interrupted', 'cancelled', 'skipped') THEN reason
                                                 WHEN state = 'DONE' THEN 'succeeded' ELSE 'failed' END,
           start = CASE WHEN began BETWEEN stored.start AND clock_timestamp() THEN began ELSE stored.start END,
           stop = clock_timestamp(), task = COALESCE(stored.task, task), reason = reason, error = error,
           output = output, sqlstate = CASE WHEN state <> 'DONE' AND code ~ '^[0-9A-Z]{5}$' THEN code END, recall = NULL
     WHERE stored.id = run AND stored.queue = relid AND stored.outcome IS NULL AND NOT stored.ordered
    RETURNING stored.id, stored.job, stored.at, stored.epoch, COALESCE(stored.activation, stored.id) AS root, stored.start, stored.stop INTO ended;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF state = 'DONE' AND reason IS NULL AND ended.start IS NOT NULL THEN
        -- Which run is the schedule's own is written when it is ordered, and does not change.
        INSERT INTO mill_private.job_delta (job, run, moment, lasted)
        SELECT plan.job, ended.id, ended.stop + meta_row.clock, ended.stop - ended.start FROM mill_private.job_state plan, mill.meta meta_row
         WHERE plan.job = ended.job AND plan.run IS DISTINCT FROM ended.root;
        IF FOUND THEN
            IF mill_private.finish_activation(ended.job, ended.at, ended.epoch, 'succeeded') IS NULL THEN
                -- The job was deleted meanwhile.
                PERFORM mill_private.forget_job(ended.job);
            END IF;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO whole FROM mill_private.run stored WHERE stored.id = ended.id;
    PERFORM mill_private.settle_run(whole, state = 'DONE',
                          COALESCE(reason = 'marked' OR reason = 'cancelled' AND error = 'ERROR:  task cancelled', false));
END
$_$;

--
-- Name: FUNCTION end_run(relid oid, run bigint, task bigint, state text, began timestamp with time zone, reason text, error text, output text, code text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.end_run(relid oid, run bigint, task bigint, state text, began timestamp with time zone, reason text, error text, output text, code text) IS 'pgmill: the end of a run, once';

--
-- Name: command; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.command (
    id bigint NOT NULL,
    action text NOT NULL,
    job text,
    flow text,
    timer text,
    at timestamp with time zone,
    how text,
    note text,
    made timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    made_by name NOT NULL,
    result text,
    run bigint
);

--
-- Name: TABLE command; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.command IS 'pgmill: commands of users to jobs, flows and timers; an INSERT performs one';

--
-- Name: COLUMN command.id; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.id IS 'drawn by the catalog';

--
-- Name: COLUMN command.action; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.action IS 'run, rerun, clear, cancel, skip, mark, fire, pause or resume';

--
-- Name: COLUMN command.job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.job IS 'the job that it was done to';

--
-- Name: COLUMN command.flow; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.flow IS 'the flow that it was done to';

--
-- Name: COLUMN command.timer; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.timer IS 'the timer that it was done to';

--
-- Name: COLUMN command.at; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.at IS 'the logical time';

--
-- Name: COLUMN command.how; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.how IS 'rerun: only, down or failed; mark: success or failure';

--
-- Name: COLUMN command.note; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.note IS 'for people';

--
-- Name: COLUMN command.made; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.made IS 'when it was done';

--
-- Name: COLUMN command.made_by; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.made_by IS 'the role that wrote the row, and for which it was done';

--
-- Name: COLUMN command.result; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.result IS 'what the command has done';

--
-- Name: COLUMN command.run; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.command.run IS 'the run that it has ordered or ended, if it was one run';

--
-- Name: explain_bad_command(mill.command); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.explain_bad_command(command mill.command) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION explain_bad_command(command mill.command); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.explain_bad_command(command mill.command) IS 'pgmill: why a command is refused; NULL: it is valid';

--
-- Name: explain_claimed_task(oid, bigint, text, integer, timestamp with time zone, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.explain_claimed_task(relid oid, id bigint, state text, pid integer, start timestamp with time zone, remote text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    here oid := (SELECT known.oid FROM pg_database known WHERE known.datname = current_database());
BEGIN
    RETURN CASE
        WHEN state = 'WORK' AND remote IS NOT NULL AND mill_private.is_locked(1835597833, hashtext(concat(relid, ':', id))::oid, here)
            THEN 'remote not reachable, outcome unknown'
        WHEN state = 'WORK' AND remote IS NOT NULL AND pid IS NULL THEN format('connecting to its remote since %s', start)
        WHEN state = 'WORK' AND remote IS NOT NULL THEN format('running on its remote since %s (backend pid %s)', start, pid)
        WHEN NOT mill_private.is_locked(1835597826, relid, here)
            THEN format('%s when its scheduler ended: it is planned again once a scheduler serves %s',
                        CASE state WHEN 'TAKE' THEN 'claimed' ELSE 'running' END, relid::regclass)
        WHEN state = 'TAKE' THEN 'claimed and about to start: if nothing starts it, it is planned again within a minute'
        WHEN NOT EXISTS (SELECT FROM pg_stat_activity backend
                          WHERE backend.pid = explain_claimed_task.pid AND COALESCE(backend.backend_start <= start, true))
            THEN format('state is WORK, but backend pid %s does not run it: it is planned again within a minute', COALESCE(pid::text, '(none)'))
        ELSE format('running since %s (backend pid %s)', start, pid) END;
END
$$;

--
-- Name: FUNCTION explain_claimed_task(relid oid, id bigint, state text, pid integer, start timestamp with time zone, remote text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.explain_claimed_task(relid oid, id bigint, state text, pid integer, start timestamp with time zone, remote text) IS 'pgmill: describes a task that is claimed or running, in one sentence';

--
-- Name: explain_no_keeper(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.explain_no_keeper() RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN 'no scheduler fires timers and moves tokens: is the launcher running? the user of a queue does so if it owns the catalog, or after: '
        || 'SELECT mill.admit(''ROLE'', keeps => true)';
END
$$;

--
-- Name: FUNCTION explain_no_keeper(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.explain_no_keeper() IS 'pgmill: why timers do not fire and tokens do not move';

--
-- Name: export_row(text, jsonb); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.export_row(kind text, fields jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT COALESCE(jsonb_object_agg(k.key, k.value), '{}') FROM jsonb_each(fields) AS k
     WHERE k.key IN ('name', 'job') OR (mill_private.document_columns(kind) ? k.key AND mill_private.document_columns(kind) -> k.key IS DISTINCT FROM k.value)
$$;

--
-- Name: FUNCTION export_row(kind text, fields jsonb); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.export_row(kind text, fields jsonb) IS 'pgmill: the columns of a row that differ from the defaults of a document';

--
-- Name: fill_next_start(oid, integer, bigint, timestamp with time zone, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.fill_next_start(relid oid, job integer, stamp bigint, next timestamp with time zone, wrong text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION fill_next_start(relid oid, job integer, stamp bigint, next timestamp with time zone, wrong text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.fill_next_start(relid oid, job integer, stamp bigint, next timestamp with time zone, wrong text) IS 'pgmill: the next start of a job, computed by its scheduler';

--
-- Name: find_stash(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.find_stash(OUT job integer, OUT at timestamp with time zone, OUT entry text) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION find_stash(OUT job integer, OUT at timestamp with time zone, OUT entry text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.find_stash(OUT job integer, OUT at timestamp with time zone, OUT entry text) IS 'pgmill: job and logical time of this session''s run, and how the entry points of its queue begin';

--
-- Name: find_stash_place(oid, integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.find_stash_place(relid oid, job integer, OUT flow text, OUT alone integer) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION find_stash_place(relid oid, job integer, OUT flow text, OUT alone integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.find_stash_place(relid oid, job integer, OUT flow text, OUT alone integer) IS 'pgmill: the flow, or the job without one, for which a run of this queue stashes';

--
-- Name: find_zone_change(timestamp with time zone, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.find_zone_change(moment timestamp with time zone, zone text) RETURNS timestamp with time zone
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    low timestamptz := date_trunc('second', moment, 'UTC') - interval '26 hours';
    seconds int := 26 * 3600;
    half int;
    before interval := mill_private.zone_offset(low, zone);
BEGIN
    IF before = mill_private.zone_offset(moment, zone) THEN
        RETURN NULL;
    END IF;
    WHILE seconds > 1 LOOP
        half := seconds / 2;
        IF mill_private.zone_offset(low + half * interval '1 second', zone) = before THEN
            low := low + half * interval '1 second';
            seconds := seconds - half;
        ELSE
            seconds := half;
        END IF;
    END LOOP;
    RETURN low + interval '1 second';
END
$$;

--
-- Name: FUNCTION find_zone_change(moment timestamp with time zone, zone text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.find_zone_change(moment timestamp with time zone, zone text) IS 'pgmill: the change of a zone''s clock within the 26 hours up to a moment; NULL if there was none';

--
-- Name: finish_activation(integer, timestamp with time zone, integer, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.finish_activation(job integer, at timestamp with time zone, epoch integer, outcome text) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    kind text := CASE outcome WHEN 'succeeded' THEN 'success' ELSE 'failure' END;
    ways record;
    mine record;
    arrived mill.token;
    job_row mill.job;
    single bool := false;
    enough bool;
    counts bool;
    fills bool;
    done int := 0;
BEGIN
    SELECT source.name, source.flow, one_flow.parallel IS NOT NULL AS counts, outgoing.* INTO ways
      FROM mill.job source LEFT JOIN mill.flow one_flow ON one_flow.name = source.flow, LATERAL (
        SELECT count(*) AS n, min(edge_out.id) AS edge, min(successor.id) AS target, bool_or(edge_out.shift <> interval '0') AS shifted,
               bool_or(successor.flow IS DISTINCT FROM source.flow) AS abroad
          FROM mill.edge edge_out JOIN mill.job successor ON successor.name = edge_out.job
         WHERE edge_out.from_job = source.name AND edge_out."on" IN (kind, 'done')) AS outgoing
     WHERE source.id = finish_activation.job;
    IF ways.n IS NULL THEN
        RETURN NULL;
    ELSIF ways.n > 0 AND at IS NOT NULL THEN
        IF ways.abroad THEN
            PERFORM mill_private.lock_flows((SELECT array_agg(DISTINCT one_flow) FROM mill.edge edge_out JOIN mill.job successor ON successor.name = edge_out.job,
                LATERAL unnest(ARRAY[successor.flow, ways.flow]) AS one_flow WHERE edge_out.from_job = ways.name AND edge_out."on" IN (kind, 'done')));
        ELSIF ways.counts THEN
            PERFORM mill_private.lock_flows(ARRAY[ways.flow]);
        ELSIF NOT pg_try_advisory_xact_lock_shared(1835597834, hashtext(COALESCE(ways.flow, ''))) THEN
            PERFORM mill_private.lock_flows(ARRAY[ways.flow]);
        END IF;
        single := ways.n = 1 AND NOT ways.shifted;
        IF single THEN
            -- One edge needs one INSERT. A run that was overtaken by clear or rerun delivers nothing.
            INSERT INTO mill.token AS stored (job, at, waiting, delivered, since, low)
            SELECT ways.target, finish_activation.at, ARRAY[ways.edge], ARRAY[ways.edge], clock_timestamp(), COALESCE(own.low, false)
              FROM (SELECT) AS one LEFT JOIN mill.token own ON own.job = finish_activation.job AND own.at = finish_activation.at
             WHERE COALESCE(own.epoch, 0) = COALESCE(finish_activation.epoch, 0)
            ON CONFLICT ON CONSTRAINT token_pkey DO UPDATE SET waiting = stored.waiting || EXCLUDED.delivered,
                delivered = stored.delivered || EXCLUDED.delivered, since = COALESCE(stored.since, clock_timestamp()), low = stored.low AND EXCLUDED.low,
                touched = CASE WHEN stored.touched < EXCLUDED.touched - interval '10 s' THEN EXCLUDED.touched ELSE stored.touched END
            RETURNING stored.* INTO arrived;
        ELSE
            SELECT stored.epoch, stored.low INTO mine FROM mill.token stored WHERE stored.job = finish_activation.job AND stored.at = finish_activation.at;
            IF COALESCE(finish_activation.epoch, 0) = COALESCE(mine.epoch, 0) THEN
                done := mill_private.deliver_tokens(false, ARRAY[ways.name], ARRAY[finish_activation.at], ARRAY[kind], ARRAY[COALESCE(mine.low, false)]);
            END IF;
        END IF;
    END IF;
    IF single OR ways.flow IS NOT NULL THEN
        -- Read under the locks of the flow and the token: a back-fill may wait for the end of this time, another run for the place. Fewer
        -- tokens than there are edges that must deliver are never enough.
        SELECT EXISTS (SELECT FROM mill.backfill open_backfill WHERE open_backfill.finished IS NULL),
               EXISTS (SELECT FROM mill.flow one_flow WHERE one_flow.name = ways.flow AND one_flow.parallel IS NOT NULL),
               (SELECT cardinality(arrived.waiting) >= COALESCE(successor.threshold, (SELECT count(*) FROM mill.edge edge_out
                           WHERE edge_out.job = successor.name AND edge_out."on" <> 'failure' AND NOT edge_out.first))
                  FROM mill.job successor WHERE successor.id = arrived.job)
          INTO fills, counts, enough;
        IF enough THEN
            SELECT successor.* INTO job_row FROM mill.job successor WHERE successor.id = arrived.job;
            done := mill_private.consume_tokens(arrived, job_row);
        END IF;
        IF fills AND ways.flow IS NOT NULL AND at IS NOT NULL THEN
            -- 0 is the keeper
            PERFORM mill_private.wake_scheduler(0);
        END IF;
        IF counts THEN
            PERFORM mill_private.release_flow_runs(ways.flow);
        END IF;
    END IF;
    RETURN done;
END
$$;

--
-- Name: FUNCTION finish_activation(job integer, at timestamp with time zone, epoch integer, outcome text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.finish_activation(job integer, at timestamp with time zone, epoch integer, outcome text) IS 'pgmill: the end of an activation: delivers tokens and frees the place in the flow';

--
-- Name: finish_activations(integer[], timestamp with time zone[], integer[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.finish_activations(jobs integer[], ats timestamp with time zone[], epochs integer[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    flows text[];
    own text[] := (SELECT array_agg(DISTINCT j.flow) FROM mill.job j WHERE j.id = ANY (jobs));
    names text[];
    times timestamptz[];
    lows bool[];
BEGIN
    SELECT array_agg(DISTINCT t.flow) INTO flows FROM mill.job j JOIN mill.edge e ON e.from_job = j.name AND e."on" IN ('success', 'done')
      JOIN mill.job t ON t.name = e.job WHERE j.id = ANY (jobs);
    IF flows IS NOT NULL THEN
        PERFORM mill_private.lock_flows(flows || own);
        -- LATERAL with LIMIT 1: one index scan per run, even if this was planned while there were few tokens.
        SELECT array_agg(j.name ORDER BY j.id, u.at), array_agg(u.at ORDER BY j.id, u.at), array_agg(COALESCE(k.low, false) ORDER BY j.id, u.at)
          INTO names, times, lows
          FROM unnest(jobs, ats, epochs) AS u (job, at, epoch) JOIN mill.job j ON j.id = u.job
          LEFT JOIN LATERAL (SELECT n.low, n.epoch FROM mill.token n WHERE n.job = u.job AND n.at = u.at LIMIT 1) AS k ON true
         WHERE u.epoch = COALESCE(k.epoch, 0);
        IF names IS NOT NULL THEN
            PERFORM mill_private.deliver_tokens(false, names, times, array_fill('success'::text, ARRAY[cardinality(names)]), lows);
        END IF;
    END IF;
    PERFORM mill_private.release_flow_runs(f.name) FROM mill.flow f WHERE f.name = ANY (own) AND f.parallel IS NOT NULL;
END
$$;

--
-- Name: FUNCTION finish_activations(jobs integer[], ats timestamp with time zone[], epochs integer[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.finish_activations(jobs integer[], ats timestamp with time zone[], epochs integer[]) IS 'pgmill: the end of activations that have succeeded together';

--
-- Name: timer; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.timer (
    id integer NOT NULL,
    name text NOT NULL,
    flow text,
    start timestamp with time zone NOT NULL,
    stop timestamp with time zone,
    period interval,
    cron text,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    shift interval DEFAULT '00:00:00'::interval NOT NULL,
    catchup text DEFAULT 'last'::text NOT NULL,
    catchup_age interval,
    enabled boolean DEFAULT true NOT NULL,
    first timestamp with time zone,
    last timestamp with time zone,
    next timestamp with time zone,
    due timestamp with time zone,
    skipped bigint DEFAULT 0 NOT NULL,
    trouble text,
    stale text DEFAULT 'new'::text,
    revision integer DEFAULT 0 NOT NULL,
    owner name DEFAULT CURRENT_USER NOT NULL
);

--
-- Name: TABLE timer; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.timer IS 'pgmill: clocks; each of their logical times delivers a token along every edge that begins here';

--
-- Name: COLUMN timer.id; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.id IS 'drawn by the catalog';

--
-- Name: COLUMN timer.name; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.name IS 'unique; edges name timers by it';

--
-- Name: COLUMN timer.flow; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.flow IS 'the flow whose document it belongs to; a paused flow stops it';

--
-- Name: COLUMN timer.start; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.start IS 'the first possible time; times are counted from here';

--
-- Name: COLUMN timer.stop; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.stop IS 'no time from here on';

--
-- Name: COLUMN timer.period; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.period IS 'the k-th time is start + k * period in its zone; or cron';

--
-- Name: COLUMN timer.cron; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.cron IS 'five fields, or six with seconds, in its zone; or period';

--
-- Name: COLUMN timer.timezone; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.timezone IS 'whose wall clock counts';

--
-- Name: COLUMN timer.shift; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.shift IS 'it fires at logical time + shift; may be negative';

--
-- Name: COLUMN timer.catchup; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.catchup IS 'missed times: none, last (only the newest), or all of them: earliest, latest, random';

--
-- Name: COLUMN timer.catchup_age; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.catchup_age IS 'missed times that are older than this are skipped';

--
-- Name: COLUMN timer.enabled; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.enabled IS 'false: it does not fire';

--
-- Name: COLUMN timer.first; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.first IS 'kept by the scheduler: the smallest logical time that it has fired';

--
-- Name: COLUMN timer.last; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.last IS 'kept by the scheduler: the greatest logical time that it has fired';

--
-- Name: COLUMN timer.next; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.next IS 'kept by the scheduler: the logical time that comes next; NULL when none is left';

--
-- Name: COLUMN timer.due; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.due IS 'kept by the scheduler: when that time fires; NULL when none is left, or disabled';

--
-- Name: COLUMN timer.skipped; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.skipped IS 'kept by the scheduler: missed times that were left out';

--
-- Name: COLUMN timer.trouble; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.trouble IS 'kept by the scheduler: why it cannot be served';

--
-- Name: COLUMN timer.stale; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.stale IS 'its next time is to be computed: new, or edited';

--
-- Name: COLUMN timer.revision; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.revision IS 'rises with every edit';

--
-- Name: COLUMN timer.owner; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.timer.owner IS 'the role whose members may change and fire it';

--
-- Name: fire_and_finish(mill.timer, timestamp with time zone[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.fire_and_finish(t mill.timer, times timestamp with time zone[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    room int := mill_private.count_free_times(t.name);
BEGIN
    PERFORM mill_private.fire_times(array_fill(t.name, ARRAY[cardinality(times)]), times, 'filled');
    -- up to 100 levels of the graph, 1000 runs each
    FOR level IN 1..100 LOOP
        EXIT WHEN mill_private.end_idle_runs(1000) = 0;
    END LOOP;
    IF mill_private.count_free_times(t.name) < LEAST(room, 1) THEN
        RAISE EXCEPTION 'more than the window';
    END IF;
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END
$$;

--
-- Name: FUNCTION fire_and_finish(t mill.timer, times timestamp with time zone[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.fire_and_finish(t mill.timer, times timestamp with time zone[]) IS 'pgmill: fires logical times of a timer and ends all that follows from them';

--
-- Name: fire_times(text[], timestamp with time zone[], text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.fire_times(names text[], times timestamp with time zone[], how text) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    PERFORM mill_private.lock_flows((SELECT array_agg(DISTINCT j.flow) FROM (SELECT DISTINCT u AS name FROM unnest(names) AS u) AS n
                          JOIN mill.edge e ON e.from_timer = n.name JOIN mill.job j ON j.name = e.job));
    INSERT INTO mill.fired AS f (timer, at, live, filled, by_hand, revision)
    SELECT t.id, u.at, (how = 'live')::int, (how = 'filled')::int, (how = 'by_hand')::int, t.revision
      FROM unnest(names, times) AS u (name, at) JOIN mill.timer t ON t.name = u.name ORDER BY t.id, u.at
    ON CONFLICT ON CONSTRAINT fired_pkey DO UPDATE SET live = f.live + EXCLUDED.live, filled = f.filled + EXCLUDED.filled,
        by_hand = f.by_hand + EXCLUDED.by_hand, revision = EXCLUDED.revision;
    RETURN mill_private.deliver_tokens(true, names, times, NULL, array_fill(how = 'filled', ARRAY[cardinality(names)]));
END
$$;

--
-- Name: FUNCTION fire_times(names text[], times timestamp with time zone[], how text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.fire_times(names text[], times timestamp with time zone[], how text) IS 'pgmill: fires logical times of timers: notes them in mill.fired and delivers their tokens';

--
-- Name: first_moment(timestamp without time zone, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.first_moment(wall timestamp without time zone, zone text) RETURNS timestamp with time zone
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    guess timestamptz := timezone(zone, wall);
    change timestamptz := mill_private.find_zone_change(guess, zone);
    before timestamptz;
BEGIN
    IF change IS NULL THEN
        RETURN guess;
    END IF;
    before := timezone('UTC', wall - mill_private.zone_offset(change - interval '1 second', zone));
    IF before < change THEN
        RETURN before;
    END IF;
    RETURN GREATEST(change, timezone('UTC', wall - mill_private.zone_offset(change, zone)));
END
$$;

--
-- Name: FUNCTION first_moment(wall timestamp without time zone, zone text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.first_moment(wall timestamp without time zone, zone text) IS 'pgmill: the first moment at which a zone''s clock shows a time or has gone past it';

--
-- Name: follow_clock_change(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.follow_clock_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM mill_private.bump_version(q.relid) FROM mill.queue q;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION follow_clock_change(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.follow_clock_change() IS 'pgmill: wakes all schedulers after the clock was moved';

--
-- Name: follow_flow_change(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.follow_flow_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    jobs int[] := (SELECT array_agg(j.id ORDER BY j.id) FROM mill.job j WHERE j.flow = NEW.name);
BEGIN
    PERFORM mill_private.lock_flows(ARRAY[NEW.name], true);
    IF jobs IS NULL THEN
        RETURN NULL;
    ELSIF NEW.paused AND NOT OLD.paused THEN
        PERFORM mill_private.hold_runs(jobs, true);
    ELSIF NOT NEW.paused THEN
        PERFORM mill_private.release_flow_runs(NEW.name);
        IF OLD.paused THEN
            PERFORM mill_private.reconsider_tokens(jobs);
        END IF;
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION follow_flow_change(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.follow_flow_change() IS 'pgmill: holds or releases the runs of a flow when it is paused, resumed or limited otherwise';

--
-- Name: follow_job_change(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.follow_job_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    relid oid;
    moment timestamptz := mill.now();
    stat mill_private.job_state;
    resumed bool;
    moved bool;
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM mill_private.bump_version(stored.queue) FROM mill_private.job_state stored WHERE stored.job = OLD.id;
        -- Its scheduler ends a run that is under way. This transaction does not wait for that.
        PERFORM mill_private.cancel_waiting_runs(OLD.id);
        PERFORM mill_private.forget_job(OLD.id);
        RETURN NULL;
    END IF;
    relid := mill_private.queue_oid(NEW.queue);
    IF TG_OP = 'INSERT' THEN
        INSERT INTO mill_private.job_state (job, queue, scheduled, next_start, fill)
        VALUES (NEW.id, relid, NEW.scheduled, mill_private.compute_first_start(NEW, moment), NEW.cron IS NOT NULL)
        ON CONFLICT (job) DO UPDATE SET (last_start, last_finish, last_successful_finish, last_run_success, next_start,
            total_runs, total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes,
            total_duration, total_duration_failures, reason, queue, scheduled, run, fill, stamp)
            = (NULL, NULL, NULL, NULL, EXCLUDED.next_start, 0, 0, 0, 0, 0, 0, '0', '0', NULL, EXCLUDED.queue,
               EXCLUDED.scheduled, NULL, EXCLUDED.fill, job_state.stamp + 1);
        PERFORM mill_private.bump_version(relid);
        RETURN NULL;
    END IF;
    moved := (NEW.schedule_interval, NEW.cron, NEW.timezone, NEW.initial_start, NEW.fixed_schedule)
        IS DISTINCT FROM (OLD.schedule_interval, OLD.cron, OLD.timezone, OLD.initial_start, OLD.fixed_schedule);
    resumed := NEW.scheduled AND NOT OLD.scheduled;
    -- The deltas are added only where numbers are read. `settle_run`, which pauses a job in the middle of an end, has read them.
    IF resumed OR moved THEN
        stat := mill_private.lock_job_state(NEW.id);
    ELSE
        SELECT * INTO stat FROM mill_private.job_state stored WHERE stored.job = NEW.id FOR NO KEY UPDATE;
    END IF;
    IF NEW.owner IS DISTINCT FROM OLD.owner THEN
        UPDATE mill_private.run one_run SET owner = NEW.owner WHERE one_run.job = NEW.id;
    END IF;
    IF stat.queue IS DISTINCT FROM relid THEN
        PERFORM mill_private.bump_version(stat.queue);
        stat.queue := relid;
    END IF;
    IF resumed THEN
        stat.consecutive_failures := 0;
        stat.consecutive_crashes := 0;
        stat.reason := NULL;
        -- Starts that were missed while it was paused are skipped; a job without a fixed schedule is just late.
        moved := moved OR stat.next_start IS NULL OR (NEW.fixed_schedule AND stat.next_start < moment AND stat.last_start IS NOT NULL);
    ELSIF NOT NEW.scheduled AND OLD.scheduled THEN
        stat.reason := NULL;
    END IF;
    stat.scheduled := NEW.scheduled;
    IF moved AND stat.run IS NULL THEN
        stat.fill := NEW.cron IS NOT NULL;
        stat.next_start := CASE WHEN stat.last_start IS NULL THEN mill_private.compute_first_start(NEW, moment)
                                ELSE mill_private.compute_next_start(NEW, stat.last_finish, moment) END;
    END IF;
    UPDATE mill_private.job_state stored SET (queue, scheduled, reason, consecutive_failures, consecutive_crashes, fill, next_start, stamp)
        = (stat.queue, stat.scheduled, stat.reason, stat.consecutive_failures, stat.consecutive_crashes, stat.fill,
           stat.next_start, stat.stamp + 1)
     WHERE stored.job = NEW.id;
    IF NEW.scheduled IS DISTINCT FROM OLD.scheduled THEN
        PERFORM mill_private.hold_job_runs(NEW.id, NOT NEW.scheduled);
    END IF;
    PERFORM mill_private.bump_version(relid);
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION follow_job_change(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.follow_job_change() IS 'pgmill: applies a change of a job to job_state and its runs, and wakes its scheduler';

--
-- Name: forget_edge_tokens(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.forget_edge_tokens() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    target int := (SELECT j.id FROM mill.job j WHERE j.name = OLD.job);
BEGIN
    IF target IS NULL OR EXISTS (SELECT FROM mill.edge WHERE id = OLD.id) THEN
        RETURN NULL;
    END IF;
    UPDATE mill.token k SET waiting = array_remove(k.waiting, OLD.id), delivered = array_remove(k.delivered, OLD.id),
           consumed = array_remove(k.consumed, OLD.id), since = CASE WHEN array_remove(k.waiting, OLD.id) <> '{}' THEN k.since END
     WHERE k.job = target AND k.delivered @> ARRAY[OLD.id];
    PERFORM mill_private.reconsider_tokens(ARRAY[target]);
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION forget_edge_tokens(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.forget_edge_tokens() IS 'pgmill: a deleted edge takes its tokens along; the rest may be enough for an activation';

--
-- Name: forget_job(integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.forget_job(job integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    DELETE FROM mill_private.job_state b
     WHERE b.job IN (SELECT f.job FROM mill_private.job_state f WHERE f.job = forget_job.job FOR UPDATE SKIP LOCKED);
    IF EXISTS (SELECT FROM mill_private.job_state b WHERE b.job = forget_job.job)
        OR EXISTS (SELECT FROM mill_private.run r WHERE r.job = forget_job.job AND r.outcome IS NULL AND r.start IS NOT NULL) THEN
        INSERT INTO mill_private.job_delta (job, run, moment, gone) VALUES (forget_job.job, 0, clock_timestamp(), true) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM mill_private.job_delta t
         WHERE t.job = forget_job.job AND t.run = ANY (ARRAY(SELECT f.run FROM mill_private.job_delta f WHERE f.job = forget_job.job FOR UPDATE SKIP LOCKED));
        PERFORM mill_private.cancel_waiting_runs(job);
    END IF;
END
$$;

--
-- Name: FUNCTION forget_job(job integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.forget_job(job integer) IS 'pgmill: deletes the numbers of a deleted job and closes its runs that have not begun';

--
-- Name: free_flow_place(mill.job); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.free_flow_place(j mill.job) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM mill.flow f WHERE f.name = j.flow AND f.parallel IS NOT NULL) THEN
        PERFORM mill_private.release_flow_runs(j.flow);
    END IF;
END
$$;

--
-- Name: FUNCTION free_flow_place(j mill.job); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.free_flow_place(j mill.job) IS 'pgmill: a run of a job has ended, finally or not: its place in the flow is free';

--
-- Name: free_places(text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.free_places(flow text) RETURNS integer
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    most int := (SELECT f.parallel FROM mill.flow f WHERE f.name = free_places.flow);
BEGIN
    IF most IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN GREATEST(most - (SELECT count(*) FROM mill.job j JOIN mill_private.run r ON r.job = j.id
                             WHERE j.flow = free_places.flow AND r.outcome IS NULL AND r.queue <> 0 AND NOT r.held), 0);
END
$$;

--
-- Name: FUNCTION free_places(flow text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.free_places(flow text) IS 'pgmill: how many more runs of a flow may start; NULL: no limit';

--
-- Name: get_first_time(mill.timer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.get_first_time(t mill.timer) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT LEAST(t.first, t.next, CASE WHEN t.catchup IN ('earliest', 'latest', 'random') THEN t.start END,
                 (SELECT min(b.lo) FROM mill.backfill b WHERE b.timer = t.name))
$$;

--
-- Name: FUNCTION get_first_time(t mill.timer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.get_first_time(t mill.timer) IS 'pgmill: the smallest logical time that a timer has fired or will fire';

--
-- Name: get_job_zone(text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.get_job_zone(job text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    SELECT CASE WHEN count(DISTINCT t.timezone) = 1 THEN min(t.timezone) ELSE 'UTC' END FROM mill_private.list_upstream_timers($1) t
$_$;

--
-- Name: FUNCTION get_job_zone(job text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.get_job_zone(job text) IS 'pgmill: the time zone of a job''s logical times: that of its timers if they have one in common, else UTC';

--
-- Name: get_retention(integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.get_retention(job integer) RETURNS interval
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN COALESCE((SELECT f.keep FROM mill.job j JOIN mill.flow f ON f.name = j.flow WHERE j.id = get_retention.job), interval '1 month');
END
$$;

--
-- Name: FUNCTION get_retention(job integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.get_retention(job integer) IS 'pgmill: how long runs and tokens of a job are kept';

--
-- Name: get_stash(oid, integer, timestamp with time zone, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.get_stash(relid oid, job integer, at timestamp with time zone, key text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    p record;
BEGIN
    SELECT * INTO p FROM mill_private.find_stash_place(relid, job);
    RETURN (SELECT s.value FROM mill_private.stash s WHERE COALESCE(s.flow, '') = COALESCE(p.flow, '') AND COALESCE(s.job, 0) = COALESCE(p.alone, 0)
               AND s.at = get_stash.at AND s.key = get_stash.key);
END
$$;

--
-- Name: FUNCTION get_stash(relid oid, job integer, at timestamp with time zone, key text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.get_stash(relid oid, job integer, at timestamp with time zone, key text) IS 'pgmill: reads a stashed value';

--
-- Name: grant_levels(name, text[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.grant_levels(role name, levels text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    line record;
BEGIN
    FOR line IN SELECT l.rights, l.object FROM mill_private.grant_list l WHERE l.level = ANY (levels) ORDER BY l.object LOOP
        EXECUTE format('GRANT %s ON %s TO %I', line.rights, line.object, role);
    END LOOP;
END
$$;

--
-- Name: FUNCTION grant_levels(role name, levels text[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.grant_levels(role name, levels text[]) IS 'pgmill: grants what the list has for these levels';

--
-- Name: has_cycle(integer, integer[], integer[], double precision[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.has_cycle(n integer, source integer[], target integer[], weight double precision[]) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    distance float8[] := array_fill(0::float8, ARRAY[n]);
    changed bool;
    through float8;
BEGIN
    FOR round IN 1..n LOOP
        changed := false;
        FOR i IN 1..cardinality(source) LOOP
            through := distance[source[i]] + weight[i];
            IF through < distance[target[i]] - 0.0000001 THEN
                distance[target[i]] := through;
                changed := true;
            END IF;
        END LOOP;
        EXIT WHEN NOT changed;
    END LOOP;
    RETURN changed;
END
$$;

--
-- Name: FUNCTION has_cycle(n integer, source integer[], target integer[], weight double precision[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.has_cycle(n integer, source integer[], target integer[], weight double precision[]) IS 'pgmill: whether a graph has a cycle with a negative sum of weights (Bellman-Ford)';

--
-- Name: has_schedule(mill.job); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.has_schedule(job mill.job) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN (((job).schedule_interval IS NOT NULL) OR ((job).cron IS NOT NULL));

--
-- Name: FUNCTION has_schedule(job mill.job); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.has_schedule(job mill.job) IS 'pgmill: whether a job has a schedule of its own: an interval or cron';

--
-- Name: hold_job_runs(integer, boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.hold_job_runs(job integer, hold boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    j mill.job := (SELECT f FROM mill.job f WHERE f.id = hold_job_runs.job);
BEGIN
    IF hold OR mill_private.may_start(j) THEN
        PERFORM mill_private.hold_runs(ARRAY[job], hold);
    END IF;
END
$$;

--
-- Name: FUNCTION hold_job_runs(job integer, hold boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.hold_job_runs(job integer, hold boolean) IS 'pgmill: holds the runs of a job that have not begun, or releases them';

--
-- Name: hold_runs(integer[], boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.hold_runs(jobs integer[], hold boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    places oid[];
    place oid;
BEGIN
    IF hold THEN
        WITH waiting AS (
            SELECT r.id FROM mill_private.run r
             WHERE r.job = ANY (jobs) AND r.outcome IS NULL AND r.start IS NULL AND NOT r.held FOR NO KEY UPDATE SKIP LOCKED
        ), changed AS (
            UPDATE mill_private.run r SET held = true, recall = CASE WHEN NOT r.ordered THEN 'WITHDRAW' END
              FROM waiting w WHERE r.id = w.id RETURNING r.queue)
        SELECT array_agg(DISTINCT c.queue) INTO places FROM changed c;
    ELSE
        WITH changed AS (
            UPDATE mill_private.run r SET held = false, failures = 0, recall = NULL
             WHERE r.job = ANY (jobs) AND r.outcome IS NULL AND r.start IS NULL AND r.held RETURNING r.queue)
        SELECT array_agg(DISTINCT c.queue) INTO places FROM changed c;
    END IF;
    FOREACH place IN ARRAY COALESCE(places, '{}') LOOP
        PERFORM mill_private.wake_scheduler(place);
    END LOOP;
END
$$;

--
-- Name: FUNCTION hold_runs(jobs integer[], hold boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.hold_runs(jobs integer[], hold boolean) IS 'pgmill: holds the runs of jobs that have not begun, or releases them';

--
-- Name: insert_runs(oid, integer, bigint); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.insert_runs(relid oid, most integer, single bigint) RETURNS TABLE(run bigint, job integer, at timestamp with time zone, epoch integer, run_of bigint, failures integer, attempt integer, priority integer, due timestamp with time zone, input text, active interval, live interval, timeout interval, count integer, max integer, "group" text, remote text, atomic boolean)
    LANGUAGE plpgsql ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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
$$;

--
-- Name: FUNCTION insert_runs(relid oid, most integer, single bigint); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.insert_runs(relid oid, most integer, single bigint) IS 'pgmill: the runs whose rows the scheduler inserts into its queue now';

--
-- Name: is_before_first(mill.edge, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.is_before_first(e mill.edge, at timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NOT e.first THEN
        RETURN false;
    ELSIF e.from_timer IS NOT NULL THEN
        RETURN COALESCE((SELECT mill_private.shift_time(at, - e.shift, t.timezone) < mill_private.get_first_time(t)
                           FROM mill.timer t WHERE t.name = e.from_timer), false);
    END IF;
    RETURN COALESCE(mill_private.shift_time(at, - e.shift, mill_private.get_job_zone(e.from_job))
                    < (SELECT min(mill_private.get_first_time(t)) FROM mill_private.list_upstream_timers(e.from_job) t), false);
END
$$;

--
-- Name: FUNCTION is_before_first(e mill.edge, at timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.is_before_first(e mill.edge, at timestamp with time zone) IS 'pgmill: whether an edge counts as delivered, because its source has no logical time that early';

--
-- Name: is_locked(integer, oid, oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.is_locked(kind integer, key oid, database oid) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (EXISTS (SELECT FROM pg_locks l WHERE ((l.locktype = 'advisory'::text) AND (l.database = is_locked.database) AND (l.classid = (is_locked.kind)::oid) AND (l.objid = is_locked.key) AND (l.objsubid = 2) AND l.granted AND (l.mode = 'ExclusiveLock'::text))));

--
-- Name: FUNCTION is_locked(kind integer, key oid, database oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.is_locked(kind integer, key oid, database oid) IS 'pgmill: whether an advisory lock is held exclusively: its kind, its second key, its database';

--
-- Name: is_member(name); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.is_member(role name) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (COALESCE((SELECT pg_has_role(CURRENT_USER, r.oid, 'MEMBER'::text) AS pg_has_role FROM pg_roles r WHERE (r.rolname = is_member.role)), false) OR (SELECT r.rolsuper FROM pg_roles r WHERE (r.rolname = CURRENT_USER)));

--
-- Name: FUNCTION is_member(role name); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.is_member(role name) IS 'pgmill: whether the current role is a member of this role, if that exists';

--
-- Name: is_member_of(name, name); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.is_member_of(member name, role name) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN COALESCE((SELECT (pg_has_role(m.oid, r.oid, 'MEMBER'::text) OR m.rolsuper) FROM pg_roles m, pg_roles r WHERE ((m.rolname = is_member_of.member) AND (r.rolname = is_member_of.role))), (SELECT m.rolsuper FROM pg_roles m WHERE (m.rolname = is_member_of.member)), false);

--
-- Name: FUNCTION is_member_of(member name, role name); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.is_member_of(member name, role name) IS 'pgmill: whether a role is a member of another one, which may not exist';

--
-- Name: is_overtaken(integer, timestamp with time zone, integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.is_overtaken(job integer, at timestamp with time zone, epoch integer) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN COALESCE(is_overtaken.epoch, 0)
        <> COALESCE((SELECT k.epoch FROM mill.token k WHERE k.job = is_overtaken.job AND k.at = is_overtaken.at), 0);
END
$$;

--
-- Name: FUNCTION is_overtaken(job integer, at timestamp with time zone, epoch integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.is_overtaken(job integer, at timestamp with time zone, epoch integer) IS 'pgmill: whether clear or rerun has reset the logical time of a run';

--
-- Name: is_paused(mill.job); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.is_paused(j mill.job) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN NOT j.scheduled OR (j.flow IS NOT NULL AND EXISTS (SELECT FROM mill.flow f WHERE f.name = j.flow AND f.paused));
END
$$;

--
-- Name: FUNCTION is_paused(j mill.job); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.is_paused(j mill.job) IS 'pgmill: whether a job or its flow is paused, so that its tokens wait';

--
-- Name: is_timer_paused(mill.timer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.is_timer_paused(t mill.timer) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM mill.flow f WHERE f.paused) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM mill.flow f WHERE f.name = t.flow AND f.paused)
        OR COALESCE((SELECT bool_and(COALESCE(f.paused, false)) FROM mill.edge e JOIN mill.job j ON j.name = e.job
                       LEFT JOIN mill.flow f ON f.name = j.flow WHERE e.from_timer = t.name), false);
END
$$;

--
-- Name: FUNCTION is_timer_paused(t mill.timer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.is_timer_paused(t mill.timer) IS 'pgmill: whether a timer is paused';

--
-- Name: latest_wall_time(timestamp with time zone, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.latest_wall_time(moment timestamp with time zone, zone text) RETURNS timestamp without time zone
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    change timestamptz := mill_private.find_zone_change(moment, zone);
BEGIN
    -- In an hour that is shown for the second time, that is the end of the hour.
    RETURN GREATEST(timezone(zone, moment), timezone(zone, change - interval '1 microsecond'));
END
$$;

--
-- Name: FUNCTION latest_wall_time(moment timestamp with time zone, zone text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.latest_wall_time(moment timestamp with time zone, zone text) IS 'pgmill: the latest time that a zone''s clock has shown at a moment';

--
-- Name: list_downstream(integer[], timestamp with time zone[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.list_downstream(jobs integer[], times timestamp with time zone[]) RETURNS TABLE(job integer, at timestamp with time zone)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    WITH RECURSIVE part (job, at) AS (
        SELECT * FROM unnest(jobs, times)
        UNION
        SELECT k.job, k.at FROM part p JOIN mill.job s ON s.id = p.job JOIN mill.edge e ON e.from_job = s.name
          JOIN mill.job t ON t.name = e.job
          JOIN mill.token k ON k.job = t.id
           AND k.at = CASE WHEN e.shift = interval '0' THEN p.at ELSE mill_private.shift_time(p.at, e.shift, mill_private.get_job_zone(s.name)) END)
    SELECT job, at FROM part
$$;

--
-- Name: FUNCTION list_downstream(jobs integer[], times timestamp with time zone[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.list_downstream(jobs integer[], times timestamp with time zone[]) IS 'pgmill: the part of the graph that tokens from these jobs and times have reached so far, with these';

--
-- Name: list_entry_points(oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.list_entry_points(relid oid) RETURNS TABLE(name name, arguments text, result text, body text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT concat('q', relid, '_', e.name)::name, e.arguments, e.result,
           CASE WHEN e.call IS NOT NULL THEN format(E'\n#variable_conflict use_variable\nBEGIN\n    %s;\nEND\n', format(e.call, relid))
                ELSE (SELECT replace(p.prosrc, E'\nDECLARE\n', format(E'\nDECLARE\n    relid CONSTANT oid := %s;\n', relid)) FROM pg_proc p
                       WHERE p.pronamespace = 'mill_private'::regnamespace AND p.proname = e.name) END
      FROM (VALUES
        -- reports of the row triggers
        ('begin_run', 'run bigint, task bigint, attempt int', 'bool', NULL),
        ('unbegin_run', 'run bigint', 'void', 'PERFORM mill_private.unbegin_run(%s, run)'),
        ('end_run', 'run bigint, task bigint, state text, began timestamptz, reason text, error text, output text, code text', 'void', NULL),
        -- questions and orders of the scheduler
        ('poll_jobs', 'since timestamptz, applies bool',
            'TABLE (version bigint, due_ms float8, wait_ms float8, fill bool, orders bool, recalls bool, leftover bool)',
            'RETURN QUERY SELECT * FROM mill_private.poll_jobs(%s, since, applies)'),
        ('start_jobs', 'slots int', 'TABLE (started int, until timestamptz)', 'RETURN QUERY SELECT * FROM mill_private.start_jobs(%s, slots)'),
        ('insert_runs', 'most int, single bigint', 'TABLE (run bigint, job int, at timestamptz, epoch int, run_of bigint, failures int,
            attempt int, priority int, due timestamptz, input text, active interval, live interval, timeout interval, count int, max int,
            "group" text, remote text, atomic bool)', NULL),
        ('next_order', '', 'bigint', 'RETURN mill_private.next_order(%s)'),
        ('refuse_run', 'run bigint, why text', 'void', 'PERFORM mill_private.refuse_run(%s, run, why)'),
        ('list_recalls', '', 'TABLE (run bigint, what text, reason text, error text)',
            'RETURN QUERY SELECT * FROM mill_private.list_recalls(%s)'),
        ('withdraw_runs', 'runs bigint[]', 'bigint[]', 'RETURN mill_private.withdraw_runs(%s, runs)'),
        ('list_open_runs', '', 'TABLE (run bigint, begun bool, recalled bool)',
            'RETURN QUERY SELECT * FROM mill_private.list_open_runs(%s)'),
        ('settle_missing_runs', 'missing bigint[], waiting bigint[]', 'int',
            'RETURN mill_private.settle_missing_runs(%s, missing, waiting)'),
        ('watch_jobs', 'jobs int[]', 'TABLE (job int, ms float8, scheduled bool, name text, why text)',
            'RETURN QUERY SELECT * FROM mill_private.watch_jobs(%s, jobs)'),
        ('list_unfilled_jobs', '',
            'TABLE (job int, cron text, timezone text, initial_start timestamptz, moment timestamptz, fresh bool, stamp bigint)',
            'RETURN QUERY SELECT * FROM mill_private.list_unfilled_jobs(%s)'),
        ('fill_next_start', 'job int, stamp bigint, next timestamptz, wrong text', 'void',
            'PERFORM mill_private.fill_next_start(%s, job, stamp, next, wrong)'),
        ('delete_old_runs', 'behind int', 'TABLE (tasks bigint[], runs bigint[], last int)',
            'RETURN QUERY SELECT * FROM mill_private.delete_old_runs(%s, behind)'),
        ('record_error', 'reason text', 'void', 'UPDATE mill.queue q SET trouble = reason WHERE q.relid = %s'),
        -- for the SQL of a run
        ('set_next_start', 'job int, next timestamptz', 'bool', 'RETURN mill_private.set_next_start(%s, job, next)'),
        ('get_stash', 'job int, at timestamptz, key text', 'text', 'RETURN mill_private.get_stash(%s, job, at, key)'),
        ('set_stash', 'job int, at timestamptz, key text, value text', 'void', 'PERFORM mill_private.set_stash(%s, job, at, key, value)')
      ) AS e (name, arguments, result, call)
$$;

--
-- Name: FUNCTION list_entry_points(relid oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.list_entry_points(relid oid) IS 'pgmill: the functions that the user of a queue may call';

--
-- Name: list_failed_jobs(integer[], timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.list_failed_jobs(jobs integer[], at timestamp with time zone) RETURNS integer[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN COALESCE((SELECT array_agg(l.job) FROM (
        SELECT DISTINCT ON (r.job) r.job, r.outcome FROM mill_private.run r
         WHERE r.job = ANY (jobs) AND r.at = list_failed_jobs.at ORDER BY r.job, r.id DESC) AS l
     WHERE l.outcome NOT IN ('succeeded', 'skipped')), '{}');
END
$$;

--
-- Name: FUNCTION list_failed_jobs(jobs integer[], at timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.list_failed_jobs(jobs integer[], at timestamp with time zone) IS 'pgmill: jobs of these whose last run at a logical time has failed for good';

--
-- Name: list_open_runs(oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.list_open_runs(relid oid) RETURNS TABLE(run bigint, begun boolean, recalled boolean)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN QUERY SELECT r.id, r.start IS NOT NULL, r.recall IS NOT NULL FROM mill_private.run r
                  WHERE r.outcome IS NULL AND NOT r.ordered AND r.queue = relid;
END
$$;

--
-- Name: FUNCTION list_open_runs(relid oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.list_open_runs(relid oid) IS 'pgmill: runs that should have a row in the queue';

--
-- Name: list_recalls(oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.list_recalls(relid oid) RETURNS TABLE(run bigint, what text, reason text, error text)
    LANGUAGE plpgsql STABLE ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN QUERY SELECT r.id, r.recall, r.reason, r.error FROM mill_private.run r
                  WHERE r.queue = relid AND r.recall IS NOT NULL ORDER BY r.id LIMIT 1000;
END
$$;

--
-- Name: FUNCTION list_recalls(relid oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.list_recalls(relid oid) IS 'pgmill: rows of runs that are to leave the queue, or to end';

--
-- Name: list_rights(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.list_rights() RETURNS TABLE(kind text, object text, role name)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT DISTINCT o.kind, o.object, COALESCE(r.rolname, '')
      FROM (SELECT 'SCHEMA' AS kind, n.nspname::text AS object, n.nspowner AS owner, n.nspacl AS acl FROM pg_namespace n
             WHERE n.nspname IN ('mill', 'mill_private')
            UNION ALL
            SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relowner, c.relacl FROM pg_class c
             WHERE c.relnamespace IN ('mill'::regnamespace, 'mill_private'::regnamespace) AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
            UNION ALL
            SELECT 'ROUTINE', p.oid::regprocedure::text, p.proowner, COALESCE(p.proacl, acldefault('f', p.proowner)) FROM pg_proc p
             WHERE p.pronamespace IN ('mill'::regnamespace, 'mill_private'::regnamespace) AND NOT p.proname ~ '^q[0-9]+_') AS o,
           aclexplode(o.acl) AS a LEFT JOIN pg_roles r ON r.oid = a.grantee
     WHERE a.grantee <> o.owner AND (r.rolname IS NOT NULL OR a.grantee = 0)
$$;

--
-- Name: FUNCTION list_rights(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.list_rights() IS 'pgmill: who has rights on which objects of the catalog';

--
-- Name: list_unfilled_jobs(oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.list_unfilled_jobs(relid oid) RETURNS TABLE(job integer, cron text, timezone text, initial_start timestamp with time zone, moment timestamp with time zone, fresh boolean, stamp bigint)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN QUERY
    SELECT j.id, j.cron, j.timezone, j.initial_start, mill.now(),
           s.last_start IS NULL AND NOT EXISTS (SELECT FROM mill_private.job_delta t WHERE t.job = s.job)
               AND NOT EXISTS (SELECT FROM mill_private.run r WHERE r.job = s.job AND r.outcome IS NULL AND r.start IS NOT NULL), s.stamp
      FROM mill_private.job_state s JOIN mill.job j ON j.id = s.job
     WHERE s.queue = list_unfilled_jobs.relid AND s.fill ORDER BY j.id LIMIT 500;
END
$$;

--
-- Name: FUNCTION list_unfilled_jobs(relid oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.list_unfilled_jobs(relid oid) IS 'pgmill: jobs whose next start the scheduler computes (cron)';

--
-- Name: list_upstream_timers(text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.list_upstream_timers(job text) RETURNS SETOF mill.timer
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    WITH RECURSIVE way (name) AS (
        SELECT $1 UNION SELECT e.from_job FROM way w JOIN mill.edge e ON e.job = w.name WHERE e.from_job IS NOT NULL)
    SELECT t.* FROM mill.timer t
     WHERE EXISTS (SELECT FROM way w JOIN mill.edge e ON e.job = w.name WHERE e.from_timer = t.name)
$_$;

--
-- Name: FUNCTION list_upstream_timers(job text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.list_upstream_timers(job text) IS 'pgmill: the timers from which tokens reach a job';

--
-- Name: lock_flows(text[], boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.lock_flows(flows text[], alone boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    f record;
BEGIN
    -- The most frequent case: one flow without `parallel`.
    IF cardinality(flows) = 1 AND NOT alone
            AND NOT EXISTS (SELECT FROM mill.flow w WHERE w.name = flows[1] AND w.parallel IS NOT NULL) THEN
        PERFORM pg_advisory_xact_lock_shared(1835597834, hashtext(COALESCE(flows[1], '')));
        RETURN;
    END IF;
    FOR f IN SELECT hashtext(COALESCE(u.name, '')) AS key, lock_flows.alone OR COALESCE(bool_or(w.parallel IS NOT NULL), false) AS alone
               FROM unnest(flows) AS u (name) LEFT JOIN mill.flow w ON w.name = u.name GROUP BY 1 ORDER BY 1 LOOP
        IF f.alone THEN
            PERFORM pg_advisory_xact_lock(1835597834, f.key);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(1835597834, f.key);
        END IF;
    END LOOP;
END
$$;

--
-- Name: FUNCTION lock_flows(flows text[], alone boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.lock_flows(flows text[], alone boolean) IS 'pgmill: locks flows by advisory locks of this transaction, in the order of their keys';

--
-- Name: lock_job_state(integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.lock_job_state(job integer) RETURNS mill_private.job_state
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    counters mill_private.job_state;
BEGIN
    SELECT * INTO counters FROM mill_private.job_state b WHERE b.job = lock_job_state.job FOR NO KEY UPDATE;
    IF FOUND AND mill_private.apply_deltas(lock_job_state.job) THEN
        SELECT * INTO counters FROM mill_private.job_state b WHERE b.job = lock_job_state.job;
    END IF;
    RETURN counters;
END
$$;

--
-- Name: FUNCTION lock_job_state(job integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.lock_job_state(job integer) IS 'pgmill: locks the state of a job and adds its deltas; NULL: it has none';

--
-- Name: lock_job_states(integer[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.lock_job_states(jobs integer[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM FROM mill_private.job_state b WHERE b.job = ANY (jobs) ORDER BY b.job FOR NO KEY UPDATE;
END
$$;

--
-- Name: FUNCTION lock_job_states(jobs integer[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.lock_job_states(jobs integer[]) IS 'pgmill: locks the states of jobs, in the order of their ids';

--
-- Name: lock_message(integer, integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.lock_message(kind integer, place_key integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    number int;
    most_tries CONSTANT int := 32;
    -- the bits of the number in a first key
    number_mask CONSTANT bigint := 65280;
BEGIN
    FOR try IN 1 .. most_tries LOOP
        SELECT free_number INTO number FROM generate_series(0, 255) AS free_number
         WHERE free_number NOT IN (SELECT (held.classid::bigint & number_mask) / 256 FROM pg_locks held
                          WHERE held.locktype = 'advisory' AND held.objsubid = 2
                            AND (held.pid = pg_backend_pid() AND held.classid::bigint & ~number_mask
                                     IN (1835597840, 1835597841, 1835597842)
                                 OR held.objid = pg_backend_pid()::oid AND held.classid::bigint & ~number_mask
                                     IN (1835597856, 1835597857, 1835597858)))
         ORDER BY random() LIMIT 1;
        IF pg_try_advisory_xact_lock(kind + 256 * number, place_key) THEN
            RETURN number;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION lock_message(kind integer, place_key integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.lock_message(kind integer, place_key integer) IS 'pgmill: takes the lock that is a message; returns its number';

--
-- Name: lock_open_runs(integer[], timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.lock_open_runs(jobs integer[], at timestamp with time zone) RETURNS SETOF mill_private.run
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN QUERY SELECT r.* FROM mill_private.run r
                  WHERE r.job = ANY (jobs) AND r.outcome IS NULL AND (lock_open_runs.at IS NULL OR r.at = lock_open_runs.at)
                  ORDER BY r.id FOR NO KEY UPDATE;
END
$$;

--
-- Name: FUNCTION lock_open_runs(jobs integer[], at timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.lock_open_runs(jobs integer[], at timestamp with time zone) IS 'pgmill: locks the runs of jobs that have not ended';

--
-- Name: make_entry_points(oid, name, name); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.make_entry_points(relid oid, "user" name, owner name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'warning'
    AS $_$
DECLARE
    e record;
    old record;
BEGIN
    FOR old IN SELECT p.oid::regprocedure AS name FROM pg_proc p
                WHERE p.pronamespace = 'mill_private'::regnamespace AND p.proname ~ '^q[0-9]+_'
                  AND (NOT EXISTS (SELECT FROM mill.queue q WHERE p.proname ^@ concat('q', q.relid, '_'))
                       OR p.proname ^@ concat('q', relid, '_')
                          AND NOT EXISTS (SELECT FROM mill_private.list_entry_points(relid) l
                                           WHERE l.name = p.proname AND l.body = p.prosrc)) LOOP
        EXECUTE format('DROP FUNCTION %s', old.name);
    END LOOP;
    FOR e IN SELECT * FROM mill_private.list_entry_points(relid) LOOP
        IF NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'mill_private'::regnamespace AND p.proname = e.name AND p.prosrc = e.body) THEN
            EXECUTE format('CREATE FUNCTION mill_private.%I(%s) RETURNS %s LANGUAGE plpgsql %s SECURITY DEFINER
                SET search_path = pg_catalog, pg_temp AS %L', e.name, e.arguments, e.result,
                CASE WHEN e.name ~ '_list_(recalls|open_runs)$' THEN 'STABLE' ELSE 'VOLATILE' END, e.body);
        END IF;
    END LOOP;
    FOR e IN SELECT p.oid FROM pg_proc p
              WHERE p.pronamespace = 'mill_private'::regnamespace AND p.proname ^@ concat('q', relid, '_') LOOP
        PERFORM mill_private.set_function_rights(e.oid, ARRAY["user", owner]);
    END LOOP;
    PERFORM mill_private.run_grant('GRANT USAGE ON SCHEMA mill_private TO %I', r) FROM unnest(ARRAY["user", owner]) AS r
      WHERE NOT has_schema_privilege(r, 'mill_private', 'USAGE');
END
$_$;

--
-- Name: FUNCTION make_entry_points(relid oid, "user" name, owner name); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.make_entry_points(relid oid, "user" name, owner name) IS 'pgmill: makes the entry points of a queue';

--
-- Name: mark_job(mill.job, timestamp with time zone, boolean, name); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.mark_job(job_row mill.job, at timestamp with time zone, success boolean, author name) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION mark_job(job_row mill.job, at timestamp with time zone, success boolean, author name); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.mark_job(job_row mill.job, at timestamp with time zone, success boolean, author name) IS 'pgmill: ends the open runs of a job for a user, or records such a run if none is open';

--
-- Name: may_start(mill.job); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.may_start(job mill.job) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN job.scheduled AND NOT EXISTS (SELECT FROM mill.flow f WHERE f.name = job.flow AND (f.paused OR f.parallel IS NOT NULL));
END
$$;

--
-- Name: FUNCTION may_start(job mill.job); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.may_start(job mill.job) IS 'pgmill: whether a run of a job may start, apart from its time';

--
-- Name: move_waiting_run(integer, bigint, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.move_waiting_run(job integer, run bigint, due timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    place oid;
BEGIN
    FOR place IN UPDATE mill_private.run r SET due = move_waiting_run.due,
               recall = CASE WHEN NOT r.ordered AND move_waiting_run.due > mill.now() THEN 'WITHDRAW' ELSE r.recall END
         WHERE r.id IN (SELECT w.id FROM mill_private.run w WHERE w.job = move_waiting_run.job AND COALESCE(w.activation, w.id) = move_waiting_run.run
                           AND w.outcome IS NULL AND w.start IS NULL FOR NO KEY UPDATE SKIP LOCKED)
        RETURNING r.queue LOOP
        PERFORM mill_private.wake_scheduler(place);
    END LOOP;
END
$$;

--
-- Name: FUNCTION move_waiting_run(job integer, run bigint, due timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.move_waiting_run(job integer, run bigint, due timestamp with time zone) IS 'pgmill: moves the waiting run of an activation to another time';

--
-- Name: needs_no_worker(text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.needs_no_worker(timer text) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN COALESCE((
        WITH RECURSIVE way (name) AS (
            SELECT e.job FROM mill.edge e WHERE e.from_timer = needs_no_worker.timer
            UNION SELECT e.job FROM way w JOIN mill.edge e ON e.from_job = w.name)
        SELECT bool_and(j.input IS NULL AND j.scheduled AND NOT mill_private.has_schedule(j) AND f.parallel IS NULL AND NOT COALESCE(f.paused, false))
          FROM way w JOIN mill.job j ON j.name = w.name LEFT JOIN mill.flow f ON f.name = j.flow), false);
END
$$;

--
-- Name: FUNCTION needs_no_worker(timer text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.needs_no_worker(timer text) IS 'pgmill: whether everything downstream of a timer needs no worker, and none of it is paused or limited';

--
-- Name: next_order(oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.next_order(relid oid) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN (SELECT r.id FROM mill_private.run r
             WHERE r.queue = relid AND r.ordered AND NOT r.held AND r.outcome IS NULL AND r.due <= mill.now() ORDER BY r.due, r.id LIMIT 1);
END
$$;

--
-- Name: FUNCTION next_order(relid oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.next_order(relid oid) IS 'pgmill: the run that insert_runs would take first';

--
-- Name: next_slot(timestamp with time zone, interval, text, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.next_slot(initial_start timestamp with time zone, step interval, zone text, after timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    clock text := COALESCE(zone, 'UTC');
    months bigint := extract(year FROM step) * 12 + extract(month FROM step);
    span numeric := (extract(day FROM step) * 86400 + extract(hour FROM step) * 3600 + extract(minute FROM step) * 60
                     + extract(second FROM step)) * 1000000;
    origin timestamp;
    reading timestamp;
    distance numeric;
    low bigint;
    high bigint;
    middle bigint;
    slot timestamptz;
BEGIN
    IF after < initial_start OR after IS NULL OR initial_start IS NULL OR step IS NULL THEN
        RETURN CASE WHEN after < initial_start THEN initial_start END;
    ELSIF NOT isfinite(after) OR NOT isfinite(initial_start) THEN
        RETURN NULL;
    END IF;
    IF months < 0 OR span < 0 OR months = 0 AND span = 0 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'a repeated interval must be more than 0';
    END IF;
    origin := timezone(clock, initial_start);
    reading := mill_private.latest_wall_time(after, clock);
    distance := GREATEST(extract(epoch FROM reading - origin) * 1000000, 0);
    IF months = 0 THEN
        low := div(distance, span);
    ELSE
        -- A month has 28 to 31 days, here in microseconds. Bisection between the two bounds, as in the program.
        low := GREATEST(div(distance, months * 2678400000000 + span) - 1, 0);
        high := div(distance, months * 2419200000000 + span) + 2;
        WHILE low + 1 < high LOOP
            middle := low + (high - low) / 2;
            IF mill_private.add_steps(origin, months, span, middle) <= reading THEN
                low := middle;
            ELSE
                high := middle;
            END IF;
        END LOOP;
    END IF;
    slot := mill_private.first_moment(mill_private.add_steps(origin, months, span, low + 1), clock);
    -- The calendar of the program ends here.
    RETURN CASE WHEN slot <= timestamptz '9999-12-27 22:00:00.999999+00' THEN slot END;
EXCEPTION WHEN datetime_field_overflow OR interval_field_overflow OR numeric_value_out_of_range THEN
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION next_slot(initial_start timestamp with time zone, step interval, zone text, after timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.next_slot(initial_start timestamp with time zone, step interval, zone text, after timestamp with time zone) IS 'pgmill: the first initial_start + k * step after a moment, on the zone''s wall clock (NULL: UTC); NULL beyond the year 9999';

--
-- Name: note_changed_edges(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.note_changed_edges() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM set_config('mill_private.note_changed_edges', 'yes', true);
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION note_changed_edges(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.note_changed_edges() IS 'pgmill: notes in this transaction that edges were changed';

--
-- Name: note_writer(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.note_writer() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    NEW.made_by := current_user;
    RETURN NEW;
END
$$;

--
-- Name: FUNCTION note_writer(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.note_writer() IS 'pgmill: notes in made_by which role writes the row; runs as that role';

--
-- Name: order_graph_run(mill.job, timestamp with time zone, integer, boolean, boolean, boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.order_graph_run(j mill.job, at timestamp with time zone, epoch integer, low boolean, loops boolean, skips boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    run bigint;
    no_retry CONSTANT int := -2;
    behind_live_work CONSTANT int := -1000;
BEGIN
    run := mill_private.order_run(j.id, order_graph_run.at, mill.now(), epoch => CASE WHEN loops THEN no_retry ELSE order_graph_run.epoch END,
        held => loops OR (NOT skips AND j.input IS NOT NULL AND COALESCE(mill_private.free_places(j.flow) = 0, false)), skips => skips,
        priority => CASE WHEN low THEN j.priority + behind_live_work END);
    IF loops AND run IS NOT NULL THEN
        PERFORM mill_private.close_run(run, false, 'loop',
            format('ERROR:  job "%s" has been activated 100 times for %s: loop stopped', j.name, order_graph_run.at));
    END IF;
    RETURN run;
END
$$;

--
-- Name: FUNCTION order_graph_run(j mill.job, at timestamp with time zone, epoch integer, low boolean, loops boolean, skips boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.order_graph_run(j mill.job, at timestamp with time zone, epoch integer, low boolean, loops boolean, skips boolean) IS 'pgmill: orders the run of an activation';

--
-- Name: order_graph_runs(integer[], timestamp with time zone[], boolean[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.order_graph_runs(jobs integer[], ats timestamp with time zone[], lows boolean[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    q record;
    wrong text;
    refused int[] := '{}';
    moment timestamptz := mill.now();
    queues oid[];
    one oid;
    done int;
    behind_live_work CONSTANT int := -1000;
BEGIN
    FOR q IN SELECT s.queue, j.owner, array_agg(j.id) AS jobs FROM mill.job j JOIN mill_private.job_state s ON s.job = j.id
               LEFT JOIN mill.queue k ON k.relid = s.queue LEFT JOIN pg_roles r ON r.rolname = j.owner
              WHERE j.id = ANY (order_graph_runs.jobs) AND has_table_privilege(r.oid, k.relid, 'INSERT') IS NOT TRUE GROUP BY 1, 2 LOOP
        wrong := mill_private.check_queue_right(q.owner, q.queue);
        IF wrong IS NOT NULL THEN
            PERFORM mill_private.pause_job(u, wrong) FROM unnest(q.jobs) AS u;
            UPDATE mill.token k SET waiting = k.delivered, consumed = '{}', activations = 0, since = clock_timestamp()
              FROM unnest(order_graph_runs.jobs, ats) AS u (job, at) WHERE k.job = u.job AND k.at = u.at AND u.job = ANY (q.jobs);
            refused := refused || q.jobs;
        END IF;
    END LOOP;
    WITH made AS (
        INSERT INTO mill_private.run (job, owner, queue, at, epoch, priority, due)
        SELECT j.id, j.owner, CASE WHEN j.input IS NULL THEN 0 ELSE s.queue END, u.at, 0, j.priority + CASE WHEN u.low THEN behind_live_work ELSE 0 END, moment
          FROM unnest(order_graph_runs.jobs, ats, lows) WITH ORDINALITY AS u (job, at, low, place)
          JOIN mill.job j ON j.id = u.job JOIN mill_private.job_state s ON s.job = j.id
         WHERE NOT u.job = ANY (refused) ORDER BY u.place
        RETURNING queue)
    SELECT count(*), array_agg(DISTINCT m.queue) INTO done, queues FROM made m;
    FOREACH one IN ARRAY COALESCE(queues, '{}') LOOP
        PERFORM mill_private.wake_scheduler(one);
    END LOOP;
    RETURN done;
END
$$;

--
-- Name: FUNCTION order_graph_runs(jobs integer[], ats timestamp with time zone[], lows boolean[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.order_graph_runs(jobs integer[], ats timestamp with time zone[], lows boolean[]) IS 'pgmill: orders the runs of activations';

--
-- Name: order_retry(mill.job, mill_private.job_state, mill_private.run, boolean, timestamp with time zone, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.order_retry(job_row mill.job, stat mill_private.job_state, ended mill_private.run, own boolean, again timestamp with time zone, moment timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    run bigint;
    failed bool := ended.outcome NOT IN ('crashed', 'interrupted');
    delivers_nothing CONSTANT int := -1;
BEGIN
    IF mill_private.is_overtaken(ended.job, ended.at, ended.epoch) AND ended.epoch IS DISTINCT FROM delivers_nothing THEN
        RETURN false;
    END IF;
    run := mill_private.order_run(ended.job, ended.at, again, priority => ended.priority, activation => COALESCE(ended.activation, ended.id),
                                  failures => ended.failures + failed::int, attempt => ended.attempt, epoch => ended.epoch,
                                  held => NOT mill_private.may_start(job_row) AND (own OR NOT mill_private.has_schedule(job_row)));
    IF again > moment THEN
        -- It may be due before this is committed.
        PERFORM mill_private.bump_version(stat.queue);
    END IF;
    RETURN run IS NOT NULL;
END
$$;

--
-- Name: FUNCTION order_retry(job_row mill.job, stat mill_private.job_state, ended mill_private.run, own boolean, again timestamp with time zone, moment timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.order_retry(job_row mill.job, stat mill_private.job_state, ended mill_private.run, own boolean, again timestamp with time zone, moment timestamp with time zone) IS 'pgmill: orders the next run of an activation; false: the activation ends';

--
-- Name: order_run(integer, timestamp with time zone, timestamp with time zone, bigint, integer, integer, integer, boolean, integer, boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.order_run(job integer, at timestamp with time zone, due timestamp with time zone, activation bigint DEFAULT NULL::bigint, failures integer DEFAULT 0, attempt integer DEFAULT 0, epoch integer DEFAULT NULL::integer, held boolean DEFAULT false, priority integer DEFAULT NULL::integer, skips boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    j record;
    wrong text;
    made bigint;
    place oid;
BEGIN
    SELECT k.owner, k.priority, k.input IS NULL AS idle, s.queue INTO j FROM mill.job k JOIN mill_private.job_state s ON s.job = k.id WHERE k.id = order_run.job;
    wrong := mill_private.check_queue_right(j.owner, j.queue);
    IF wrong IS NOT NULL THEN
        PERFORM mill_private.pause_job(job, wrong);
        RETURN NULL;
    END IF;
    place := CASE WHEN j.idle OR skips THEN 0 ELSE j.queue END;
    INSERT INTO mill_private.run (job, owner, queue, activation, at, epoch, attempt, failures, priority, due, held, reason)
    VALUES (order_run.job, j.owner, place, order_run.activation, order_run.at, order_run.epoch, order_run.attempt, order_run.failures,
            COALESCE(order_run.priority, j.priority), order_run.due, order_run.held, CASE WHEN skips THEN 'skipped' END)
    RETURNING id INTO made;
    IF NOT held THEN
        PERFORM mill_private.wake_scheduler(place);
    END IF;
    RETURN made;
END
$$;

--
-- Name: FUNCTION order_run(job integer, at timestamp with time zone, due timestamp with time zone, activation bigint, failures integer, attempt integer, epoch integer, held boolean, priority integer, skips boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.order_run(job integer, at timestamp with time zone, due timestamp with time zone, activation bigint, failures integer, attempt integer, epoch integer, held boolean, priority integer, skips boolean) IS 'pgmill: orders a run of a job; its id';

--
-- Name: parse_cron_item(integer, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.parse_cron_item(field integer, item text, OUT members bigint, OUT wrong text) RETURNS record
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    month CONSTANT int := 5;
    weekday CONSTANT int := 6;
    months CONSTANT text[] := ARRAY['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
    weekdays CONSTANT text[] := ARRAY['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
    name text := (ARRAY['second', 'minute', 'hour', 'day of month', 'month', 'day of week'])[field];
    lowest int := (ARRAY[0, 0, 0, 1, 1, 0])[field];
    -- Sunday is 0 and 7; * ends with Saturday.
    highest int := (ARRAY[59, 59, 23, 31, 12, 7])[field];
    highest_of_all int := (ARRAY[59, 59, 23, 31, 12, 6])[field];
    longest_step int := (ARRAY[60, 60, 24, 31, 12, 7])[field];
    range_text text := split_part(item, '/', 1);
    step_text text := CASE WHEN strpos(item, '/') > 0 THEN substr(item, strpos(item, '/') + 1) END;
    ends text[];
    numbers bigint[];
    low int := lowest;
    high int := highest_of_all;
BEGIN
    IF range_text <> '*' THEN
        ends := CASE WHEN strpos(range_text, '-') > 0
            THEN ARRAY[split_part(range_text, '-', 1), substr(range_text, strpos(range_text, '-') + 1)]
            ELSE ARRAY[range_text] END;
        numbers := ARRAY(SELECT COALESCE(
            CASE field WHEN month THEN array_position(months, lower(one_end COLLATE "C"))
                       WHEN weekday THEN array_position(weekdays, lower(one_end COLLATE "C")) - 1 END,
            CASE WHEN one_end ~ '^[0-9]{1,9}$' THEN one_end::bigint END) FROM unnest(ends) WITH ORDINALITY AS given (one_end, place) ORDER BY place);
        IF array_position(numbers, NULL) IS NOT NULL THEN
            wrong := format('%s: "%s" is not a value, a range or a step', name, item);
            RETURN;
        END IF;
        FOR place IN 1 .. cardinality(ends) LOOP
            IF numbers[place] NOT BETWEEN lowest AND highest THEN
                wrong := format('%s: %s is not within %s to %s', name, ends[place], lowest, highest);
                RETURN;
            END IF;
        END LOOP;
        low := numbers[1];
        high := numbers[cardinality(ends)];
        IF cardinality(ends) = 2 AND field = weekday AND low > 0 AND lower(ends[2] COLLATE "C") = 'sun' THEN
            high := highest;
        ELSIF cardinality(ends) = 1 AND step_text IS NOT NULL THEN
            wrong := format('%s: the step in %s needs a range, as in %s-%s/%s', name, item, range_text, highest, step_text);
        END IF;
        IF wrong IS NULL AND low > high THEN
            wrong := format('%s: the range %s goes backward', name, item);
        END IF;
    END IF;
    IF wrong IS NULL AND step_text !~ '^[0-9]{1,9}$' THEN
        wrong := format('%s: "%s" is not a value, a range or a step', name, item);
    ELSIF wrong IS NULL AND step_text::int NOT BETWEEN 1 AND longest_step THEN
        wrong := format('%s: the step %s is not within 1 to %s', name, step_text, longest_step);
    ELSIF wrong IS NULL AND step_text IS NULL THEN
        members := (2::bigint << high) - (1::bigint << low);
    ELSIF wrong IS NULL THEN
        members := (SELECT bit_or(1::bigint << value) FROM generate_series(low, high, step_text::int) AS value);
    END IF;
END
$_$;

--
-- Name: FUNCTION parse_cron_item(field integer, item text, OUT members bigint, OUT wrong text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.parse_cron_item(field integer, item text, OUT members bigint, OUT wrong text) IS 'pgmill: parses an item of a cron field: its values, or why it is refused';

--
-- Name: pause_failing_job(mill.job, integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.pause_failing_job(job_row mill.job, failures integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF mill_private.has_schedule(job_row) AND job_row.scheduled AND job_row.max_retries >= 0 AND failures >= GREATEST(job_row.max_retries, 1) THEN
        PERFORM mill_private.pause_job(job_row.id, format('failed %s in a row, max_retries = %s',
                                       mill_private.count_of(failures, 'time'), job_row.max_retries));
    END IF;
END
$$;

--
-- Name: FUNCTION pause_failing_job(job_row mill.job, failures integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.pause_failing_job(job_row mill.job, failures integer) IS 'pgmill: pauses a scheduled job that has failed too often in a row';

--
-- Name: pause_job(integer, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.pause_job(job integer, why text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    UPDATE mill.job j SET scheduled = false WHERE j.id = pause_job.job AND j.scheduled;
    UPDATE mill_private.job_state s SET reason = why WHERE s.job = pause_job.job;
END
$$;

--
-- Name: FUNCTION pause_job(job integer, why text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.pause_job(job integer, why text) IS 'pgmill: pauses a job that cannot continue, with the reason';

--
-- Name: perform_command(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.perform_command() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION perform_command(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.perform_command() IS 'pgmill: does what a row of mill.command asks for';

--
-- Name: perform_request(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.perform_request() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    j mill.job;
    wrong text;
BEGIN
    PERFORM set_config('mill.result', '', true);
    SELECT * INTO j FROM mill.job f WHERE f.id = NEW.job;
    IF j.id IS NULL OR NOT mill_private.is_member_of(NEW.made_by, j.owner) THEN
        RETURN NULL;
    END IF;
    IF NEW.action = 'run' THEN
        wrong := mill_private.check_queue_right(j.owner, (SELECT s.queue FROM mill_private.job_state s WHERE s.job = j.id));
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION 'job "%": %', j.name, wrong USING ERRCODE = '42501';
        END IF;
        PERFORM set_config('mill.result', mill_private.order_run(j.id, mill.now(), mill.now())::text, true);
    ELSIF NEW.action = 'next_start' THEN
        PERFORM set_config('mill.result', mill_private.set_next_start(NULL, j.id, NEW.moment)::text, true);
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION perform_request(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.perform_request() IS 'pgmill: does what a row of mill_private.request asks for';

--
-- Name: pick_tokens(mill.job, timestamp with time zone, integer[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.pick_tokens(j mill.job, at timestamp with time zone, waiting integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    needed int[];
    missing bool;
    picked int[];
BEGIN
    IF cardinality(waiting) = 0 THEN
        RETURN NULL;
    ELSIF j.threshold IS NOT NULL THEN
        RETURN CASE WHEN cardinality(waiting) >= j.threshold THEN waiting[1:j.threshold] END;
    END IF;
    SELECT array_agg(e.id), bool_or(NOT e.id = ANY (waiting) AND NOT (e.first AND mill_private.is_before_first(e, pick_tokens.at))),
           array_agg(e.id ORDER BY e.id) FILTER (WHERE e.id = ANY (waiting))
      INTO needed, missing, picked
      FROM mill.edge e WHERE e.job = j.name AND e."on" <> 'failure';
    IF needed IS NULL THEN
        RETURN waiting[1:1];
    END IF;
    RETURN CASE WHEN NOT missing THEN picked END;
END
$$;

--
-- Name: FUNCTION pick_tokens(j mill.job, at timestamp with time zone, waiting integer[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.pick_tokens(j mill.job, at timestamp with time zone, waiting integer[]) IS 'pgmill: the tokens that the next activation of a job would consume; NULL: it is not ready';

--
-- Name: poll_jobs(oid, timestamp with time zone, boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.poll_jobs(relid oid, since timestamp with time zone, applies boolean) RETURNS TABLE(version bigint, due_ms double precision, wait_ms double precision, fill boolean, orders boolean, recalls boolean, leftover boolean)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION poll_jobs(relid oid, since timestamp with time zone, applies boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.poll_jobs(relid oid, since timestamp with time zone, applies boolean) IS 'pgmill: the version of a queue''s jobs, and when the next run is due';

--
-- Name: protect_command(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.protect_command() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF (OLD.id, OLD.action, OLD.at, OLD.how, OLD.note, OLD.made, OLD.made_by, OLD.result, OLD.run)
            IS DISTINCT FROM (NEW.id, NEW.action, NEW.at, NEW.how, NEW.note, NEW.made, NEW.made_by, NEW.result, NEW.run) THEN
        PERFORM mill_private.raise_violation('mill.command is the audit trail: its rows cannot be changed');
    END IF;
    RETURN NEW;
END
$$;

--
-- Name: FUNCTION protect_command(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.protect_command() IS 'pgmill: what was done cannot be changed in mill.command';

--
-- Name: queue_oid(text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.queue_oid(name text) RETURNS oid
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN COALESCE((SELECT q.relid FROM mill.queue q WHERE queue_oid.name IN (format('%I.%I', q.schema, q.name), concat(q.schema, '.', q.name)) LIMIT 1),
                    to_regclass(queue_oid.name)::oid);
END
$$;

--
-- Name: FUNCTION queue_oid(name text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.queue_oid(name text) IS 'pgmill: the OID of a task table by its name';

--
-- Name: raise_violation(text, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.raise_violation(reason text, hint text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF hint IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = reason, ERRCODE = 'check_violation';
    END IF;
    RAISE EXCEPTION USING MESSAGE = reason, HINT = hint, ERRCODE = 'check_violation';
END
$$;

--
-- Name: FUNCTION raise_violation(reason text, hint text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.raise_violation(reason text, hint text) IS 'pgmill: raises check_violation with this reason';

--
-- Name: reconsider_job(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.reconsider_job() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM mill.token WHERE job = OLD.id;
    ELSE
        IF EXISTS (SELECT FROM mill.token k WHERE k.job = NEW.id AND k.since IS NOT NULL) THEN
            PERFORM mill_private.reconsider_tokens(ARRAY[NEW.id]);
        END IF;
        IF NEW.flow IS NOT NULL THEN
            PERFORM mill_private.release_flow_runs(NEW.flow);
        END IF;
        -- 0 is the keeper
        PERFORM mill_private.wake_scheduler(0);
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION reconsider_job(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.reconsider_job() IS 'pgmill: after a change of threshold, flow or pause, checks the waiting tokens again; a deleted job takes its tokens along';

--
-- Name: reconsider_tokens(integer[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.reconsider_tokens(job_ids integer[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    t mill.token;
    j mill.job;
    done int := 0;
BEGIN
    PERFORM mill_private.lock_flows((SELECT array_agg(DISTINCT n.flow) FROM mill.job n WHERE n.id = ANY (job_ids)));
    FOR t IN SELECT * FROM mill.token k WHERE k.job = ANY (job_ids) AND k.since IS NOT NULL ORDER BY k.job, k.at FOR UPDATE LOOP
        SELECT * INTO j FROM mill.job n WHERE n.id = t.job;
        done := done + mill_private.consume_tokens(t, j);
    END LOOP;
    RETURN done;
END
$$;

--
-- Name: FUNCTION reconsider_tokens(job_ids integer[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.reconsider_tokens(job_ids integer[]) IS 'pgmill: activates jobs that are ready after a change of the graph or a resume';

--
-- Name: refuse_run(oid, bigint, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.refuse_run(relid oid, run bigint, why text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    refused int;
BEGIN
    UPDATE mill_private.run u SET held = true
     WHERE u.id = refuse_run.run AND u.queue = refuse_run.relid AND u.ordered AND NOT u.held AND u.outcome IS NULL RETURNING u.job INTO refused;
    IF FOUND THEN
        PERFORM mill_private.pause_job(refused, format('cannot be started: %s', why));
    END IF;
END
$$;

--
-- Name: FUNCTION refuse_run(relid oid, run bigint, why text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.refuse_run(relid oid, run bigint, why text) IS 'pgmill: pauses the job of a run whose row the queue refuses';

--
-- Name: register_queue(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.register_queue() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    found record;
    former oid;
BEGIN
    SELECT c.oid AS relid, n.nspname AS schema, c.relname AS name, pg_get_userbyid(c.relowner) AS owner,
           pg_has_role(NEW.made_by, c.relowner, 'USAGE')
               OR has_table_privilege(NEW.made_by, c.oid, 'SELECT')
              AND has_table_privilege(NEW.made_by, c.oid, 'INSERT')
              AND has_table_privilege(NEW.made_by, c.oid, 'UPDATE')
              AND has_table_privilege(NEW.made_by, c.oid, 'DELETE') AS serves
      INTO found
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = NEW.queue AND c.relkind IN ('r', 'p');
    IF found.relid IS NULL THEN
        RAISE EXCEPTION 'table % does not exist', NEW.queue::regclass USING ERRCODE = '42P01';
    ELSIF NOT found.serves THEN
        RAISE EXCEPTION '% may not serve %.%', quote_ident(NEW.made_by), quote_ident(found.schema),
            quote_ident(found.name) USING ERRCODE = '42501';
    END IF;
    PERFORM pg_advisory_xact_lock(1835597829, 0);
    -- The queue stays with its user as long as that role may serve it, unless this session is the scheduler that holds the queue.
    IF EXISTS (SELECT FROM mill.queue known JOIN pg_roles role ON role.rolname = known."user"
                WHERE known.relid = found.relid AND known."user" <> NEW.made_by AND has_table_privilege(role.oid, known.relid, 'UPDATE'))
       AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = 1835597826::oid AND l.objid = found.relid
                          AND l.objsubid = 2 AND l.granted AND l.mode = 'ExclusiveLock' AND l.pid = pg_backend_pid()) THEN
        RETURN NULL;
    END IF;
    FOR former IN DELETE FROM mill.queue known
         WHERE known.relid <> found.relid AND ((known.schema, known.name) = (found.schema, found.name)
            OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = known.relid))
        RETURNING CASE WHEN (known.schema, known.name) = (found.schema, found.name) THEN known.relid END LOOP
        UPDATE mill_private.run one_run SET queue = found.relid WHERE one_run.queue = former AND one_run.outcome IS NULL;
    END LOOP;
    INSERT INTO mill.queue AS known (relid, schema, name, owner, "user")
    VALUES (found.relid, found.schema, found.name, found.owner, NEW.made_by)
    ON CONFLICT (relid) DO UPDATE SET schema = EXCLUDED.schema, name = EXCLUDED.name, owner = EXCLUDED.owner, "user" = EXCLUDED."user"
     WHERE (known.schema, known.name, known.owner, known."user") IS DISTINCT FROM (EXCLUDED.schema, EXCLUDED.name, EXCLUDED.owner, EXCLUDED."user");
    UPDATE mill_private.job_state plan SET queue = found.relid FROM mill.job job_row
     WHERE job_row.id = plan.job AND mill_private.queue_oid(job_row.queue) = found.relid AND plan.queue <> found.relid;
    PERFORM mill_private.make_entry_points(found.relid, NEW.made_by, found.owner);
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION register_queue(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.register_queue() IS 'pgmill: registers a queue for a role that may serve it';

--
-- Name: release_flow_runs(text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.release_flow_runs(flow text) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    f mill.flow;
    places int;
    done int;
    queues oid[];
    one oid;
BEGIN
    PERFORM mill_private.lock_flows(ARRAY[release_flow_runs.flow]);
    SELECT * INTO f FROM mill.flow k WHERE k.name = release_flow_runs.flow;
    places := mill_private.free_places(f.name);
    IF f.name IS NULL OR f.paused OR places = 0 THEN
        RETURN 0;
    END IF;
    WITH next AS (
        SELECT r.id FROM mill.job j JOIN mill_private.run r ON r.job = j.id
         WHERE j.flow = f.name AND j.scheduled AND r.outcome IS NULL AND r.held AND r.start IS NULL AND r.due <= mill.now()
         -- Runs that need no worker take no place.
         ORDER BY r.queue <> 0, r.priority DESC, r.id LIMIT places FOR NO KEY UPDATE OF r
    ), released AS (
        UPDATE mill_private.run r SET held = false, recall = NULL FROM next n WHERE r.id = n.id RETURNING r.queue)
    SELECT count(*), array_agg(DISTINCT r.queue) INTO done, queues FROM released r;
    FOREACH one IN ARRAY COALESCE(queues, '{}') LOOP
        PERFORM mill_private.wake_scheduler(one);
    END LOOP;
    RETURN done;
END
$$;

--
-- Name: FUNCTION release_flow_runs(flow text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.release_flow_runs(flow text) IS 'pgmill: releases held runs of a flow that are due, as many as may start';

--
-- Name: renew_grants(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.renew_grants() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    holder record;
    holders jsonb;
BEGIN
    -- Read all of them before anything is revoked.
    SELECT jsonb_agg(to_jsonb(h)) INTO holders
      FROM (SELECT r.rolname, bool_or(p.oid = 'mill_private.s_register(oid)'::regprocedure) AS serves,
                   bool_or(p.oid = 'mill.now()'::regprocedure) AS uses,
                   bool_or(p.oid = 'mill.restart(name)'::regprocedure) AS operates,
                   bool_or(p.oid = 'mill_private.s_watch_graph(bool, bool)'::regprocedure) AS keeps
              FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
             WHERE p.pronamespace IN ('mill'::regnamespace, 'mill_private'::regnamespace) AND a.grantee <> p.proowner GROUP BY r.rolname) AS h;
    PERFORM mill_private.revoke_all();
    FOR holder IN SELECT * FROM jsonb_to_recordset(COALESCE(holders, '[]')) AS h (rolname name, serves bool, uses bool, operates bool, keeps bool) LOOP
        IF holder.serves THEN
            PERFORM mill.admit(holder.rolname, holder.keeps);
        END IF;
        IF holder.uses THEN
            PERFORM mill.grant(holder.rolname, CASE WHEN holder.operates THEN 'operate' ELSE 'use' END);
        END IF;
    END LOOP;
    PERFORM mill_private.make_entry_points(q.relid, COALESCE(q."user", q.owner), q.owner) FROM mill.queue q;
END
$$;

--
-- Name: FUNCTION renew_grants(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.renew_grants() IS 'pgmill: after an upgrade, gives every role what its levels include now';

--
-- Name: rerun_failed_jobs(integer[], timestamp with time zone, boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.rerun_failed_jobs(jobs integer[], at timestamp with time zone, below boolean) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION rerun_failed_jobs(jobs integer[], at timestamp with time zone, below boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.rerun_failed_jobs(jobs integer[], at timestamp with time zone, below boolean) IS 'pgmill: starts the failed jobs of a logical time again';

--
-- Name: rerun_jobs(integer[], timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.rerun_jobs(starts integer[], at timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION rerun_jobs(starts integer[], at timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.rerun_jobs(starts integer[], at timestamp with time zone) IS 'pgmill: starts jobs of a logical time again, and resets everything downstream';

--
-- Name: reset_tokens(integer[], timestamp with time zone[], boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.reset_tokens(jobs integer[], times timestamp with time zone[], timers_fire boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION reset_tokens(jobs integer[], times timestamp with time zone[], timers_fire boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.reset_tokens(jobs integer[], times timestamp with time zone[], timers_fire boolean) IS 'pgmill: resets a part of the graph';

--
-- Name: revoke_all(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.revoke_all() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM mill_private.run_grant(format('REVOKE ALL ON %s %s FROM', l.kind, l.object) || ' %I CASCADE', l.role) FROM mill_private.list_rights() l;
END
$$;

--
-- Name: FUNCTION revoke_all(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.revoke_all() IS 'pgmill: revokes all rights on the catalog from other roles than its owner; the last step of every installation';

--
-- Name: revoke_levels(name, text[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.revoke_levels(role name, levels text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    line record;
BEGIN
    FOR line IN SELECT DISTINCT l.object FROM mill_private.grant_list l WHERE l.level = ANY (levels) ORDER BY l.object LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', line.object, role);
    END LOOP;
END
$$;

--
-- Name: FUNCTION revoke_levels(role name, levels text[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.revoke_levels(role name, levels text[]) IS 'pgmill: revokes what the list has for these levels';

--
-- Name: run_grant(text, name); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.run_grant(statement text, role name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    EXECUTE CASE WHEN role = '' THEN replace(statement, '%I', 'PUBLIC') ELSE format(statement, role) END;
END
$$;

--
-- Name: FUNCTION run_grant(statement text, role name); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.run_grant(statement text, role name) IS 'pgmill: runs a GRANT or REVOKE for a role';

--
-- Name: s_advance_backfill(integer, bigint, timestamp with time zone[], integer[], integer[], boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_advance_backfill(id integer, was_fired bigint, times timestamp with time zone[], spans integer[], poss integer[], ends boolean) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    backfill_row mill.backfill;
    timer_row mill.timer;
    n int := cardinality(times);
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- Lock the timer first, as a DELETE of it does, which deletes its back-fills.
    PERFORM FROM mill.timer stored WHERE stored.name = (SELECT one.timer FROM mill.backfill one WHERE one.id = s_advance_backfill.id) FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO backfill_row FROM mill.backfill stored WHERE stored.id = s_advance_backfill.id FOR NO KEY UPDATE SKIP LOCKED;
    IF backfill_row.id IS NULL OR backfill_row.fired <> was_fired OR backfill_row.paused OR backfill_row.finished IS NOT NULL THEN
        RETURN NULL;
    END IF;
    SELECT * INTO timer_row FROM mill.timer stored WHERE stored.name = backfill_row.timer;
    IF timer_row.id IS NULL OR NOT timer_row.enabled OR mill_private.is_timer_paused(timer_row) THEN
        RETURN NULL;
    END IF;
    -- Exclusively where a window is counted: otherwise this transaction would not see the times that others open meanwhile.
    PERFORM mill_private.lock_flows((SELECT array_agg(DISTINCT one.name) FROM mill.edge edge_row JOIN mill.job job_row ON job_row.name = edge_row.job
                          JOIN mill.flow one ON one.name = job_row.flow WHERE edge_row.from_timer = timer_row.name AND one."window" IS NOT NULL), true);
    IF n > 0 AND NOT (mill_private.needs_no_worker(timer_row.name) AND mill_private.fire_and_finish(timer_row, times)) THEN
        n := LEAST(n, mill_private.count_free_times(timer_row.name));
        IF n > 0 THEN
            PERFORM mill_private.fire_times(array_fill(timer_row.name, ARRAY[n]), times[1:n], 'filled');
        END IF;
    END IF;
    UPDATE mill.backfill stored SET fired = stored.fired + n, at = COALESCE(times[n], stored.at), span = COALESCE(spans[n], stored.span),
           pos = COALESCE(poss[n], stored.pos),
           finished = CASE WHEN ends AND n = cardinality(times) THEN clock_timestamp() END
     WHERE stored.id = backfill_row.id;
    IF n > 0 THEN
        UPDATE mill.timer stored SET first = LEAST(stored.first, (SELECT min(fired_at) FROM unnest(times[1:n]) AS fired_at)),
               last = GREATEST(stored.last, (SELECT max(fired_at) FROM unnest(times[1:n]) AS fired_at))
         WHERE stored.id = timer_row.id;
    END IF;
    RETURN n;
END
$$;

--
-- Name: FUNCTION s_advance_backfill(id integer, was_fired bigint, times timestamp with time zone[], spans integer[], poss integer[], ends boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_advance_backfill(id integer, was_fired bigint, times timestamp with time zone[], spans integer[], poss integer[], ends boolean) IS 'pgmill: fires the next times of a back-fill';

--
-- Name: s_check_graph(integer[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_check_graph(except_for integer[]) RETURNS TABLE(used boolean, idle boolean, due_ms double precision)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    idle := EXISTS (SELECT FROM mill_private.run r WHERE r.queue = 0 AND r.ordered AND NOT r.held AND r.outcome IS NULL AND r.due <= mill.now());
    used := idle OR EXISTS (SELECT FROM mill.timer) OR EXISTS (SELECT FROM mill.backfill b WHERE b.finished IS NULL)
        OR EXISTS (SELECT FROM mill_private.run r WHERE r.queue = 0 AND r.ordered AND NOT r.held AND r.outcome IS NULL);
    due_ms := CASE WHEN EXISTS (SELECT FROM mill.timer t WHERE t.stale IS NOT NULL AND NOT t.id = ANY (except_for)) THEN 0
        ELSE (SELECT GREATEST(ceil(extract(epoch FROM t.due - mill.now()) * 1000), 0) FROM mill.timer t
               WHERE t.due IS NOT NULL AND NOT t.id = ANY (except_for) AND NOT mill_private.is_timer_paused(t) ORDER BY t.due LIMIT 1) END;
    due_ms := LEAST(due_ms, (SELECT GREATEST(ceil(extract(epoch FROM r.due - mill.now()) * 1000), 0) FROM mill_private.run r
                              WHERE r.queue = 0 AND r.ordered AND NOT r.held AND r.outcome IS NULL ORDER BY r.due, r.id LIMIT 1));
    RETURN NEXT;
END
$$;

--
-- Name: FUNCTION s_check_graph(except_for integer[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_check_graph(except_for integer[]) IS 'pgmill: whether anything of the graph is used, whether runs wait that need no worker, and in how many ms the next timer is due';

--
-- Name: s_clock(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_clock() RETURNS interval
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT m.clock FROM mill.meta m);

--
-- Name: FUNCTION s_clock(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_clock() IS 'pgmill: how far a test has moved the clock';

--
-- Name: s_end_idle_runs(integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_end_idle_runs(most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN mill_private.end_idle_runs(most);
END
$$;

--
-- Name: FUNCTION s_end_idle_runs(most integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_end_idle_runs(most integer) IS 'pgmill: ends runs of jobs without input, and skipped ones';

--
-- Name: s_fire_timers(integer[], integer[], timestamp with time zone[], timestamp with time zone[], timestamp with time zone[], timestamp with time zone[], bigint[], timestamp with time zone[], timestamp with time zone[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_fire_timers(ids integer[], revisions integer[], expecteds timestamp with time zone[], fires timestamp with time zone[], nexts timestamp with time zone[], dues timestamp with time zone[], skippeds bigint[], los timestamp with time zone[], his timestamp with time zone[]) RETURNS TABLE(fired integer[], activated integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    moment timestamptz := mill.now();
    names text[];
    times timestamptz[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    fired := ARRAY(SELECT t.id FROM unnest(ids, revisions, expecteds) WITH ORDINALITY AS u (id, revision, expected, place)
                     JOIN mill.timer t ON t.id = u.id
                    WHERE t.revision = u.revision AND t.stale IS NULL AND t.next IS NOT DISTINCT FROM u.expected AND t.enabled
                      AND t.due <= moment AND NOT mill_private.is_timer_paused(t)
                    ORDER BY u.place FOR NO KEY UPDATE OF t SKIP LOCKED);
    UPDATE mill.timer t SET first = LEAST(t.first, u.fires), last = GREATEST(t.last, u.fires), next = u.next, due = u.due,
           skipped = t.skipped + u.skipped
      FROM unnest(ids, fires, nexts, dues, skippeds) AS u (id, fires, next, due, skipped) JOIN unnest(fired) AS f (id) ON f.id = u.id
     WHERE t.id = u.id;
    INSERT INTO mill.backfill (timer, lo, hi, "order")
    SELECT t.name, u.lo, u.hi, t.catchup FROM unnest(ids, los, his) AS u (id, lo, hi) JOIN unnest(fired) AS f (id) ON f.id = u.id
      JOIN mill.timer t ON t.id = u.id WHERE u.lo IS NOT NULL ORDER BY t.id;
    SELECT array_agg(t.name ORDER BY u.place), array_agg(u.fires ORDER BY u.place) INTO names, times
      FROM unnest(ids, fires) WITH ORDINALITY AS u (id, fires, place) JOIN unnest(fired) AS f (id) ON f.id = u.id
      JOIN mill.timer t ON t.id = u.id WHERE u.fires IS NOT NULL;
    activated := CASE WHEN names IS NULL THEN 0 ELSE mill_private.fire_times(names, times, 'live') END;
    RETURN NEXT;
END
$$;

--
-- Name: FUNCTION s_fire_timers(ids integer[], revisions integer[], expecteds timestamp with time zone[], fires timestamp with time zone[], nexts timestamp with time zone[], dues timestamp with time zone[], skippeds bigint[], los timestamp with time zone[], his timestamp with time zone[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_fire_timers(ids integer[], revisions integer[], expecteds timestamp with time zone[], fires timestamp with time zone[], nexts timestamp with time zone[], dues timestamp with time zone[], skippeds bigint[], los timestamp with time zone[], his timestamp with time zone[]) IS 'pgmill: fires a time of each of these timers, or skips missed times, and moves them on';

--
-- Name: s_list_backfills(integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_list_backfills(most integer) RETURNS TABLE(id integer, lo timestamp with time zone, hi timestamp with time zone, "order" text, fired bigint, at timestamp with time zone, span integer, pos integer, start timestamp with time zone, period interval, cron text, timezone text, room integer)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT o.* FROM (
        SELECT b.id, b.lo, b.hi, b."order", b.fired, b.at, b.span, b.pos, b.start, b.period, b.cron, b.timezone, mill_private.count_free_times(b.timer) AS room
          FROM mill.backfill b JOIN mill.timer t ON t.name = b.timer
         WHERE b.finished IS NULL AND NOT b.paused AND b.trouble IS NULL AND t.enabled AND NOT mill_private.is_timer_paused(t)
         ORDER BY b.id) AS o
     WHERE COALESCE(o.room, 1) > 0 LIMIT most
$$;

--
-- Name: FUNCTION s_list_backfills(most integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_list_backfills(most integer) IS 'pgmill: back-fills that can go on';

--
-- Name: s_list_timers(integer, integer[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_list_timers(most integer, except_for integer[]) RETURNS TABLE(id integer, name text, revision integer, stale text, start timestamp with time zone, stop timestamp with time zone, period interval, cron text, timezone text, shift interval, catchup text, catchup_age interval, last timestamp with time zone, next timestamp with time zone, due timestamp with time zone, now timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    moment timestamptz := mill.now();
BEGIN
    RETURN QUERY
    SELECT t.id, t.name, t.revision, t.stale, t.start, NULLIF(t.stop, 'infinity'), t.period, t.cron, t.timezone, t.shift, t.catchup,
           t.catchup_age, t.last, t.next, t.due, moment
      FROM mill.timer t WHERE t.stale IS NOT NULL AND NOT t.id = ANY (except_for) ORDER BY t.id LIMIT most;
    RETURN QUERY
    SELECT t.id, t.name, t.revision, t.stale, t.start, NULLIF(t.stop, 'infinity'), t.period, t.cron, t.timezone, t.shift, t.catchup,
           t.catchup_age, t.last, t.next, t.due, moment
      FROM mill.timer t WHERE t.due <= moment AND t.stale IS NULL AND NOT t.id = ANY (except_for) AND NOT mill_private.is_timer_paused(t)
     ORDER BY t.due, t.id LIMIT most;
END
$$;

--
-- Name: FUNCTION s_list_timers(most integer, except_for integer[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_list_timers(most integer, except_for integer[]) IS 'pgmill: timers that the keeper has to compute or fire';

--
-- Name: s_register(oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_register(queue oid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO mill_private.registration (queue) VALUES (s_register.queue);
END
$$;

--
-- Name: FUNCTION s_register(queue oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_register(queue oid) IS 'pgmill: registers a task table for the role that calls it';

--
-- Name: s_set_timers(integer[], integer[], timestamp with time zone[], timestamp with time zone[], text[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_set_timers(ids integer[], revisions integer[], nexts timestamp with time zone[], dues timestamp with time zone[], reasons text[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    done int;
BEGIN
    UPDATE mill.timer t SET next = u.next, due = CASE WHEN t.enabled THEN u.due END, stale = NULL, trouble = u.trouble
      FROM unnest(ids, revisions, nexts, dues, reasons) AS u (id, revision, next, due, trouble)
     WHERE t.id = u.id AND t.revision = u.revision AND t.stale IS NOT NULL;
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END
$$;

--
-- Name: FUNCTION s_set_timers(ids integer[], revisions integer[], nexts timestamp with time zone[], dues timestamp with time zone[], reasons text[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_set_timers(ids integer[], revisions integer[], nexts timestamp with time zone[], dues timestamp with time zone[], reasons text[]) IS 'pgmill: stores the next times of new or edited timers';

--
-- Name: s_stop_backfill(integer, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_stop_backfill(id integer, trouble text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    UPDATE mill.backfill b SET trouble = $2 WHERE b.id = $1
$_$;

--
-- Name: FUNCTION s_stop_backfill(id integer, trouble text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_stop_backfill(id integer, trouble text) IS 'pgmill: notes why a back-fill cannot go on';

--
-- Name: s_sweep_graph(integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_sweep_graph(most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
        SELECT s.ctid FROM mill_private.stash s LEFT JOIN mill.flow f ON f.name = s.flow
         WHERE s.touched < clock_timestamp() - COALESCE(f.keep, interval '1 month') LIMIT most FOR UPDATE OF s SKIP LOCKED)
    DELETE FROM mill_private.stash s USING old WHERE s.ctid = old.ctid;
    GET DIAGNOSTICS more = ROW_COUNT;
    gone := gone + more;
    WITH old AS (
        SELECT d.timer, d.at FROM mill.fired d LEFT JOIN mill.timer t ON t.id = d.timer
         WHERE d.made < clock_timestamp() - LEAST(interval '1 month', (SELECT min(keep) FROM mill.flow))
           AND d.made < clock_timestamp() - COALESCE((SELECT max(mill_private.get_retention(j.id)) FROM mill.edge e JOIN mill.job j ON j.name = e.job
                                                       WHERE e.from_timer = t.name), interval '0')
         ORDER BY d.made LIMIT most FOR UPDATE OF d SKIP LOCKED)
    DELETE FROM mill.fired d USING old WHERE d.timer = old.timer AND d.at = old.at;
    GET DIAGNOSTICS more = ROW_COUNT;
    gone := gone + more;
    -- Runs that no scheduler deletes, because they were in no queue or their queue does not exist any more.
    WITH old AS (
        SELECT r.id FROM mill_private.run r
         WHERE r.outcome IS NOT NULL AND r.recall IS NULL AND NOT EXISTS (SELECT FROM mill.queue q WHERE q.relid = r.queue)
           AND r.stop < clock_timestamp() - LEAST(interval '1 month', (SELECT min(keep) FROM mill.flow))
           AND r.stop < mill.now() - mill_private.get_retention(r.job) LIMIT most FOR UPDATE SKIP LOCKED)
    DELETE FROM mill_private.run r USING old WHERE r.id = old.id;
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN gone + more;
END
$$;

--
-- Name: FUNCTION s_sweep_graph(most integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_sweep_graph(most integer) IS 'pgmill: deletes old tokens, stashed values, fired times, and runs that no scheduler deletes';

--
-- Name: s_watch_graph(boolean, boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.s_watch_graph(held boolean, armed boolean) RETURNS TABLE(keeps boolean, hears boolean, used boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    keeps := held OR pg_try_advisory_lock(1835597830, 0);
    hears := keeps AND (armed OR pg_try_advisory_lock(1835597827, 0));
    used := keeps AND (SELECT g.used FROM mill_private.s_check_graph('{}') g);
    IF used AND hears THEN
        PERFORM pg_advisory_unlock(1835597827, 0);
        hears := false;
    END IF;
    RETURN NEXT;
END
$$;

--
-- Name: FUNCTION s_watch_graph(held boolean, armed boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.s_watch_graph(held boolean, armed boolean) IS 'pgmill: whether this session keeps the graph';

--
-- Name: set_function_rights(regprocedure, name[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.set_function_rights(object regprocedure, roles name[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    found name[];
    wanted name[] := ARRAY(SELECT DISTINCT r.rolname FROM pg_roles r, pg_proc p WHERE p.oid = object AND r.rolname = ANY (roles) AND r.oid <> p.proowner ORDER BY 1);
BEGIN
    found := ARRAY(SELECT DISTINCT COALESCE(r.rolname, '') FROM pg_proc p, aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
                     LEFT JOIN pg_roles r ON r.oid = a.grantee WHERE p.oid = object AND a.grantee <> p.proowner ORDER BY 1);
    IF found IS DISTINCT FROM wanted THEN
        PERFORM mill_private.run_grant(format('REVOKE ALL ON FUNCTION %s FROM', object) || ' %I CASCADE', u) FROM unnest(found) AS u;
        PERFORM mill_private.run_grant(format('GRANT EXECUTE ON FUNCTION %s TO', object) || ' %I', u) FROM unnest(wanted) AS u;
    END IF;
END
$$;

--
-- Name: FUNCTION set_function_rights(object regprocedure, roles name[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.set_function_rights(object regprocedure, roles name[]) IS 'pgmill: gives EXECUTE on a function to exactly these roles';

--
-- Name: set_next_start(oid, integer, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.set_next_start(relid oid, job integer, next timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION set_next_start(relid oid, job integer, next timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.set_next_start(relid oid, job integer, next timestamp with time zone) IS 'pgmill: when a job starts next, once';

--
-- Name: set_paused(integer, text, boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.set_paused(job integer, flow text, paused boolean) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF set_paused.flow IS NOT NULL THEN
        UPDATE mill.flow stored SET paused = set_paused.paused WHERE stored.name = set_paused.flow AND stored.paused <> set_paused.paused;
    ELSE
        UPDATE mill.job stored SET scheduled = NOT set_paused.paused WHERE stored.id = set_paused.job AND stored.scheduled = set_paused.paused;
    END IF;
    RETURN CASE WHEN NOT FOUND THEN 'no change' WHEN set_paused.paused THEN 'paused' ELSE 'resumed' END;
END
$$;

--
-- Name: FUNCTION set_paused(job integer, flow text, paused boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.set_paused(job integer, flow text, paused boolean) IS 'pgmill: pauses or resumes a flow, or else a job';

--
-- Name: set_stash(oid, integer, timestamp with time zone, text, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.set_stash(relid oid, job integer, at timestamp with time zone, key text, value text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    p record;
BEGIN
    SELECT * INTO p FROM mill_private.find_stash_place(relid, set_stash.job);
    INSERT INTO mill_private.stash AS s (flow, job, at, key, value) VALUES (p.flow, p.alone, set_stash.at, set_stash.key, set_stash.value)
    ON CONFLICT (COALESCE(flow, ''), COALESCE(job, 0), at, key) DO UPDATE SET value = EXCLUDED.value, touched = EXCLUDED.touched;
END
$$;

--
-- Name: FUNCTION set_stash(relid oid, job integer, at timestamp with time zone, key text, value text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.set_stash(relid oid, job integer, at timestamp with time zone, key text, value text) IS 'pgmill: stashes a value';

--
-- Name: settle_missing_runs(oid, bigint[], bigint[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.settle_missing_runs(relid oid, missing bigint[], waiting bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    one bigint;
    done int := 0;
BEGIN
    FOR one IN SELECT u.id FROM mill_private.run u WHERE u.id = ANY (missing) AND u.queue = relid AND u.outcome IS NULL AND NOT u.ordered
                ORDER BY u.id FOR NO KEY UPDATE SKIP LOCKED LOOP
        PERFORM mill_private.end_run(relid, one, NULL, 'FAIL', NULL, 'cancelled', 'ERROR:  task cancelled', NULL, NULL);
        done := done + 1;
    END LOOP;
    FOR one IN SELECT u.id FROM mill_private.run u WHERE u.id = ANY (waiting) AND u.queue = relid AND u.outcome IS NULL AND u.start IS NOT NULL
                ORDER BY u.id FOR NO KEY UPDATE SKIP LOCKED LOOP
        PERFORM mill_private.unbegin_run(relid, one);
        done := done + 1;
    END LOOP;
    RETURN done;
END
$$;

--
-- Name: FUNCTION settle_missing_runs(relid oid, missing bigint[], waiting bigint[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.settle_missing_runs(relid oid, missing bigint[], waiting bigint[]) IS 'pgmill: settles runs whose rows are gone from the queue';

--
-- Name: settle_run(mill_private.run, boolean, boolean); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.settle_run(ended mill_private.run, success boolean, by_user boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    moment timestamptz := mill.now();
    job_row mill.job := (SELECT stored FROM mill.job stored WHERE stored.id = ended.job);
    began bool := ended.start IS NOT NULL;
    failed bool := began AND NOT success AND ended.outcome NOT IN ('crashed', 'interrupted');
    stat mill_private.job_state;
    own bool;
    again timestamptz;
    over bool := true;
BEGIN
    IF job_row.id IS NULL THEN
        -- The job was deleted meanwhile. Its numbers go with the end of its last run.
        PERFORM mill_private.forget_job(ended.job);
        RETURN;
    END IF;
    stat := mill_private.lock_job_state(ended.job);
    IF stat.job IS NULL THEN
        RETURN;
    END IF;
    own := stat.run IS NOT NULL AND stat.run = COALESCE(ended.activation, ended.id);
    IF own AND NOT began THEN
        stat.next_start := NULL;
    END IF;
    stat := mill_private.count_ended_run(stat, ended, success, moment);
    IF began AND NOT success THEN
        again := mill_private.compute_retry_start(job_row, stat, ended, own, by_user, moment);
    END IF;
    IF again IS NOT NULL THEN
        over := NOT mill_private.order_retry(job_row, stat, ended, own, again, moment);
    END IF;
    IF own THEN
        stat.stamp := stat.stamp + 1;
        IF over OR failed THEN
            -- A next start that the run has set itself wins.
            stat.fill := job_row.cron IS NOT NULL AND stat.next_start IS NULL;
        END IF;
        IF over THEN
            stat.run := NULL;
            stat.next_start := COALESCE(stat.next_start, mill_private.compute_next_start(job_row, moment, moment));
        ELSE
            stat.next_start := again;
        END IF;
    END IF;
    UPDATE mill_private.job_state stored SET (last_start, last_finish, last_successful_finish, last_run_success, next_start, total_runs,
            total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes, total_duration,
            total_duration_failures, run, fill, stamp)
        = (stat.last_start, stat.last_finish, stat.last_successful_finish, stat.last_run_success, stat.next_start, stat.total_runs,
           stat.total_successes, stat.total_failures, stat.total_crashes, stat.consecutive_failures, stat.consecutive_crashes,
           stat.total_duration, stat.total_duration_failures, stat.run, stat.fill, stat.stamp)
     WHERE stored.job = ended.job;
    IF NOT over THEN
        PERFORM mill_private.free_flow_place(job_row);
        RETURN;
    ELSIF own THEN
        -- The plan has changed.
        PERFORM mill_private.wake_scheduler(stat.queue);
    END IF;
    IF failed THEN
        PERFORM mill_private.pause_failing_job(job_row, stat.consecutive_failures);
    END IF;
    PERFORM mill_private.finish_activation(ended.job, ended.at, ended.epoch, CASE WHEN success THEN 'succeeded' ELSE 'failed' END);
END
$$;

--
-- Name: FUNCTION settle_run(ended mill_private.run, success boolean, by_user boolean); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.settle_run(ended mill_private.run, success boolean, by_user boolean) IS 'pgmill: settles the end of a run: numbers and plan of its job, and the next run or the end of the activation';

--
-- Name: shift_time(timestamp with time zone, interval, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.shift_time(at timestamp with time zone, shift interval, zone text) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    days int := extract(day FROM shift)::int;
    months int := (extract(year FROM shift) * 12 + extract(month FROM shift))::int;
    hours interval := shift - make_interval(months => months, days => days);
    wall timestamp;
BEGIN
    IF days <> 0 OR months <> 0 THEN
        IF zone = 'UTC' THEN
            at := ((at AT TIME ZONE 'UTC') + make_interval(months => months, days => days)) AT TIME ZONE 'UTC';
        ELSE
            wall := (at AT TIME ZONE zone) + make_interval(months => months, days => days);
            at := mill_private.first_moment(wall, zone);
        END IF;
    END IF;
    RETURN at + hours;
END
$$;

--
-- Name: FUNCTION shift_time(at timestamp with time zone, shift interval, zone text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.shift_time(at timestamp with time zone, shift interval, zone text) IS 'pgmill: a logical time moved by the shift of an edge: months and days on the calendar of the zone, hours by the stopwatch';

--
-- Name: skip_job(integer, timestamp with time zone); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.skip_job(job integer, at timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION skip_job(job integer, at timestamp with time zone); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.skip_job(job integer, at timestamp with time zone) IS 'pgmill: skips the open runs of a job, or its next activation if none is open';

--
-- Name: start_jobs(oid, integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.start_jobs(relid oid, slots integer) RETURNS TABLE(started integer, until timestamp with time zone)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION start_jobs(relid oid, slots integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.start_jobs(relid oid, slots integer) IS 'pgmill: orders runs of the due jobs of a queue';

--
-- Name: unbegin_run(oid, bigint); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.unbegin_run(relid oid, run bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    r record;
BEGIN
    UPDATE mill_private.run u SET start = NULL, recall = CASE WHEN u.recall IS NOT NULL OR u.held THEN 'WITHDRAW' END
     WHERE u.id = unbegin_run.run AND u.queue = unbegin_run.relid AND u.start IS NOT NULL AND u.outcome IS NULL
    RETURNING u.job, u.due, u.epoch, COALESCE(u.activation, u.id) AS root INTO r;
    IF FOUND AND r.epoch IS NULL THEN
        UPDATE mill_private.job_state s SET next_start = COALESCE(s.next_start, r.due) WHERE s.job = r.job AND s.run = r.root;
    END IF;
END
$$;

--
-- Name: FUNCTION unbegin_run(relid oid, run bigint); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.unbegin_run(relid oid, run bigint) IS 'pgmill: a run was claimed and given back before it began';

--
-- Name: upsert_row(text, jsonb, jsonb); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.upsert_row(relation text, key jsonb, given jsonb) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    columns text := (SELECT string_agg(quote_ident(k), ', ' ORDER BY k) FROM jsonb_object_keys(key || given) AS k);
    changed text := (SELECT string_agg(quote_ident(k), ', ' ORDER BY k) FROM jsonb_object_keys(given) AS k);
    same text := (SELECT string_agg(format('t.%1$I IS NOT DISTINCT FROM r.%1$I', k), ' AND ') FROM jsonb_object_keys(key) AS k);
    there bool;
    n bigint;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM mill.%1$I t, jsonb_populate_record(NULL::mill.%1$I, $1) r WHERE %2$s)', relation, same)
       INTO there USING key;
    IF NOT there THEN
        EXECUTE format('INSERT INTO mill.%1$I (%2$s) SELECT %2$s FROM jsonb_populate_record(NULL::mill.%1$I, $1)', relation, columns)
          USING key || given;
        RETURN 'made';
    END IF;
    EXECUTE format('UPDATE mill.%1$I t SET (%2$s) = ROW (%3$s) FROM jsonb_populate_record(NULL::mill.%1$I, $1) r
                     WHERE %4$s AND ROW (%5$s) IS DISTINCT FROM ROW (%3$s)', relation, changed,
                   (SELECT string_agg(format('r.%I', k), ', ' ORDER BY k) FROM jsonb_object_keys(given) AS k), same,
                   (SELECT string_agg(format('t.%I', k), ', ' ORDER BY k) FROM jsonb_object_keys(given) AS k))
      USING key || given;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN CASE WHEN n > 0 THEN 'changed' ELSE 'same' END;
END
$_$;

--
-- Name: FUNCTION upsert_row(relation text, key jsonb, given jsonb); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.upsert_row(relation text, key jsonb, given jsonb) IS 'pgmill: inserts or updates a row from a document, unless it is equal already';

--
-- Name: wait_for_answer(oid, integer); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.wait_for_answer(place oid, number integer) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    until timestamptz := clock_timestamp() + interval '5 seconds';
    seconds_between_looks CONSTANT float8 := 0.02;
    met bool := false;
    answer bigint;
BEGIN
    LOOP
        WITH seen AS MATERIALIZED (
            SELECT held.pid, held.classid, held.objid FROM pg_locks held
             WHERE held.locktype = 'advisory' AND held.objsubid = 2 AND held.granted AND held.mode = 'ExclusiveLock'
        ), leaders AS MATERIALIZED (
            SELECT seen.pid, COALESCE(login.rolsuper OR pg_has_role(login.oid, 'pg_signal_backend', 'MEMBER')
                       OR (SELECT pg_has_role(login.oid, target.datdba, 'MEMBER') FROM pg_database target WHERE target.oid = place)
                       OR (SELECT pg_has_role(login.oid, catalog.nspowner, 'MEMBER') FROM pg_namespace catalog WHERE catalog.nspname = 'mill'), false) AS known
              FROM seen LEFT JOIN pg_stat_activity backend ON backend.pid = seen.pid LEFT JOIN pg_roles login ON login.oid = backend.usesysid
             WHERE seen.classid = 1835597825::oid)
        SELECT met OR EXISTS (SELECT FROM leaders WHERE leaders.known), (
            SELECT given.classid::bigint - 256 * number FROM seen given JOIN leaders leader ON leader.pid = given.pid
             WHERE given.objid = pg_backend_pid()::oid
               AND given.classid::bigint - 256 * number IN (1835597856, 1835597857, 1835597858)
               AND (leader.known OR NOT met AND NOT EXISTS (SELECT FROM leaders other WHERE other.known))
             LIMIT 1) INTO met, answer;
        EXIT WHEN answer IS NOT NULL OR clock_timestamp() >= until;
        PERFORM pg_sleep(seconds_between_looks);
    END LOOP;
    RETURN answer;
END
$$;

--
-- Name: FUNCTION wait_for_answer(place oid, number integer); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.wait_for_answer(place oid, number integer) IS 'pgmill: waits for the answer of the launcher to a message of this session; NULL: none came in time';

--
-- Name: wake_keeper(); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.wake_keeper() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM mill_private.wake_scheduler(0);
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION wake_keeper(); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.wake_keeper() IS 'pgmill: wakes the keeper of the graph up after a change';

--
-- Name: wake_scheduler(oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.wake_scheduler(relid oid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(1835597827, relid::int) THEN
        PERFORM pg_notify(concat('mill_', relid), '');
    END IF;
END
$$;

--
-- Name: FUNCTION wake_scheduler(relid oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.wake_scheduler(relid oid) IS 'pgmill: wakes the scheduler of a queue up if it sleeps';

--
-- Name: watch_jobs(oid, integer[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.watch_jobs(relid oid, jobs integer[]) RETURNS TABLE(job integer, ms double precision, scheduled boolean, name text, why text)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    -- 3e12 ms are a century
    RETURN QUERY SELECT j.id, LEAST(extract(epoch FROM j.max_runtime) * 1000, 3e12)::float8, j.scheduled, j.name,
                        (SELECT s.reason FROM mill_private.job_state s WHERE s.job = j.id AND NOT j.scheduled)
                   FROM mill.job j WHERE j.id = ANY (jobs)
                    AND (EXISTS (SELECT FROM mill_private.job_state s WHERE s.job = j.id AND s.queue = relid)
                         OR EXISTS (SELECT FROM mill_private.run r WHERE r.job = j.id AND r.outcome IS NULL AND r.queue = relid));
END
$$;

--
-- Name: FUNCTION watch_jobs(relid oid, jobs integer[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.watch_jobs(relid oid, jobs integer[]) IS 'pgmill: which jobs still exist, and their max_runtime';

--
-- Name: why_not_plain(oid); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.why_not_plain(relid oid) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    wrong text;
BEGIN
    IF (SELECT pg_get_userbyid(relation.relowner) = current_user FROM pg_class relation WHERE relation.oid = relid) THEN
        RETURN NULL;
    END IF;
    WITH RECURSIVE tree AS (
        SELECT relid AS oid UNION SELECT heir.inhrelid FROM tree JOIN pg_inherits heir ON heir.inhparent = tree.oid
    ), relation AS MATERIALIZED (
        SELECT known.* FROM tree JOIN pg_class known ON known.oid = tree.oid
    ), part (classid, oid, what) AS (
        SELECT 'pg_class'::regclass, relation.oid, 'its partition key' FROM relation
        UNION ALL SELECT 'pg_class'::regclass, one_index.indexrelid, 'an index' FROM relation JOIN pg_index one_index ON one_index.indrelid = relation.oid
        UNION ALL SELECT 'pg_statistic_ext'::regclass, statistic.oid, 'extended statistics' FROM relation JOIN pg_statistic_ext statistic ON statistic.stxrelid = relation.oid
        UNION ALL SELECT 'pg_constraint'::regclass, one_constraint.oid, 'a constraint' FROM relation JOIN pg_constraint one_constraint ON one_constraint.conrelid = relation.oid
    ), plain_type AS (
        SELECT kind.oid FROM pg_type kind LEFT JOIN pg_type base ON base.oid = kind.typbasetype
         WHERE kind.typnamespace = 'pg_catalog'::regnamespace
            OR kind.typtype = 'e' AND NOT EXISTS (SELECT FROM pg_cast conversion WHERE kind.oid IN (conversion.castsource, conversion.casttarget))
            OR kind.typtype = 'd' AND base.typnamespace = 'pg_catalog'::regnamespace AND base.typtype = 'b'
    )
    SELECT reason.wrong INTO wrong FROM (
        SELECT CASE relation.relkind WHEN 'v' THEN 'it is a view' WHEN 'm' THEN 'it is a materialized view' WHEN 'f' THEN 'it is or has a foreign table'
                              ELSE 'it is no table' END AS wrong FROM relation WHERE relation.relkind NOT IN ('r', 'p')
        UNION ALL SELECT 'it has row security' FROM relation WHERE relation.relrowsecurity OR relation.relforcerowsecurity
        UNION ALL SELECT 'it has a rule' FROM relation JOIN pg_rewrite rule ON rule.ev_class = relation.oid
        UNION ALL SELECT format('column %I is computed when it is read', attribute.attname) FROM relation JOIN pg_attribute attribute ON attribute.attrelid = relation.oid
                   WHERE attribute.attgenerated NOT IN ('', 's')
        UNION ALL SELECT format('column %I has the type %s', attribute.attname, attribute.atttypid::regtype)
                    FROM relation JOIN pg_attribute attribute ON attribute.attrelid = relation.oid
                   WHERE attribute.attnum > 0 AND NOT attribute.attisdropped AND attribute.atttypid NOT IN (SELECT plain_type.oid FROM plain_type)
        UNION ALL SELECT format('%s uses %s', part.what, pg_describe_object(dependency.refclassid, dependency.refobjid, dependency.refobjsubid))
                    FROM part JOIN pg_depend dependency ON (dependency.classid, dependency.objid) = (part.classid, part.oid)
                   WHERE dependency.refclassid = 'pg_proc'::regclass
                          AND EXISTS (SELECT FROM pg_proc routine WHERE routine.oid = dependency.refobjid AND routine.pronamespace <> 'pg_catalog'::regnamespace)
                      OR dependency.refclassid = 'pg_operator'::regclass
                          AND EXISTS (SELECT FROM pg_operator object WHERE object.oid = dependency.refobjid AND object.oprnamespace <> 'pg_catalog'::regnamespace)
                      OR dependency.refclassid = 'pg_opclass'::regclass
                          AND EXISTS (SELECT FROM pg_opclass object WHERE object.oid = dependency.refobjid AND object.opcnamespace <> 'pg_catalog'::regnamespace)
                      OR dependency.refclassid = 'pg_opfamily'::regclass
                          AND EXISTS (SELECT FROM pg_opfamily object WHERE object.oid = dependency.refobjid AND object.opfnamespace <> 'pg_catalog'::regnamespace)
                      OR dependency.refclassid = 'pg_type'::regclass AND dependency.refobjid NOT IN (SELECT plain_type.oid FROM plain_type)
    ) AS reason LIMIT 1;
    RETURN wrong;
END
$$;

--
-- Name: FUNCTION why_not_plain(relid oid); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.why_not_plain(relid oid) IS 'pgmill: what could run code of its owner when the table is read; NULL: nothing, or the caller owns it';

--
-- Name: withdraw_runs(oid, bigint[]); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.withdraw_runs(relid oid, runs bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
$$;

--
-- Name: FUNCTION withdraw_runs(relid oid, runs bigint[]); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.withdraw_runs(relid oid, runs bigint[]) IS 'pgmill: rows of runs leave their queue before they have begun';

--
-- Name: zone_offset(timestamp with time zone, text); Type: FUNCTION; Schema: mill_private; Owner: -
--

CREATE FUNCTION mill_private.zone_offset(moment timestamp with time zone, zone text) RETURNS interval
    LANGUAGE sql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (timezone(zone, moment) - timezone('UTC'::text, moment));

--
-- Name: FUNCTION zone_offset(moment timestamp with time zone, zone text); Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON FUNCTION mill_private.zone_offset(moment timestamp with time zone, zone text) IS 'pgmill: how far the clock of a zone is ahead of UTC';

--
-- Name: mill_claimed(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.mill_claimed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']) THEN
        NEW.state := 'PLAN';
        NEW.start := NULL;
        NEW.pid := NULL;
        NEW.remote_session := NULL;
    END IF;
    RETURN NEW;
END
$$;

--
-- Name: FUNCTION mill_claimed(); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.mill_claimed() IS 'pgmill: refuses rows that are inserted as claimed: their pid could be that of another session';

--
-- Name: mill_hold(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.mill_hold() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.held := true;
    RETURN NEW;
END
$$;

--
-- Name: FUNCTION mill_hold(); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.mill_hold() IS 'pgmill: holds a row that is planned for later until its time';

--
-- Name: mill_wakeup(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.mill_wakeup() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    root pg_catalog.oid := COALESCE(pg_catalog.pg_partition_root(TG_RELID), TG_RELID);
BEGIN
    IF NOT pg_catalog.pg_try_advisory_xact_lock_shared(1835597827, root::pg_catalog.int4) THEN
        PERFORM pg_catalog.pg_notify(pg_catalog.concat('mill_', root), '');
    END IF;
    RETURN NULL;
END
$$;

--
-- Name: FUNCTION mill_wakeup(); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.mill_wakeup() IS 'pgmill: wakes the scheduler of this table up, if it sleeps';

--
-- Name: backfill; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.backfill (
    id integer NOT NULL,
    timer text NOT NULL,
    lo timestamp with time zone NOT NULL,
    hi timestamp with time zone NOT NULL,
    "order" text DEFAULT 'earliest'::text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    fired bigint DEFAULT 0 NOT NULL,
    at timestamp with time zone,
    span integer DEFAULT 0 NOT NULL,
    pos integer DEFAULT 0 NOT NULL,
    finished timestamp with time zone,
    made timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    made_by name DEFAULT CURRENT_USER NOT NULL,
    start timestamp with time zone,
    period interval,
    cron text,
    timezone text,
    trouble text
);

--
-- Name: TABLE backfill; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.backfill IS 'pgmill: ranges of past times that a timer fires, a few at once, behind live work';

--
-- Name: COLUMN backfill.id; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.id IS 'drawn by the catalog';

--
-- Name: COLUMN backfill.timer; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.timer IS 'the timer whose times are fired';

--
-- Name: COLUMN backfill.lo; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.lo IS 'from this logical time on';

--
-- Name: COLUMN backfill.hi; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.hi IS 'up to this logical time, exclusive';

--
-- Name: COLUMN backfill."order"; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill."order" IS 'earliest, latest or random first';

--
-- Name: COLUMN backfill.paused; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.paused IS 'true: it does not go on';

--
-- Name: COLUMN backfill.fired; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.fired IS 'how many times have been fired';

--
-- Name: COLUMN backfill.at; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.at IS 'the time that was fired last';

--
-- Name: COLUMN backfill.span; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.span IS 'how far it has come: the range is cut into spans, and this one is next';

--
-- Name: COLUMN backfill.pos; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.pos IS 'how far it has come: so many times of that span are fired';

--
-- Name: COLUMN backfill.finished; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.finished IS 'when its last time was fired';

--
-- Name: COLUMN backfill.made; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.made IS 'when it was inserted';

--
-- Name: COLUMN backfill.made_by; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.made_by IS 'the role that inserted it';

--
-- Name: COLUMN backfill.start; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.start IS 'the timer''s schedule when the back-fill was inserted, with period, cron and timezone';

--
-- Name: COLUMN backfill.period; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.period IS 'the period of the timer when the back-fill was inserted';

--
-- Name: COLUMN backfill.cron; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.cron IS 'the cron expression of the timer when the back-fill was inserted';

--
-- Name: COLUMN backfill.timezone; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.timezone IS 'the time zone of the timer when the back-fill was inserted';

--
-- Name: COLUMN backfill.trouble; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.backfill.trouble IS 'why it cannot go on';

--
-- Name: backfill_id_seq; Type: SEQUENCE; Schema: mill; Owner: -
--

ALTER TABLE mill.backfill ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mill.backfill_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: command_id_seq; Type: SEQUENCE; Schema: mill; Owner: -
--

ALTER TABLE mill.command ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mill.command_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: edge_id_seq; Type: SEQUENCE; Schema: mill; Owner: -
--

ALTER TABLE mill.edge ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mill.edge_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: fired; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.fired (
    timer integer NOT NULL,
    at timestamp with time zone NOT NULL,
    live integer DEFAULT 0 NOT NULL,
    filled integer DEFAULT 0 NOT NULL,
    by_hand integer DEFAULT 0 NOT NULL,
    revision integer NOT NULL,
    made timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen pg_snapshot DEFAULT pg_current_snapshot() NOT NULL
);

--
-- Name: TABLE fired; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.fired IS 'pgmill: the logical times that timers have fired';

--
-- Name: COLUMN fired.timer; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.fired.timer IS 'the id of the timer';

--
-- Name: COLUMN fired.at; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.fired.at IS 'the logical time';

--
-- Name: COLUMN fired.live; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.fired.live IS 'by its own clock: once, and never again';

--
-- Name: COLUMN fired.filled; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.fired.filled IS 'by back-fills';

--
-- Name: COLUMN fired.by_hand; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.fired.by_hand IS 'by mill.fire';

--
-- Name: COLUMN fired.revision; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.fired.revision IS 'of the timer, when it fired last';

--
-- Name: COLUMN fired.made; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.fired.made IS 'when it was fired first';

--
-- Name: COLUMN fired.seen; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.fired.seen IS 'the transactions that had ended by then: edges made by them were known';

--
-- Name: flow; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.flow (
    name text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    parallel integer,
    "window" integer,
    keep interval,
    note text,
    owner name DEFAULT CURRENT_USER NOT NULL
);

--
-- Name: TABLE flow; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.flow IS 'pgmill: flows: jobs that are drawn, paused and limited together';

--
-- Name: COLUMN flow.name; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.flow.name IS 'unique; jobs and timers name their flow by it';

--
-- Name: COLUMN flow.paused; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.flow.paused IS 'no new starts: runs that have not begun are held, tokens wait';

--
-- Name: COLUMN flow.parallel; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.flow.parallel IS 'how many of its tasks may run at once; NULL: no limit';

--
-- Name: COLUMN flow."window"; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.flow."window" IS 'how many logical times a back-fill may have open at once; NULL: no limit';

--
-- Name: COLUMN flow.keep; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.flow.keep IS 'how long tokens and stashed values of a time are kept after its last change; NULL: a month';

--
-- Name: COLUMN flow.note; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.flow.note IS 'for people';

--
-- Name: COLUMN flow.owner; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.flow.owner IS 'the role whose members may change and command it';

--
-- Name: integrity; Type: VIEW; Schema: mill; Owner: -
--

CREATE VIEW mill.integrity AS
 SELECT audit_graph.edge,
    audit_graph.job,
    audit_graph.at,
    audit_graph.what,
    audit_graph.delivered,
    audit_graph.consumed,
    audit_graph.waiting
   FROM mill_private.audit_graph() audit_graph(edge, job, at, what, delivered, consumed, waiting);

--
-- Name: VIEW integrity; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON VIEW mill.integrity IS 'pgmill: tokens that are not accounted for; without a problem it has no rows';

--
-- Name: COLUMN integrity.edge; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.integrity.edge IS 'the id of the edge';

--
-- Name: COLUMN integrity.job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.integrity.job IS 'the job that the edge leads to';

--
-- Name: COLUMN integrity.at; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.integrity.at IS 'the logical time';

--
-- Name: COLUMN integrity.what; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.integrity.what IS 'what is wrong';

--
-- Name: COLUMN integrity.delivered; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.integrity.delivered IS 'tokens delivered';

--
-- Name: COLUMN integrity.consumed; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.integrity.consumed IS 'tokens consumed, or allowed activations';

--
-- Name: COLUMN integrity.waiting; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.integrity.waiting IS 'tokens waiting, or found activations';

--
-- Name: job_id_seq; Type: SEQUENCE; Schema: mill; Owner: -
--

CREATE SEQUENCE mill.job_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

--
-- Name: job_id_seq; Type: SEQUENCE OWNED BY; Schema: mill; Owner: -
--

ALTER SEQUENCE mill.job_id_seq OWNED BY mill.job.id;

--
-- Name: job_delta; Type: TABLE; Schema: mill_private; Owner: -
--

CREATE TABLE mill_private.job_delta (
    job integer NOT NULL,
    run bigint NOT NULL,
    moment timestamp with time zone NOT NULL,
    lasted interval,
    gone boolean DEFAULT false NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

--
-- Name: TABLE job_delta; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON TABLE mill_private.job_delta IS 'pgmill: successes that have not been added to mill_private.job_state yet; mill.job_stat counts them';

--
-- Name: COLUMN job_delta.job; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_delta.job IS 'the id of the job';

--
-- Name: COLUMN job_delta.run; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_delta.run IS 'the run that has succeeded; 0 where `gone`';

--
-- Name: COLUMN job_delta.moment; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_delta.moment IS 'when the run ended';

--
-- Name: COLUMN job_delta.lasted; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_delta.lasted IS 'how long the run took';

--
-- Name: COLUMN job_delta.gone; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_delta.gone IS 'the job was deleted while its state was locked or a run of it was under way';

--
-- Name: job_counters; Type: VIEW; Schema: mill_private; Owner: -
--

CREATE VIEW mill_private.job_counters AS
 SELECT b.job,
    GREATEST(b.last_start, t.last_start) AS last_start,
    GREATEST(b.last_finish, t.last_success) AS last_finish,
    GREATEST(b.last_successful_finish, t.last_success) AS last_successful_finish,
        CASE
            WHEN (t.successes > 0) THEN true
            ELSE b.last_run_success
        END AS last_run_success,
    b.next_start,
    (b.total_runs + COALESCE(t.successes, (0)::bigint)) AS total_runs,
    (b.total_successes + COALESCE(t.successes, (0)::bigint)) AS total_successes,
    b.total_failures,
    b.total_crashes,
        CASE
            WHEN (t.successes > 0) THEN 0
            ELSE b.consecutive_failures
        END AS consecutive_failures,
        CASE
            WHEN (t.successes > 0) THEN 0
            ELSE b.consecutive_crashes
        END AS consecutive_crashes,
    (b.total_duration + COALESCE(t.lasted, '00:00:00'::interval)) AS total_duration,
    b.total_duration_failures,
    b.reason,
    b.queue,
    b.scheduled,
    b.run,
    b.fill,
    b.stamp,
    b.due
   FROM (mill_private.job_state b
     LEFT JOIN ( SELECT f.job,
            count(*) AS successes,
            sum(f.lasted) AS lasted,
            max((f.moment - f.lasted)) AS last_start,
            max(f.moment) AS last_success
           FROM mill_private.job_delta f
          WHERE (NOT f.gone)
          GROUP BY f.job) t ON ((t.job = b.job)));

--
-- Name: VIEW job_counters; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON VIEW mill_private.job_counters IS 'pgmill: plan and numbers of all jobs with their deltas';

--
-- Name: job_live; Type: VIEW; Schema: mill_private; Owner: -
--

CREATE VIEW mill_private.job_live AS
 SELECT n.job,
    GREATEST(n.last_start, w.last_start) AS last_start,
    n.last_finish,
    n.last_successful_finish,
    n.last_run_success,
    n.next_start,
    (n.total_runs + w.runs) AS total_runs,
    n.total_successes,
    n.total_failures,
    (n.total_crashes + w.runs) AS total_crashes,
    n.consecutive_failures,
    ((n.consecutive_crashes + w.since))::integer AS consecutive_crashes,
    n.total_duration,
    n.total_duration_failures,
    n.reason,
    n.queue,
    n.scheduled,
    n.run,
    (w.runs)::integer AS running,
    n.fill,
    n.stamp,
    n.due
   FROM (mill_private.job_counters n
     CROSS JOIN LATERAL ( SELECT count(*) AS runs,
            count(*) FILTER (WHERE (((r.start + m.clock) > n.last_finish) IS NOT FALSE)) AS since,
            max((r.start + m.clock)) AS last_start
           FROM mill_private.run r,
            mill.meta m
          WHERE ((r.job = n.job) AND (r.outcome IS NULL) AND (r.start IS NOT NULL))) w);

--
-- Name: VIEW job_live; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON VIEW mill_private.job_live IS 'pgmill: plan and numbers of all jobs with deltas and runs under way; mill.job_stat shows each role its own';

--
-- Name: job_stat; Type: VIEW; Schema: mill; Owner: -
--

CREATE VIEW mill.job_stat WITH (security_barrier='true') AS
 SELECT s.job,
    s.last_start,
    s.last_finish,
    s.last_successful_finish,
    s.last_run_success,
    s.next_start,
    s.total_runs,
    s.total_successes,
    s.total_failures,
    s.total_crashes,
    s.consecutive_failures,
    s.consecutive_crashes,
    s.total_duration,
    s.total_duration_failures,
    s.reason,
    s.queue,
    s.scheduled,
    s.run,
    s.running,
    s.fill,
    s.stamp,
    s.due
   FROM mill_private.job_live s
  WHERE (( SELECT (NOT row_security_active(('mill.job'::regclass)::oid))) OR (EXISTS ( SELECT
           FROM mill.job j
          WHERE ((j.id = s.job) AND mill_private.is_member(j.owner)))));

--
-- Name: VIEW job_stat; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON VIEW mill.job_stat IS 'pgmill: statistics of every job, and when it starts next; unknown is NULL';

--
-- Name: COLUMN job_stat.job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.job IS 'the id of the job';

--
-- Name: COLUMN job_stat.last_start; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.last_start IS 'when a run began last';

--
-- Name: COLUMN job_stat.last_finish; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.last_finish IS 'when a run ended last';

--
-- Name: COLUMN job_stat.last_successful_finish; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.last_successful_finish IS 'when a run succeeded last';

--
-- Name: COLUMN job_stat.last_run_success; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.last_run_success IS 'whether the last run that ended succeeded';

--
-- Name: COLUMN job_stat.next_start; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.next_start IS 'when its schedule starts it next';

--
-- Name: COLUMN job_stat.total_runs; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.total_runs IS 'runs that have begun';

--
-- Name: COLUMN job_stat.total_successes; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.total_successes IS 'runs that have succeeded';

--
-- Name: COLUMN job_stat.total_failures; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.total_failures IS 'runs that have failed';

--
-- Name: COLUMN job_stat.total_crashes; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.total_crashes IS 'starts without an end: it rises when a run starts and falls when it ends';

--
-- Name: COLUMN job_stat.consecutive_failures; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.consecutive_failures IS 'failures since the last success';

--
-- Name: COLUMN job_stat.consecutive_crashes; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.consecutive_crashes IS 'crashes since the last run that ended without one, and runs under way';

--
-- Name: COLUMN job_stat.total_duration; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.total_duration IS 'how long the successful runs took';

--
-- Name: COLUMN job_stat.total_duration_failures; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.total_duration_failures IS 'how long the failed runs took';

--
-- Name: COLUMN job_stat.reason; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.reason IS 'why the catalog has paused the job; NULL if a user did';

--
-- Name: COLUMN job_stat.queue; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.queue IS 'the OID of the task table';

--
-- Name: COLUMN job_stat.scheduled; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.scheduled IS 'as in mill.job';

--
-- Name: COLUMN job_stat.run; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.run IS 'the open activation that its schedule has started: the id of its first run';

--
-- Name: COLUMN job_stat.running; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.running IS 'runs that have begun and not ended';

--
-- Name: COLUMN job_stat.fill; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.fill IS 'next_start waits for the scheduler, because SQL cannot compute it (cron)';

--
-- Name: COLUMN job_stat.stamp; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.stamp IS 'rises with every change of the plan; an answer to an older one is ignored';

--
-- Name: COLUMN job_stat.due; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_stat.due IS 'when its scheduler starts it: next_start, unless it is paused or an activation is open';

--
-- Name: job_status; Type: VIEW; Schema: mill; Owner: -
--

CREATE VIEW mill.job_status WITH (security_barrier='true') AS
 SELECT j.id AS job,
    j.name,
    j.owner,
    j.queue,
        CASE
            WHEN (s.running > 0) THEN 'Running'::text
            WHEN j.scheduled THEN 'Scheduled'::text
            ELSE 'Paused'::text
        END AS status,
        CASE
            WHEN j.scheduled THEN s.next_start
            ELSE NULL::timestamp with time zone
        END AS next_start,
        CASE
            WHEN (s.running > 0) THEN format('running since %s'::text, s.last_start)
            WHEN (NOT j.scheduled) THEN COALESCE(s.reason, 'paused by a user (scheduled = false)'::text)
            WHEN (NOT s.served) THEN format('no scheduler serves %s: is the launcher running? check with: launcher status'::text, j.queue)
            WHEN s.fill THEN 'its scheduler computes the next start'::text
            WHEN (s.consecutive_crashes > 0) THEN format('the last run crashed: it is retried at %s'::text, s.next_start)
            WHEN ((s.run IS NOT NULL) AND (s.next_start > mill.now())) THEN format('the last run failed: it is retried at %s'::text, s.next_start)
            WHEN (s.next_start <= mill.now()) THEN format('due since %s: it waits for a free slot or for its group'::text, s.next_start)
            WHEN (s.next_start IS NOT NULL) THEN format('planned for %s'::text, s.next_start)
            WHEN ((j.schedule_interval IS NULL) AND (j.cron IS NULL)) THEN 'no schedule: edges or mill.run_job start it'::text
            ELSE 'its schedule has no times left'::text
        END AS why
   FROM (mill.job j
     CROSS JOIN LATERAL ( SELECT s_1.job,
            s_1.last_start,
            s_1.last_finish,
            s_1.last_successful_finish,
            s_1.last_run_success,
            s_1.next_start,
            s_1.total_runs,
            s_1.total_successes,
            s_1.total_failures,
            s_1.total_crashes,
            s_1.consecutive_failures,
            s_1.consecutive_crashes,
            s_1.total_duration,
            s_1.total_duration_failures,
            s_1.reason,
            s_1.queue,
            s_1.scheduled,
            s_1.run,
            s_1.running,
            s_1.fill,
            s_1.stamp,
            s_1.due,
            mill_private.is_locked(1835597826, s_1.queue, ( SELECT d.oid
                   FROM pg_database d
                  WHERE (d.datname = current_database()))) AS served
           FROM mill_private.job_live s_1
          WHERE (s_1.job = j.id)) s)
  WHERE mill_private.is_member(j.owner);

--
-- Name: VIEW job_status; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON VIEW mill.job_status IS 'pgmill: whether each job runs, waits or is paused, when it starts next, and why';

--
-- Name: COLUMN job_status.job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_status.job IS 'the id of the job';

--
-- Name: COLUMN job_status.name; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_status.name IS 'the name of the job';

--
-- Name: COLUMN job_status.owner; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_status.owner IS 'the owner of the job';

--
-- Name: COLUMN job_status.queue; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_status.queue IS 'the task table, as schema.table';

--
-- Name: COLUMN job_status.status; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_status.status IS 'Running, Scheduled or Paused';

--
-- Name: COLUMN job_status.next_start; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_status.next_start IS 'when its schedule starts it next; NULL while it is paused';

--
-- Name: COLUMN job_status.why; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.job_status.why IS 'why it is not running, in one sentence';

--
-- Name: queue; Type: TABLE; Schema: mill; Owner: -
--

CREATE TABLE mill.queue (
    relid oid NOT NULL,
    schema name NOT NULL,
    name name NOT NULL,
    owner name NOT NULL,
    "user" name,
    trouble text
);

--
-- Name: TABLE queue; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON TABLE mill.queue IS 'pgmill: the task tables that a scheduler has served in this database';

--
-- Name: COLUMN queue.relid; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.queue.relid IS 'the OID of the table';

--
-- Name: COLUMN queue.schema; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.queue.schema IS 'the schema of the table';

--
-- Name: COLUMN queue.name; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.queue.name IS 'the name of the table';

--
-- Name: COLUMN queue.owner; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.queue.owner IS 'the owner of the table';

--
-- Name: COLUMN queue."user"; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.queue."user" IS 'the role that its scheduler and its workers log in as';

--
-- Name: COLUMN queue.trouble; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.queue.trouble IS 'why its scheduler does not serve it on this server, or why its workers cannot begin; NULL: nothing is known';

--
-- Name: run; Type: VIEW; Schema: mill; Owner: -
--

CREATE VIEW mill.run WITH (security_invoker='true') AS
 SELECT r.id,
    j.name,
    j.flow,
    format('%I.%I'::text, q.schema, q.name) AS queue,
    r.job,
    r.task,
    r.attempt,
    r.at,
    COALESCE(r.outcome, 'running'::text) AS state,
    r.start,
    r.stop,
    r.sqlstate,
    r.reason,
    r.error,
    r.output,
    r.definition,
    COALESCE(r.activation, r.id) AS run_of
   FROM ((mill_private.run r
     JOIN mill.job j ON ((j.id = r.job)))
     LEFT JOIN mill.queue q ON ((q.relid = r.queue)))
  WHERE ((r.start IS NOT NULL) OR (r.outcome IS NOT NULL));

--
-- Name: VIEW run; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON VIEW mill.run IS 'pgmill: every run of every job that has begun or ended';

--
-- Name: COLUMN run.id; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.id IS 'what mill.run and mill.run_job return; never used again';

--
-- Name: COLUMN run.name; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.name IS 'the name of the job';

--
-- Name: COLUMN run.flow; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.flow IS 'the flow of the job';

--
-- Name: COLUMN run.queue; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.queue IS 'the task table that it ran in; NULL = it needed no worker';

--
-- Name: COLUMN run.job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.job IS 'the id of the job';

--
-- Name: COLUMN run.task; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.task IS 'its row in the task table, which may be deleted by now';

--
-- Name: COLUMN run.attempt; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.attempt IS 'counts the runs of one activation';

--
-- Name: COLUMN run.at; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.at IS 'the logical time that it ran for';

--
-- Name: COLUMN run.state; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.state IS 'running, succeeded, failed, crashed, interrupted, cancelled or skipped';

--
-- Name: COLUMN run.start; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.start IS 'when it began';

--
-- Name: COLUMN run.stop; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.stop IS 'when it ended';

--
-- Name: COLUMN run.sqlstate; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.sqlstate IS 'SQLSTATE of the error, if the server gave one';

--
-- Name: COLUMN run.reason; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.reason IS 'why it ended other than by its own SQL';

--
-- Name: COLUMN run.error; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.error IS 'the error, as the server reported it';

--
-- Name: COLUMN run.output; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.output IS 'the result of the input';

--
-- Name: COLUMN run.definition; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.definition IS 'the input that was run';

--
-- Name: COLUMN run.run_of; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.run.run_of IS 'the first run of the same activation';

--
-- Name: timer_id_seq; Type: SEQUENCE; Schema: mill; Owner: -
--

ALTER TABLE mill.timer ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mill.timer_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: waiting; Type: VIEW; Schema: mill; Owner: -
--

CREATE VIEW mill.waiting WITH (security_barrier='true') AS
 SELECT j.name AS job,
    j.flow,
    k.at,
    k.since,
    ( SELECT array_agg((mill_private.describe_edge(e.*) ||
                CASE
                    WHEN (w.n > 1) THEN format(' (%s times)'::text, w.n)
                    ELSE ''::text
                END) ORDER BY e.id) AS array_agg
           FROM (mill.edge e
             JOIN ( SELECT u.u AS id,
                    count(*) AS n
                   FROM unnest(k.waiting) u(u)
                  GROUP BY u.u) w ON ((w.id = e.id)))) AS delivered,
    ( SELECT array_agg(mill_private.describe_edge(e.*) ORDER BY e.id) AS array_agg
           FROM mill.edge e
          WHERE ((e.job = j.name) AND (NOT (e.id = ANY (k.waiting))) AND ((j.threshold IS NOT NULL) OR (e."on" <> 'failure'::text)))) AS missing,
        CASE
            WHEN (NOT j.scheduled) THEN 'the job is paused'::text
            WHEN f.paused THEN format('flow "%s" is paused'::text, f.name)
            WHEN (j.threshold IS NOT NULL) THEN format('%s of %s tokens have arrived'::text, cardinality(k.waiting), j.threshold)
            ELSE 'not all edges have delivered'::text
        END AS why
   FROM ((mill.token k
     JOIN mill.job j ON ((j.id = k.job)))
     LEFT JOIN mill.flow f ON ((f.name = j.flow)))
  WHERE ((k.since IS NOT NULL) AND mill_private.is_member(j.owner));

--
-- Name: VIEW waiting; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON VIEW mill.waiting IS 'pgmill: waiting tokens: which edges have delivered, which have not, and since when';

--
-- Name: COLUMN waiting.job; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.waiting.job IS 'the job whose tokens wait';

--
-- Name: COLUMN waiting.flow; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.waiting.flow IS 'the flow of the job';

--
-- Name: COLUMN waiting.at; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.waiting.at IS 'the logical time';

--
-- Name: COLUMN waiting.since; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.waiting.since IS 'when the oldest waiting token arrived';

--
-- Name: COLUMN waiting.delivered; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.waiting.delivered IS 'edges whose tokens wait';

--
-- Name: COLUMN waiting.missing; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.waiting.missing IS 'edges that have not delivered';

--
-- Name: COLUMN waiting.why; Type: COMMENT; Schema: mill; Owner: -
--

COMMENT ON COLUMN mill.waiting.why IS 'why the job is not activated';

--
-- Name: grant_list; Type: TABLE; Schema: mill_private; Owner: -
--

CREATE TABLE mill_private.grant_list (
    level text NOT NULL,
    object text NOT NULL,
    rights text NOT NULL,
    CONSTRAINT grant_list_level_check CHECK ((level = ANY (ARRAY['use'::text, 'operate'::text, 'serve'::text, 'keep'::text])))
);

--
-- Name: TABLE grant_list; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON TABLE mill_private.grant_list IS 'pgmill: what mill.grant and mill.admit give, a line per object: GRANT rights ON object';

--
-- Name: COLUMN grant_list.level; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.grant_list.level IS 'use or operate (mill.grant), serve or keep (mill.admit)';

--
-- Name: COLUMN grant_list.object; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.grant_list.object IS 'what GRANT expects behind ON';

--
-- Name: COLUMN grant_list.rights; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.grant_list.rights IS 'what GRANT expects before ON';

--
-- Name: job_version; Type: TABLE; Schema: mill_private; Owner: -
--

CREATE TABLE mill_private.job_version (
    id bigint NOT NULL,
    queue oid NOT NULL,
    n bigint DEFAULT 1 NOT NULL
);

--
-- Name: TABLE job_version; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON TABLE mill_private.job_version IS 'pgmill: the sum over a queue rises with every change of its jobs';

--
-- Name: COLUMN job_version.id; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_version.id IS 'one of several rows of a queue';

--
-- Name: COLUMN job_version.queue; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_version.queue IS 'the OID of the task table';

--
-- Name: COLUMN job_version.n; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.job_version.n IS 'rises with every change';

--
-- Name: job_version_id_seq; Type: SEQUENCE; Schema: mill_private; Owner: -
--

ALTER TABLE mill_private.job_version ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mill_private.job_version_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: registration; Type: TABLE; Schema: mill_private; Owner: -
--

CREATE TABLE mill_private.registration (
    queue oid NOT NULL,
    made_by name NOT NULL
);

--
-- Name: TABLE registration; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON TABLE mill_private.registration IS 'pgmill: an INSERT registers a queue; no row stays';

--
-- Name: COLUMN registration.queue; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.registration.queue IS 'the OID of the task table';

--
-- Name: COLUMN registration.made_by; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.registration.made_by IS 'the role that writes the row';

--
-- Name: request; Type: TABLE; Schema: mill_private; Owner: -
--

CREATE TABLE mill_private.request (
    action text NOT NULL,
    job integer NOT NULL,
    moment timestamp with time zone,
    made_by name NOT NULL
);

--
-- Name: TABLE request; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON TABLE mill_private.request IS 'pgmill: an INSERT does what mill.run_job and mill.set_next_start ask for; no row stays';

--
-- Name: COLUMN request.action; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.request.action IS 'run or next_start';

--
-- Name: COLUMN request.job; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.request.job IS 'the id of the job';

--
-- Name: COLUMN request.moment; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.request.moment IS 'next_start: when it starts next';

--
-- Name: COLUMN request.made_by; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.request.made_by IS 'the role that writes the row, and for which it is done';

--
-- Name: run_id_seq; Type: SEQUENCE; Schema: mill_private; Owner: -
--

ALTER TABLE mill_private.run ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mill_private.run_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: stash; Type: TABLE; Schema: mill_private; Owner: -
--

CREATE TABLE mill_private.stash (
    id bigint NOT NULL,
    flow text,
    job integer,
    at timestamp with time zone NOT NULL,
    key text NOT NULL,
    value text,
    touched timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

--
-- Name: TABLE stash; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON TABLE mill_private.stash IS 'pgmill: values of one logical time of a flow, set and read by its tasks';

--
-- Name: COLUMN stash.id; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.stash.id IS 'drawn by the catalog';

--
-- Name: COLUMN stash.flow; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.stash.flow IS 'the flow whose tasks share the value';

--
-- Name: COLUMN stash.job; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.stash.job IS 'the job, if it has no flow: its runs stash for themselves';

--
-- Name: COLUMN stash.at; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.stash.at IS 'the logical time';

--
-- Name: COLUMN stash.key; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.stash.key IS 'the name of the value';

--
-- Name: COLUMN stash.value; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.stash.value IS 'the value';

--
-- Name: COLUMN stash.touched; Type: COMMENT; Schema: mill_private; Owner: -
--

COMMENT ON COLUMN mill_private.stash.touched IS 'when it was set last';

--
-- Name: stash_id_seq; Type: SEQUENCE; Schema: mill_private; Owner: -
--

ALTER TABLE mill_private.stash ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mill_private.stash_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: task; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.task (
    id bigint NOT NULL,
    parent bigint DEFAULT NULLIF((NULLIF(current_setting('pg_task.id'::text, true), ''::text))::bigint, 0),
    plan timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    start timestamp with time zone,
    stop timestamp with time zone,
    active interval DEFAULT (COALESCE(NULLIF(current_setting('pg_task.active'::text, true), ''::text), '1 hour'::text))::interval NOT NULL,
    live interval DEFAULT (COALESCE(NULLIF(current_setting('pg_task.live'::text, true), ''::text), '0'::text))::interval NOT NULL,
    repeat interval DEFAULT (COALESCE(NULLIF(current_setting('pg_task.repeat'::text, true), ''::text), '0'::text))::interval NOT NULL,
    timeout interval DEFAULT (COALESCE(NULLIF(current_setting('pg_task.timeout'::text, true), ''::text), '0'::text))::interval NOT NULL,
    count integer DEFAULT (COALESCE(NULLIF(current_setting('pg_task.count'::text, true), ''::text), '0'::text))::integer NOT NULL,
    hash integer GENERATED ALWAYS AS (hashtext(("group" || COALESCE(remote, ''::text)))) STORED NOT NULL,
    max integer DEFAULT (COALESCE(NULLIF(current_setting('pg_task.max'::text, true), ''::text), '0'::text))::integer NOT NULL,
    pid integer,
    state public.state DEFAULT 'PLAN'::public.state NOT NULL,
    delete boolean DEFAULT (COALESCE(NULLIF(current_setting('pg_task.delete'::text, true), ''::text), 'true'::text))::boolean NOT NULL,
    drift boolean DEFAULT (COALESCE(NULLIF(current_setting('pg_task.drift'::text, true), ''::text), 'false'::text))::boolean NOT NULL,
    header boolean DEFAULT (COALESCE(NULLIF(current_setting('pg_task.header'::text, true), ''::text), 'true'::text))::boolean NOT NULL,
    save boolean DEFAULT (COALESCE(NULLIF(current_setting('pg_task.save'::text, true), ''::text), 'false'::text))::boolean NOT NULL,
    string boolean DEFAULT (COALESCE(NULLIF(current_setting('pg_task.string'::text, true), ''::text), 'true'::text))::boolean NOT NULL,
    delimiter "char" DEFAULT (COALESCE(NULLIF(current_setting('pg_task.delimiter'::text, true), ''::text), '	'::text))::"char" NOT NULL,
    escape "char" DEFAULT (COALESCE(NULLIF(current_setting('pg_task.escape'::text, true), ''::text), ''::text))::"char" NOT NULL,
    quote "char" DEFAULT (COALESCE(NULLIF(current_setting('pg_task.quote'::text, true), ''::text), ''::text))::"char" NOT NULL,
    data text,
    error text,
    output text,
    "group" text DEFAULT COALESCE(NULLIF(current_setting('pg_task.group'::text, true), ''::text), 'group'::text) NOT NULL,
    input text NOT NULL,
    "null" text DEFAULT COALESCE(NULLIF(current_setting('pg_task.null'::text, true), ''::text), '\N'::text) NOT NULL,
    remote text,
    attempt integer DEFAULT 0 NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    held boolean DEFAULT false NOT NULL,
    job integer,
    at timestamp with time zone,
    epoch integer,
    run_of bigint,
    run bigint,
    failures integer DEFAULT 0 NOT NULL,
    reason text,
    atomic boolean DEFAULT false NOT NULL,
    remote_session text,
    crashes integer DEFAULT 0 NOT NULL,
    CONSTRAINT task_active_check CHECK ((active > '00:00:00'::interval)),
    CONSTRAINT task_count_check CHECK ((count >= 0)),
    CONSTRAINT task_live_check CHECK ((live >= '00:00:00'::interval)),
    CONSTRAINT task_repeat_check CHECK ((repeat >= '00:00:00'::interval)),
    CONSTRAINT task_timeout_check CHECK ((timeout >= '00:00:00'::interval))
)
WITH (fillfactor='45');

--
-- Name: TABLE task; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.task IS 'pgmill: every row is SQL that is run as the user of this queue''s scheduler';

--
-- Name: COLUMN task.id; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.id IS 'order of arrival';

--
-- Name: COLUMN task.parent; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.parent IS 'the task whose SQL inserted this row, or the run that this row repeats';

--
-- Name: COLUMN task.plan; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.plan IS 'earliest start';

--
-- Name: COLUMN task.start; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.start IS 'when it was started';

--
-- Name: COLUMN task.stop; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.stop IS 'when it ended';

--
-- Name: COLUMN task.active; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.active IS 'how long after plan the task is still worth starting';

--
-- Name: COLUMN task.live; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.live IS 'a worker takes another task of the group until it is this old';

--
-- Name: COLUMN task.repeat; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.repeat IS 'plan the task again after each end, this long after its plan (drift: after its end); 0 = never';

--
-- Name: COLUMN task.timeout; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.timeout IS 'end the task after this time; 0 = unlimited';

--
-- Name: COLUMN task.count; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.count IS 'a worker takes another task of the group until it has run this many';

--
-- Name: COLUMN task.hash; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.hash IS 'for the index only; two groups may share a value';

--
-- Name: COLUMN task.max; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.max IS 'how many others of the group may run at the same time; negative = one at a time with a pause of so many ms';

--
-- Name: COLUMN task.pid; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.pid IS 'the server process that runs the task (on its remote, if it has one): pg_cancel_backend(pid) cancels it';

--
-- Name: COLUMN task.state; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.state IS 'PLAN waiting, TAKE claimed, WORK running, DONE finished, FAIL finished with an error, GONE not started in time, STOP set by users: left alone until set to PLAN';

--
-- Name: COLUMN task.delete; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.delete IS 'delete the finished row if output and error are both NULL';

--
-- Name: COLUMN task.drift; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.drift IS 'count the next time from the end of the run instead of from plan';

--
-- Name: COLUMN task.header; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.header IS 'write column names above results of more than one column';

--
-- Name: COLUMN task.save; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.save IS 'keep the session''s state for the next task of this worker';

--
-- Name: COLUMN task.string; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.string IS 'put only strings between quotes';

--
-- Name: COLUMN task.delimiter; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.delimiter IS 'between columns of output; empty = none';

--
-- Name: COLUMN task.escape; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.escape IS 'before quotes inside quoted values; empty = none';

--
-- Name: COLUMN task.quote; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.quote IS 'around values of output; empty = none';

--
-- Name: COLUMN task.data; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.data IS 'the user''s own; copied to repetitions';

--
-- Name: COLUMN task.error; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.error IS 'the error, as the server reported it';

--
-- Name: COLUMN task.output; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.output IS 'what the task returned';

--
-- Name: COLUMN task."group"; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task."group" IS 'tasks of one group (and remote) run one after the other, or as many at once as max allows';

--
-- Name: COLUMN task.input; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.input IS 'SQL, one or several statements, run as the user of the queue''s scheduler';

--
-- Name: COLUMN task."null"; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task."null" IS 'how NULL is written in output';

--
-- Name: COLUMN task.remote; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.remote IS 'another server to run the task on: a conninfo with its password, or the name of an entry of the config''s remotes';

--
-- Name: COLUMN task.attempt; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.attempt IS 'how often the task has been taken; a late writer of an earlier attempt changes nothing';

--
-- Name: COLUMN task.priority; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.priority IS 'higher first';

--
-- Name: COLUMN task.held; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.held IS 'not claimed until released';

--
-- Name: COLUMN task.job; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.job IS 'the job that made the task';

--
-- Name: COLUMN task.at; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.at IS 'the logical time the task runs for; of a repeating task that crashes, the plan that its next time is counted from';

--
-- Name: COLUMN task.epoch; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.epoch IS 'the generation of the logical time';

--
-- Name: COLUMN task.run_of; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.run_of IS 'the first run of the activation, as in mill.run';

--
-- Name: COLUMN task.run; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.run IS 'the run that the task executes, as in mill.run';

--
-- Name: COLUMN task.failures; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.failures IS 'failed runs of the activation before this one';

--
-- Name: COLUMN task.reason; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.reason IS 'why it ended other than by its own SQL: timeout, cancelled, expired, crashed, interrupted, skipped, completion';

--
-- Name: COLUMN task.atomic; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.atomic IS 'input, result and consequences in one transaction';

--
-- Name: COLUMN task.remote_session; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.remote_session IS 'identifies the session on the remote, as a later one may have its pid: place in the conninfo, its start and its server''s in microseconds';

--
-- Name: COLUMN task.crashes; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.task.crashes IS 'how many attempts in a row have killed their worker or their server process';

--
-- Name: task_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.task_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

--
-- Name: task_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.task_id_seq OWNED BY public.task.id;

--
-- Name: task id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.task ALTER COLUMN id SET DEFAULT nextval('public.task_id_seq'::regclass);

--
-- Name: backfill backfill_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.backfill
    ADD CONSTRAINT backfill_pkey PRIMARY KEY (id);

--
-- Name: command command_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.command
    ADD CONSTRAINT command_pkey PRIMARY KEY (id);

--
-- Name: edge edge_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.edge
    ADD CONSTRAINT edge_pkey PRIMARY KEY (id);

--
-- Name: fired fired_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.fired
    ADD CONSTRAINT fired_pkey PRIMARY KEY (timer, at);

--
-- Name: flow flow_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.flow
    ADD CONSTRAINT flow_pkey PRIMARY KEY (name);

--
-- Name: job job_name_key; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.job
    ADD CONSTRAINT job_name_key UNIQUE (name);

--
-- Name: job job_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);

--
-- Name: meta meta_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (one);

--
-- Name: queue queue_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (relid);

--
-- Name: timer timer_name_key; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.timer
    ADD CONSTRAINT timer_name_key UNIQUE (name);

--
-- Name: timer timer_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.timer
    ADD CONSTRAINT timer_pkey PRIMARY KEY (id);

--
-- Name: token token_pkey; Type: CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (job, at);

--
-- Name: grant_list grant_list_pkey; Type: CONSTRAINT; Schema: mill_private; Owner: -
--

ALTER TABLE ONLY mill_private.grant_list
    ADD CONSTRAINT grant_list_pkey PRIMARY KEY (level, object);

--
-- Name: job_delta job_delta_pkey; Type: CONSTRAINT; Schema: mill_private; Owner: -
--

ALTER TABLE ONLY mill_private.job_delta
    ADD CONSTRAINT job_delta_pkey PRIMARY KEY (job, run);

--
-- Name: job_state job_state_pkey; Type: CONSTRAINT; Schema: mill_private; Owner: -
--

ALTER TABLE ONLY mill_private.job_state
    ADD CONSTRAINT job_state_pkey PRIMARY KEY (job);

--
-- Name: job_version job_version_pkey; Type: CONSTRAINT; Schema: mill_private; Owner: -
--

ALTER TABLE ONLY mill_private.job_version
    ADD CONSTRAINT job_version_pkey PRIMARY KEY (id);

--
-- Name: registration registration_pkey; Type: CONSTRAINT; Schema: mill_private; Owner: -
--

ALTER TABLE ONLY mill_private.registration
    ADD CONSTRAINT registration_pkey PRIMARY KEY (queue);

--
-- Name: request request_pkey; Type: CONSTRAINT; Schema: mill_private; Owner: -
--

ALTER TABLE ONLY mill_private.request
    ADD CONSTRAINT request_pkey PRIMARY KEY (job);

--
-- Name: run run_pkey; Type: CONSTRAINT; Schema: mill_private; Owner: -
--

ALTER TABLE ONLY mill_private.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (id);

--
-- Name: stash stash_pkey; Type: CONSTRAINT; Schema: mill_private; Owner: -
--

ALTER TABLE ONLY mill_private.stash
    ADD CONSTRAINT stash_pkey PRIMARY KEY (id);

--
-- Name: task task_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id);

--
-- Name: backfill_id_idx; Type: INDEX; Schema: mill; Owner: -
--

CREATE INDEX backfill_id_idx ON mill.backfill USING btree (id) WHERE (finished IS NULL);

--
-- Name: edge_from_job_idx; Type: INDEX; Schema: mill; Owner: -
--

CREATE INDEX edge_from_job_idx ON mill.edge USING btree (from_job) WHERE (from_job IS NOT NULL);

--
-- Name: edge_from_timer_idx; Type: INDEX; Schema: mill; Owner: -
--

CREATE INDEX edge_from_timer_idx ON mill.edge USING btree (from_timer) WHERE (from_timer IS NOT NULL);

--
-- Name: edge_once; Type: INDEX; Schema: mill; Owner: -
--

CREATE UNIQUE INDEX edge_once ON mill.edge USING btree (job, COALESCE(from_job, ''::text), COALESCE(from_timer, ''::text), "on", shift);

--
-- Name: fired_made_idx; Type: INDEX; Schema: mill; Owner: -
--

CREATE INDEX fired_made_idx ON mill.fired USING btree (made);

--
-- Name: job_flow_idx; Type: INDEX; Schema: mill; Owner: -
--

CREATE INDEX job_flow_idx ON mill.job USING btree (flow) WHERE (flow IS NOT NULL);

--
-- Name: timer_due_id_idx; Type: INDEX; Schema: mill; Owner: -
--

CREATE INDEX timer_due_id_idx ON mill.timer USING btree (due, id) WHERE (due IS NOT NULL);

--
-- Name: timer_id_idx; Type: INDEX; Schema: mill; Owner: -
--

CREATE INDEX timer_id_idx ON mill.timer USING btree (id) WHERE (stale IS NOT NULL);

--
-- Name: token_job_at_idx; Type: INDEX; Schema: mill; Owner: -
--

CREATE INDEX token_job_at_idx ON mill.token USING btree (job, at) WHERE (since IS NOT NULL);

--
-- Name: token_touched_idx; Type: INDEX; Schema: mill; Owner: -
--

CREATE INDEX token_touched_idx ON mill.token USING btree (touched);

--
-- Name: job_delta_job_idx; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX job_delta_job_idx ON mill_private.job_delta USING btree (job) WHERE gone;

--
-- Name: job_state_queue_due_idx; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX job_state_queue_due_idx ON mill_private.job_state USING btree (queue, due) WHERE (due IS NOT NULL);

--
-- Name: job_state_queue_idx; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX job_state_queue_idx ON mill_private.job_state USING btree (queue) WHERE fill;

--
-- Name: job_version_queue_idx; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX job_version_queue_idx ON mill_private.job_version USING btree (queue);

--
-- Name: run_held; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX run_held ON mill_private.run USING btree (queue, due) WHERE (ordered AND held AND (outcome IS NULL));

--
-- Name: run_job; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX run_job ON mill_private.run USING btree (job, id);

--
-- Name: run_open; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX run_open ON mill_private.run USING btree (job, at) WHERE (outcome IS NULL);

--
-- Name: run_ordered; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX run_ordered ON mill_private.run USING btree (queue, due, id) WHERE (ordered AND (NOT held) AND (outcome IS NULL));

--
-- Name: run_recall; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX run_recall ON mill_private.run USING btree (queue) WHERE (recall IS NOT NULL);

--
-- Name: run_unsuccessful; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX run_unsuccessful ON mill_private.run USING btree (stop) WHERE ((COALESCE(outcome, 'running'::text) <> 'succeeded'::text) AND (stop IS NOT NULL));

--
-- Name: stash_once; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE UNIQUE INDEX stash_once ON mill_private.stash USING btree (COALESCE(flow, ''::text), COALESCE(job, 0), at, key);

--
-- Name: stash_touched_idx; Type: INDEX; Schema: mill_private; Owner: -
--

CREATE INDEX stash_touched_idx ON mill_private.stash USING btree (touched);

--
-- Name: task_hash_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_hash_idx ON public.task USING btree (hash) WHERE (state = ANY (ARRAY['TAKE'::public.state, 'WORK'::public.state]));

--
-- Name: task_hash_max_priority_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_hash_max_priority_id_idx ON public.task USING btree (hash, max DESC, priority DESC, id) WHERE ((state = 'PLAN'::public.state) AND (NOT held));

--
-- Name: task_job_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_job_id_idx ON public.task USING btree (job, id) WHERE (job IS NOT NULL);

--
-- Name: task_max_priority_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_max_priority_id_idx ON public.task USING btree (max DESC, priority DESC, id) WHERE ((state = 'PLAN'::public.state) AND (NOT held));

--
-- Name: task_plan_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_plan_idx ON public.task USING btree (plan) WHERE ((state = 'PLAN'::public.state) AND held AND (job IS NULL));

--
-- Name: task_run_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_run_idx ON public.task USING btree (run) WHERE (run IS NOT NULL);

--
-- Name: command by_writer; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER by_writer BEFORE INSERT ON mill.command FOR EACH ROW EXECUTE FUNCTION mill_private.note_writer();

--
-- Name: backfill changes; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER changes BEFORE INSERT OR DELETE OR UPDATE OF timer, lo, hi, "order", paused ON mill.backfill FOR EACH ROW EXECUTE FUNCTION mill_private.check_backfill();

--
-- Name: edge changes; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER changes BEFORE INSERT OR UPDATE ON mill.edge FOR EACH ROW EXECUTE FUNCTION mill_private.check_edge();

--
-- Name: flow changes; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER changes BEFORE INSERT OR DELETE OR UPDATE ON mill.flow FOR EACH ROW EXECUTE FUNCTION mill_private.check_flow();

--
-- Name: timer changes; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER changes BEFORE INSERT OR DELETE OR UPDATE OF name, flow, start, stop, period, cron, timezone, shift, catchup, catchup_age, enabled, owner ON mill.timer FOR EACH ROW EXECUTE FUNCTION mill_private.check_timer();

--
-- Name: command does; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER does BEFORE INSERT ON mill.command FOR EACH ROW EXECUTE FUNCTION mill_private.perform_command();

--
-- Name: edge edge_gone; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE CONSTRAINT TRIGGER edge_gone AFTER DELETE ON mill.edge DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mill_private.forget_edge_tokens();

--
-- Name: edge edge_holds; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE CONSTRAINT TRIGGER edge_holds AFTER INSERT OR UPDATE ON mill.edge DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mill_private.check_edge_at_commit();

--
-- Name: edge edges_changed; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER edges_changed AFTER INSERT OR UPDATE ON mill.edge FOR EACH STATEMENT EXECUTE FUNCTION mill_private.note_changed_edges();

--
-- Name: flow flow_given; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE CONSTRAINT TRIGGER flow_given AFTER UPDATE OF owner ON mill.flow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ((new.owner <> old.owner)) EXECUTE FUNCTION mill_private.check_flow_owner();

--
-- Name: job flow_joined; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE CONSTRAINT TRIGGER flow_joined AFTER INSERT OR UPDATE OF flow, owner ON mill.job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ((new.flow IS NOT NULL)) EXECUTE FUNCTION mill_private.check_job_joins_flow();

--
-- Name: timer flow_joined; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE CONSTRAINT TRIGGER flow_joined AFTER INSERT OR UPDATE OF flow, owner ON mill.timer DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ((new.flow IS NOT NULL)) EXECUTE FUNCTION mill_private.check_timer_joins_flow();

--
-- Name: flow follow; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER follow AFTER UPDATE OF paused, parallel ON mill.flow FOR EACH ROW WHEN (((new.paused <> old.paused) OR (new.parallel IS DISTINCT FROM old.parallel))) EXECUTE FUNCTION mill_private.follow_flow_change();

--
-- Name: job job_1_of; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER job_1_of BEFORE INSERT OR UPDATE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill_private.check_job_writer();

--
-- Name: job job_2_check; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER job_2_check BEFORE INSERT OR UPDATE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill_private.check_job();

--
-- Name: job job_3_follow; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER job_3_follow AFTER INSERT OR DELETE OR UPDATE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill_private.follow_job_change();

--
-- Name: job job_holds; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE CONSTRAINT TRIGGER job_holds AFTER INSERT OR UPDATE OF name, schedule_interval, cron ON mill.job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (((new.schedule_interval IS NOT NULL) OR (new.cron IS NOT NULL))) EXECUTE FUNCTION mill_private.check_job_at_commit();

--
-- Name: command keeps; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER keeps BEFORE UPDATE ON mill.command FOR EACH ROW EXECUTE FUNCTION mill_private.protect_command();

--
-- Name: meta meta_follow; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER meta_follow AFTER UPDATE OF clock ON mill.meta FOR EACH STATEMENT EXECUTE FUNCTION mill_private.follow_clock_change();

--
-- Name: timer moved; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER moved AFTER UPDATE OF start ON mill.timer FOR EACH ROW WHEN ((new.start < old.start)) EXECUTE FUNCTION mill_private.backfill_moved_timer();

--
-- Name: job reconsider; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE CONSTRAINT TRIGGER reconsider AFTER UPDATE OF threshold, scheduled, flow ON mill.job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (((new.threshold IS DISTINCT FROM old.threshold) OR (new.flow IS DISTINCT FROM old.flow) OR (new.scheduled AND (NOT old.scheduled)))) EXECUTE FUNCTION mill_private.reconsider_job();

--
-- Name: job reconsidered; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER reconsidered AFTER DELETE ON mill.job FOR EACH ROW EXECUTE FUNCTION mill_private.reconsider_job();

--
-- Name: backfill wake_keeper; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER wake_keeper AFTER INSERT OR DELETE OR UPDATE OF lo, hi, "order", paused ON mill.backfill FOR EACH STATEMENT EXECUTE FUNCTION mill_private.wake_keeper();

--
-- Name: edge wake_keeper; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER wake_keeper AFTER INSERT OR DELETE OR UPDATE ON mill.edge FOR EACH STATEMENT EXECUTE FUNCTION mill_private.wake_keeper();

--
-- Name: flow wake_keeper; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER wake_keeper AFTER INSERT OR DELETE OR UPDATE ON mill.flow FOR EACH STATEMENT EXECUTE FUNCTION mill_private.wake_keeper();

--
-- Name: meta wake_keeper; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER wake_keeper AFTER UPDATE OF clock ON mill.meta FOR EACH STATEMENT EXECUTE FUNCTION mill_private.wake_keeper();

--
-- Name: timer wake_keeper; Type: TRIGGER; Schema: mill; Owner: -
--

CREATE TRIGGER wake_keeper AFTER INSERT OR DELETE OR UPDATE OF name, flow, start, stop, period, cron, timezone, shift, catchup, catchup_age, enabled ON mill.timer FOR EACH STATEMENT EXECUTE FUNCTION mill_private.wake_keeper();

--
-- Name: registration registration_1_writer; Type: TRIGGER; Schema: mill_private; Owner: -
--

CREATE TRIGGER registration_1_writer BEFORE INSERT ON mill_private.registration FOR EACH ROW EXECUTE FUNCTION mill_private.note_writer();

--
-- Name: registration registration_2_register; Type: TRIGGER; Schema: mill_private; Owner: -
--

CREATE TRIGGER registration_2_register BEFORE INSERT ON mill_private.registration FOR EACH ROW EXECUTE FUNCTION mill_private.register_queue();

--
-- Name: request request_1_writer; Type: TRIGGER; Schema: mill_private; Owner: -
--

CREATE TRIGGER request_1_writer BEFORE INSERT ON mill_private.request FOR EACH ROW EXECUTE FUNCTION mill_private.note_writer();

--
-- Name: request request_2_act; Type: TRIGGER; Schema: mill_private; Owner: -
--

CREATE TRIGGER request_2_act BEFORE INSERT ON mill_private.request FOR EACH ROW EXECUTE FUNCTION mill_private.perform_request();

--
-- Name: task mill_claimed; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER mill_claimed BEFORE INSERT ON public.task FOR EACH ROW WHEN ((new.state <> 'PLAN'::public.state)) EXECUTE FUNCTION public.mill_claimed();

--
-- Name: task mill_hold; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER mill_hold BEFORE INSERT OR UPDATE OF plan ON public.task FOR EACH ROW WHEN ((new.plan > statement_timestamp())) EXECUTE FUNCTION public.mill_hold();

--
-- Name: task mill_wakeup_delete; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER mill_wakeup_delete AFTER DELETE ON public.task FOR EACH ROW WHEN ((old.state = ANY (ARRAY['TAKE'::public.state, 'WORK'::public.state]))) EXECUTE FUNCTION public.mill_wakeup();

--
-- Name: task mill_wakeup_insert; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER mill_wakeup_insert AFTER INSERT ON public.task FOR EACH STATEMENT EXECUTE FUNCTION public.mill_wakeup();

--
-- Name: task mill_wakeup_update; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER mill_wakeup_update AFTER UPDATE OF plan, state, max, priority ON public.task FOR EACH ROW WHEN (((new.state = 'PLAN'::public.state) OR ((old.state = ANY (ARRAY['TAKE'::public.state, 'WORK'::public.state])) AND (new.state = 'STOP'::public.state)))) EXECUTE FUNCTION public.mill_wakeup();

--
-- Name: backfill backfill_timer_fkey; Type: FK CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.backfill
    ADD CONSTRAINT backfill_timer_fkey FOREIGN KEY (timer) REFERENCES mill.timer(name) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;

--
-- Name: command command_flow_fkey; Type: FK CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.command
    ADD CONSTRAINT command_flow_fkey FOREIGN KEY (flow) REFERENCES mill.flow(name) ON UPDATE CASCADE ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED;

--
-- Name: command command_job_fkey; Type: FK CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.command
    ADD CONSTRAINT command_job_fkey FOREIGN KEY (job) REFERENCES mill.job(name) ON UPDATE CASCADE ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED;

--
-- Name: command command_timer_fkey; Type: FK CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.command
    ADD CONSTRAINT command_timer_fkey FOREIGN KEY (timer) REFERENCES mill.timer(name) ON UPDATE CASCADE ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED;

--
-- Name: edge edge_from_job_fkey; Type: FK CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.edge
    ADD CONSTRAINT edge_from_job_fkey FOREIGN KEY (from_job) REFERENCES mill.job(name) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;

--
-- Name: edge edge_from_timer_fkey; Type: FK CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.edge
    ADD CONSTRAINT edge_from_timer_fkey FOREIGN KEY (from_timer) REFERENCES mill.timer(name) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;

--
-- Name: edge edge_job_fkey; Type: FK CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.edge
    ADD CONSTRAINT edge_job_fkey FOREIGN KEY (job) REFERENCES mill.job(name) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;

--
-- Name: job job_flow_fkey; Type: FK CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.job
    ADD CONSTRAINT job_flow_fkey FOREIGN KEY (flow) REFERENCES mill.flow(name) ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED;

--
-- Name: timer timer_flow_fkey; Type: FK CONSTRAINT; Schema: mill; Owner: -
--

ALTER TABLE ONLY mill.timer
    ADD CONSTRAINT timer_flow_fkey FOREIGN KEY (flow) REFERENCES mill.flow(name) ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED;

--
-- Name: backfill; Type: ROW SECURITY; Schema: mill; Owner: -
--

ALTER TABLE mill.backfill ENABLE ROW LEVEL SECURITY;

--
-- Name: command by_author; Type: POLICY; Schema: mill; Owner: -
--

CREATE POLICY by_author ON mill.command FOR SELECT USING ((mill_private.is_member(made_by) OR (EXISTS ( SELECT
   FROM mill.job j
  WHERE (j.name = command.job))) OR (EXISTS ( SELECT
   FROM mill.flow f
  WHERE (f.name = command.flow)))));

--
-- Name: edge by_job; Type: POLICY; Schema: mill; Owner: -
--

CREATE POLICY by_job ON mill.edge USING ((EXISTS ( SELECT
   FROM mill.job j
  WHERE (j.name = edge.job)))) WITH CHECK (true);

--
-- Name: token by_job; Type: POLICY; Schema: mill; Owner: -
--

CREATE POLICY by_job ON mill.token FOR SELECT USING ((EXISTS ( SELECT
   FROM mill.job j
  WHERE (j.id = token.job))));

--
-- Name: flow by_owner; Type: POLICY; Schema: mill; Owner: -
--

CREATE POLICY by_owner ON mill.flow USING (mill_private.is_member(owner)) WITH CHECK (mill_private.is_member(owner));

--
-- Name: job by_owner; Type: POLICY; Schema: mill; Owner: -
--

CREATE POLICY by_owner ON mill.job USING ((owner = ANY (ARRAY( SELECT r.rolname
   FROM pg_roles r
  WHERE pg_has_role(r.oid, 'MEMBER'::text))))) WITH CHECK (mill_private.is_member(owner));

--
-- Name: timer by_owner; Type: POLICY; Schema: mill; Owner: -
--

CREATE POLICY by_owner ON mill.timer USING (mill_private.is_member(owner)) WITH CHECK (mill_private.is_member(owner));

--
-- Name: backfill by_timer; Type: POLICY; Schema: mill; Owner: -
--

CREATE POLICY by_timer ON mill.backfill USING ((EXISTS ( SELECT
   FROM mill.timer t
  WHERE (t.name = backfill.timer)))) WITH CHECK (true);

--
-- Name: command; Type: ROW SECURITY; Schema: mill; Owner: -
--

ALTER TABLE mill.command ENABLE ROW LEVEL SECURITY;

--
-- Name: edge; Type: ROW SECURITY; Schema: mill; Owner: -
--

ALTER TABLE mill.edge ENABLE ROW LEVEL SECURITY;

--
-- Name: flow; Type: ROW SECURITY; Schema: mill; Owner: -
--

ALTER TABLE mill.flow ENABLE ROW LEVEL SECURITY;

--
-- Name: command inserts; Type: POLICY; Schema: mill; Owner: -
--

CREATE POLICY inserts ON mill.command FOR INSERT WITH CHECK (true);

--
-- Name: job; Type: ROW SECURITY; Schema: mill; Owner: -
--

ALTER TABLE mill.job ENABLE ROW LEVEL SECURITY;

--
-- Name: timer; Type: ROW SECURITY; Schema: mill; Owner: -
--

ALTER TABLE mill.timer ENABLE ROW LEVEL SECURITY;

--
-- Name: token; Type: ROW SECURITY; Schema: mill; Owner: -
--

ALTER TABLE mill.token ENABLE ROW LEVEL SECURITY;

--
-- Name: run by_owner; Type: POLICY; Schema: mill_private; Owner: -
--

CREATE POLICY by_owner ON mill_private.run FOR SELECT USING ((owner = ANY (ARRAY( SELECT (r.rolname)::text AS rolname
   FROM pg_roles r
  WHERE pg_has_role(r.oid, 'MEMBER'::text)))));

--
-- Name: run; Type: ROW SECURITY; Schema: mill_private; Owner: -
--

ALTER TABLE mill_private.run ENABLE ROW LEVEL SECURITY;

--
-- PostgreSQL database dump complete
--
