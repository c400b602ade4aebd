//! Logical replication of a database with a catalog: a publication FOR ALL TABLES refuses no statement of ours, and a subscriber
//! receives catalog and task table without an error.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tests::server_programs::bin;
use tests::{Cluster, Database, Supervisor};

use crate::graphs::{declare, ready, wait_ended};
use crate::queries::{all, one};

const SOON: Duration = Duration::from_secs(20);
const PUBLISH: &str = "CREATE PUBLICATION everything FOR ALL TABLES";

/// Every table whose rows change and that a publication FOR ALL TABLES would make read-only.
const WITHOUT_IDENTITY: &str = "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname IN ('mill', 'mill_private', 'public') \
       AND (c.relreplident = 'n' OR c.relreplident = 'd' AND NOT EXISTS \
            (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))";

/// Tables of catalog and queue, by name.
const TABLES: &str = "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind = 'r' AND n.nspname IN ('mill', 'mill_private', 'public') ORDER BY 1";

/// The schema of a database, without its rows, made on another server.
fn copy_schema(from: &Database, to: &Database) {
    let pipe = |program: &str, database: &Database| {
        let server = database.server();
        let mut command = Command::new(bin().join(program));
        command.arg("-h").arg(&server.socket_folder).args(["-p", &server.port.to_string(), "-U", "postgres", "-d"]);
        command.arg(database.name());
        command
    };
    let dump = pipe("pg_dump", from).args(["--schema-only", "--no-publications"]).output().expect("run pg_dump");
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let mut psql = pipe("psql", to)
        .args(["-qX", "-v", "ON_ERROR_STOP=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run psql");
    std::io::Write::write_all(&mut psql.stdin.take().expect("piped"), &dump.stdout).expect("write the schema");
    let output = psql.wait_with_output().expect("psql ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// How many rows a table has, and what they say.
fn contents(database: &Database, table: &str) -> String {
    one(
        database,
        &format!(
            "SELECT count(*) || ' ' || COALESCE(md5(string_agg(t::text, E'\\n' ORDER BY t::text)), '') FROM {table} t"
        ),
    )
}

/// Tasks of all kinds, jobs, a flow with edges and a timer, and all that people do with them.
fn insert_of_every_kind(mill: &Supervisor<'_>, source: &Database) {
    source.run(
        "INSERT INTO public.task (input, \"group\", live, atomic, \"delete\") \
         SELECT CASE WHEN i % 7 = 0 THEN 'SELECT 1 / 0' ELSE 'SELECT ' || i END, 'g' || i % 3, \
                CASE WHEN i % 3 = 0 THEN interval '1 hour' ELSE '0' END, i % 3 = 1, i % 5 = 0 FROM generate_series(1, 60) AS i; \
         INSERT INTO public.task (input, repeat, active) VALUES ('SELECT 1', '200 ms', '1 day')",
    );
    declare(
        source,
        "INSERT INTO mill.job (name, input, schedule_interval, max_retries, retry_period) VALUES \
             ('often', 'SELECT 1', '1 s', 0, '1 s'), ('bad', 'SELECT 1 / 0', '1 s', 2, '10 ms'), ('short', 'SELECT 1', '1 s', 0, '1 s'); \
         BEGIN; INSERT INTO mill.flow (name) VALUES ('f'); \
         INSERT INTO mill.job (flow, name, input) VALUES ('f', 'a', 'SELECT 1'), ('f', 'b', 'SELECT 1'), ('f', 'c', NULL), ('f', 'd', 'SELECT 1'); \
         INSERT INTO mill.timer (name, flow, start, period, stop, catchup) VALUES ('t', 'f', '2026-01-01Z', '1 h', '2026-01-01 02:30Z', 'earliest'); \
         INSERT INTO mill.edge (job, from_timer) VALUES ('a', 't'); \
         INSERT INTO mill.edge (job, from_job) VALUES ('b', 'a'), ('c', 'a'), ('d', 'b'), ('d', 'c'); COMMIT",
    );
    wait_ended(mill, source, "d", 3);
    for sql in [
        "SELECT mill.rerun('b', '2026-01-01 01:00Z')",
        "SELECT mill.pause('f')",
        "SELECT mill.resume('f')",
        "SELECT mill.clear('f', '2026-01-01 02:00Z')",
        "INSERT INTO mill.backfill (timer, lo, hi) VALUES ('t', '2026-01-01 00:00Z', '2026-01-01 01:00Z')",
        "UPDATE mill.job SET schedule_interval = '2 s' WHERE name = 'often'",
        "DELETE FROM mill.job WHERE name = 'short'",
        "UPDATE mill.flow SET parallel = 1",
        "UPDATE mill.job SET config = '{\"a\": 1}', priority = 3 WHERE name = 'often'",
    ] {
        declare(source, sql);
    }
}

/// Waits until all of that has ended, and deletes what is old.
fn wait_and_delete_old(mill: &Supervisor<'_>, source: &Database) {
    let ran = "SELECT count(*) >= 2 FROM mill.run WHERE name = 'bad' AND state = 'failed'";
    mill.wait("the bad one has ended").within(SOON).until(|| one::<bool>(source, ran));
    mill.wait("the tasks are done").within(SOON).until(|| {
        one::<i64>(
            source,
            "SELECT count(*) FROM public.task WHERE job IS NULL AND repeat = '0' AND state IN ('PLAN', 'TAKE', 'WORK')",
        ) == 0
    });
    mill.wait("the flow has come to rest").within(SOON).until(|| {
        one::<i64>(source, "SELECT count(*) FROM mill_private.run r JOIN mill.job j ON j.id = r.job WHERE j.flow = 'f' AND r.outcome IS NULL") == 0
            && one::<i64>(source, "SELECT count(*) FROM mill.backfill WHERE finished IS NULL") == 0
    });
    source
        .run("UPDATE mill_private.run SET stop = stop - interval '10 years' WHERE outcome IS NOT NULL AND id % 2 = 0");
    let oid: i64 = one(source, "SELECT 'public.task'::regclass::oid::bigint");
    declare(
        source,
        &format!("SELECT mill_private.q{oid}_delete_old_runs(0); DELETE FROM public.task WHERE state = 'FAIL'"),
    );
}

#[test]
fn a_subscriber_of_all_tables_receives_what_tasks_jobs_and_flows_do() {
    let publisher = Cluster::configure().setting("wal_level", "logical").start();
    let subscriber = Cluster::start();
    let (source, copy) = (publisher.database(), subscriber.database());
    assert_eq!(source.name(), copy.name());
    let mill = Supervisor::of(&source).queue_key("sleep", 100).start();
    ready(&mill, &source);
    assert_eq!(all::<String>(&source, WITHOUT_IDENTITY), Vec::<String>::new());
    source.run(PUBLISH);
    copy_schema(&source, &copy);
    let server = source.server();
    copy.run(&format!(
        "CREATE SUBSCRIPTION everything CONNECTION 'host={} port={} user=postgres dbname={}' PUBLICATION everything",
        server.socket_folder.display(),
        server.port,
        source.name()
    ));
    tests::wait("the first copy of every table is there").within(SOON).telling(|| subscriber.log()).until(|| {
        one::<i64>(&copy, "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") == 0
            && one::<i64>(&copy, "SELECT count(*) FROM pg_subscription_rel") > 10
    });
    insert_of_every_kind(&mill, &source);
    wait_and_delete_old(&mill, &source);
    mill.signal(tests::Signal::SIGTERM);
    assert_eq!(mill.wait_exit(SOON).code(), Some(0), "{}", mill.describe());
    for line in mill.log().lines() {
        assert!(!line.contains("replica identity"), "{line}");
    }

    let sent: String = one(&source, "SELECT pg_current_wal_lsn()::text");
    let here = format!(
        "SELECT COALESCE(bool_and(replay_lsn >= '{sent}'::pg_lsn), false) FROM pg_stat_replication WHERE application_name = 'everything'"
    );
    tests::wait("the subscriber has caught up")
        .within(SOON)
        .telling(|| subscriber.log())
        .until(|| one::<bool>(&source, &here));
    let tables: Vec<String> = all(&source, TABLES);
    assert!(tables.len() > 15, "{tables:?}");
    for table in &tables {
        assert_eq!(contents(&copy, table), contents(&source, table), "{table}");
    }
    for table in ["mill_private.run", "mill_private.job_state", "mill.token", "mill.edge", "public.task"] {
        assert!(!contents(&copy, table).starts_with("0 "), "{table} is empty");
    }
    // and out again: tables that go are none of the subscriber's business
    declare(&source, "SELECT mill.uninstall()");
    let id = source.insert("SELECT 'alone'");
    tests::wait("a later row arrives").within(SOON).telling(|| subscriber.log()).until(|| copy.task(id).is_some());
    let log = subscriber.log();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR") || line.contains("conflict")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    copy.run("ALTER SUBSCRIPTION everything DISABLE; ALTER SUBSCRIPTION everything SET (slot_name = NONE); DROP SUBSCRIPTION everything");
}

#[test]
fn a_published_table_whose_rows_have_no_replica_identity_is_named_with_what_to_do() {
    let cluster = Cluster::configure().setting("wal_level", "logical").start();
    let database = cluster.database();
    let mut owner = database.connect();
    let sql = "CREATE TABLE public.task (id bigserial UNIQUE NOT NULL, plan timestamptz NOT NULL DEFAULT now(), \
               state text NOT NULL DEFAULT 'PLAN', input text NOT NULL)";
    owner.batch_execute(sql).expect("a table without a primary key");
    let mill = Supervisor::of(&database).queue_key("sleep", 100).start();
    mill.finished(&database, database.insert("SELECT 1"));
    database.run(PUBLISH);
    let id = database.insert("SELECT 2");
    let why = mill.wait("it says why").within(SOON).until(|| {
        let status = mill.status()?;
        let why = status["databases"][0]["why"].as_str()?.to_owned();
        why.contains("REPLICA IDENTITY").then_some(why)
    });
    for words in ["publication everything", "REPLICA IDENTITY USING INDEX", "task_id_key"] {
        assert!(why.contains(words), "{words}: {why}");
    }
    owner.batch_execute("ALTER TABLE public.task REPLICA IDENTITY USING INDEX task_id_key").expect("as it was advised");
    let row = mill.finished(&database, id);
    assert_eq!(row["state"], json!("DONE"));
    // the same at a start
    drop(mill);
    owner.batch_execute("ALTER TABLE public.task REPLICA IDENTITY NOTHING").expect("again");
    let mill = Supervisor::of(&database).queue_key("sleep", 100).launch();
    mill.wait("it says why").within(SOON).until(|| {
        let status = mill.status()?;
        status["databases"][0]["why"].as_str()?.contains("REPLICA IDENTITY USING INDEX").then_some(())
    });
    database.run("DROP PUBLICATION everything");
    mill.finished(&database, database.insert("SELECT 3"));
}
