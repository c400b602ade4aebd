//! What hostile people may do in a database that we serve, one story per promise. Whoever may insert a task runs SQL as
//! the row's user: that is what the table is for. Nobody else does, and nobody gets more than that.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tests::database::quote_ident;
use tests::hostile::{Attack, Hostile, Moment};
use tests::{Cluster, Database, Proxy, Supervisor, steadily};

use crate::asking::{all, linger, one, refusal, running};

/// A stranger who may log in and create in the database and in public, and nothing else.
fn stranger(database: &Database) -> String {
    let name = format!("{}_stranger", database.owner());
    let role = quote_ident(&name);
    database.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT CREATE ON SCHEMA public TO {role}; GRANT CREATE, CONNECT ON DATABASE {} TO {role}",
        quote_ident(database.name())
    ));
    name
}

fn forget(database: &Database, name: &str) {
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
    let mill = Supervisor::of(&database).row_key("sleep", 100).start();
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
fn temporary_objects_of_a_task_that_saves_its_session_do_not_catch_the_bookkeeping() {
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
fn a_table_that_a_stranger_made_first_is_not_served() {
    let database = Cluster::shared().database();
    let name = stranger(&database);
    let mut hostile = database.server().try_connect(&name, database.name()).expect("a stranger");
    hostile
        .batch_execute(
            "CREATE TABLE public.task (id bigserial PRIMARY KEY, input text); \
             CREATE TABLE public.caught (who text); GRANT ALL ON public.task, public.caught TO PUBLIC; \
             GRANT ALL ON SEQUENCE public.task_id_seq TO PUBLIC; \
             CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN INSERT INTO public.caught VALUES (current_user); RETURN NEW; END'; \
             CREATE TRIGGER trap BEFORE INSERT OR UPDATE ON public.task FOR EACH ROW EXECUTE FUNCTION public.trap(); \
             INSERT INTO public.task (input) VALUES ('INSERT INTO public.caught VALUES (session_user)'); \
             TRUNCATE public.caught",
        )
        .expect("a trap");
    let mill = Supervisor::of(&database).start();
    mill.eventually("it says whose the table is", || {
        let status = mill.status()?;
        status["databases"][0]["why"].as_str()?.contains("who could run anything").then_some(())
    });
    linger(Duration::from_millis(500));
    assert_eq!(all::<String>(&database, "SELECT who FROM public.caught"), Vec::<String>::new());
    drop(mill);
    forget(&database, &name);
}

#[test]
fn a_catalog_that_a_stranger_made_first_is_not_believed() {
    let database = Cluster::shared().database();
    let name = stranger(&database);
    let mut hostile = database.server().try_connect(&name, database.name()).expect("a stranger");
    hostile
        .batch_execute(
            "CREATE TABLE public.caught (who text); GRANT ALL ON public.caught TO PUBLIC; \
             CREATE SCHEMA mill; GRANT ALL ON SCHEMA mill TO PUBLIC; \
             CREATE SCHEMA mill_private; GRANT ALL ON SCHEMA mill_private TO PUBLIC; \
             CREATE TABLE mill.meta (version text); INSERT INTO mill.meta VALUES ('../../../../tmp/evil'); \
             CREATE TABLE mill.queue (relid oid, schema name, name name, owner name); GRANT ALL ON ALL TABLES IN SCHEMA mill TO PUBLIC; \
             CREATE FUNCTION mill.s_version() RETURNS text LANGUAGE sql AS \
             'INSERT INTO public.caught VALUES (current_user); SELECT ''../../tmp/evil''::text'; \
             CREATE FUNCTION mill_private.s_register(oid) RETURNS void LANGUAGE sql AS \
             'INSERT INTO public.caught VALUES (current_user)'; \
             CREATE FUNCTION mill_private.s_clock() RETURNS interval LANGUAGE sql AS \
             'INSERT INTO public.caught VALUES (current_user); SELECT interval ''1 year'''",
        )
        .expect("a trap");
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    assert_eq!(all::<String>(&database, "SELECT who FROM public.caught"), Vec::<String>::new());
    drop(mill);
    forget(&database, &name);
}

#[test]
fn a_superuser_uses_neither_table_nor_catalog_of_somebody_who_is_none() {
    let cluster = Cluster::start();
    let database = cluster.database();
    // made as the row's user of a careful operator; then somebody serves the same as the superuser
    let careful = Supervisor::of(&database).start();
    careful.eventually("table and catalog are made", || {
        database.look("SELECT FROM mill.queue, public.task", &[]).is_some()
    });
    drop(careful);
    let connect = cluster.server().conninfo("postgres");
    let row = json!({"data": database.name(), "user": "postgres"});
    let mill = Supervisor::bare().key("connect", json!(connect)).row(row).start();
    mill.eventually("it says whose the table is", || {
        let status = mill.status()?;
        status["databases"][0]["why"].as_str()?.contains("who could run anything").then_some(())
    });
    database.run("ALTER TABLE public.task OWNER TO postgres");
    mill.wait("the table is served, without the catalog").within(Duration::from_secs(30)).until(|| {
        mill.log_contains("who could run anything through it")
            && mill.log_contains("tasks of this queue run as a superuser")
    });
}

#[test]
fn an_enum_a_domain_or_a_table_named_state_is_no_state_of_ours() {
    for made in [
        "CREATE TYPE public.state AS ENUM ('EVIL')",
        "CREATE DOMAIN public.state AS text CHECK (VALUE <> 'PLAN')",
        "CREATE TABLE public.state (x int)",
    ] {
        let database = Cluster::shared().database();
        database.run(made);
        let mill = Supervisor::of(&database).start();
        mill.eventually("the row says what is in the way", || {
            let status = mill.status()?;
            status["databases"][0]["why"].as_str().filter(|why| why.contains("state")).map(|_| ())
        });
        assert_eq!(mill.schedulers().len(), 1, "{made}");
    }
}

#[test]
fn triggers_of_the_tables_owner_that_refuse_swallow_or_change_our_updates_harm_that_queue_alone() {
    let cluster = Cluster::shared();
    let (healthy, database) = (cluster.database(), cluster.database());
    let mill = Supervisor::of(&healthy).and(&database).row_key("sleep", 50).start();
    let probe = |database: &Database| {
        let id = database.insert_with("SELECT 1", "active = '1 day'");
        mill.wait("it is done").within(Duration::from_secs(40)).until(|| database.finished(id))
    };
    probe(&healthy);
    probe(&database);
    let scheduler = mill.schedulers().len();
    for body in [
        "RAISE EXCEPTION 'no'",
        "RETURN NULL",
        "NEW.attempt = -1; RETURN NEW",
        "NEW.state = 'PLAN'; RETURN NEW",
        "NEW.pid = 1; NEW.start = '-infinity'; RETURN NEW",
        "DELETE FROM public.task WHERE id = OLD.id; RETURN NEW",
        "PERFORM pg_notify('mill_' || TG_RELID, ''); RETURN NEW",
    ] {
        database
            .connect()
            .batch_execute(&format!(
                "CREATE FUNCTION public.meddle() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body}; END$$; \
             CREATE TRIGGER meddle BEFORE UPDATE ON public.task FOR EACH ROW EXECUTE FUNCTION public.meddle()"
            ))
            .expect("the owner may");
        database.insert_with("SELECT 1", "active = '1 day'");
        let before = cpu(&mill);
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(1500) {
            probe(&healthy);
        }
        let spent = cpu(&mill) - before;
        eprintln!("{body}: schedulers spent {spent} ms of CPU in {:?}", began.elapsed());
        database.run("DROP FUNCTION public.meddle() CASCADE");
        assert_eq!(mill.schedulers().len(), scheduler, "{body}");
        // what the owner's trigger has spoilt is the owner's; the next task runs
        probe(&database);
    }
}

/// CPU time of the schedulers so far, in ms.
fn cpu(mill: &Supervisor<'_>) -> u64 {
    let ticks = |pid: i32| -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(11..13).unwrap_or_default().iter().filter_map(|field| field.parse::<u64>().ok()).sum()
    };
    mill.schedulers().iter().map(|one| ticks(one.pid) * 10).sum()
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
        .fold(Supervisor::bare().key("connect", json!(connect)), |launch, row| launch.row(row.clone()))
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

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[test]
fn secrets_are_in_no_log_title_status_error_or_environment_whatever_goes_wrong() {
    let secret = "hush-4711-hush";
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    database.set_password(secret);
    let good = cluster.server().conninfo_tcp(database.login(), secret);
    let wrong = Hostile::alone(Moment::Login, Attack::Garbage);
    let at = |port: u16| format!("host=127.0.0.1 port={port} password={secret}x");
    let mill = Supervisor::of(&database)
        .key("connect", json!(good))
        .row(json!({"data": "away", "user": "nobody", "connect": at(1)}))
        .row(json!({"data": "refused", "user": "nobody", "connect": at(cluster.server().port)}))
        .row(json!({"data": "garbled", "user": "nobody", "connect": at(wrong.port())}))
        .row(json!({"data": "uri", "user": "nobody", "connect": format!("postgresql://nobody:{secret}y@127.0.0.1:1")}))
        .env("PGPASSWORD", &format!("{secret}z"))
        .arg("--log-level")
        .arg("debug")
        .launch();
    mill.eventually("the table is served", || database.look("SELECT FROM public.task", &[]).is_some());
    let remote = format!("host=127.0.0.1 port=1 user=x password={secret}r");
    let failed = database.insert_with("SELECT 1", &format!("remote = '{remote}', group = 'r'"));
    let broken = database.insert_with("SELECT 1", &format!("remote = 'pasword={secret}r', group = 'b'"));
    let mistyped = database.insert_with("SELECT 1", &format!("remote = 'ostgresql://x:{secret}r@h/d', group = 'm'"));
    let busy = database.insert_with("SELECT pg_sleep(5)", "group = 'busy'");
    running(&mill, &database, busy);
    let mut said = String::new();
    for id in [failed, broken, mistyped] {
        let row = mill.finished(&database, id);
        said += &format!("{}\n{}\n", row["error"], row["output"]);
    }
    mill.wait("every row has its reason").within(Duration::from_secs(30)).until(|| {
        let status = mill.status()?;
        let rows = status["databases"].as_array()?.clone();
        rows.iter().filter(|row| row["why"].is_string()).count().ge(&4).then_some(())
    });
    said += &String::from_utf8_lossy(&mill.command(&["status"]).stdout);
    said += &mill.status().unwrap_or_default().to_string();
    said += &mill.log().lines().join("\n");
    let ps = Command::new("ps").args(["axeww", "-o", "args"]).output().expect("ps");
    let ours: Vec<i32> = mill.children().iter().map(|child| child.pid).collect();
    let mut shown = String::new();
    for pid in &ours {
        for file in ["cmdline", "comm"] {
            shown += &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default());
        }
    }
    assert!(ps.status.success() && !ours.is_empty());
    said += &shown;
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(secret)).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
    // what pg_stat_activity shows to others
    let told: Vec<String> = all(&database, "SELECT concat_ws(' ', application_name, query) FROM pg_stat_activity");
    assert!(!told.join("\n").contains(secret));
}

