-- The catalog's ground: the schema `mill`, the marker table with its version, its clock.
-- Owned by the user of the row that came first; nothing in it is granted to PUBLIC. Every function has a fixed
-- search_path and qualified names.
-- parameters: none (the version stands in the text); locks: the schema's name; caller: whoever installs, once per database
CREATE SCHEMA mill;
COMMENT ON SCHEMA mill IS 'pgmill: what is known about the task tables of this database';
-- DROP SCHEMA mill CASCADE by hand leaves the other schema behind.
DO $function$
BEGIN
    IF pg_catalog.obj_description(pg_catalog.to_regnamespace('mill_private')::oid, 'pg_namespace') ^@ 'pgmill: ' THEN
        DROP SCHEMA mill_private CASCADE;
    END IF;
END
$function$;
CREATE SCHEMA mill_private;
COMMENT ON SCHEMA mill_private IS 'pgmill: runs of jobs, and the functions that the schedulers of this database call';
CREATE TABLE mill.meta (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    version text NOT NULL,
    enabled bool NOT NULL DEFAULT true,
    clock interval NOT NULL DEFAULT '0'
);
COMMENT ON TABLE mill.meta IS 'pgmill: the version of this catalog; one row';
INSERT INTO mill.meta (version) VALUES ({version});
CREATE FUNCTION mill.locked(kind int, relid oid, database oid) RETURNS bool
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.database = locked.database
                      AND l.classid = locked.kind::oid AND l.objid = locked.relid AND l.objsubid = 2 AND l.granted
                      AND l.mode = 'ExclusiveLock');
-- plpgsql: it is called at every look, and keeps its plan.
CREATE FUNCTION mill.now() RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN clock_timestamp() + (SELECT m.clock FROM mill.meta m);
END
$function$;
COMMENT ON FUNCTION mill.now() IS 'pgmill: the clock that decides what is due; ahead of or behind the server''s only in tests';
