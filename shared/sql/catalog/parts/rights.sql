-- The rights on the catalog: the list of them, and the functions that grant by that list.
-- mill.grant gives the level `use` (to query, and to define jobs and graphs) or `operate` (to start, stop and restart as well).
-- mill.admit gives `serve` to the user of a queue, and `keep` to one that fires timers and moves tokens as well. The user of a queue
-- also has the entry points of that queue (part `entry_point`).
-- Functions that run as their caller need EXECUTE on the helpers that they call, so the list names those as well. Nothing
-- is for PUBLIC: `revoke_all` ends every installation, whatever default privileges the database has.
-- parameters: none; locks: none; caller: installation, once per database

CREATE TABLE mill_private.grant_list (
    level text NOT NULL CHECK (level IN ('use', 'operate', 'serve', 'keep')),
    object text NOT NULL,
    rights text NOT NULL,
    PRIMARY KEY (level, object)
);
COMMENT ON TABLE mill_private.grant_list IS 'pgmill: what mill.grant and mill.admit give, a line per object: GRANT rights ON object';
COMMENT ON COLUMN mill_private.grant_list.level IS 'use or operate (mill.grant), serve or keep (mill.admit)';
COMMENT ON COLUMN mill_private.grant_list.object IS 'what GRANT expects behind ON';
COMMENT ON COLUMN mill_private.grant_list.rights IS 'what GRANT expects before ON';

