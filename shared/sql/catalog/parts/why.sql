-- Why a task is not running, in one sentence. The function runs as its caller, who may SELECT the table. But to read a table can run
-- code of its owner: policies, rules, functions in indexes, statistics, constraints and partition keys (when a statement is
-- planned), casts of its types. So a table that is not plain is read by its owner alone.
-- parameters: none; locks: none; caller: installation, once per database
CREATE FUNCTION mill.why_not_plain(relid oid) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    wrong text;
BEGIN
    IF (SELECT pg_get_userbyid(c.relowner) = current_user FROM pg_class c WHERE c.oid = relid) THEN
        RETURN NULL;
    END IF;
    WITH RECURSIVE tree AS (
        SELECT relid AS oid UNION SELECT h.inhrelid FROM tree t JOIN pg_inherits h ON h.inhparent = t.oid
    ), relation AS MATERIALIZED (
        SELECT c.* FROM tree t JOIN pg_class c ON c.oid = t.oid
    ), part (classid, oid, what) AS (
        SELECT 'pg_class'::regclass, r.oid, 'its partition key' FROM relation r
        UNION ALL SELECT 'pg_class'::regclass, i.indexrelid, 'an index' FROM relation r JOIN pg_index i ON i.indrelid = r.oid
        UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid, 'extended statistics' FROM relation r JOIN pg_statistic_ext s ON s.stxrelid = r.oid
        UNION ALL SELECT 'pg_constraint'::regclass, k.oid, 'a constraint' FROM relation r JOIN pg_constraint k ON k.conrelid = r.oid
    ), plain_type AS (
        SELECT t.oid FROM pg_type t LEFT JOIN pg_type b ON b.oid = t.typbasetype
         WHERE t.typnamespace = 'pg_catalog'::regnamespace
            OR t.typtype = 'e' AND NOT EXISTS (SELECT FROM pg_cast k WHERE t.oid IN (k.castsource, k.casttarget))
            OR t.typtype = 'd' AND b.typnamespace = 'pg_catalog'::regnamespace AND b.typtype = 'b'
    )
    SELECT w.wrong INTO wrong FROM (
        SELECT CASE r.relkind WHEN 'v' THEN 'it is a view' WHEN 'm' THEN 'it is a materialized view' WHEN 'f' THEN 'it is or has a foreign table'
                              ELSE 'it is no table' END AS wrong FROM relation r WHERE r.relkind NOT IN ('r', 'p')
        UNION ALL SELECT 'it has row security' FROM relation r WHERE r.relrowsecurity OR r.relforcerowsecurity
        UNION ALL SELECT 'it has a rule' FROM relation r JOIN pg_rewrite u ON u.ev_class = r.oid
        UNION ALL SELECT format('column %I is computed when it is read', a.attname) FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid
                   WHERE a.attgenerated NOT IN ('', 's')
        UNION ALL SELECT format('column %I has the type %s', a.attname, a.atttypid::regtype) FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid
                   WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid NOT IN (SELECT p.oid FROM plain_type p)
        UNION ALL SELECT format('%s uses %s', p.what, pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid))
                    FROM part p JOIN pg_depend d ON (d.classid, d.objid) = (p.classid, p.oid)
                   WHERE d.refclassid = 'pg_proc'::regclass
                          AND EXISTS (SELECT FROM pg_proc f WHERE f.oid = d.refobjid AND f.pronamespace <> 'pg_catalog'::regnamespace)
                      OR d.refclassid = 'pg_operator'::regclass
                          AND EXISTS (SELECT FROM pg_operator o WHERE o.oid = d.refobjid AND o.oprnamespace <> 'pg_catalog'::regnamespace)
                      OR d.refclassid = 'pg_opclass'::regclass
                          AND EXISTS (SELECT FROM pg_opclass o WHERE o.oid = d.refobjid AND o.opcnamespace <> 'pg_catalog'::regnamespace)
                      OR d.refclassid = 'pg_opfamily'::regclass
                          AND EXISTS (SELECT FROM pg_opfamily o WHERE o.oid = d.refobjid AND o.opfnamespace <> 'pg_catalog'::regnamespace)
                      OR d.refclassid = 'pg_type'::regclass AND d.refobjid NOT IN (SELECT t.oid FROM plain_type t)
    ) AS w LIMIT 1;
    RETURN wrong;
END
$function$;
COMMENT ON FUNCTION mill.why_not_plain(oid) IS 'pgmill: what could run code of its owner when the table is read; NULL: nothing, or the caller owns it';

