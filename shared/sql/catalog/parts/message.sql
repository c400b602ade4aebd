-- Messages to the launcher: start, stop and restart the schedulers of a database, before and after a restore as well.
--
-- A message is a transaction advisory lock of the sender. The launcher sees it in pg_locks while the transaction is
-- still open, checks who holds it, acts, and answers by a session advisory lock of its own. Both end with the transaction. The
-- first key is the kind of the message plus 256 times a number from 0 to 255, by which the answer finds its message. The second key of
-- a message is the database concerned, that of an answer the backend pid of the sender.
-- parameters: none (the keys stand in the text); locks: none; caller: installation, once per database

-- A number that none of this session's open messages and no answer to this session uses. NULL: there is none.
CREATE FUNCTION mill_private.lock_message(kind int, place_key int) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    number int;
    most_tries CONSTANT int := 32;
    -- the bits of the number in a first key
    number_mask CONSTANT bigint := 65280;
BEGIN
    FOR try IN 1 .. most_tries LOOP
        SELECT free_number INTO number FROM generate_series(0, 255) AS free_number
         WHERE free_number NOT IN (SELECT (held.classid::bigint & number_mask) / 256 FROM pg_locks held
                          WHERE held.locktype = 'advisory' AND held.objsubid = 2
                            AND (held.pid = pg_backend_pid() AND held.classid::bigint & ~number_mask
                                     IN ({start_key}, {stop_key}, {restart_key})
                                 OR held.objid = pg_backend_pid()::oid AND held.classid::bigint & ~number_mask
                                     IN ({true_key}, {false_key}, {refused_key})))
         ORDER BY random() LIMIT 1;
        IF pg_try_advisory_xact_lock(kind + 256 * number, place_key) THEN
            RETURN number;
        END IF;
    END LOOP;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.lock_message(int, int) IS 'pgmill: takes the lock that is a message; returns its number';

-- Only a session that holds the lock of a leader can answer. Anybody can take that lock, so once a holder with the rights of a
-- launcher was seen, answers of others are ignored.
CREATE FUNCTION mill_private.wait_for_answer(place oid, number int) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    until timestamptz := clock_timestamp() + interval '5 seconds';
    seconds_between_looks CONSTANT float8 := 0.02;
    met bool := false;
    answer bigint;
BEGIN
    LOOP
        WITH seen AS MATERIALIZED (
            SELECT held.pid, held.classid, held.objid FROM pg_locks held
             WHERE held.locktype = 'advisory' AND held.objsubid = 2 AND held.granted AND held.mode = 'ExclusiveLock'
        ), leaders AS MATERIALIZED (
            SELECT seen.pid, COALESCE(login.rolsuper OR pg_has_role(login.oid, 'pg_signal_backend', 'MEMBER')
                       OR (SELECT pg_has_role(login.oid, target.datdba, 'MEMBER') FROM pg_database target WHERE target.oid = place)
                       OR (SELECT pg_has_role(login.oid, catalog.nspowner, 'MEMBER') FROM pg_namespace catalog WHERE catalog.nspname = 'mill'), false) AS known
              FROM seen LEFT JOIN pg_stat_activity backend ON backend.pid = seen.pid LEFT JOIN pg_roles login ON login.oid = backend.usesysid
             WHERE seen.classid = {leader_key}::oid)
        SELECT met OR EXISTS (SELECT FROM leaders WHERE leaders.known), (
            SELECT given.classid::bigint - 256 * number FROM seen given JOIN leaders leader ON leader.pid = given.pid
             WHERE given.objid = pg_backend_pid()::oid
               AND given.classid::bigint - 256 * number IN ({true_key}, {false_key}, {refused_key})
               AND (leader.known OR NOT met AND NOT EXISTS (SELECT FROM leaders other WHERE other.known))
             LIMIT 1) INTO met, answer;
        EXIT WHEN answer IS NOT NULL OR clock_timestamp() >= until;
        PERFORM pg_sleep(seconds_between_looks);
    END LOOP;
    RETURN answer;
END
$function$;
COMMENT ON FUNCTION mill_private.wait_for_answer(oid, int) IS 'pgmill: waits for the answer of the launcher to a message of this session; NULL: none came in time';

CREATE FUNCTION mill_private.send_message(kind int, target name) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    place oid := (SELECT known.oid FROM pg_database known WHERE known.datname = target);
    -- the same 32 bits with a sign
    place_key int := place::bigint::bit(32)::int;
    most_messages CONSTANT int := 64;
    -- the bits of the number in a first key
    number_mask CONSTANT bigint := 65280;
    launchers bigint;
    open_messages bigint;
    number int;
    answer bigint;
