//! What hostile people may do in a database that we serve, one story per promise. Whoever may insert a task runs SQL as
//! the queue's user: that is what the table is for. Nobody else does, and nobody gets more than that.

use std::time::Duration;

use serde_json::json;
use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor, steadily};

use crate::queries::{all, one, refusal, running};

pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A stranger who may log in and create in the database and in public, and nothing else.
pub fn stranger(database: &Database) -> String {
    let name = format!("{}_stranger", database.owner());
    let role = quote_ident(&name);
    database.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT CREATE ON SCHEMA public TO {role}; GRANT CREATE, CONNECT ON DATABASE {} TO {role}",
        quote_ident(database.name())
    ));
    name
}

pub fn forget(database: &Database, name: &str) {
    let role = quote_ident(name);
    database.run(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
}

/// Functions and operators that would be found before the server's own by whoever looks along a path with their schema,
/// for every name that our statements use. Each leaves a trace of who fell for it.
const TRAPS: &str = "
    CREATE TABLE public.caught (who text DEFAULT current_user);
    GRANT ALL ON public.caught TO PUBLIC;
    CREATE FUNCTION SCHEMA.trap() RETURNS void LANGUAGE plpgsql AS
        'BEGIN INSERT INTO public.caught DEFAULT VALUES; END';
    DO $do$
    DECLARE name text; types text; given text; found text;
    BEGIN
        FOREACH name IN ARRAY '{now,statement_timestamp,clock_timestamp,pg_postmaster_start_time,pg_backend_pid,
            pg_is_in_recovery,pg_advisory_unlock_all,random,version}'::text[] LOOP
            SELECT format_type(p.prorettype, NULL) INTO given FROM pg_catalog.pg_proc p
             WHERE p.proname = name AND p.pronamespace = 'pg_catalog'::regnamespace AND p.pronargs = 0;
            EXECUTE format('CREATE FUNCTION SCHEMA.%I() RETURNS %s LANGUAGE sql AS %L', name, given,
                'SELECT SCHEMA.trap(); SELECT NULL::' || given);
        END LOOP;
        FOR name, types, given, found IN
            SELECT p.proname, oidvectortypes(p.proargtypes), format_type(p.prorettype, NULL), p.provolatile
              FROM pg_catalog.pg_proc p
             WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname IN ('current_setting', 'set_config', 'hashtext',
                'pg_try_advisory_lock', 'pg_advisory_lock', 'pg_advisory_unlock', 'pg_try_advisory_xact_lock_shared', 'pg_notify',
                'pg_cancel_backend', 'pg_terminate_backend', 'pg_has_role', 'has_table_privilege', 'pg_get_userbyid',
                'quote_ident', 'left', 'pg_total_relation_size', 'pg_relation_size', 'row_security_active', 'pg_partition_root',
                'starts_with', 'date_part', 'floor', 'pg_sleep', 'to_regclass', 'pg_get_expr')
               AND p.prorettype <> 'anyelement'::regtype LOOP
            EXECUTE format('CREATE FUNCTION SCHEMA.%I(%s) RETURNS %s LANGUAGE sql AS %L', name, types, given,
                'SELECT SCHEMA.trap(); SELECT NULL::' || given);
        END LOOP;
        FOR name, types IN SELECT o.oprname, t FROM unnest('{=,<>,<,>,<=,>=}'::text[]) AS o (oprname),
            unnest('{int4,int8,text,oid,name,bool,timestamptz,interval}'::text[]) AS t LOOP
            EXECUTE format('CREATE OR REPLACE FUNCTION SCHEMA.lie(%1$s, %1$s) RETURNS bool LANGUAGE sql AS %2$L', types,
                'SELECT SCHEMA.trap(); SELECT true');
            EXECUTE format('CREATE OPERATOR SCHEMA.%1$s (FUNCTION = SCHEMA.lie, LEFTARG = %2$s, RIGHTARG = %2$s)', name, types);
        END LOOP;
    END $do$;
    CREATE VIEW SCHEMA.pg_stat_activity AS SELECT 0 AS pid, NULL::timestamptz AS backend_start, SCHEMA.trap() IS NULL AS trapped;
    CREATE VIEW SCHEMA.pg_locks AS SELECT 'x' AS locktype, SCHEMA.trap() IS NULL AS trapped;
    CREATE VIEW SCHEMA.pg_class AS SELECT 0 AS oid, SCHEMA.trap() IS NULL AS trapped;
    CREATE VIEW SCHEMA.pg_roles AS SELECT 'x' AS rolname, SCHEMA.trap() IS NULL AS trapped;
    CREATE VIEW SCHEMA.pg_database AS SELECT 'x' AS datname, SCHEMA.trap() IS NULL AS trapped;
