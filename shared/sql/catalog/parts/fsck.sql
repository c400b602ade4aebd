-- Consistency checks: every task waits, runs (with a live backend and a scheduler that serves its table) or has finished, and the
-- numbers of every job add up. Each problem is a row with a sentence. Some of these states exist for a moment in a healthy system,
-- for instance after a worker has died. So `launcher fsck` checks twice, a second apart, and reports what is there both times.
-- parameters: none (lock keys stand in the text); locks: none; caller: installation, once per database

-- Reads the task table as its caller, so a table that is not plain is refused here. `actual`: the OID of the table of that name now.
CREATE FUNCTION mill_private.audit_queue(relid oid, actual oid) RETURNS TABLE (task bigint, problem text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
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
             WHERE held.locktype = 'advisory' AND held.classid = {task_key}::oid AND held.objsubid = 2 AND held.granted
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
        USING mill_private.is_locked({queue_key}, relid, here), relid::regclass;
END
$function$;
COMMENT ON FUNCTION mill_private.audit_queue(oid, oid) IS 'pgmill: what is wrong with the tasks of a queue, a sentence each';

CREATE FUNCTION mill_private.audit_jobs() RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
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
$function$;
COMMENT ON FUNCTION mill_private.audit_jobs() IS 'pgmill: what is wrong with the numbers of jobs, a sentence each';

CREATE FUNCTION mill.fsck() RETURNS TABLE (queue text, task bigint, problem text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
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
$function$;
COMMENT ON FUNCTION mill.fsck() IS
    'pgmill: what is wrong with tasks and jobs of this database, a sentence each; nothing is changed';
