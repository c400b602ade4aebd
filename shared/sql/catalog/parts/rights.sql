-- Who may do what with the catalog: a list that later parts add to, and the functions that grant by it.
-- Levels: use (ask, and define work), operate (start, stop and restart as well). What a queue's user needs to serve it
-- are the functions s_*, by their names; `admit` grants those. Nothing here is for PUBLIC.
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
BEGIN
    FOR line IN SELECT DISTINCT f.object FROM mill.face f WHERE f.object <> 'SCHEMA mill' ORDER BY f.object LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', line.object, role);
    END LOOP;
    -- whoever serves a queue keeps the way in
    IF NOT EXISTS (SELECT FROM pg_proc p, aclexplode(p.proacl) a WHERE p.pronamespace = 'mill'::regnamespace
                      AND p.proname = 's_register' AND a.grantee = (SELECT r.oid FROM pg_roles r WHERE r.rolname = $1)) THEN
        EXECUTE format('REVOKE ALL ON SCHEMA mill FROM %I', role);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill.revoke(name) IS 'pgmill: takes back what mill.grant has given';
CREATE FUNCTION mill.admit(role name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    service regprocedure;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA mill TO %I', role);
    -- the marker table is waited for, and says whether anything is to run
    EXECUTE format('GRANT SELECT ON mill.meta, mill.queue TO %I', role);
    FOR service IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'mill'::regnamespace
                      AND (p.proname ^@ 's_' OR p.proname IN ('at', 'stash')) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', service, role);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill.admit(name) IS 'pgmill: lets the user of a queue serve it with this catalog';
CREATE FUNCTION mill.grant_again() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    holder record;
BEGIN
    FOR holder IN SELECT r.rolname, bool_or(p.proname = 's_register') AS serves, bool_or(p.proname = 'now') AS uses,
                         bool_or(p.proname = 'restart') AS operates
                    FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
                   WHERE p.pronamespace = 'mill'::regnamespace AND a.grantee <> p.proowner GROUP BY r.rolname LOOP
        IF holder.serves THEN
            PERFORM mill.admit(holder.rolname);
        END IF;
        IF holder.uses THEN
            PERFORM mill.grant(holder.rolname, CASE WHEN holder.operates THEN 'operate' ELSE 'use' END);
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION mill.grant_again() IS 'pgmill: after an upgrade, gives everybody what his level has come to be';