";

/// Every way that a task can go, once.
fn every_way(mill: &Supervisor<'_>, database: &Database) {
    let ways = [
        ("SELECT 1", "live = '1 hour', group = 'a'", "DONE"),
        ("SELECT 1", "live = '1 hour', group = 'a'", "DONE"),
        ("SELECT 1", "repeat = '1 hour', group = 'r'", "DONE"),
        ("SELECT 1", "max = -100, group = 'p'", "DONE"),
        (
            "SELECT 1",
            "plan = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) interval '0.5 s', group = 'f'",
            "DONE",
        ),
        ("SELECT 1", "atomic = true, group = 'x'", "DONE"),
        ("SELECT pg_catalog.pg_sleep(600)", "timeout = '0.3 s', group = 'l'", "FAIL"),
        ("SELECT 1", "active = '1 s', plan = '2000-01-01', group = 'g'", "GONE"),
    ];
    let tasks: Vec<(i64, &str)> =
        ways.into_iter().map(|(input, columns, state)| (database.insert_with(input, columns), state)).collect();
    for (id, state) in tasks {
        let row = mill.finished(database, id);
        assert_eq!(row["state"], state, "{row:#}");
    }
}

#[test]
fn traps_in_public_and_in_the_users_own_schema_catch_nobody() {
    let database = Cluster::shared().database();
    let owner = quote_ident(database.owner());
    database.run(&TRAPS.replace("SCHEMA", "public"));
    database.run(&format!("CREATE SCHEMA {owner}; GRANT USAGE ON SCHEMA {owner} TO PUBLIC"));
    database.run(
        &TRAPS.replace("CREATE TABLE public.caught (who text DEFAULT current_user);", "").replace("SCHEMA", &owner),
    );
    for role in [database.owner(), database.login()] {
        database.run(&format!("ALTER ROLE {} SET search_path = {owner}, public, pg_catalog", quote_ident(role)));
    }
    let mill = Supervisor::of(&database).queue_key("sleep", 100).start();
    every_way(&mill, &database);
    // a worker that dies, a scheduler that starts anew: what is only called then
    let long = database.insert_with("SELECT pg_catalog.pg_sleep(600)", "group = 's'");
    running(&mill, &database, long);
    mill.kill9(mill.workers()[0].pid);
    mill.eventually("it runs again", || {
        database.task(long).is_some_and(|row| row["attempt"] == 2 && row["state"] == "WORK")
    });
    mill.kill9(mill.schedulers()[0].pid);
    mill.eventually("it runs once more", || {
        database.task(long).is_some_and(|row| row["attempt"] == 3 && row["state"] == "WORK")
    });
    assert_eq!(all::<String>(&database, "SELECT DISTINCT who FROM public.caught"), Vec::<String>::new());
}

