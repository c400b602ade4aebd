-- Why a task is not running, in one sentence.
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE FUNCTION mill.why(task bigint, queue regclass DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    relid oid := COALESCE(queue::oid, (SELECT min(q.relid) FROM mill.queue q HAVING count(*) = 1),
                          to_regclass('public.task')::oid);
    relation text := relid::regclass::text;
    t record;
    others bigint;
    ahead bigint;
    here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
    IF relid IS NULL THEN
        RETURN 'which table? name it: mill.why(id, ''schema.table'')';
    END IF;
    EXECUTE format('SELECT id, state::text AS state, plan, active, start, stop, pid, "max", priority, "group", remote,
        hash, held, reason, job, at FROM %s WHERE id = $1', relation) INTO t USING task;
    CASE
    WHEN t.id IS NULL THEN
        RETURN format('there is no task %s in %s: it has finished and was deleted, or never was', task, relation);
    WHEN t.state IN ('DONE', 'FAIL') THEN
        RETURN format('it finished at %s with %s%s', t.stop, t.state, ' (' || t.reason || ')');
    WHEN t.state = 'GONE' THEN
        RETURN format('it expired: nobody started it within %s of its plan, %s', t.active, t.plan);
    WHEN t.state = 'STOP' THEN
        RETURN 'somebody stopped it; set its state to PLAN to go on';
    WHEN t.state = 'WORK' AND t.remote IS NOT NULL
         AND mill.locked({unknown_key}, hashtext(concat(relid, ':', t.id))::oid, here) THEN
        RETURN 'remote not reachable, outcome unknown';
    WHEN t.state = 'WORK' AND t.remote IS NOT NULL AND t.pid IS NULL THEN
        RETURN format('it is connecting to its remote since %s', t.start);
    WHEN t.state = 'WORK' AND t.remote IS NOT NULL THEN
        RETURN format('it is running since %s in server process %s of its remote', t.start, t.pid);
    WHEN t.state = 'WORK' THEN
        RETURN format('it is running since %s in server process %s', t.start, t.pid);
    WHEN t.state = 'TAKE' THEN
        RETURN 'it has been taken and is about to start';
    WHEN NOT mill.locked({queue_key}, relid, here) THEN
        RETURN format('no scheduler serves %s: is the launcher running? ask it with: launcher status', relation);
    WHEN t.plan > clock_timestamp() THEN
        RETURN format('it is planned for %s', t.plan);
    WHEN t."max" >= 0 AND t.active < interval '200000 years' AND t.plan + t.active <= clock_timestamp() THEN
        RETURN format('it has expired: it was to start within %s of %s, and becomes GONE at the next look', t.active, t.plan);
    WHEN t.held THEN
        RETURN COALESCE(mill.why_held(t.job::int, t.at, t.id::bigint), 'it is held until the next look releases it');
    WHEN mill.locked({no_connection_key}, relid, here) THEN
        RETURN 'workers get no connection to the server; the launcher''s log says why';
    ELSE
    END CASE;
    EXECUTE format('SELECT count(*) FILTER (WHERE state IN (''TAKE'', ''WORK'')),
        count(*) FILTER (WHERE state = ''PLAN'' AND NOT held AND ("max", priority, -id) > ($1, $2, -$3))
        FROM %s WHERE hash = $4 AND "group" = $5 AND remote IS NOT DISTINCT FROM $6
         AND state IN (''PLAN'', ''TAKE'', ''WORK'')', relation)
        INTO others, ahead USING t."max", t.priority, t.id, t.hash, t."group", t.remote;
    IF others > GREATEST(t."max", 0) THEN
        RETURN format('its group "%s" is full: %s running, and with max = %s at most %s others may run beside it',
                      t."group", others, t."max", GREATEST(t."max", 0));
    ELSIF mill.locked({no_slot_key}, relid, here) THEN
        RETURN 'no slot is free: wait until a task ends, or raise max_workers, or run and limit of this queue';
    ELSIF ahead > 0 THEN
        RETURN format('%s tasks of its group "%s" come first', ahead, t."group");
    END IF;
    RETURN 'it is due and starts at the next look';
END
$function$;
COMMENT ON FUNCTION mill.why(bigint, regclass) IS 'pgmill: why a task is not running, in one sentence';
INSERT INTO mill.face (level, object, rights) VALUES ('use', 'FUNCTION mill.why(bigint, regclass)', 'EXECUTE');
