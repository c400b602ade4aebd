-- The books: every task is waiting, running (with a live server process and a scheduler that answers for it) or finished;
-- every job's numbers add up. What differs is a row, with a sentence. A healthy system passes through some of these
-- states for a moment (a worker has just died, its task is being settled), so what is not there at a second look a
-- second later was no fault; `launcher fsck` looks twice.
-- parameters: none (lock keys stand in the text); locks: none; caller: whoever installs, once per database
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
            problem := format('the catalog knows the table by the OID %s, and it is not there under that number', q.relid);
            RETURN NEXT;
            CONTINUE;
        ELSIF NOT has_table_privilege(q.relid, 'SELECT') THEN
            problem := format('%I may not read the table, so nothing is known of its tasks', current_user);
            RETURN NEXT;
            CONTINUE;
        ELSIF mill.why_not_plain(q.relid) IS NOT NULL THEN
            problem := format('the table is not read here, because that could run code of its owner with the rights of %I: %s; ask as its owner',
                              current_user, mill.why_not_plain(q.relid));
            RETURN NEXT;
            CONTINUE;
        END IF;
        served := mill.locked({queue_key}, q.relid, here);
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
                SELECT c.id, format('it is %%s, and no scheduler serves its table', c.state) AS problem
                  FROM claimed c WHERE NOT $1
                UNION ALL
                SELECT c.id, 'it is WORK without a server process or a start' FROM claimed c
                 WHERE c.state = 'WORK' AND (c.pid IS NULL OR c.start IS NULL)
                UNION ALL
                SELECT c.id, 'it is TAKE with a server process or a start' FROM claimed c
                 WHERE c.state = 'TAKE' AND (c.pid IS NOT NULL OR c.start IS NOT NULL)
                UNION ALL
                SELECT c.id, format('it is WORK in server process %%s, which is gone', c.pid) FROM claimed c
                 WHERE c.state = 'WORK' AND c.remote IS NULL AND c.pid IS NOT NULL
                   AND NOT EXISTS (SELECT FROM live a WHERE a.pid = c.pid AND COALESCE(a.backend_start <= c.start, true))
                UNION ALL
                SELECT c.id, format('it is WORK in server process %%s, which is idle and does not show its lock', c.pid)
                  FROM claimed c JOIN live a ON a.pid = c.pid
                 WHERE c.state = 'WORK' AND c.remote IS NULL AND a.state = 'idle'
                   AND NOT EXISTS (SELECT FROM signs s WHERE s.pid = c.pid)
                UNION ALL
                SELECT min(c.id), format('it is WORK in server process %%s, and so are %%s others', c.pid, count(*) - 1)
                  FROM claimed c WHERE c.state = 'WORK' AND c.remote IS NULL GROUP BY c.pid HAVING count(*) > 1
                UNION ALL
                SELECT t.id, format('it is %%s and has %%s', t.state, CASE WHEN t.stop IS NULL THEN 'no stop'
                                    WHEN t.error IS NULL THEN 'no error' ELSE 'an error' END)
                  FROM %1$s t
                 WHERE t.state IN ('DONE', 'FAIL', 'GONE')
                   AND (t.stop IS NULL OR (t.error IS NULL) <> (t.state = 'DONE'))
                UNION ALL
                SELECT t.id, 'it waits and has a start or a server process' FROM %1$s t
                 WHERE t.state = 'PLAN' AND (t.start IS NOT NULL OR t.pid IS NOT NULL)
                UNION ALL
                SELECT t.id, 'it waits since ' || t.plan || ', is due, and nothing keeps it'
                  FROM (SELECT s.id, s.plan FROM %1$s s
                         WHERE s.state = 'PLAN' AND NOT s.held AND s.plan < clock_timestamp() - interval '1 minute'
                         ORDER BY s."max" DESC, s.priority DESC, s.id LIMIT 100) t
                 WHERE $1 AND mill.why(t.id::bigint, $2) = 'it is due and starts at the next look'
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
        SELECT format('there are statistics of job %s, which is not there', s.job) FROM mill.job_stat s
         WHERE NOT EXISTS (SELECT FROM mill.job j WHERE j.id = s.job)
        UNION ALL
        SELECT format('job "%s" has a negative number of something in its statistics', j.name)
          FROM mill.job_stat s JOIN mill.job j ON j.id = s.job
         WHERE LEAST(s.running, s.total_runs, s.total_successes, s.total_failures, s.total_crashes,
                     s.consecutive_failures, s.consecutive_crashes) < 0
         ORDER BY 1 LOOP
        RETURN NEXT;
    END LOOP;
    -- the graph's own books, where there is one
    IF to_regclass('mill.integrity') IS NOT NULL THEN
        FOR problem IN EXECUTE 'SELECT format(''the books of the graph do not balance: %s'', to_jsonb(i)) FROM mill.integrity i' LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.fsck() IS
    'pgmill: what is wrong with tasks and jobs of this database, a sentence each; nothing is changed';
INSERT INTO mill.face (level, object, rights) VALUES ('use', 'FUNCTION mill.fsck()', 'EXECUTE');