INSERT INTO mill_private.grant_list (level, object, rights) VALUES
    ('use', 'SCHEMA mill', 'USAGE'),
    ('use', 'SCHEMA mill_private', 'USAGE'),
    ('use', 'TABLE mill.backfill', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.command', 'SELECT, INSERT'),
    ('use', 'TABLE mill.edge', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.flow', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.integrity', 'SELECT'),
    ('use', 'TABLE mill.job', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.job_stat', 'SELECT'),
    ('use', 'TABLE mill.job_status', 'SELECT'),
    ('use', 'TABLE mill.meta', 'SELECT'),
    ('use', 'TABLE mill.queue', 'SELECT'),
    ('use', 'TABLE mill.run', 'SELECT'),
    ('use', 'TABLE mill.timer', 'SELECT, INSERT, UPDATE, DELETE'),
    ('use', 'TABLE mill.token', 'SELECT'),
    ('use', 'TABLE mill.waiting', 'SELECT'),
    ('use', 'TABLE mill_private.request', 'INSERT'),
    ('use', 'TABLE mill_private.run', 'SELECT'),
    ('use', 'FUNCTION mill.add_job(regproc, interval, jsonb, timestamptz, bool, regproc, bool, text, text, text, text, interval, int, interval, interval)', 'EXECUTE'),
    ('use', 'FUNCTION mill.alter_job(int, interval, interval, int, interval, bool, jsonb, timestamptz, bool, regproc, bool, timestamptz, text, text, text, interval)', 'EXECUTE'),
    ('use', 'FUNCTION mill.apply(jsonb)', 'EXECUTE'),
    ('use', 'FUNCTION mill.at()', 'EXECUTE'),
    ('use', 'FUNCTION mill.cancel(text, timestamptz, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.check_cron(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.check_step(interval)', 'EXECUTE'),
    ('use', 'FUNCTION mill.check_zone(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.clear(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.delete_job(int)', 'EXECUTE'),
    ('use', 'FUNCTION mill.export(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.fire(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.fsck()', 'EXECUTE'),
    ('use', 'FUNCTION mill.mark(text, timestamptz, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.now()', 'EXECUTE'),
    ('use', 'FUNCTION mill.pause(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.picture(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.rerun(text, timestamptz, text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.resume(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.run(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.run_job(int)', 'EXECUTE'),
    ('use', 'FUNCTION mill.set_next_start(int, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.skip(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill.stash(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.stash(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.why(bigint, regclass)', 'EXECUTE'),
    ('use', 'FUNCTION mill.why(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill.why(text, timestamptz)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.audit_graph()', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.audit_jobs()', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.audit_queue(oid, oid)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.check_document(text, jsonb, jsonb)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.check_document_edge(text, bigint, jsonb)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.check_member(text, name)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.check_name(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.delete_absent_rows(text, jsonb)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.describe_edge(mill.edge)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.explain_claimed_task(oid, bigint, text, int, timestamptz, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.document_columns(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.explain_no_keeper()', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.export_row(text, jsonb)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.find_stash()', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.has_schedule(mill.job)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.is_locked(int, oid, oid)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.is_member(name)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.list_upstream_timers(text)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.parse_cron_item(int, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.raise_violation(text, text)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.upsert_row(text, jsonb, jsonb)', 'EXECUTE'),
    ('use', 'FUNCTION mill_private.why_not_plain(oid)', 'EXECUTE');
-- beside those of `use`
INSERT INTO mill_private.grant_list (level, object, rights) VALUES
    ('operate', 'FUNCTION mill_private.lock_message(int, int)', 'EXECUTE'),
    ('operate', 'FUNCTION mill_private.send_message(int, name)', 'EXECUTE'),
    ('operate', 'FUNCTION mill_private.wait_for_answer(oid, int)', 'EXECUTE'),
    ('operate', 'FUNCTION mill.start(name)', 'EXECUTE'),
    ('operate', 'FUNCTION mill.stop(name)', 'EXECUTE'),
    ('operate', 'FUNCTION mill.restart(name)', 'EXECUTE');
INSERT INTO mill_private.grant_list (level, object, rights) VALUES
    ('serve', 'SCHEMA mill', 'USAGE'),
    ('serve', 'SCHEMA mill_private', 'USAGE'),
    ('serve', 'TABLE mill.meta', 'SELECT'),
    ('serve', 'TABLE mill.queue', 'SELECT'),
    ('serve', 'TABLE mill_private.registration', 'INSERT'),
    ('serve', 'TABLE mill_private.request', 'INSERT'),
    ('serve', 'FUNCTION mill.s_version()', 'EXECUTE'),
    ('serve', 'FUNCTION mill.at()', 'EXECUTE'),
    ('serve', 'FUNCTION mill.set_next_start(int, timestamptz)', 'EXECUTE'),
    ('serve', 'FUNCTION mill.stash(text)', 'EXECUTE'),
    ('serve', 'FUNCTION mill.stash(text, text)', 'EXECUTE'),
    ('serve', 'FUNCTION mill_private.find_stash()', 'EXECUTE'),
    ('serve', 'FUNCTION mill_private.s_clock()', 'EXECUTE'),
    ('serve', 'FUNCTION mill_private.s_register(oid)', 'EXECUTE');
-- beside those of `serve`
INSERT INTO mill_private.grant_list (level, object, rights) VALUES
    ('keep', 'FUNCTION mill_private.s_advance_backfill(int, bigint, timestamptz[], int[], int[], bool)', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_check_graph(int[])', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_end_idle_runs(int)', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_fire_timers(int[], int[], timestamptz[], timestamptz[], timestamptz[], timestamptz[], bigint[], timestamptz[], timestamptz[])', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_list_backfills(int)', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_list_timers(int, int[])', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_set_timers(int[], int[], timestamptz[], timestamptz[], text[])', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_stop_backfill(int, text)', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_sweep_graph(int)', 'EXECUTE'),
    ('keep', 'FUNCTION mill_private.s_watch_graph(bool, bool)', 'EXECUTE');

-- '' is PUBLIC. Entry points of queues are left out: `make_entry_points` sets their rights.
CREATE FUNCTION mill_private.list_rights() RETURNS TABLE (kind text, object text, role name)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    SELECT DISTINCT o.kind, o.object, COALESCE(r.rolname, '')
      FROM (SELECT 'SCHEMA' AS kind, n.nspname::text AS object, n.nspowner AS owner, n.nspacl AS acl FROM pg_namespace n
             WHERE n.nspname IN ('mill', 'mill_private')
            UNION ALL
            SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relowner, c.relacl FROM pg_class c
             WHERE c.relnamespace IN ('mill'::regnamespace, 'mill_private'::regnamespace) AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
            UNION ALL
            SELECT 'ROUTINE', p.oid::regprocedure::text, p.proowner, COALESCE(p.proacl, acldefault('f', p.proowner)) FROM pg_proc p
             WHERE p.pronamespace IN ('mill'::regnamespace, 'mill_private'::regnamespace) AND NOT p.proname ~ '^q[0-9]+_') AS o,
           aclexplode(o.acl) AS a LEFT JOIN pg_roles r ON r.oid = a.grantee
     WHERE a.grantee <> o.owner AND (r.rolname IS NOT NULL OR a.grantee = 0)
$function$;

COMMENT ON FUNCTION mill_private.list_rights() IS 'pgmill: who has rights on which objects of the catalog';

CREATE FUNCTION mill_private.revoke_all() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM mill_private.run_grant(format('REVOKE ALL ON %s %s FROM', l.kind, l.object) || ' %I CASCADE', l.role) FROM mill_private.list_rights() l;
END
$function$;
COMMENT ON FUNCTION mill_private.revoke_all() IS 'pgmill: revokes all rights on the catalog from other roles than its owner; the last step of every installation';

CREATE FUNCTION mill_private.grant_levels(role name, levels text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    line record;
BEGIN
    FOR line IN SELECT l.rights, l.object FROM mill_private.grant_list l WHERE l.level = ANY (levels) ORDER BY l.object LOOP
        EXECUTE format('GRANT %s ON %s TO %I', line.rights, line.object, role);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill_private.grant_levels(name, text[]) IS 'pgmill: grants what the list has for these levels';

CREATE FUNCTION mill_private.revoke_levels(role name, levels text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    line record;
BEGIN
    FOR line IN SELECT DISTINCT l.object FROM mill_private.grant_list l WHERE l.level = ANY (levels) ORDER BY l.object LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', line.object, role);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill_private.revoke_levels(name, text[]) IS 'pgmill: revokes what the list has for these levels';

CREATE FUNCTION mill.grant(role name, level text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF level IS NULL OR level NOT IN ('use', 'operate') THEN
        RAISE EXCEPTION 'unknown level "%": choose use or operate', level USING ERRCODE = '22023';
    END IF;
    PERFORM mill_private.grant_levels(role, ARRAY['use', level]);
END
$function$;
COMMENT ON FUNCTION mill.grant(name, text) IS
    'pgmill: lets a role use the catalog (use), or also start, stop and restart schedulers (operate)';

CREATE FUNCTION mill.admit(role name, keeps bool DEFAULT false) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM mill_private.grant_levels(role, ARRAY['serve']);
    IF keeps THEN
        PERFORM mill_private.grant_levels(role, ARRAY['keep']);
    ELSE
        PERFORM mill_private.revoke_levels(role, ARRAY['keep']);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.admit(name, bool) IS
    'pgmill: lets the user of a queue serve it with this catalog; keeps: it may also fire timers and move tokens';

CREATE FUNCTION mill.revoke(role name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    serves bool := EXISTS (SELECT FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = 'mill_private.registration'::regclass
                      AND a.grantee = (SELECT r.oid FROM pg_roles r WHERE r.rolname = role));
    keeps bool := serves AND has_function_privilege(role, 'mill_private.s_watch_graph(bool, bool)', 'EXECUTE');
BEGIN
    PERFORM mill_private.revoke_levels(role, ARRAY['use', 'operate']);
    -- The user of a queue can still serve it.
    IF serves THEN
        PERFORM mill.admit(role, keeps);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.revoke(name) IS 'pgmill: takes back what mill.grant has given';

CREATE FUNCTION mill_private.renew_grants() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    holder record;
    holders jsonb;
BEGIN
    -- Read all of them before anything is revoked.
    SELECT jsonb_agg(to_jsonb(h)) INTO holders
      FROM (SELECT r.rolname, bool_or(p.oid = 'mill_private.s_register(oid)'::regprocedure) AS serves,
                   bool_or(p.oid = 'mill.now()'::regprocedure) AS uses,
                   bool_or(p.oid = 'mill.restart(name)'::regprocedure) AS operates,
                   bool_or(p.oid = 'mill_private.s_watch_graph(bool, bool)'::regprocedure) AS keeps
              FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
             WHERE p.pronamespace IN ('mill'::regnamespace, 'mill_private'::regnamespace) AND a.grantee <> p.proowner GROUP BY r.rolname) AS h;
    PERFORM mill_private.revoke_all();
    FOR holder IN SELECT * FROM jsonb_to_recordset(COALESCE(holders, '[]')) AS h (rolname name, serves bool, uses bool, operates bool, keeps bool) LOOP
        IF holder.serves THEN
            PERFORM mill.admit(holder.rolname, holder.keeps);
        END IF;
        IF holder.uses THEN
            PERFORM mill.grant(holder.rolname, CASE WHEN holder.operates THEN 'operate' ELSE 'use' END);
        END IF;
    END LOOP;
    PERFORM mill_private.make_entry_points(q.relid, COALESCE(q."user", q.owner), q.owner) FROM mill.queue q;
END
$function$;
COMMENT ON FUNCTION mill_private.renew_grants() IS 'pgmill: after an upgrade, gives every role what its levels include now';
