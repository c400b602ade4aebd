-- Drops the catalog and the row triggers of jobs. Task tables stay, with their rows. If a view or a function of somebody else
-- depends on the catalog, the error names it and nothing is changed. All of it happens in the transaction of the caller.
-- parameters: none; locks: all of the catalog, exclusively; caller: installation, once per database

CREATE FUNCTION mill.uninstall() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' SET client_min_messages = warning
    AS $function$
DECLARE
    own oid[] := ARRAY['mill'::regnamespace, 'mill_private'::regnamespace];
    strange text;
    served record;
BEGIN
    PERFORM pg_advisory_xact_lock({install_key}, 0);
    LOCK TABLE mill.meta IN ACCESS EXCLUSIVE MODE;
    WITH ours AS (
        SELECT 'pg_class'::regclass AS classid, c.oid FROM pg_class c WHERE c.relnamespace = ANY (own)
        UNION ALL SELECT 'pg_proc'::regclass, p.oid FROM pg_proc p WHERE p.pronamespace = ANY (own)
        UNION ALL SELECT 'pg_type'::regclass, t.oid FROM pg_type t WHERE t.typnamespace = ANY (own)),
    built AS (
        SELECT DISTINCT d.classid, d.objid, d.objsubid FROM pg_depend d JOIN ours ON (d.refclassid, d.refobjid) = (ours.classid, ours.oid)
         WHERE d.deptype IN ('n', 'a') AND (d.classid, d.objid) NOT IN (SELECT ours.classid, ours.oid FROM ours))
    SELECT string_agg(pg_describe_object(b.classid, b.objid, b.objsubid), ', ') INTO strange
      FROM built b
     WHERE CASE b.classid
           WHEN 'pg_trigger'::regclass THEN false
           WHEN 'pg_rewrite'::regclass THEN EXISTS (SELECT FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
                                                     WHERE r.oid = b.objid AND c.relnamespace <> ALL (own))
           WHEN 'pg_constraint'::regclass THEN EXISTS (SELECT FROM pg_constraint k WHERE k.oid = b.objid
                                                          AND k.connamespace <> ALL (own))
           WHEN 'pg_attrdef'::regclass THEN EXISTS (SELECT FROM pg_attrdef a JOIN pg_class c ON c.oid = a.adrelid
                                                     WHERE a.oid = b.objid AND c.relnamespace <> ALL (own))
           WHEN 'pg_class'::regclass THEN EXISTS (SELECT FROM pg_class c WHERE c.oid = b.objid
                                                     AND c.relnamespace <> ALL (own || 'pg_toast'::regnamespace::oid))
           WHEN 'pg_proc'::regclass THEN EXISTS (SELECT FROM pg_proc p WHERE p.oid = b.objid
                                                    AND p.pronamespace <> ALL (own))
           ELSE false END;
    IF strange IS NOT NULL THEN
        RAISE EXCEPTION 'cannot drop the catalog because other objects depend on it: %', strange
            USING ERRCODE = '2BP01', HINT = 'Drop them first.';
    END IF;
    -- The row triggers of jobs belong to the users of the queues. Those that the caller may drop are dropped; the others do nothing
    -- without the catalog. Triggers of partitions go with those of their parent.
    FOR served IN SELECT t.tgname, t.tgrelid::regclass AS relation, p.oid AS function FROM mill.queue q
                    JOIN pg_class c ON c.oid = q.relid JOIN pg_trigger t ON t.tgrelid = c.oid JOIN pg_proc p ON p.oid = t.tgfoid
                   WHERE t.tgname ^@ 'mill_job_' AND NOT t.tgisinternal AND t.tgparentid = 0
                     AND pg_has_role(c.relowner, 'USAGE') AND pg_has_role(p.proowner, 'USAGE') LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', served.tgname, served.relation);
        IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = served.function) THEN
            EXECUTE format('DROP FUNCTION %s', served.function::regprocedure);
        END IF;
    END LOOP;
    DROP SCHEMA mill, mill_private CASCADE;
END
$function$;
COMMENT ON FUNCTION mill.uninstall() IS 'pgmill: drops this catalog; task tables and their rows stay';
