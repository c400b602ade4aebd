-- Creates the triggers that wake the scheduler and hold rows that are planned for later. Functions of the schema, shared by
-- its queues; every name in them is qualified, because they run with the inserter's search_path and rights. NOTIFY takes a
-- server-wide lock at commit, so it is called only when the scheduler sleeps: then it holds the lock that is tried here. An
-- inserter that got it shares it until its commit, and the scheduler cannot fall asleep over an uncommitted row.
-- parameters: none
-- locks: the new table
-- caller: scheduler, in the transaction that makes the table
CREATE OR REPLACE FUNCTION {schema}.mill_wakeup() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
    root pg_catalog.oid := COALESCE(pg_catalog.pg_partition_root(TG_RELID), TG_RELID);
BEGIN
    IF NOT pg_catalog.pg_try_advisory_xact_lock_shared({wakeup_key}, root::pg_catalog.int4) THEN
        PERFORM pg_catalog.pg_notify(pg_catalog.concat('mill_', root), '');
    END IF;
    RETURN NULL;
END
$function$;
CREATE OR REPLACE FUNCTION {schema}.mill_hold() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    NEW.held := true;
    RETURN NEW;
END
$function$;
CREATE OR REPLACE FUNCTION {schema}.mill_claimed() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    IF NEW.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK']) THEN
        NEW.state := 'PLAN';
        NEW.start := NULL;
        NEW.pid := NULL;
        NEW.remote_session := NULL;
    END IF;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION {schema}.mill_wakeup() IS 'pgmill: wakes the scheduler of this table up, if it sleeps';
COMMENT ON FUNCTION {schema}.mill_hold() IS 'pgmill: holds a row that is planned for later until its time';
COMMENT ON FUNCTION {schema}.mill_claimed() IS 'pgmill: refuses rows that are inserted as claimed: their pid could be that of another session';
CREATE OR REPLACE TRIGGER mill_hold BEFORE INSERT OR UPDATE OF plan ON {queue} FOR EACH ROW
    WHEN (NEW.plan > statement_timestamp()) EXECUTE FUNCTION {schema}.mill_hold();
CREATE OR REPLACE TRIGGER mill_claimed BEFORE INSERT ON {queue} FOR EACH ROW
    WHEN (NEW.state <> 'PLAN') EXECUTE FUNCTION {schema}.mill_claimed();
CREATE OR REPLACE TRIGGER mill_wakeup_insert AFTER INSERT ON {queue} FOR EACH STATEMENT EXECUTE FUNCTION {schema}.mill_wakeup();
CREATE OR REPLACE TRIGGER mill_wakeup_update AFTER UPDATE OF plan, state, "max", priority ON {queue} FOR EACH ROW
    WHEN (NEW.state = 'PLAN' OR (OLD.state IN ('TAKE', 'WORK') AND NEW.state = 'STOP'))
    EXECUTE FUNCTION {schema}.mill_wakeup();
CREATE OR REPLACE TRIGGER mill_wakeup_delete AFTER DELETE ON {queue} FOR EACH ROW
    WHEN (OLD.state IN ('TAKE', 'WORK')) EXECUTE FUNCTION {schema}.mill_wakeup();
