-- Creates the row triggers of jobs. They belong to the queue's user, and run as him: he alone may call the entry points of
-- the queue, and what the types and functions of the table do runs as him. Without the catalog they let a row run as a plain
-- task. The conditions are short, because the server reads them anew for every statement, also for plain tasks. The OIDs of
-- the queue and of its user stand in the text.
-- parameters: none
-- locks: the table, against writers
-- caller: scheduler
CREATE OR REPLACE FUNCTION {schema}.{run_guard}() RETURNS trigger LANGUAGE plpgsql AS $function$
-- pgmill run triggers 3
BEGIN
    IF pg_catalog.pg_has_role({user}::pg_catalog.oid, 'MEMBER') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'only pgmill writes job, run, at, epoch, run_of and failures; insert a task without them'
        USING ERRCODE = '42501', HINT = 'SELECT mill.run_job(id) runs a job.';
END
$function$;
CREATE OR REPLACE FUNCTION {schema}.{run_before}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $function$
-- pgmill run triggers 3
DECLARE
    was pg_catalog.text := OLD.state::pg_catalog.text;
    becomes pg_catalog.text := NEW.state::pg_catalog.text;
BEGIN
    IF was OPERATOR(pg_catalog.=) becomes OR becomes OPERATOR(pg_catalog.=) ANY (ARRAY['DONE', 'FAIL', 'GONE']) THEN
        RETURN NEW;
    ELSIF was OPERATOR(pg_catalog.=) 'PLAN' AND becomes OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']) THEN
        IF pg_catalog.to_regproc('mill_private.q{oid}_begin_run') IS NULL THEN
            RETURN NEW;
        END IF;
        -- nothing is begun that is paused, recalled or ended meanwhile: the row stays, and its scheduler sees to it
        IF mill_private.q{oid}_begin_run(OLD.run::pg_catalog.int8, OLD.id::pg_catalog.int8, NEW.attempt::pg_catalog.int4) THEN
            RETURN NEW;
        END IF;
        RETURN NULL;
    ELSIF was OPERATOR(pg_catalog.=) ANY (ARRAY['DONE', 'FAIL', 'GONE']) THEN
        RAISE EXCEPTION 'run % of job % has ended and cannot be changed', OLD.run, OLD.job
            USING ERRCODE = '55000', HINT = pg_catalog.format('SELECT mill.run_job(%s) runs it again.', OLD.job);
    ELSIF was OPERATOR(pg_catalog.=) 'WORK' AND becomes OPERATOR(pg_catalog.=) ANY (ARRAY['PLAN', 'TAKE']) THEN
        RAISE EXCEPTION 'run % of job % has begun, and cannot be planned again', OLD.run, OLD.job
            USING ERRCODE = '55000', HINT = 'Set its state to STOP to cancel it.';
    ELSIF was OPERATOR(pg_catalog.=) ANY (ARRAY['PLAN', 'TAKE', 'WORK']) AND becomes OPERATOR(pg_catalog.=) 'STOP' THEN
        NEW.state := 'FAIL';
        NEW.reason := 'cancelled';
        NEW.error := {cancelled_text};
        NEW.stop := pg_catalog.statement_timestamp();
        IF NOT pg_catalog.pg_try_advisory_xact_lock_shared({wakeup_key}, {oid}::pg_catalog.oid::pg_catalog.int4) THEN
            PERFORM pg_catalog.pg_notify('mill_{oid}', '');
        END IF;
    END IF;
    RETURN NEW;
END
$function$;
CREATE OR REPLACE FUNCTION {schema}.{run_after}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $function$
-- pgmill run triggers 3
DECLARE
    was pg_catalog.text := OLD.state::pg_catalog.text;
    becomes pg_catalog.text := NEW.state::pg_catalog.text;
