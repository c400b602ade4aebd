-- The task tables that the catalog knows, and how their schedulers are woken up.
-- A scheduler that sleeps holds the wake-up lock of its queue. A session that gets that lock in shared mode knows that the scheduler
-- is awake. Otherwise it sends a notification, which wakes the scheduler at commit. The lock with the key 0 belongs to the keeper of the graph.
-- parameters: none; locks: none; caller: installation, once per database

CREATE TABLE mill.queue (
    relid oid PRIMARY KEY,
    schema name NOT NULL,
    name name NOT NULL,
    owner name NOT NULL,
    "user" name,
    trouble text
);
COMMENT ON TABLE mill.queue IS 'pgmill: the task tables that a scheduler has served in this database';
COMMENT ON COLUMN mill.queue.relid IS 'the OID of the table';
COMMENT ON COLUMN mill.queue.schema IS 'the schema of the table';
COMMENT ON COLUMN mill.queue.name IS 'the name of the table';
COMMENT ON COLUMN mill.queue.owner IS 'the owner of the table';
COMMENT ON COLUMN mill.queue."user" IS 'the role that its scheduler and its workers log in as';
COMMENT ON COLUMN mill.queue.trouble IS 'why its scheduler does not serve it on this server, or why its workers cannot begin; NULL: nothing is known';

-- Also of a table in a schema that this role has no rights on.
CREATE FUNCTION mill_private.queue_oid(name text) RETURNS oid
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    RETURN COALESCE((SELECT q.relid FROM mill.queue q WHERE queue_oid.name IN (format('%I.%I', q.schema, q.name), concat(q.schema, '.', q.name)) LIMIT 1),
                    to_regclass(queue_oid.name)::oid);
END
$function$;
COMMENT ON FUNCTION mill_private.queue_oid(text) IS 'pgmill: the OID of a task table by its name';

-- Checked when the job is written and at every activation.
CREATE FUNCTION mill_private.check_queue_right(owner name, relid oid) RETURNS text
    LANGUAGE plpgsql STABLE AS $function$
DECLARE
    role oid := (SELECT r.oid FROM pg_roles r WHERE r.rolname = owner);
    here record;
BEGIN
    SELECT q.schema, q.name INTO here FROM mill.queue q JOIN pg_class c ON c.oid = q.relid WHERE q.relid = check_queue_right.relid;
    IF NOT FOUND THEN
        RETURN 'its queue does not exist any more';
    ELSIF role IS NULL THEN
        RETURN format('its owner "%s" does not exist any more', owner);
    ELSIF NOT has_table_privilege(role, relid, 'INSERT') THEN
        RETURN format('its owner "%s" may not INSERT into %I.%I, its queue', owner, here.schema, here.name);
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.check_queue_right(name, oid) IS
    'pgmill: why an owner may not run jobs in a queue; NULL if it may';

-- Every change of a job increments a row. The scheduler of the queue reads the sum at every full pass. There are several rows per
-- queue, so that writers do not wait for each other's commits.
CREATE TABLE mill_private.job_version (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue oid NOT NULL, n bigint NOT NULL DEFAULT 1);
CREATE INDEX ON mill_private.job_version (queue);
COMMENT ON TABLE mill_private.job_version IS 'pgmill: the sum over a queue rises with every change of its jobs';
COMMENT ON COLUMN mill_private.job_version.id IS 'one of several rows of a queue';
COMMENT ON COLUMN mill_private.job_version.queue IS 'the OID of the task table';
COMMENT ON COLUMN mill_private.job_version.n IS 'rises with every change';

CREATE FUNCTION mill_private.wake_scheduler(relid oid) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared({wakeup_key}, relid::int) THEN
        PERFORM pg_notify(concat('mill_', relid), '');
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.wake_scheduler(oid) IS 'pgmill: wakes the scheduler of a queue up if it sleeps';

CREATE FUNCTION mill_private.bump_version(relid oid) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    UPDATE mill_private.job_version v SET n = v.n + 1
     WHERE v.id = (SELECT f.id FROM mill_private.job_version f WHERE f.queue = bump_version.relid LIMIT 1 FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        INSERT INTO mill_private.job_version (queue) VALUES (relid);
    END IF;
    PERFORM mill_private.wake_scheduler(relid);
END
$function$;
COMMENT ON FUNCTION mill_private.bump_version(oid) IS 'pgmill: a job of this queue has changed; its scheduler is to read it';
