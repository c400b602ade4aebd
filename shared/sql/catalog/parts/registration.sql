-- How a scheduler makes its queue known to the catalog.
-- The user of a queue need not own the catalog. To register a queue is an INSERT into mill_private.registration: one trigger runs
-- as the writer and notes who that is, the other runs as the catalog's owner and accepts only a role that could serve the table.
-- `session_user` proves nothing: a SECURITY DEFINER function of another role may be on the stack.
-- A restored table has another OID under the same name.
-- parameters: none; locks: none; caller: installation, once per database

CREATE TABLE mill_private.registration (
    queue oid PRIMARY KEY,
    made_by name NOT NULL
);
COMMENT ON TABLE mill_private.registration IS 'pgmill: an INSERT registers a queue; no row stays';
COMMENT ON COLUMN mill_private.registration.queue IS 'the OID of the task table';
COMMENT ON COLUMN mill_private.registration.made_by IS 'the role that writes the row';

CREATE FUNCTION mill_private.register_queue() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    found record;
    former oid;
BEGIN
    SELECT c.oid AS relid, n.nspname AS schema, c.relname AS name, pg_get_userbyid(c.relowner) AS owner,
           pg_has_role(NEW.made_by, c.relowner, 'USAGE')
               OR has_table_privilege(NEW.made_by, c.oid, 'SELECT')
              AND has_table_privilege(NEW.made_by, c.oid, 'INSERT')
              AND has_table_privilege(NEW.made_by, c.oid, 'UPDATE')
              AND has_table_privilege(NEW.made_by, c.oid, 'DELETE') AS serves
      INTO found
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = NEW.queue AND c.relkind IN ('r', 'p');
    IF found.relid IS NULL THEN
        RAISE EXCEPTION 'table % does not exist', NEW.queue::regclass USING ERRCODE = '42P01';
    ELSIF NOT found.serves THEN
        RAISE EXCEPTION '% may not serve %.%', quote_ident(NEW.made_by), quote_ident(found.schema),
            quote_ident(found.name) USING ERRCODE = '42501';
    END IF;
    PERFORM pg_advisory_xact_lock({install_key}, 0);
    -- The queue stays with its user as long as that role may serve it, unless this session is the scheduler that holds the queue.
    IF EXISTS (SELECT FROM mill.queue known JOIN pg_roles role ON role.rolname = known."user"
                WHERE known.relid = found.relid AND known."user" <> NEW.made_by AND has_table_privilege(role.oid, known.relid, 'UPDATE'))
       AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = {queue_key}::oid AND l.objid = found.relid
                          AND l.objsubid = 2 AND l.granted AND l.mode = 'ExclusiveLock' AND l.pid = pg_backend_pid()) THEN
        RETURN NULL;
    END IF;
    FOR former IN DELETE FROM mill.queue known
         WHERE known.relid <> found.relid AND ((known.schema, known.name) = (found.schema, found.name)
            OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = known.relid))
        RETURNING CASE WHEN (known.schema, known.name) = (found.schema, found.name) THEN known.relid END LOOP
        UPDATE mill_private.run one_run SET queue = found.relid WHERE one_run.queue = former AND one_run.outcome IS NULL;
    END LOOP;
    INSERT INTO mill.queue AS known (relid, schema, name, owner, "user")
    VALUES (found.relid, found.schema, found.name, found.owner, NEW.made_by)
    ON CONFLICT (relid) DO UPDATE SET schema = EXCLUDED.schema, name = EXCLUDED.name, owner = EXCLUDED.owner, "user" = EXCLUDED."user"
     WHERE (known.schema, known.name, known.owner, known."user") IS DISTINCT FROM (EXCLUDED.schema, EXCLUDED.name, EXCLUDED.owner, EXCLUDED."user");
    UPDATE mill_private.job_state plan SET queue = found.relid FROM mill.job job_row
     WHERE job_row.id = plan.job AND mill_private.queue_oid(job_row.queue) = found.relid AND plan.queue <> found.relid;
    PERFORM mill_private.make_entry_points(found.relid, NEW.made_by, found.owner);
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.register_queue() IS 'pgmill: registers a queue for a role that may serve it';
CREATE TRIGGER registration_1_writer BEFORE INSERT ON mill_private.registration FOR EACH ROW
    EXECUTE FUNCTION mill_private.note_writer();
CREATE TRIGGER registration_2_register BEFORE INSERT ON mill_private.registration FOR EACH ROW
    EXECUTE FUNCTION mill_private.register_queue();

CREATE FUNCTION mill_private.s_register(queue oid) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    INSERT INTO mill_private.registration (queue) VALUES (s_register.queue);
END
$function$;
COMMENT ON FUNCTION mill_private.s_register(oid) IS 'pgmill: registers a task table for the role that calls it';
