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
        SELECT 'pg_class'::regclass AS classid, relation.oid FROM pg_class relation WHERE relation.relnamespace = ANY (own)
        UNION ALL SELECT 'pg_proc'::regclass, routine.oid FROM pg_proc routine WHERE routine.pronamespace = ANY (own)
        UNION ALL SELECT 'pg_type'::regclass, kind.oid FROM pg_type kind WHERE kind.typnamespace = ANY (own)),
    built AS (
        SELECT DISTINCT dependency.classid, dependency.objid, dependency.objsubid
          FROM pg_depend dependency JOIN ours ON (dependency.refclassid, dependency.refobjid) = (ours.classid, ours.oid)
         WHERE dependency.deptype IN ('n', 'a') AND (dependency.classid, dependency.objid) NOT IN (SELECT ours.classid, ours.oid FROM ours))
    SELECT string_agg(pg_describe_object(built.classid, built.objid, built.objsubid), ', ') INTO strange
      FROM built
     WHERE CASE built.classid
           WHEN 'pg_trigger'::regclass THEN false
           WHEN 'pg_rewrite'::regclass THEN EXISTS (SELECT FROM pg_rewrite rule JOIN pg_class relation ON relation.oid = rule.ev_class
                                                     WHERE rule.oid = built.objid AND relation.relnamespace <> ALL (own))
           WHEN 'pg_constraint'::regclass THEN EXISTS (SELECT FROM pg_constraint key WHERE key.oid = built.objid
                                                          AND key.connamespace <> ALL (own))
           WHEN 'pg_attrdef'::regclass THEN EXISTS (SELECT FROM pg_attrdef preset JOIN pg_class relation ON relation.oid = preset.adrelid
                                                     WHERE preset.oid = built.objid AND relation.relnamespace <> ALL (own))
           WHEN 'pg_class'::regclass THEN EXISTS (SELECT FROM pg_class relation WHERE relation.oid = built.objid
                                                     AND relation.relnamespace <> ALL (own || 'pg_toast'::regnamespace::oid))
           WHEN 'pg_proc'::regclass THEN EXISTS (SELECT FROM pg_proc routine WHERE routine.oid = built.objid
                                                    AND routine.pronamespace <> ALL (own))
           ELSE false END;
    IF strange IS NOT NULL THEN
        RAISE EXCEPTION 'cannot drop the catalog because other objects depend on it: %', strange
            USING ERRCODE = '2BP01', HINT = 'Drop them first.';
    END IF;
    -- The row triggers of jobs belong to the users of the queues. Those that the caller may drop are dropped; the others do nothing
    -- without the catalog. Triggers of partitions go with those of their parent.
    FOR served IN SELECT trigger_row.tgname, trigger_row.tgrelid::regclass AS relation, routine.oid AS function FROM mill.queue queue_row
                    JOIN pg_class relation_row ON relation_row.oid = queue_row.relid JOIN pg_trigger trigger_row ON trigger_row.tgrelid = relation_row.oid
                    JOIN pg_proc routine ON routine.oid = trigger_row.tgfoid
                   WHERE trigger_row.tgname ^@ 'mill_job_' AND NOT trigger_row.tgisinternal AND trigger_row.tgparentid = 0
                     AND pg_has_role(relation_row.relowner, 'USAGE') AND pg_has_role(routine.proowner, 'USAGE') LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', served.tgname, served.relation);
        IF NOT EXISTS (SELECT FROM pg_trigger trigger_row WHERE trigger_row.tgfoid = served.function) THEN
            EXECUTE format('DROP FUNCTION %s', served.function::regprocedure);
        END IF;
    END LOOP;
    DROP SCHEMA mill, mill_private CASCADE;
END
$function$;
COMMENT ON FUNCTION mill.uninstall() IS 'pgmill: drops this catalog; task tables and their rows stay';