#[test]
fn temporary_objects_of_a_task_that_saves_its_session_do_not_catch_our_own_statements() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let hostile = "CREATE TEMP TABLE task (LIKE public.task); CREATE TEMP TABLE pg_stat_activity (pid int); \
        CREATE TYPE pg_temp.state AS ENUM ('EVIL'); CREATE TYPE pg_temp.text AS ENUM ('EVIL'); \
        CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'; \
        SET search_path = pg_temp, pg_catalog, public";
    let first = database.insert_with(hostile, "live = '1 hour', save = true, group = 'g', repeat = '1 hour'");
    let second = database.insert_with("SELECT 1", "live = '1 hour', group = 'g', repeat = '1 hour'");
    for id in [first, second] {
        let row = mill.finished(&database, id);
        assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &1.into()), "{row:#}");
    }
    assert_eq!(
        one::<i64>(&database, "SELECT count(*) FROM public.task WHERE parent IS NOT NULL AND state = 'PLAN'"),
        2
    );
}

#[test]
fn a_task_is_the_rows_user_whatever_role_it_puts_on_and_never_the_launchers() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let (login, owner) = (quote_ident(database.login()), database.owner());
    let who = "SELECT session_user || ' ' || current_user";
    for input in ["RESET ROLE", "RESET SESSION AUTHORIZATION", "SET SESSION AUTHORIZATION DEFAULT", "SET ROLE NONE"] {
        let id = database.insert(&format!("{input}; {who}"));
        let row = mill.finished(&database, id);
        assert!(row["output"].as_str().is_some_and(|text| text.ends_with(&format!("{owner} {owner}"))), "{row:#}");
    }
    for input in [format!("SET ROLE {login}"), format!("SET SESSION AUTHORIZATION {login}"), "SET ROLE postgres".into()]
    {
        let id = database.insert(&input);
        let row = mill.finished(&database, id);
        assert_eq!(row["state"], "FAIL", "{row:#}");
    }
    // a weaker role that a task put on is off again before its end is written and before the next task
    database.run(&format!(
        "CREATE ROLE {0}; GRANT {0} TO {1}",
        quote_ident(&format!("{owner}_weak")),
        quote_ident(owner)
    ));
    let weak = format!("SET ROLE {}", quote_ident(&format!("{owner}_weak")));
    let first = database.insert_with(&weak, "live = '1 hour', group = 'w'");
    let second = database.insert_with(who, "live = '1 hour', group = 'w'");
    assert_eq!(mill.finished(&database, first)["state"], "DONE");
    assert_eq!(mill.finished(&database, second)["output"], format!("{owner} {owner}"));
    drop(mill);
    database.run(&format!("DROP ROLE {}", quote_ident(&format!("{owner}_weak"))));
}

#[test]
fn names_that_try_to_be_sql_are_names() {
    let evil = "x\"; DROP TABLE public.precious; --";
    let cluster = Cluster::shared();
    let database = cluster.database_named("a\"; DROP DATABASE postgres; --", "o\"'; DROP ROLE postgres; --");
    database.run("CREATE TABLE public.precious (x int)");
    let rows = [
        json!({"data": database.name(), "user": database.owner(), "schema": evil, "table": "task"}),
        json!({"data": database.name(), "user": database.owner(), "schema": "it's $$ % \\ {queue}", "table": "{state} $1 \n x"}),
    ];
    let connect = database.server().conninfo(database.login());
    let mill = rows
        .iter()
        .fold(Supervisor::bare().key("connect", json!(connect)), |launch, queue| launch.queue(queue.clone()))
        .start();
    for row in &rows {
        let table =
            format!("{}.{}", quote_ident(row["schema"].as_str().unwrap()), quote_ident(row["table"].as_str().unwrap()));
        let sql =
            format!("INSERT INTO {table} (input, \"group\", repeat) VALUES ('SELECT 1', $1, '1 hour') RETURNING id");
        let id: i64 = mill
            .wait("the table is made")
            .within(Duration::from_secs(30))
            .until(|| database.connect().query_one(&sql, &[&evil]).ok().map(|row| row.get(0)));
        let state = format!("SELECT state::text FROM {table} WHERE id = {id}");
        mill.eventually("it is done", || one::<String>(&database, &state) == "DONE");
        let why = one::<String>(&database, &format!("SELECT mill.why({id}, {}::regclass)", literal(&table)));
        assert!(why.contains("DONE"), "{why}");
    }
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.precious"), 0);
}

