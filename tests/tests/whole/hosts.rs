//! Several launchers on one server: one per name is active, the others stand by; and the program is upgraded by
//! starting the new one beside the old.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use postgres::Client;
use serde_json::json;
use tests::binary::{self, NEXT_VERSION};
use tests::{Cluster, Database, Signal, Supervisor, Workdir};

use crate::queries::{one, state};

/// Tasks that leave a mark each, with their effects exactly once.
fn load(database: &Database, count: i64) {
    database.run(&format!(
        "INSERT INTO public.task (input, \"group\", \"max\", atomic) \
         SELECT 'INSERT INTO public.did VALUES (current_setting(''pg_task.id'')::bigint); SELECT pg_sleep(0.02)', \
         'load', 2, true FROM generate_series(1, {count})"
    ));
}

fn make_marks(database: &Database) {
    database.run("CREATE TABLE public.did (id bigint); GRANT ALL ON public.did TO PUBLIC");
}

/// Every task is done, and has left its mark once.
#[track_caller]
fn all_done_once(mill: &Supervisor<'_>, database: &Database, count: i64) {
    mill.wait("all tasks are done")
        .within(Duration::from_secs(120))
        .until(|| one::<i64>(database, "SELECT count(*) FROM public.task WHERE state = 'DONE'") == count);
    let marks: (i64, i64) =
        (one(database, "SELECT count(*) FROM public.did"), one(database, "SELECT count(DISTINCT id) FROM public.did"));
    assert_eq!(marks, (count, count), "{}", mill.describe());
}

fn leads(mill: &Supervisor<'_>) -> Option<bool> {
    mill.status()?["leading"].as_bool()
}

#[test]
fn a_stand_by_takes_over_when_the_active_launcher_is_killed() {
    let database = Cluster::shared().database();
    let name = format!("{}-hosts", database.name());
    let active = Supervisor::of(&database).key("name", name.as_str()).start();
    let other = Supervisor::of(&database).key("name", name.as_str()).start();
    assert_eq!((leads(&active), leads(&other)), (Some(true), Some(false)));
    let status = other.status().expect("status").to_string();
    assert!(status.contains("standing by"), "{status}");
    assert!(other.schedulers().is_empty());
    make_marks(&database);
    let count = tests::sized(60, 1000);
    load(&database, count);
    active.kill9(active.pid());
    // five seconds on a machine that does nothing else
    let timeout = Duration::from_secs(tests::sized(10, 5));
    other.wait("the other one leads").within(timeout).until(|| leads(&other) == Some(true));
    all_done_once(&other, &database, count);
    assert!(active.schedulers().is_empty());
}

/// How many sessions hold the queue of this database.
fn holders(database: &str, client: &mut Client) -> i64 {
    let sql = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
               WHERE d.datname = $1 AND l.locktype = 'advisory' AND l.granted AND l.classid = 1835597826";
    client.query_one(sql, &[&database]).expect("read locks").get(0)
}

#[test]
fn launchers_of_different_names_share_the_databases_of_a_server() {
    let cluster = Cluster::shared();
    let (left, right) = (cluster.database(), cluster.database());
    let one_host = Supervisor::of(&left).start();
    let other = Supervisor::of(&right).start();
    assert_eq!((leads(&one_host), leads(&other)), (Some(true), Some(true)));
    for (mill, database) in [(&one_host, &left), (&other, &right)] {
        let id = database.insert("SELECT 1");
        assert_eq!(mill.finished(database, id)["state"], "DONE");
        assert_eq!(mill.schedulers().len(), 1);
    }
    // each answers for its own databases, and nobody for the other's
    for (mill, database, strange) in [(&one_host, &left, &right), (&other, &right, &left)] {
        assert_eq!(mill.command(&["restart", database.name()]).status.code(), Some(0));
        assert_ne!(mill.command(&["restart", strange.name()]).status.code(), Some(0));
    }
    one_host.kill9(one_host.pid());
    let id = right.insert("SELECT 2");
    assert_eq!(other.finished(&right, id)["state"], "DONE", "the other's end is nothing to it");
    let id = left.insert("SELECT 2");
    tests::steadily("nobody else's rows are touched", Duration::from_secs(1), || state(&left, id) == "PLAN");
}

