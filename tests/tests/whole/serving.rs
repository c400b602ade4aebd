//! Whether anything is served: what `status` and its exit status say about it, and what `start` and `restart` promise.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::database::quote_ident;
use tests::{Cluster, Database, ShutdownMode, Supervisor};

use crate::messages::{row_state, say, scheduler};

const NOT_SERVING: Option<i32> = Some(4);

/// Exit status and text of a command; stdout first.
fn told(mill: &Supervisor<'_>, arguments: &[&str]) -> (Option<i32>, String) {
    let output = mill.command(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

/// Waits until `status` reports that nothing is served for a reason with this text, in text and in JSON.
#[track_caller]
fn not_serving(mill: &Supervisor<'_>, reason: &str) {
    mill.eventually("status says NOT SERVING", || {
        let (code, text) = told(mill, &["status"]);
        let first = text.lines().next().unwrap_or_default().to_owned();
        (code == NOT_SERVING && first.contains(": NOT SERVING: ") && first.contains(reason)).then_some(())
    });
    let (code, text) = told(mill, &["status", "--json"]);
    let status: Value = serde_json::from_str(text.trim()).unwrap_or_default();
    assert_eq!((code, &status["ready"]), (NOT_SERVING, &json!(false)), "{text}");
    assert!(status["why"].as_str().is_some_and(|why| why.contains(reason)), "{text}");
}

#[track_caller]
fn serving(mill: &Supervisor<'_>, first_line: &str) {
    mill.eventually("status says ready", || {
        let (code, text) = told(mill, &["status"]);
        code == Some(0) && text.lines().next().is_some_and(|line| line.ends_with(first_line))
    });
    assert_eq!(mill.status().expect("it answers")["ready"], true);
}

#[test]
fn status_says_not_serving_while_the_server_is_down() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).start();
    serving(&mill, ": ready (1 of 1 queue served)");
    cluster.stop(ShutdownMode::Fast);
    not_serving(&mill, "cannot connect");
    let began = Instant::now();
    let (code, text) = told(&mill, &["status", "--wait", "1"]);
    assert_eq!(code, NOT_SERVING, "{text}");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    cluster.start_again();
    assert_eq!(told(&mill, &["status", "--wait", "30"]).0, Some(0));
    serving(&mill, ": ready (1 of 1 queue served)");
}

#[test]
fn status_says_not_serving_when_a_login_is_refused() {
    let database = Cluster::shared().database();
    // the queue's user: the launcher itself is connected
    let owner = quote_ident(database.owner());
    database.run(&format!("ALTER ROLE {owner} NOLOGIN"));
    let mill = Supervisor::of(&database).start();
    not_serving(&mill, "not permitted to log in");
    database.run(&format!("ALTER ROLE {owner} LOGIN"));
    serving(&mill, ": ready (1 of 1 queue served)");
    drop(mill);
    let login = quote_ident(database.login());
    database.run(&format!("ALTER ROLE {login} NOLOGIN"));
    let mill = Supervisor::of(&database).start();
    not_serving(&mill, "not permitted to log in");
}

#[test]
fn status_says_not_serving_when_a_password_is_wrong() {
    let database = Cluster::shared().database();
    database.set_password("right");
    let connect = database.server().conninfo_tcp(database.login(), "wrong");
    let mill = Supervisor::of(&database).key("connect", connect).start();
    not_serving(&mill, "password authentication failed");
    database.set_password("wrong");
    serving(&mill, ": ready (1 of 1 queue served)");
}

#[test]
fn one_queue_of_two_is_counted_and_the_other_has_its_reason() {
    let cluster = Cluster::shared();
    let (good, bad) = (cluster.database(), cluster.database());
    bad.run(&format!("ALTER ROLE {} NOLOGIN", quote_ident(bad.owner())));
    let mill = Supervisor::of(&good).and(&bad).start();
    serving(&mill, ": ready (1 of 2 queues served)");
    let status = mill.status().expect("it answers");
    assert_eq!(status["queues"], json!({"wanted": 2, "served": 1, "starting": 0}), "{status}");
    assert_eq!((&status["databases"][0]["served"], &status["databases"][1]["served"]), (&json!(true), &json!(false)));
    let (_, text) = told(&mill, &["status"]);
    assert!(text.contains(" not served because: "), "{text}");
    // stopped on purpose: not counted, but then nothing is served
    assert!(say(&mut good.connect(), "stop()"));
    not_serving(&mill, "not permitted to log in");
}

#[test]
fn a_launcher_that_stands_by_is_ready_and_knows_the_leader() {
    let database = Cluster::shared().database();
    let start = || Supervisor::of(&database).key("name", format!("{}-by", database.name())).start();
    let first = start();
    serving(&first, ": ready (1 of 1 queue served)");
    let second = start();
    serving(&second, "standing by)");
    assert_eq!(second.status().expect("it answers")["leading"], false);
}