#[test]
fn the_control_socket_is_its_owners_alone_and_turns_other_users_away() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let socket = mill.home().join("mill.sock");
    assert_eq!(fs::metadata(&socket).expect("the socket").permissions().mode() & 0o777, 0o600);
    if !nix::unistd::geteuid().is_root() {
        tests::skip("a caller of another user", "only root can play one");
        return;
    }
    // opened to everybody by mistake: the peer's credentials are looked at, too
    for path in [&socket, &mill.home().to_owned()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("open it");
    }
    let script = format!(
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(5)\ns.connect('{}')\n\
         s.sendall(b'{{\"command\":\"status\"}}\\n')\nsys.stdout.write(s.recv(100).decode())\n",
        socket.display()
    );
    let asked = Command::new("runuser").args(["-u", "nobody", "--", "python3", "-c", &script]).output();
    let asked = asked.expect("somebody else asks");
    let said = String::from_utf8_lossy(&asked.stdout);
    assert_eq!(said, "", "{}", String::from_utf8_lossy(&asked.stderr));
    mill.eventually("it is said", || mill.log_contains("a caller of another user was turned away"));
    assert!(mill.status().is_some());
}

#[test]
fn where_tls_is_asked_for_nothing_is_said_in_the_clear() {
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    database.set_password("hush-4711");
    for mode in ["require", "verify-full sslrootcert=system"] {
        let between = Proxy::before(cluster.server().port);
        let login = format!(
            "host=localhost hostaddr=127.0.0.1 port={} user={} password=hush-4711 sslmode={mode}",
            between.port(),
            database.login()
        );
        let row = json!({"data": database.name(), "user": database.owner()});
        let mill = Supervisor::bare().key("connect", json!(login)).row(row).launch();
        mill.eventually("it waits and says why", || mill.log_contains("TLS"));
        linger(Duration::from_millis(1500));
        for said in between.said() {
            // the wish for TLS, and not a byte more
            assert!(said.is_empty() || said == [0, 0, 0, 8, 4, 210, 22, 47], "{mode}: {said:?}");
        }
        assert!(database.sessions().is_empty(), "{mode}");
    }
}