#[test]
fn where_two_launchers_serve_everything_each_queue_is_served_once_and_the_other_says_so() {
    let cluster = Cluster::start();
    let mut root = cluster.connect("postgres");
    root.batch_execute("CREATE ROLE mill LOGIN; CREATE ROLE app LOGIN; GRANT app TO mill").expect("roles");
    let names = ["x1", "x2"];
    for name in names {
        root.batch_execute(&format!("CREATE DATABASE {name} OWNER app")).expect("a database");
        let mut client = cluster.server().try_connect("app", name).expect("connect");
        client.batch_execute(&shared::db::catalog::install_text(env!("CARGO_PKG_VERSION"))).expect("install");
    }
    let launch = |name: &str| {
        let launch = Supervisor::bare().key("connect", cluster.server().conninfo("mill")).key("probe", "300 ms");
        launch.key("poll", "200 ms").key("name", name).queue(json!({"data": "*"})).start()
    };
    let mills = [launch("left"), launch("right")];
    assert_eq!(mills.each_ref().map(leads), [Some(true), Some(true)]);
    let phases = |mill: &Supervisor<'_>| -> Vec<(String, String, String)> {
        let status = mill.status().unwrap_or_default();
        let rows = status["databases"].as_array().cloned().unwrap_or_default();
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let rows = rows.iter().filter(|row| names.iter().any(|name| row["data"] == *name));
        rows.map(|row| (text(row, "data"), text(row, "phase"), text(row, "why"))).collect()
    };
    for name in names {
        // one serves it, the other one waits and says why
        mills[0].wait("it is served once").within(Duration::from_secs(30)).until(|| {
            let all: Vec<_> = mills.iter().flat_map(&phases).filter(|(data, ..)| data == name).collect();
            let served = all.iter().filter(|(_, phase, why)| phase == "running" && why.is_empty()).count();
            let waits = all.iter().filter(|(.., why)| why.contains("another scheduler serves this queue")).count();
            (served == 1 && waits == 1 && holders(name, &mut root) == 1).then_some(())
        });
        let mut client = cluster.server().try_connect("app", name).expect("connect");
        let run = "INSERT INTO public.task (input) SELECT 'SELECT 1' FROM generate_series(1, 5)";
        client.batch_execute(run).expect("insert");
        mills[0].eventually("each task is run once", || {
            let sql = "SELECT bool_and(state = 'DONE' AND attempt = 1) FROM public.task";
            client.query_one(sql, &[]).expect("the query").get::<_, Option<bool>>(0) == Some(true)
        });
    }
    // what the first one leaves, the second one serves
    let [left, right] = mills;
    left.kill9(left.pid());
    for name in names {
        right.wait("it serves all").within(Duration::from_secs(20)).until(|| {
            let served =
                phases(&right).iter().any(|(data, phase, why)| data == name && phase == "running" && why.is_empty());
            served && holders(name, &mut root) == 1
        });
    }
}

#[test]
fn a_rolling_upgrade_of_the_program_under_load_loses_nothing_and_runs_nothing_twice() {
    let database = Cluster::shared().database();
    let workdir = Workdir::new();
    let folder: PathBuf = workdir.home().join("versions");
    for (version, program) in [(shared::VERSION, binary::scheduler()), (NEXT_VERSION, binary::next_scheduler())] {
        fs::create_dir_all(folder.join(version)).expect("make a folder");
        symlink(program, folder.join(version).join("scheduler")).expect("put a program");
    }
    let name = format!("{}-rolling", database.name());
    let launch = || Supervisor::of(&database).key("name", name.as_str()).key("versions", folder.to_str());
    let old = launch().start();
    let new = launch().program(binary::next_launcher()).start();
    assert_eq!((leads(&old), leads(&new)), (Some(true), Some(false)));
    make_marks(&database);
    let count = tests::sized(90, 3000);
    load(&database, count / 3);
    old.signal(Signal::SIGTERM);
    load(&database, count / 3);
    assert_eq!(old.wait_exit(Duration::from_secs(30)).code(), Some(0));
    new.wait("the new program leads").within(Duration::from_secs(10)).until(|| leads(&new) == Some(true));
    // the catalog is still the old one's, and so is the code that runs it
    new.eventually("the old version's scheduler runs", || {
        let scheduler = new.schedulers().first()?.pid;
        let program = fs::read_link(format!("/proc/{scheduler}/exe")).ok()?;
        (program == binary::scheduler()).then_some(())
    });
    let config = json!({"connect": database.server().conninfo(database.login()), "json": []});
    workdir.write("mill.json", &config.to_string());
    let arguments = ["upgrade", database.name(), "--config", "mill.json"];
    let said = workdir.run_program(&binary::next_launcher(), &arguments);
    assert_eq!(said.code, Some(0), "{}", said.all());
    load(&database, count / 3);
    all_done_once(&new, &database, count);
    assert_eq!(one::<String>(&database, "SELECT version FROM mill.meta"), NEXT_VERSION);
}
