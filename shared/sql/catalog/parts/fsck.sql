-- Consistency checks: every task waits, runs (with a live backend and a scheduler that serves its table) or has finished, and the
-- numbers of every job add up. Each problem is a row with a sentence. Some of these states exist for a moment in a healthy system,
-- for instance after a worker has died. So `launcher fsck` checks twice, a second apart, and reports what is there both times.
-- parameters: none (lock keys stand in the text); locks: none; caller: installation, once per database

CREATE FUNCTION mill.fsck() RETURNS TABLE (queue text, task bigint, problem text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    q record;
    here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    served bool;
BEGIN
    FOR q IN SELECT k.relid, format('%I.%I', k.schema, k.name) AS name, c.oid AS found
               FROM mill.queue k LEFT JOIN pg_namespace n ON n.nspname = k.schema
               LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = k.name ORDER BY 2 LOOP
        queue := q.name;
        task := NULL;
        IF q.found IS NULL OR q.found <> q.relid THEN
            problem := format('the catalog has the OID %s for the table, but no table has that OID', q.relid);
            RETURN NEXT;
            CONTINUE;
        ELSIF NOT has_table_privilege(q.relid, 'SELECT') THEN
            problem := format('%I may not SELECT from the table, so its tasks are not checked', current_user);
            RETURN NEXT;
            CONTINUE;
        ELSIF mill_private.why_not_plain(q.relid) IS NOT NULL THEN
            problem := format('the table is not read here: that could run code of its owner with the rights of %I (%s); call it as the owner',
                              current_user, mill_private.why_not_plain(q.relid));
            RETURN NEXT;
            CONTINUE;
        END IF;
        served := mill_private.is_locked({queue_key}, q.relid, here);
        RETURN QUERY EXECUTE format($query$
            WITH claimed AS MATERIALIZED (
                SELECT t.id, t.state::text AS state, t.attempt, t.pid, t.start, t.remote FROM %1$s t
                 WHERE t.state IN ('TAKE', 'WORK')
            ), live AS MATERIALIZED (
                SELECT a.pid, a.backend_start, a.state FROM pg_catalog.pg_stat_activity a
            ), signs AS MATERIALIZED (
                SELECT l.pid, l.objid FROM pg_catalog.pg_locks l
                 WHERE l.locktype = 'advisory' AND l.classid = {task_key}::oid AND l.objsubid = 2 AND l.granted
            ), differences AS (
                SELECT c.id, format('%%s, but no scheduler serves the table', c.state) AS problem
                  FROM claimed c WHERE NOT $1
                UNION ALL
                SELECT c.id, 'WORK without a backend pid or a start' FROM claimed c
                 WHERE c.state = 'WORK' AND (c.pid IS NULL OR c.start IS NULL)
                UNION ALL
                SELECT c.id, 'TAKE with a backend pid or a start' FROM claimed c
                 WHERE c.state = 'TAKE' AND (c.pid IS NOT NULL OR c.start IS NOT NULL)
                UNION ALL
                SELECT c.id, format('WORK in backend pid %%s, which does not exist', c.pid) FROM claimed c
                 WHERE c.state = 'WORK' AND c.remote IS NULL AND c.pid IS NOT NULL
                   AND NOT EXISTS (SELECT FROM live a WHERE a.pid = c.pid AND COALESCE(a.backend_start <= c.start, true))
                UNION ALL
                SELECT c.id, format('WORK in backend pid %%s, which is idle and does not hold the lock of the task', c.pid)
                  FROM claimed c JOIN live a ON a.pid = c.pid
                 WHERE c.state = 'WORK' AND c.remote IS NULL AND a.state = 'idle'
                   AND NOT EXISTS (SELECT FROM signs s WHERE s.pid = c.pid)
                UNION ALL
                SELECT min(c.id), format('WORK in backend pid %%s, like %%s others', c.pid, count(*) - 1)
                  FROM claimed c WHERE c.state = 'WORK' AND c.remote IS NULL GROUP BY c.pid HAVING count(*) > 1
                UNION ALL
                SELECT t.id, format('%%s with %%s', t.state, CASE WHEN t.stop IS NULL THEN 'no stop'
                                    WHEN t.error IS NULL THEN 'no error' ELSE 'an error' END)
                  FROM %1$s t
                 WHERE t.state IN ('DONE', 'FAIL', 'GONE')
                   AND (t.stop IS NULL OR (t.error IS NULL) <> (t.state = 'DONE'))
                UNION ALL
                SELECT t.id, 'PLAN with a start or a backend pid' FROM %1$s t
                 WHERE t.state = 'PLAN' AND (t.start IS NOT NULL OR t.pid IS NOT NULL)
                UNION ALL
                SELECT t.id, 'due since ' || t.plan || ', and nothing keeps it from starting'
                  FROM (SELECT s.id, s.plan FROM %1$s s
                         WHERE s.state = 'PLAN' AND NOT s.held AND s.plan < clock_timestamp() - interval '1 minute'
                         ORDER BY s."max" DESC, s.priority DESC, s.id LIMIT 100) t
                 WHERE $1 AND mill.why(t.id::bigint, $2) = 'due: starts at the next pass'
            )
            SELECT $3, d.id::bigint, d.problem FROM differences d ORDER BY 2, 3 $query$, q.relid::regclass)
            USING served, q.relid::regclass, q.name;
    END LOOP;
    queue := NULL;
    task := NULL;
    FOR problem IN
        SELECT format('job "%s": %s runs, but %s successes, %s failures and %s crashes', j.name, s.total_runs,
                      s.total_successes, s.total_failures, s.total_crashes)
          FROM mill.job_stat s JOIN mill.job j ON j.id = s.job
         WHERE s.total_runs <> s.total_successes + s.total_failures + s.total_crashes
        UNION ALL
        SELECT format('job "%s" has no statistics', j.name) FROM mill.job j
         WHERE NOT EXISTS (SELECT FROM mill.job_stat s WHERE s.job = j.id)
        UNION ALL
        SELECT format('statistics of job %s, which does not exist', s.job) FROM mill.job_stat s
         WHERE NOT EXISTS (SELECT FROM mill.job j WHERE j.id = s.job)
        UNION ALL
        SELECT format('job "%s" has a negative number in its statistics', j.name)
          FROM mill.job_stat s JOIN mill.job j ON j.id = s.job
         WHERE LEAST(s.running, s.total_runs, s.total_successes, s.total_failures, s.total_crashes,
                     s.consecutive_failures, s.consecutive_crashes) < 0
         ORDER BY 1 LOOP
        RETURN NEXT;
    END LOOP;
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
