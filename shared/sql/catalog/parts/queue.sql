-- The task tables that the catalog knows, and how a scheduler makes its own known.
-- The user of a queue need not own the catalog. To register a queue is an INSERT into mill_private.registration: a trigger
-- that runs as the writer notes who writes, and one that runs as the catalog's owner accepts only a role that could serve
-- the table. `session_user` proves nothing: a SECURITY DEFINER function of another role may be on the stack.
-- A restored table has another OID under the same name.
-- parameters: none; locks: none; caller: whoever installs, once per database
CREATE TABLE mill.queue (
    relid oid PRIMARY KEY,
    schema name NOT NULL,
    name name NOT NULL,
    owner name NOT NULL,
    "user" name,
    trouble text
);
COMMENT ON COLUMN mill.queue.trouble IS 'why its scheduler does not serve it on this server, or why its workers cannot begin; NULL: nothing is known';
COMMENT ON COLUMN mill.queue."user" IS 'the role that its scheduler and its workers log in as';
COMMENT ON TABLE mill.queue IS 'pgmill: the task tables that a scheduler has served in this database';
INSERT INTO mill.face (level, object, rights) VALUES ('use', 'TABLE mill.queue', 'SELECT');
CREATE FUNCTION mill.s_version() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN (SELECT m.version FROM mill.meta m);
COMMENT ON FUNCTION mill.s_version() IS 'pgmill: the version of this catalog; the same in every version';
-- The task table that a job names, also where this role may not look into its schema.
CREATE FUNCTION mill_private.queue_oid(name text) RETURNS oid
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN COALESCE((SELECT q.relid FROM mill.queue q WHERE queue_oid.name IN (format('%I.%I', q.schema, q.name), concat(q.schema, '.', q.name)) LIMIT 1),
                    to_regclass(queue_oid.name)::oid);
END
$function$;
COMMENT ON FUNCTION mill_private.queue_oid(text) IS 'pgmill: the OID of a task table by its name';
CREATE TABLE mill_private.registration (
    queue oid PRIMARY KEY,
    made_by name NOT NULL
);
COMMENT ON TABLE mill_private.registration IS 'pgmill: an INSERT registers a queue; no row stays';
CREATE FUNCTION mill_private.note_writer() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    NEW.made_by := current_user;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.note_writer() IS 'pgmill: the role that writes the row; runs as that role';
CREATE FUNCTION mill_private.register() RETURNS trigger
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
        RAISE EXCEPTION 'there is no table %', NEW.queue::regclass USING ERRCODE = '42P01';
    ELSIF NOT found.serves THEN
        RAISE EXCEPTION '% may not serve %.%', quote_ident(NEW.made_by), quote_ident(found.schema),
            quote_ident(found.name) USING ERRCODE = '42501';
    END IF;
    PERFORM pg_advisory_xact_lock({install_key}, 0);
    -- The queue stays with its user, as long as he may serve it, unless this session is the scheduler that holds the queue.
    IF EXISTS (SELECT FROM mill.queue q JOIN pg_roles r ON r.rolname = q."user"
                WHERE q.relid = found.relid AND q."user" <> NEW.made_by AND has_table_privilege(r.oid, q.relid, 'UPDATE'))
       AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = {queue_key}::oid AND l.objid = found.relid
                          AND l.objsubid = 2 AND l.granted AND l.mode = 'ExclusiveLock' AND l.pid = pg_backend_pid()) THEN
        RETURN NULL;
    END IF;
    FOR former IN DELETE FROM mill.queue q
         WHERE q.relid <> found.relid AND ((q.schema, q.name) = (found.schema, found.name)
            OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = q.relid))
        RETURNING CASE WHEN (q.schema, q.name) = (found.schema, found.name) THEN q.relid END LOOP
        UPDATE mill_private.run r SET queue = found.relid WHERE r.queue = former AND r.outcome IS NULL;
    END LOOP;
    INSERT INTO mill.queue AS q (relid, schema, name, owner, "user")
    VALUES (found.relid, found.schema, found.name, found.owner, NEW.made_by)
    ON CONFLICT (relid) DO UPDATE SET schema = EXCLUDED.schema, name = EXCLUDED.name, owner = EXCLUDED.owner, "user" = EXCLUDED."user"
     WHERE (q.schema, q.name, q.owner, q."user") IS DISTINCT FROM (EXCLUDED.schema, EXCLUDED.name, EXCLUDED.owner, EXCLUDED."user");
    UPDATE mill.job_book s SET queue = found.relid FROM mill.job j
     WHERE j.id = s.job AND mill_private.queue_oid(j.queue) = found.relid AND s.queue <> found.relid;
    PERFORM mill_private.make_entry_points(found.relid, NEW.made_by, found.owner);
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.register() IS 'pgmill: registers a queue for a role that may serve it';
CREATE TRIGGER registration_1_writer BEFORE INSERT ON mill_private.registration FOR EACH ROW
    EXECUTE FUNCTION mill_private.note_writer();
CREATE TRIGGER registration_2_register BEFORE INSERT ON mill_private.registration FOR EACH ROW
    EXECUTE FUNCTION mill_private.register();
CREATE FUNCTION mill.s_register(queue oid) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    INSERT INTO mill_private.registration (queue) VALUES (s_register.queue);
END
$function$;
COMMENT ON FUNCTION mill.s_register(oid) IS 'pgmill: registers a task table for the role that calls it';