#[test]
fn a_role_that_owns_its_table_and_not_the_catalog_gets_no_more_of_it() {
    let database = Cluster::shared().database();
    let name = stranger(&database);
    let (role, login) = (quote_ident(&name), quote_ident(database.login()));
    database.run(&format!("CREATE SCHEMA theirs AUTHORIZATION {role}; GRANT {role} TO {login}"));
    let first = Supervisor::of(&database).start();
    first.eventually("the catalog is made", || {
        database.query("SELECT FROM mill.queue WHERE schema = 'public'", &[]).is_some_and(|rows| rows.len() == 1)
    });
    drop(first);
    let row = json!({"data": database.name(), "user": name, "schema": "theirs"});
    let mill = Supervisor::of(&database).queue(row.clone()).start();
    // they have not agreed to a catalog that would put runs into their queue
    mill.eventually("it is said", || mill.log_contains("the queue has not agreed to it"));
    let queues = "SELECT schema::text FROM mill.queue ORDER BY schema";
    assert_eq!(all::<String>(&database, queues), ["public"]);
    drop(mill);
    let mut client = database.server().try_connect(&name, database.name()).expect("the owner of a queue");
    let consent = format!("GRANT INSERT ON theirs.task TO {}", quote_ident(database.owner()));
    client.batch_execute(&consent).expect("they agree");
    let mill = Supervisor::of(&database).queue(row).start();
    mill.eventually("their queue is known", || all::<String>(&database, queues) == ["public", "theirs"]);
    let id: i64 = client
        .query_one("INSERT INTO theirs.task (input) VALUES ('SELECT 1') RETURNING id", &[])
        .expect("a task")
        .get(0);
    mill.eventually("it runs", || {
        one::<String>(&database, &format!("SELECT state::text FROM theirs.task WHERE id = {id}")) == "DONE"
    });
    for sql in [
        "INSERT INTO public.task (input) VALUES ('SELECT 1')",
        "SELECT * FROM public.task",
        "UPDATE mill.meta SET enabled = false",
        "UPDATE mill.queue SET owner = 'x'",
        "DELETE FROM mill.queue",
        "INSERT INTO mill.queue VALUES (1, 'a', 'b', 'c')",
        "SELECT mill_private.s_register('public.task'::regclass)",
        "SELECT * FROM mill_private.run FOR UPDATE",
        "UPDATE mill_private.run SET held = true",
        "DO $$BEGIN EXECUTE format('SELECT mill_private.q%s_insert_runs(1, NULL)', 'public.task'::regclass::oid); END$$",
        "DO $$BEGIN EXECUTE format('SELECT mill_private.q%s_end_run(1, 1, ''DONE'', NULL, NULL, NULL, NULL, NULL)', 'public.task'::regclass::oid); END$$",
        "ALTER TABLE mill.meta OWNER TO CURRENT_USER",
        "CREATE TABLE mill.mine ()",
        "CREATE FUNCTION mill.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "SELECT mill.uninstall()",
    ] {
        let said = refusal(&mut client, sql);
        assert!(said.starts_with("42501"), "{sql}: {said}");
    }
    drop((mill, client));
    forget(&database, &name);
}

/// Keys of messages, answers and leaders, as anybody can read them in the documentation.
const MESSAGES: [i64; 3] = [0x6D69_0010, 0x6D69_0011, 0x6D69_0012];

const ANSWER_TRUE: i64 = 0x6D69_0020;

const LEADER: i64 = 0x6D69_0001;

