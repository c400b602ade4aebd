-- Entry points: what the user of one queue may call, and no other role. Each is a function with the OID of its queue fixed in the
-- body, SECURITY DEFINER as the catalog's owner, EXECUTE for the queue's user and the owner of the table. The server checks
-- EXECUTE against current_user, so a function of another role on the stack cannot call them, whatever session_user is. Their
-- arguments and results are of types of pg_catalog only: casts of a table's own types run in its row triggers, as its queue's user.
-- A body of one word is that of the function of that name, with `relid` as a constant.
-- parameters: none; locks: none; caller: installation, once per database
CREATE FUNCTION mill_private.list_entry_points(relid oid) RETURNS TABLE (name name, arguments text, result text, body text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    SELECT concat('q', relid, '_', e.name)::name, e.arguments, e.result,
           CASE WHEN e.body ~ ' ' THEN format(E'\n#variable_conflict use_variable\nBEGIN\n    %s;\nEND\n', format(e.body, relid))
                ELSE (SELECT replace(p.prosrc, E'\nDECLARE\n', format(E'\nDECLARE\n    relid CONSTANT oid := %s;\n', relid)) FROM pg_proc p
                       WHERE p.pronamespace = 'mill_private'::regnamespace AND p.proname = e.body) END
      FROM (VALUES
        ('begin', 'run bigint, task bigint, attempt int', 'bool', 'begin_run'),
        ('unbegin', 'run bigint', 'void', 'PERFORM mill_private.unbegin_run(%s, run)'),
        ('end', 'run bigint, task bigint, state text, began timestamptz, reason text, error text, output text, code text', 'void', 'end_run'),
        ('pulse', 'since timestamptz, folds bool', 'TABLE (version bigint, due_ms float8, wait_ms float8, fill bool, orders bool, recalls bool, leftover bool)',
            'RETURN QUERY SELECT * FROM mill_private.pulse(%s, since, folds)'),
        ('start', 'slots int', 'TABLE (started int, until timestamptz)', 'RETURN QUERY SELECT * FROM mill_private.start_jobs(%s, slots)'),
        ('put', 'most int, single bigint', 'TABLE (run bigint, job int, at timestamptz, epoch int, run_of bigint, failures int, attempt int,
            priority int, due timestamptz, input text, active interval, live interval, timeout interval, count int, max int,
            "group" text, remote text, atomic bool)', 'put_runs'),
        ('next', '', 'bigint', 'RETURN mill_private.next_order(%s)'),
        ('refuse', 'run bigint, why text', 'void', 'PERFORM mill_private.refuse_run(%s, run, why)'),
        ('recalls', '', 'TABLE (run bigint, what text, reason text, error text)', 'RETURN QUERY SELECT * FROM mill_private.list_recalls(%s)'),
        ('withdraw', 'runs bigint[]', 'bigint[]', 'RETURN mill_private.withdraw_runs(%s, runs)'),
        ('open', '', 'TABLE (run bigint, begun bool, recalled bool)', 'RETURN QUERY SELECT * FROM mill_private.list_open(%s)'),
        ('missing', 'missing bigint[], waiting bigint[]', 'int', 'RETURN mill_private.missing_runs(%s, missing, waiting)'),
        ('watch', 'jobs int[]', 'TABLE (job int, ms float8, scheduled bool)', 'RETURN QUERY SELECT * FROM mill_private.watch_jobs(%s, jobs)'),
        ('unfilled', '', 'TABLE (job int, cron text, timezone text, initial_start timestamptz, moment timestamptz, fresh bool, stamp bigint)',
            'RETURN QUERY SELECT * FROM mill_private.list_unfilled(%s)'),
        ('fill', 'job int, stamp bigint, next timestamptz, wrong text', 'void', 'PERFORM mill_private.fill_start(%s, job, stamp, next, wrong)'),
        ('delete_old', 'behind int', 'TABLE (tasks bigint[], runs bigint[], last int)',
            'RETURN QUERY SELECT * FROM mill_private.delete_old_runs(%s, behind)'),
        ('note', 'reason text', 'void', 'UPDATE mill.queue q SET trouble = reason WHERE q.relid = %s'),
        ('next_start', 'job int, next timestamptz', 'bool', 'RETURN mill_private.set_next_start(%s, job, next)'),
        ('stash', 'job int, at timestamptz, key text', 'text', 'RETURN mill_private.get_stash(%s, job, at, key)'),
        ('stash', 'job int, at timestamptz, key text, value text', 'void', 'PERFORM mill_private.set_stash(%s, job, at, key, value)')
      ) AS e (name, arguments, result, body)
$function$;
COMMENT ON FUNCTION mill_private.list_entry_points(oid) IS 'pgmill: the functions that the user of a queue may call';

-- Makes them, or brings them up to date, with exactly the rights meant, whatever default privileges there are. Those of queues
-- that are gone are dropped.
CREATE FUNCTION mill_private.make_entry_points(relid oid, "user" name, owner name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $function$
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
                CASE WHEN e.name ~ '_(recalls|open)$' THEN 'STABLE' ELSE 'VOLATILE' END, e.body);
        END IF;
    END LOOP;
    FOR e IN SELECT p.oid FROM pg_proc p
              WHERE p.pronamespace = 'mill_private'::regnamespace AND p.proname ^@ concat('q', relid, '_') LOOP
        PERFORM mill_private.set_rights('FUNCTION', e.oid, ARRAY["user", owner]);
    END LOOP;
    PERFORM mill_private.allow('GRANT USAGE ON SCHEMA mill_private TO %I', r) FROM unnest(ARRAY["user", owner]) AS r
      WHERE NOT has_schema_privilege(r, 'mill_private', 'USAGE');
END
$function$;
COMMENT ON FUNCTION mill_private.make_entry_points(oid, name, name) IS 'pgmill: makes the entry points of a queue';