#[test]
fn a_role_that_owns_its_table_and_not_the_catalog_gets_no_more_of_it() {
    let database = Cluster::shared().database();
    let name = stranger(&database);
    let (role, login) = (quote_ident(&name), quote_ident(database.login()));
    database.run(&format!("CREATE SCHEMA theirs AUTHORIZATION {role}; GRANT {role} TO {login}"));
    let first = Supervisor::of(&database).start();
    first.eventually("the catalog is made", || {
        database.look("SELECT FROM mill.queue WHERE schema = 'public'", &[]).is_some_and(|rows| rows.len() == 1)
    });
    drop(first);
    let row = json!({"data": database.name(), "user": name, "schema": "theirs"});
    let mill = Supervisor::of(&database).row(row.clone()).start();
    // they have not agreed to a catalog that would put runs into their queue
    mill.eventually("it is said", || mill.log_contains("the queue has not agreed to it"));
    let queues = "SELECT schema::text FROM mill.queue ORDER BY schema";
    assert_eq!(all::<String>(&database, queues), ["public"]);
    drop(mill);
    let mut client = database.server().try_connect(&name, database.name()).expect("the owner of a queue");
    let consent = format!("GRANT INSERT ON theirs.task TO {}", quote_ident(database.owner()));
    client.batch_execute(&consent).expect("they agree");
    let mill = Supervisor::of(&database).row(row).start();
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
                mill.log().since(mark.saturating_sub(2)).iter().any(|line| line.contains("a message was refused"))
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
fn conninfo_of_a_row_reaches_neither_files_nor_sockets_nor_the_environment_of_our_host() {
    let secret = "hush-4711-hush";
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    database.set_password("row's own");
    let remote = Proxy::before(cluster.server().port);
    let private = |name: &str, text: &str| {
        let path = cluster.home().join(name);
        fs::write(&path, text).expect("write a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
        path.display().to_string()
    };
    let passfile = private("passfile", &format!("*:*:*:*:{secret}\n"));
    let service = private("service", &format!("[elsewhere]\npassword={secret}\nuser={}\n", database.owner()));
    let mill = Supervisor::of(&database)
        .env("PGPASSWORD", secret)
        .env("PGPASSFILE", &passfile)
        .env("PGSERVICEFILE", &service)
        .env("PGOPTIONS", &format!("-c mill.told={secret}"))
        .env("PGUSER", database.owner())
        .env("PGDATABASE", database.name())
        .start();
    private_home(&mill, secret);
    let tcp = format!("host=127.0.0.1 port={}", remote.port());
    let login = format!("{tcp} user={} dbname={}", quoted(database.owner()), quoted(database.name()));
    let ask = "SELECT coalesce(current_setting('mill.told', true), 'nothing')";
    let good = database.insert_with(ask, &format!("remote = {}", literal(&format!("{login} password='row\\'s own'"))));
    let row = mill.finished(&database, good);
    assert_eq!((&row["state"], &row["output"]), (&"DONE".into(), &"nothing".into()), "{row:#}");
    let heard = remote.said().len();
    let socket = cluster.server().socket_folder.display().to_string();
    let escaped = socket.replace('/', "%2F");
    for text in [
        login.clone(),
        tcp.clone(),
        format!("{tcp} password=x"),
        format!("{login} passfile={passfile}"),
        format!("{login} password=x service=elsewhere"),
        format!("{login} password=x servicefile={service}"),
        format!("{login} password=x sslcert={passfile} sslkey={passfile}"),
        format!("{login} password=x sslmode=verify-ca sslrootcert={passfile}"),
        format!("{login} password=x sslmode=verify-ca sslrootcert=system sslcrl={passfile}"),
        format!("{login} password=x sslmode=verify-ca"),
        format!("host={socket} port={} user=postgres password=x", cluster.server().port),
        format!("host={socket},127.0.0.1 port={} user=postgres password=x", cluster.server().port),
        "host=@abstract user=postgres password=x".to_owned(),
        format!("postgresql://postgres:x@{escaped}:{}/postgres", cluster.server().port),
        format!("postgresql:///postgres?host={escaped}&port={}&user=postgres&password=x", cluster.server().port),
        "user=postgres password=x".to_owned(),
    ] {
        let id =
            database.insert_with("SELECT 1", &format!("remote = {}", literal(&text).replace(',', "' || chr(44) || '")));
        let row = mill.finished(&database, id);
        let error = row["error"].as_str().unwrap_or_default();
        assert!(row["state"] == "FAIL" && !error.contains("STATEMENT") && !error.contains(secret), "{text}: {row:#}");
        assert_eq!(remote.said().len(), heard, "nobody was called: {text}");
    }
    let told: Vec<u8> = remote.said().concat();
    assert!(!String::from_utf8_lossy(&told).contains(secret), "nothing of ours was said");
    assert!(!mill.log().lines().concat().contains(secret));
}

/// A value of a conninfo.
fn quoted(text: &str) -> String {
    tests::cluster::conninfo_quote(text)
}

/// What libpq would find in the home of our user.
fn private_home(mill: &Supervisor<'_>, secret: &str) {
    for (path, text) in [
        (".pgpass", format!("*:*:*:*:{secret}\n")),
        (".pg_service.conf", format!("[elsewhere]\npassword={secret}\n")),
        (".postgresql/root.crt", secret.to_owned()),
        (".postgresql/postgresql.crt", secret.to_owned()),
    ] {
        let path = mill.home().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("make it");
        fs::write(&path, text).expect("write a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
    }
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
    let mill = Supervisor::bare().key("connect", json!(connect)).row(row).start();
    mill.eventually("it is warned about", || mill.log_contains(warning));
}