#[test]
fn nothing_to_serve_is_not_ready() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    serving(&mill, ": ready (1 of 1 queue served)");
    assert!(say(&mut database.connect(), "stop()"));
    not_serving(&mill, "stopped by a command");
    assert!(say(&mut database.connect(), "start()"));
    serving(&mill, ": ready (1 of 1 queue served)");
}

/// A command that has to fail, with this reason.
#[track_caller]
fn fails(mill: &Supervisor<'_>, command: &str, database: &Database, reason: &str) {
    let name = database.name();
    let done = if command == "start" { "started" } else { "restarted" };
    let (code, text) = told(mill, &[command, name]);
    assert_eq!(code, Some(1), "{command}: {text}");
    assert!(text.contains(&format!("{name}: not {done}: ")) && text.contains(reason), "{command}: {text}");
}

#[test]
fn start_and_restart_are_done_once_the_queue_is_served_and_else_say_why_not() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    scheduler(&mill);
    database.connect().batch_execute("UPDATE mill.meta SET enabled = false").expect("switch it off");
    for command in ["restart", "start", "restart"] {
        fails(&mill, command, &database, "mill.meta.enabled is false");
        assert_eq!(row_state(&mill, 0).as_deref(), Some("DISABLED"));
    }
    database.connect().batch_execute("UPDATE mill.meta SET enabled = true").expect("switch it on");
    let (code, text) = told(&mill, &["start", database.name()]);
    assert_eq!((code, text), (Some(0), format!("{}: started\n", database.name())));
    // done means served, at that moment
    assert_eq!(mill.status().expect("it answers")["databases"][0]["phase"], "running");
    assert_eq!(told(&mill, &["restart", database.name()]).0, Some(0));
    assert_eq!(mill.status().expect("it answers")["databases"][0]["phase"], "running");

    database.run(&format!("ALTER ROLE {} NOLOGIN", quote_ident(database.owner())));
    fails(&mill, "restart", &database, "not permitted to log in");
}

#[test]
fn start_of_a_covered_database_without_a_catalog_says_so() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let workdir = tests::Workdir::new();
    let config = json!({"connect": database.server().conninfo(database.login()), "json": [{"data": database.name(), "user": database.owner()}]});
    workdir.write("mill.json", &config.to_string());
    let installed = workdir.run(&["install", database.name(), "--config", "mill.json"]);
    assert_eq!(installed.code, Some(0), "{}", installed.all());
    let connect = database.server().conninfo(database.login());
    let mill = Supervisor::bare().key("connect", connect).key("probe", "200 ms").queue(json!({"data": "*"})).start();
    mill.eventually("it is found", || row_state(&mill, 0).as_deref() == Some("STARTED"));
    database.run("SELECT mill.uninstall()");
    mill.eventually("its scheduler leaves", || mill.schedulers().is_empty());
    fails(&mill, "start", &database, "not installed");
    fails(&mill, "restart", &database, "not installed");
}

#[test]
fn messages_are_true_only_if_something_runs_afterwards() {
    let cluster = Cluster::shared();
    let (here, there) = (cluster.database(), cluster.database());
    here.run(&format!("GRANT {} TO {}", quote_ident(there.owner()), quote_ident(here.login())));
    let mill = Supervisor::of(&here).and(&there).start();
    mill.eventually("both have a catalog", || {
        [&here, &there]
            .into_iter()
            .all(|one| one.query("SELECT FROM mill.meta", &[]).is_some_and(|rows| rows.len() == 1))
    });
    let mut owner = here.connect();
    owner.batch_execute("UPDATE mill.meta SET enabled = false").expect("switch it off");
    assert!(!say(&mut owner, "restart()"), "the catalog says that nothing is to run");
    mill.eventually("nothing runs", || row_state(&mill, 0).as_deref() == Some("DISABLED"));
    assert!(!say(&mut owner, "start()"), "the catalog says that nothing is to run");
    let name = here.name().to_owned();
    assert!(!say(&mut there.connect_superuser(), &format!("start('{name}')")), "from another database");
    // what the same transaction changes counts for a restart, which waits for its end
    owner.batch_execute("BEGIN; UPDATE mill.meta SET enabled = true").expect("switch it on");
    assert!(say(&mut owner, "restart()"));
    owner.batch_execute("COMMIT").expect("commit");
    mill.eventually("it runs", || mill.status().is_some_and(|status| status["databases"][0]["served"] == true));
    // a login that is refused
    here.run(&format!("ALTER ROLE {} NOLOGIN", quote_ident(here.owner())));
    assert!(say(&mut here.connect_superuser(), "stop()"));
    assert!(!say(&mut here.connect_superuser(), "start()"), "its login is refused");
}
