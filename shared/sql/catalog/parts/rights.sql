-- The rights on the catalog: a list that later parts add to, and the functions that grant by it.
-- Levels: use (queries, and definitions of work), operate (start, stop and restart as well). `admit` lets the user of a queue
-- register it; what he may do then are the entry points of that queue. A role that is admitted with `keeps` may also fire
-- timers and move tokens. Nothing here is for PUBLIC, and default privileges of the database change nothing.
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE TABLE mill.face (
    level text NOT NULL CHECK (level IN ('use', 'operate')),
    object text NOT NULL,
    rights text NOT NULL,
    PRIMARY KEY (level, object)
);
COMMENT ON TABLE mill.face IS 'pgmill: what mill.grant grants, one line per object: GRANT rights ON object';
INSERT INTO mill.face (level, object, rights) VALUES
    ('use', 'SCHEMA mill', 'USAGE'),
    ('use', 'TABLE mill.meta', 'SELECT'),
    ('use', 'FUNCTION mill.now()', 'EXECUTE'),
    ('use', 'FUNCTION mill.locked(int, oid, oid)', 'EXECUTE');
-- Runs a GRANT or REVOKE with the name of a role in it; PUBLIC for the empty name.
CREATE FUNCTION mill_private.allow(statement text, role name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    EXECUTE CASE WHEN role = '' THEN replace(statement, '%I', 'PUBLIC') ELSE format(statement, role) END;
END
$function$;
-- The objects of the catalog with the roles that have rights on them beside their owner ('' for PUBLIC). Entry points of queues
-- have their rights from `make_entry_points`.
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
CREATE FUNCTION mill_private.revoke_all() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    PERFORM mill_private.allow(format('REVOKE ALL ON %s %s FROM', l.kind, l.object) || ' %I CASCADE', l.role) FROM mill_private.list_rights() l;
END
$function$;
COMMENT ON FUNCTION mill_private.revoke_all() IS 'pgmill: no role but the owner has rights on the catalog; the end of every installation';
-- Exactly these roles, beside its owner, get this right on an object; nothing is written where it is so already.
CREATE FUNCTION mill_private.set_rights(kind text, object regprocedure, roles name[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    found name[];
    wanted name[] := ARRAY(SELECT DISTINCT r.rolname FROM pg_roles r, pg_proc p WHERE p.oid = object AND r.rolname = ANY (roles) AND r.oid <> p.proowner ORDER BY 1);
BEGIN
    found := ARRAY(SELECT DISTINCT COALESCE(r.rolname, '') FROM pg_proc p, aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
                     LEFT JOIN pg_roles r ON r.oid = a.grantee WHERE p.oid = object AND a.grantee <> p.proowner ORDER BY 1);
    IF found IS DISTINCT FROM wanted THEN
        PERFORM mill_private.allow(format('REVOKE ALL ON %s %s FROM', kind, object) || ' %I CASCADE', u) FROM unnest(found) AS u;
        PERFORM mill_private.allow(format('GRANT EXECUTE ON %s %s TO', kind, object) || ' %I', u) FROM unnest(wanted) AS u;
    END IF;
END
$function$;

CREATE FUNCTION mill.grant(role name, level text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    line record;
BEGIN
    IF level IS NULL OR level NOT IN ('use', 'operate') THEN
        RAISE EXCEPTION 'there is no level "%": choose use or operate', level USING ERRCODE = '22023';
    END IF;
    FOR line IN SELECT f.rights, f.object FROM mill.face f WHERE f.level IN ('use', $2) ORDER BY f.object LOOP
        EXECUTE format('GRANT %s ON %s TO %I', line.rights, line.object, role);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill.grant(name, text) IS
    'pgmill: lets a role use the catalog (use), or also start, stop and restart (operate)';
CREATE FUNCTION mill.revoke(role name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    line record;
    serves bool := EXISTS (SELECT FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = 'mill_private.registration'::regclass
                      AND a.grantee = (SELECT r.oid FROM pg_roles r WHERE r.rolname = $1));
    keeps bool := serves AND has_function_privilege(role, 'mill.s_watch_graph(bool, bool)', 'EXECUTE');
BEGIN
    FOR line IN SELECT DISTINCT f.object FROM mill.face f ORDER BY f.object LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', line.object, role);
    END LOOP;
    -- the user of a queue can still serve it
    IF serves THEN
        PERFORM mill.admit(role, keeps);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.revoke(name) IS 'pgmill: takes back what mill.grant has given';
CREATE FUNCTION mill.admit(role name, keeps bool DEFAULT false) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    service record;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA mill, mill_private TO %I', role);
    -- the marker table is waited for, and shows whether anything is to run
    EXECUTE format('GRANT SELECT ON mill.meta, mill.queue TO %I', role);
    EXECUTE format('GRANT INSERT ON mill_private.registration, mill_private.request TO %I', role);
    FOR service IN SELECT p.oid::regprocedure AS name,
                          p.proname IN ('s_version', 's_register', 's_clock', 'at', 'stash', 'stash_call', 'set_next_start') AS serves FROM pg_proc p
                    WHERE p.pronamespace = 'mill'::regnamespace
                      AND (p.proname ^@ 's_' OR p.proname IN ('at', 'stash', 'stash_call', 'set_next_start')) LOOP
        IF service.serves OR keeps THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', service.name, role);
        ELSE
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM %I', service.name, role);
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill.admit(name, bool) IS
    'pgmill: lets the user of a queue serve it with this catalog; keeps: it may also fire timers and move tokens';
CREATE FUNCTION mill.grant_again() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    holder record;
    holders jsonb;
BEGIN
    -- read whole before anything is revoked
    SELECT jsonb_agg(to_jsonb(h)) INTO holders
      FROM (SELECT r.rolname, bool_or(p.proname = 's_register') AS serves, bool_or(p.proname = 'now') AS uses,
                   bool_or(p.proname = 'restart') AS operates, bool_or(p.proname = 's_watch_graph') AS keeps
              FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
             WHERE p.pronamespace = 'mill'::regnamespace AND a.grantee <> p.proowner GROUP BY r.rolname) AS h;
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
COMMENT ON FUNCTION mill.grant_again() IS 'pgmill: after an upgrade, gives every role what its level includes now';