BEGIN
    IF place IS NULL THEN
        RAISE WARNING 'pgmill: database "%" does not exist', target;
        RETURN false;
    END IF;
    SELECT count(*) FILTER (WHERE held.classid = {leader_key}::oid),
           count(*) FILTER (WHERE held.pid = pg_backend_pid() AND held.classid::bigint & ~number_mask
               IN ({start_key}, {stop_key}, {restart_key}))
      INTO launchers, open_messages
      FROM pg_locks held
     WHERE held.locktype = 'advisory' AND held.objsubid = 2 AND held.granted AND held.mode = 'ExclusiveLock';
    IF launchers = 0 THEN
        RAISE NOTICE 'pgmill: no launcher runs on this server';
        RETURN false;
    END IF;
    IF open_messages >= most_messages THEN
        RAISE WARNING 'pgmill: this transaction has sent % messages already; commit, then send more', most_messages;
        RETURN false;
    END IF;
    number := mill_private.lock_message(kind, place_key);
    IF number IS NULL THEN
        RAISE WARNING 'pgmill: too many messages at once; try again';
        RETURN false;
    END IF;
    answer := mill_private.wait_for_answer(place, number);
    IF answer = {refused_key} THEN
        RAISE WARNING 'pgmill: role "%" may not start or stop schedulers of database "%": only its owner, users of its queues, and members of operators may', session_user, target;
    END IF;
    -- The new scheduler waits for the end of this transaction, so only this function can warn that it will be switched off.
    IF answer = {true_key} AND kind = {restart_key} AND target = current_database()
       AND has_table_privilege('mill.meta', 'SELECT') THEN
        IF NOT (SELECT meta_row.enabled FROM mill.meta meta_row) THEN
            RAISE WARNING 'pgmill: mill.meta.enabled is false, so no scheduler runs in database "%"; set it to true, then start it', target;
            RETURN false;
        END IF;
    END IF;
    RETURN COALESCE(answer = {true_key}, false);
END
$function$;
COMMENT ON FUNCTION mill_private.send_message(int, name) IS 'pgmill: sends the launcher a message; called by start, stop and restart';

CREATE FUNCTION mill.start(database name DEFAULT current_database()) RETURNS bool
    LANGUAGE sql SET search_path = pg_catalog, pg_temp RETURN mill_private.send_message({start_key}, database);
COMMENT ON FUNCTION mill.start(name) IS 'pgmill: starts the schedulers of a database; true: its queues are served';

CREATE FUNCTION mill.stop(database name DEFAULT current_database()) RETURNS bool
    LANGUAGE sql SET search_path = pg_catalog, pg_temp RETURN mill_private.send_message({stop_key}, database);
COMMENT ON FUNCTION mill.stop(name) IS 'pgmill: stops the schedulers of a database until mill.start or a restart of the launcher; their tasks are planned again; true: they have ended';

CREATE FUNCTION mill.restart(database name DEFAULT current_database()) RETURNS bool
    LANGUAGE sql SET search_path = pg_catalog, pg_temp RETURN mill_private.send_message({restart_key}, database);
COMMENT ON FUNCTION mill.restart(name) IS 'pgmill: stops the schedulers of a database at once; true: they have ended, and new ones wait for the end of this transaction';

CREATE FUNCTION mill.pre_restore() RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    UPDATE mill.meta SET enabled = false;
    PERFORM mill.stop();
    RETURN NOT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                        WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid = 2
                          AND l.classid = {queue_key}::oid);
END
$function$;
COMMENT ON FUNCTION mill.pre_restore() IS 'pgmill: call it before a dump is restored into this database: no scheduler runs until post_restore; true: none is left';

CREATE FUNCTION mill.post_restore() RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    old record;
BEGIN
    UPDATE mill.meta SET enabled = true;
    -- Restored tables have other OIDs, and some may not have been restored.
    FOR old IN SELECT q.relid, c.oid AS found FROM mill.queue q LEFT JOIN pg_namespace n ON n.nspname = q.schema
                 LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = q.name LOOP
        IF old.found IS NULL THEN
            DELETE FROM mill.queue q WHERE q.relid = old.relid;
        ELSIF old.found <> old.relid THEN
            DELETE FROM mill.queue q WHERE q.relid = old.found;
            UPDATE mill.queue q SET relid = old.found WHERE q.relid = old.relid;
            UPDATE mill_private.run r SET queue = old.found WHERE r.queue = old.relid;
        END IF;
    END LOOP;
    RETURN mill.restart();
END
$function$;
COMMENT ON FUNCTION mill.post_restore() IS 'pgmill: call it after a restore: schedulers run again once this transaction is committed';