BEGIN
    IF was OPERATOR(pg_catalog.=) ANY (ARRAY['DONE', 'FAIL', 'GONE']) OR pg_catalog.to_regproc('mill_private.q{oid}_end_run') IS NULL THEN
        RETURN NULL;
    ELSIF becomes OPERATOR(pg_catalog.=) ANY (ARRAY['DONE', 'FAIL', 'GONE']) THEN
        PERFORM mill_private.q{oid}_end_run(OLD.run::pg_catalog.int8, OLD.id::pg_catalog.int8, becomes, NEW.start::pg_catalog.timestamptz, NEW.reason::pg_catalog.text,
                                        NEW.error::pg_catalog.text, NEW.output::pg_catalog.text,
                                        pg_catalog.current_setting('mill.sqlstate', true));
    ELSIF becomes OPERATOR(pg_catalog.=) 'PLAN' AND was OPERATOR(pg_catalog.=) 'TAKE' THEN
        PERFORM mill_private.q{oid}_unbegin_run(OLD.run::pg_catalog.int8);
    END IF;
    RETURN NULL;
END
$function$;
CREATE OR REPLACE FUNCTION {schema}.{run_delete}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $function$
-- pgmill run triggers 3
BEGIN
    IF pg_catalog.to_regproc('mill_private.q{oid}_end_run') IS NOT NULL THEN
        PERFORM mill_private.q{oid}_end_run(OLD.run::pg_catalog.int8, OLD.id::pg_catalog.int8, 'FAIL', NULL, 'cancelled', {cancelled_text}, NULL, NULL);
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION {schema}.{run_guard}() IS 'pgmill: refuses a run in a row that another role than the queue''s user writes';
COMMENT ON FUNCTION {schema}.{run_before}() IS 'pgmill: reports the begin of a run to the catalog';
COMMENT ON FUNCTION {schema}.{run_after}() IS 'pgmill: reports the end of a run to the catalog';
COMMENT ON FUNCTION {schema}.{run_delete}() IS 'pgmill: reports a deleted run to the catalog';
CREATE OR REPLACE TRIGGER mill_job_insert BEFORE INSERT ON {queue} FOR EACH ROW
    WHEN (NEW.job IS NOT NULL) EXECUTE FUNCTION {schema}.{run_guard}();
CREATE OR REPLACE TRIGGER mill_job_change BEFORE UPDATE OF run, job, at, epoch, run_of, failures ON {queue} FOR EACH ROW
    WHEN (NEW.run IS NOT NULL OR OLD.run IS NOT NULL OR NEW.job IS NOT NULL)
    EXECUTE FUNCTION {schema}.{run_guard}();
CREATE OR REPLACE TRIGGER mill_job_before BEFORE UPDATE ON {queue} FOR EACH ROW
    WHEN (OLD.run IS NOT NULL AND NEW.state <> 'DONE') EXECUTE FUNCTION {schema}.{run_before}();
CREATE OR REPLACE TRIGGER mill_job_after AFTER UPDATE ON {queue} FOR EACH ROW
    WHEN (OLD.run IS NOT NULL AND NEW.state <> 'WORK') EXECUTE FUNCTION {schema}.{run_after}();
CREATE OR REPLACE TRIGGER mill_job_delete AFTER DELETE ON {queue} FOR EACH ROW
    WHEN (OLD.run IS NOT NULL AND OLD.state NOT IN ('DONE', 'FAIL', 'GONE')) EXECUTE FUNCTION {schema}.{run_delete}();
-- Those of an earlier user or OID of the table (it was restored from a dump) are used by no trigger any more.
DO $former$
DECLARE
    former record;
BEGIN
    FOR former IN SELECT p.oid::pg_catalog.regprocedure AS name FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                   WHERE n.nspname = {schema_text} AND pg_catalog.starts_with(p.proname::text, 'mill_run_')
                     AND pg_catalog.pg_get_userbyid(p.proowner) = current_user
                     AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgfoid = p.oid) LOOP
        EXECUTE pg_catalog.format('DROP FUNCTION %s', former.name);
    END LOOP;
END
$former$;