CREATE FUNCTION mill.why(task bigint, queue regclass DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    relid oid := COALESCE(queue::oid, (SELECT min(q.relid) FROM mill.queue q HAVING count(*) = 1),
                          to_regclass('public.task')::oid);
    relation text := relid::regclass::text;
    trouble text := (SELECT q.trouble FROM mill.queue q WHERE q.relid = relation::regclass);
    t record;
    others bigint;
    ahead bigint;
    wrong text;
    here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
    IF relid IS NULL THEN
        RETURN 'which table? name it: mill.why(id, ''schema.table'')';
    END IF;
    wrong := mill.why_not_plain(relid);
    IF wrong IS NOT NULL THEN
        RETURN format('%s is not read here, because that could run code of its owner with your rights: %s; ask as its owner', relation, wrong);
    END IF;
    EXECUTE format('SELECT id, state::text AS state, plan, active, start, stop, pid, "max", priority, "group", remote,
        hash, held, reason, job, crashes FROM %s WHERE id = $1', relation) INTO t USING task;
    CASE
    WHEN t.id IS NULL THEN
        RETURN format('there is no task %s in %s: it has finished and was deleted, or never was', task, relation);
    WHEN t.state IN ('DONE', 'FAIL') THEN
        RETURN format('it finished at %s with %s%s', t.stop, t.state, ' (' || t.reason || ')');
    WHEN t.state = 'GONE' THEN
        RETURN format('it expired: nobody started it within %s of its plan, %s', t.active, t.plan);
    WHEN t.state = 'STOP' AND t.reason = 'completion' THEN
        RETURN 'it has run, and its end was refused, so it was stopped; the launcher''s log says why; set its state to PLAN to run it again';
    WHEN t.state = 'STOP' THEN
        RETURN 'somebody stopped it; set its state to PLAN to go on';
    WHEN t.state = 'WORK' AND t.remote IS NOT NULL
         AND mill.locked({unknown_key}, hashtext(concat(relid, ':', t.id))::oid, here) THEN
        RETURN 'remote not reachable, outcome unknown';
    WHEN t.state = 'WORK' AND t.remote IS NOT NULL AND t.pid IS NULL THEN
        RETURN format('it is connecting to its remote since %s', t.start);
    WHEN t.state = 'WORK' AND t.remote IS NOT NULL THEN
        RETURN format('it is running since %s in server process %s of its remote', t.start, t.pid);
    WHEN t.state IN ('TAKE', 'WORK') AND NOT mill.locked({queue_key}, relid, here) THEN
        RETURN format('it was %s when its scheduler ended; it is planned again when a scheduler serves %s',
                      CASE t.state WHEN 'TAKE' THEN 'claimed' ELSE 'running' END, relation);
    WHEN t.state = 'WORK' AND t.remote IS NULL AND NOT EXISTS (SELECT FROM pg_stat_activity a
         WHERE a.pid = t.pid AND COALESCE(a.backend_start <= t.start, true)) THEN
        RETURN format('it is WORK in server process %s, which does not run it; it is planned again within a minute', COALESCE(t.pid::text, '(none)'));
    WHEN t.state = 'WORK' THEN
        RETURN format('it is running since %s in server process %s', t.start, t.pid);
    WHEN t.state = 'TAKE' THEN
        RETURN 'it has been taken and is about to start; if nothing starts it, it is planned again within a minute';
    WHEN NOT mill.locked({queue_key}, relid, here) AND trouble IS NOT NULL THEN
        RETURN format('no scheduler serves %s on this server: %s', relation, trouble);
    WHEN NOT mill.locked({queue_key}, relid, here) THEN
        RETURN format('no scheduler serves %s: is the launcher running? ask it with: launcher status', relation);
    WHEN t.plan > clock_timestamp() AND t.crashes > 1 THEN
        RETURN format('its last %s attempts have killed their worker or server process; it is tried again at %s, and fails after 20 in a row',
                      t.crashes, t.plan);
    WHEN t.plan > clock_timestamp() THEN
        RETURN format('it is planned for %s', t.plan);
    WHEN t."max" >= 0 AND t.active < interval '200000 years' AND t.plan + t.active <= clock_timestamp() THEN
        RETURN format('it has expired: it was to start within %s of %s, and becomes GONE at the next look', t.active, t.plan);
    WHEN t.held THEN
        RETURN 'it is held until the next look releases it';
    WHEN mill.locked({no_connection_key}, relid, here) AND trouble IS NOT NULL THEN
        RETURN format('workers get no connection to the server of their scheduler: %s', trouble);
    WHEN mill.locked({no_connection_key}, relid, here) THEN
        RETURN 'workers get no connection to the server, or cannot start; launcher status and the log show the reason';
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
INSERT INTO mill.face (level, object, rights) VALUES
    ('use', 'FUNCTION mill.why_not_plain(oid)', 'EXECUTE'),
    ('use', 'FUNCTION mill.why(bigint, regclass)', 'EXECUTE');
