-- Why a task or a job is not running, in one sentence. The functions run as their caller. To read a task table can run code of its
-- owner: policies, rules, functions in indexes, statistics, constraints and partition keys (when a statement is planned), casts of
-- its types. So a table that is not plain is read by its owner alone.
-- parameters: none; locks: none; caller: installation, once per database

CREATE FUNCTION mill_private.why_not_plain(relid oid) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
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
$function$;
COMMENT ON FUNCTION mill_private.why_not_plain(oid) IS 'pgmill: what could run code of its owner when the table is read; NULL: nothing, or the caller owns it';

-- `state` is TAKE or WORK.
CREATE FUNCTION mill_private.explain_claimed_task(relid oid, id bigint, state text, pid int, start timestamptz, remote text) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    here oid := (SELECT known.oid FROM pg_database known WHERE known.datname = current_database());
BEGIN
    RETURN CASE
        WHEN state = 'WORK' AND remote IS NOT NULL AND mill_private.is_locked({unknown_key}, hashtext(concat(relid, ':', id))::oid, here)
            THEN 'remote not reachable, outcome unknown'
        WHEN state = 'WORK' AND remote IS NOT NULL AND pid IS NULL THEN format('connecting to its remote since %s', start)
        WHEN state = 'WORK' AND remote IS NOT NULL THEN format('running on its remote since %s (backend pid %s)', start, pid)
        WHEN NOT mill_private.is_locked({queue_key}, relid, here)
            THEN format('%s when its scheduler ended: it is planned again once a scheduler serves %s',
                        CASE state WHEN 'TAKE' THEN 'claimed' ELSE 'running' END, relid::regclass)
        WHEN state = 'TAKE' THEN 'claimed and about to start: if nothing starts it, it is planned again within a minute'
        WHEN NOT EXISTS (SELECT FROM pg_stat_activity backend
                          WHERE backend.pid = explain_claimed_task.pid AND COALESCE(backend.backend_start <= start, true))
            THEN format('state is WORK, but backend pid %s does not run it: it is planned again within a minute', COALESCE(pid::text, '(none)'))
        ELSE format('running since %s (backend pid %s)', start, pid) END;
END
$function$;
COMMENT ON FUNCTION mill_private.explain_claimed_task(oid, bigint, text, int, timestamptz, text) IS
    'pgmill: describes a task that is claimed or running, in one sentence';

CREATE FUNCTION mill.why(task bigint, queue regclass DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
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
    WHEN NOT mill_private.is_locked({queue_key}, relid, here) AND trouble IS NOT NULL THEN
        RETURN format('no scheduler serves %s on this server: %s', relation, trouble);
    WHEN NOT mill_private.is_locked({queue_key}, relid, here) THEN
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
    WHEN mill_private.is_locked({no_connection_key}, relid, here) AND trouble IS NOT NULL THEN
        RETURN format('workers cannot connect to the server of their scheduler: %s', trouble);
    WHEN mill_private.is_locked({no_connection_key}, relid, here) THEN
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
    ELSIF mill_private.is_locked({limit_zero_key}, relid, here) THEN
        RETURN 'no task of this queue starts: its limit is 0; raise limit';
    ELSIF mill_private.is_locked({run_reached_key}, relid, here) THEN
        RETURN 'the queue runs as many tasks at once as its setting run allows: wait until a task ends, or raise run';
    ELSIF mill_private.is_locked({no_slot_key}, relid, here) THEN
        RETURN 'no slot is free: wait until a task ends, or raise max_workers';
    ELSIF ahead > 0 THEN
        RETURN CASE ahead WHEN 1 THEN format('1 task of group "%s" comes first', task_row."group")
                          ELSE format('%s tasks of group "%s" come first', ahead, task_row."group") END;
    END IF;
    RETURN 'due: starts at the next pass';
END
$function$;
COMMENT ON FUNCTION mill.why(bigint, regclass) IS 'pgmill: why a task is not running, in one sentence';

-- The keeper is a scheduler whose user is a member of the catalog's owner or was admitted with `keeps`.
CREATE FUNCTION mill_private.explain_no_keeper() RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN 'no scheduler fires timers and moves tokens: is the launcher running? the user of a queue does so if it owns the catalog, or after: '
        || 'SELECT mill.admit(''ROLE'', keeps => true)';
END
$function$;
COMMENT ON FUNCTION mill_private.explain_no_keeper() IS 'pgmill: why timers do not fire and tokens do not move';

CREATE FUNCTION mill.why(job text, at timestamptz DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
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
            WHEN row_found.queue = 0 AND NOT mill_private.is_locked({graph_key}, 0, here) THEN mill_private.explain_no_keeper()
            WHEN row_found.queue = 0 THEN 'it needs no worker, and ends at the next pass over the graph'
            WHEN row_found.name IS NULL THEN 'its queue does not exist any more'
            WHEN NOT mill_private.is_locked({queue_key}, row_found.queue, here)
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
    IF NOT mill_private.is_locked({graph_key}, 0, here) THEN
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
$function$;
COMMENT ON FUNCTION mill.why(text, timestamptz) IS 'pgmill: why a job is not running, for a logical time or at all, in one sentence';

-- why('job', '2026-01-01') needs no cast: without this function the literal could be a table as well.
CREATE FUNCTION mill.why(job text, at text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN mill.why(why.job, why.at::timestamptz);
COMMENT ON FUNCTION mill.why(text, text) IS 'pgmill: why a job is not running for a logical time, in one sentence';
