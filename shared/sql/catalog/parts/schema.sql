-- The two schemas of the catalog, its version and its clock.
-- `mill` holds what people use: tables, views and functions. `mill_private` holds everything else: the runs of jobs, the functions
-- that schedulers call, and helpers. Nothing in either schema is granted to PUBLIC. Every function qualifies the names that it
-- uses or fixes its search_path.
-- parameters: none; locks: none; caller: installation, once per database

CREATE SCHEMA mill;
COMMENT ON SCHEMA mill IS 'pgmill: jobs, graphs and task tables of this database';
-- DROP SCHEMA mill CASCADE leaves the other schema of a former catalog behind.
DO $function$
BEGIN
    IF pg_catalog.obj_description(pg_catalog.to_regnamespace('mill_private')::oid, 'pg_namespace') ^@ 'pgmill: ' THEN
        DROP SCHEMA mill_private CASCADE;
    END IF;
END
$function$;
CREATE SCHEMA mill_private;
COMMENT ON SCHEMA mill_private IS 'pgmill: runs of jobs, functions that schedulers call, and helpers';

CREATE TABLE mill.meta (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    version text NOT NULL,
    enabled bool NOT NULL DEFAULT true,
    clock interval NOT NULL DEFAULT '0'
);
COMMENT ON TABLE mill.meta IS 'pgmill: the version of this catalog; one row';
COMMENT ON COLUMN mill.meta.one IS 'always true: the table has one row';
COMMENT ON COLUMN mill.meta.version IS 'the version of the catalog';
COMMENT ON COLUMN mill.meta.enabled IS 'false: no scheduler of this database runs';
COMMENT ON COLUMN mill.meta.clock IS 'how far a test has moved the clock of jobs and timers';
INSERT INTO mill.meta (version) VALUES ({version});

CREATE FUNCTION mill.s_version() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN (SELECT m.version FROM mill.meta m);
COMMENT ON FUNCTION mill.s_version() IS 'pgmill: the version of this catalog; the same in every version';

-- In plpgsql, because it is called at every pass and a plpgsql function keeps its plan.
CREATE FUNCTION mill.now() RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN clock_timestamp() + (SELECT m.clock FROM mill.meta m);
END
$function$;
COMMENT ON FUNCTION mill.now() IS 'pgmill: the clock that decides what is due; ahead of or behind the server''s only in tests';

CREATE FUNCTION mill_private.s_clock() RETURNS interval
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN (SELECT m.clock FROM mill.meta m);
COMMENT ON FUNCTION mill_private.s_clock() IS 'pgmill: how far a test has moved the clock';

CREATE FUNCTION mill_private.is_locked(kind int, key oid, database oid) RETURNS bool
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    -- objsubid 2: a lock with two keys
    RETURN EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.database = is_locked.database
                      AND l.classid = is_locked.kind::oid AND l.objid = is_locked.key AND l.objsubid = 2 AND l.granted
                      AND l.mode = 'ExclusiveLock');
COMMENT ON FUNCTION mill_private.is_locked(int, oid, oid) IS
    'pgmill: whether an advisory lock is held exclusively: its kind, its second key, its database';