#[test]
fn forged_messages_start_stop_and_restart_nothing_and_forged_answers_are_not_believed() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let name = stranger(&database);
    let mill = Supervisor::of(&database).start();
    mill.eventually("the queue is served", || mill.log_contains("queue served"));
    let target: u32 =
        one(&database, &format!("SELECT oid FROM pg_database WHERE datname = {}", literal(database.name())));
    let pid = mill.schedulers()[0].pid;
    let log_in = |place: &str| database.server().try_connect(&name, place).expect("a stranger logs in");
    // in the database that is meant, and in another one
    for place in [database.name(), "postgres"] {
        for key in MESSAGES {
            let mut forger = log_in(place);
            forger.batch_execute(&format!("SELECT pg_advisory_lock({}, {target})", key + 0x700)).expect("a lock");
            let mark = mill.log().mark();
            steadily("the scheduler stays", Duration::from_millis(600), || {
                mill.schedulers().iter().map(|one| one.pid).eq([pid])
            });
            mill.eventually("it is logged", || {
                mill.log().since(mark.saturating_sub(2)).iter().any(|line| line.contains("message refused"))
            });
        }
    }
    // thousands of locks keep nobody else from being heard
    let mut forger = log_in(database.name());
    let flood = format!("SELECT pg_advisory_lock({}, g) FROM generate_series(1, 1500) g", MESSAGES[1]);
    forger.batch_execute(&flood).expect("a flood of locks");
    let stopped = |sql: &str| -> bool { database.connect().query_one(sql, &[]).expect("a message").get(0) };
    assert!(stopped("SELECT mill.stop()"), "{}", mill.describe());
    forger
        .batch_execute(&format!(
            "SELECT pg_advisory_unlock_all(); SELECT pg_advisory_lock({}, {target})",
            MESSAGES[0] + 0x900
        ))
        .expect("a forged start");
    steadily("what its owner has stopped stays so", Duration::from_millis(600), || mill.schedulers().is_empty());
    // an answer in the launcher's stead, as soon as the message is there, and the lock of a leader, too
    let mut sender = database.connect();
    let backend: i32 = sender.query_one("SELECT pg_backend_pid()", &[]).expect("its number").get(0);
    let forge = format!(
        "SELECT pg_advisory_unlock_all(); SELECT pg_advisory_lock({LEADER}, 1); \
         DO $$ DECLARE n int; BEGIN \
             LOOP \
                 SELECT (l.classid::bigint >> 8) & 255 INTO n FROM pg_locks l \
                  WHERE l.pid = {backend} AND l.locktype = 'advisory' AND l.classid::bigint & ~65280 = {}; \
                 EXIT WHEN n IS NOT NULL; \
                 PERFORM pg_sleep(0.005); \
             END LOOP; \
             PERFORM pg_advisory_lock(({ANSWER_TRUE} + 256 * n)::int, {backend}); \
         END $$",
        MESSAGES[0]
    );
    // nobody serves that database, so that the launcher says nothing
    let believed: bool = std::thread::scope(|scope| {
        let forging = scope.spawn(|| forger.batch_execute(&forge).expect("a forged answer"));
        let believed = sender.query_one("SELECT mill.start('postgres')", &[]).expect("a message").get(0);
        forging.join().expect("it was forged");
        believed
    });
    assert!(!believed, "nobody has done it");
    drop((forger, sender));
    mill.eventually("the real one is heard", || stopped("SELECT mill.start()"));
    drop(mill);
    forget(&database, &name);
}

#[test]
fn tasks_that_run_as_a_superuser_are_warned_about_and_others_are_not() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let warning = "tasks of this queue run as a superuser";
    let careful = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    careful.finished(&database, id);
    assert!(!careful.log_contains(warning));
    drop(careful);
    let connect = cluster.server().conninfo("postgres");
    let row = json!({"data": "postgres", "user": "postgres"});
    let mill = Supervisor::bare().key("connect", json!(connect)).queue(row).start();
    mill.eventually("it is warned about", || mill.log_contains(warning));
}
