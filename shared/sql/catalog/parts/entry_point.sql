-- Entry points: the functions that the user of one queue may call, and no other role.
-- q<oid>_<name> calls mill_private.<name> with `relid`, the OID of its queue, fixed in the body. It is SECURITY DEFINER as the catalog's
-- owner, with EXECUTE for the queue's user and the owner of the table. The server checks EXECUTE against current_user, so a
-- function of another role on the stack cannot call it, whatever session_user is. Arguments and results have types of
-- pg_catalog: casts of a table's own types run in its row triggers, as its queue's user.
-- The most frequent entry points copy the body of that function instead: a call in between costs as much as a statement.
-- parameters: none; locks: none; caller: installation, once per database

-- %I in the statement stands for the role; the empty name is PUBLIC.
CREATE FUNCTION mill_private.run_grant(statement text, role name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    EXECUTE CASE WHEN role = '' THEN replace(statement, '%I', 'PUBLIC') ELSE format(statement, role) END;
END
$function$;
COMMENT ON FUNCTION mill_private.run_grant(text, name) IS 'pgmill: runs a GRANT or REVOKE for a role';

-- Beside its owner. Writes nothing if they have it and nobody else has.
CREATE FUNCTION mill_private.set_function_rights(object regprocedure, roles name[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
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
$function$;
COMMENT ON FUNCTION mill_private.set_function_rights(regprocedure, name[]) IS
    'pgmill: gives EXECUTE on a function to exactly these roles';

CREATE FUNCTION mill_private.list_entry_points(relid oid) RETURNS TABLE (name name, arguments text, result text, body text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
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
$function$;
COMMENT ON FUNCTION mill_private.list_entry_points(oid) IS 'pgmill: the functions that the user of a queue may call';

-- Creates or updates them, with exactly the intended rights, whatever default privileges the database has. Drops those of
-- queues that do not exist any more.
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
$function$;
COMMENT ON FUNCTION mill_private.make_entry_points(oid, name, name) IS 'pgmill: makes the entry points of a queue';
