//! Each database runs the code of its own catalog's version. A second version is built for these tests, with a catalog
//! and migrations of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tests::binary::{self, NEXT_VERSION};
use tests::server_programs::bin;
use tests::workdir::Ended;
use tests::{Cluster, Database, Supervisor, Workdir};

use crate::queries::one;

const VERSION: &str = shared::VERSION;

/// A folder `versions` with the programs of both versions.
fn versions(workdir: &Workdir) -> PathBuf {
    let folder = workdir.home().join("versions");
    for (version, program) in [(VERSION, binary::scheduler()), (NEXT_VERSION, binary::next_scheduler())] {
        fs::create_dir_all(folder.join(version)).expect("make a folder");
        symlink(program, folder.join(version).join("scheduler")).expect("put a program");
    }
    folder
}

/// A command of a launcher about a database.
#[track_caller]
fn run(program: &Path, database: &Database, command: &str) -> Ended {
    let workdir = Workdir::new();
    let config = json!({
        "connect": database.server().conninfo(database.login()),
        "json": [{"data": database.name(), "user": database.owner()}],
    });
    workdir.write("mill.json", &config.to_string());
    workdir.run_program(program, &[command, database.name(), "--config", "mill.json"])
}

#[track_caller]
fn install(program: &Path, database: &Database) {
    let said = run(program, database, "install");
    assert_eq!(said.code, Some(0), "{}", said.all());
}

fn version(database: &Database) -> String {
    one(database, "SELECT version FROM mill.meta")
}

/// The schemas of the catalog as pg_dump writes them, data and rights included, with the parts that differ from database to database
/// left out: table numbers and role names.
fn dump(database: &Database) -> String {
    let server = database.server();
    let mut command = Command::new(bin().join("pg_dump"));
    command.arg("-h").arg(&server.socket_folder).args(["-p", &server.port.to_string(), "-U", "postgres"]);
    command.args(["--schema=mill", "--schema=mill_private", "--inserts", "-d", database.name()]);
    let output = command.output().expect("run pg_dump");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).replace(database.owner(), "owner");
    let relid: i64 = one(database, "SELECT 'public.task'::regclass::bigint");
    let text = text.replace(&relid.to_string(), "RELID");
    text.lines().filter(|line| !line.contains("restrict ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn two_databases_run_two_versions_under_one_launcher() {
    let (old, new) = (Cluster::shared().database(), Cluster::shared().database());
    install(&binary::next_launcher(), &new);
    let workdir = Workdir::new();
    let folder = versions(&workdir);
    let mill = Supervisor::of(&old).and(&new).key("versions", folder.to_str()).start();
    for database in [&old, &new] {
        let id = database.insert("SELECT 42");
        assert_eq!(mill.finished(database, id)["output"], "42");
    }
    assert_eq!((version(&old), version(&new)), (VERSION.to_owned(), NEXT_VERSION.to_owned()));
    let schedulers = mill.schedulers();
    assert_eq!(schedulers.len(), 2, "{}", mill.describe());
    for scheduler in &schedulers {
        let program = fs::read_link(format!("/proc/{}/exe", scheduler.pid)).expect("its program");
        let next = scheduler.title.contains(&format!(" {} ", new.name()));
        assert_eq!(program == binary::next_scheduler(), next, "{program:?} is {}", scheduler.title);
        assert_eq!(scheduler.parent, mill.pid());
    }
    // the same slot and process for the launcher, and a place in its order: reload, kill and stop work as ever
    let status = mill.status().expect("status");
    let held: Vec<&serde_json::Value> = status["slots"]["holders"].as_array().expect("holders").iter().collect();
    assert_eq!(held.iter().filter(|holder| holder["kind"] == "scheduler").count(), 2);
    let next = schedulers.iter().find(|one| one.title.contains(new.name())).expect("the next version's").pid;
    let task = new.insert("SELECT pg_sleep(100)");
    crate::queries::running(&mill, &new, task);
    mill.kill9(next);
    mill.eventually("its task runs again under a new process", || {
        let row = new.task(task)?;
        (row["state"] == "WORK" && row["attempt"] == 2).then_some(())
    });
    mill.signal(tests::Signal::SIGINT);
    assert_eq!(mill.wait_exit(std::time::Duration::from_secs(15)).code(), Some(0));
    mill.wait_gone(std::time::Duration::from_secs(5));
}

#[test]
fn an_execd_scheduler_dies_with_its_launcher_and_keeps_the_log_and_the_settings() {
    let database = Cluster::shared().database();
    install(&binary::next_launcher(), &database);
    let workdir = Workdir::new();
    let folder = versions(&workdir);
    let launch = Supervisor::of(&database).key("versions", folder.to_str()).queue_key("sleep", 70);
    let mill = launch.arg("--log").arg("json").start();
    let started = mill.log().lines().into_iter().filter(|line| line.contains(r#""message":"scheduler started""#));
    let versions: Vec<bool> = started.map(|line| line.contains(NEXT_VERSION)).collect();
    assert_eq!(versions, [false, true], "{}", mill.describe());
    assert!(database.sessions().iter().any(|session| session.application_name == "pg_work public task 70"));
    // new settings reach it by its slot's cell
    let text = fs::read_to_string(mill.config().expect("config")).expect("read the config");
    mill.rewrite_config(&text.replace("\"sleep\": 70", "\"sleep\": 90"));
    mill.signal(tests::Signal::SIGHUP);
    mill.eventually("it has its new settings", || {
        database.sessions().iter().any(|session| session.application_name == "pg_work public task 90")
    });
    mill.kill9(mill.pid());
    mill.wait_gone(std::time::Duration::from_secs(3));
}

#[test]
fn without_code_for_its_version_a_row_is_disabled_once_and_says_why() {
    let (database, other) = (Cluster::shared().database(), Cluster::shared().database());
    install(&binary::next_launcher(), &database);
    let workdir = Workdir::new();
    let folder = workdir.home().join("versions");
    let mill = Supervisor::of(&database).and(&other).key("versions", folder.to_str()).start();
    let row = mill.eventually("the queue is disabled", || {
        let row = mill.status()?["databases"][0].clone();
        (row["state"] == "DISABLED").then_some(row)
    });
    let why = format!("no code for version {NEXT_VERSION}");
    assert!(row["why"].as_str().is_some_and(|text| text.contains(&why)), "{row}");
    let id = other.insert("SELECT 1");
    mill.finished(&other, id);
    let lines = || mill.log().lines().iter().filter(|line| line.contains(&why)).count();
    assert_eq!(lines(), 1, "{}", mill.describe());
    tests::steadily("it is not tried again", std::time::Duration::from_secs(3), || {
        lines() == 1 && mill.schedulers().len() == 1
    });
    assert_eq!(version(&database), NEXT_VERSION);
}

#[test]
fn a_version_that_is_no_version_or_a_program_that_is_another_runs_nothing() {
    let database = Cluster::shared().database();
    install(binary::launcher(), &database);
    let workdir = Workdir::new();
    let folder = versions(&workdir);
    fs::create_dir_all(workdir.home().join("evil")).expect("make a folder");
    let evil = workdir.home().join("evil/scheduler");
    fs::write(&evil, "#!/bin/sh\ntouch \"$(dirname \"$0\")/ran\"\n").expect("write a program");
    fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    fs::create_dir_all(folder.join("7.7.7")).expect("make a folder");
    symlink(binary::next_scheduler(), folder.join("7.7.7/scheduler")).expect("put a program");
    for (version, reason) in [("../evil", "it is not a valid version"), ("7.7.7", "has version 0.2.0-next")] {
        database.run(&format!("UPDATE mill.meta SET version = '{version}'"));
        let mill = Supervisor::of(&database).key("versions", folder.to_str()).start();
        mill.eventually("the row says why", || {
            let row = mill.status()?["databases"][0].clone();
            (row["state"] == "DISABLED" && row["why"].as_str()?.contains(reason)).then_some(())
        });
    }
    assert!(!workdir.home().join("evil/ran").exists());
}

#[test]
fn the_scheduler_program_cannot_be_started_by_hand() {
    let workdir = Workdir::new();
    let program = binary::scheduler();
    let said = workdir.run_program(&program, &[]);
    assert!(said.code == Some(1) && said.stderr.contains("not by hand"), "{}", said.all());
    let said = workdir.run_program(&program, &["--handshake"]);
    assert_eq!(said.code, Some(0));
    assert!(said.stdout.starts_with(&format!("pgmill scheduler {VERSION} ")), "{}", said.stdout);
    let wrong = workdir.run_program(&program, &["--handshake-number", "1"]);
    assert!(wrong.code == Some(11) && wrong.stderr.contains("handshake"), "{}", wrong.all());
}

#[test]
fn an_upgraded_catalog_is_as_a_fresh_one_and_two_upgraders_at_once_both_succeed() {
    let (old, fresh) = (Cluster::shared().database(), Cluster::shared().database());
    let next = binary::next_launcher();
    install(binary::launcher(), &old);
    install(&next, &fresh);
    thread::scope(|scope| {
        let both: Vec<_> = (0..2).map(|_| scope.spawn(|| run(&next, &old, "upgrade"))).collect();
        let said: Vec<Ended> = both.into_iter().map(|one| one.join().expect("no panic")).collect();
        for one in &said {
            assert_eq!(one.code, Some(0), "{}", one.all());
        }
        assert!(said.iter().any(|one| one.stdout.contains(&format!("upgraded from {VERSION} to {NEXT_VERSION}"))));
    });
    assert_eq!(version(&old), NEXT_VERSION);
    let again = run(&next, &old, "upgrade");
    assert!(again.code == Some(0) && again.stdout.contains("already"), "{}", again.all());
    let (upgraded, made) = (dump(&old), dump(&fresh));
    if upgraded != made {
        let different: Vec<String> = upgraded
            .lines()
            .filter(|line| !made.contains(line))
            .map(|line| format!("upgraded: {line}"))
            .chain(made.lines().filter(|line| !upgraded.contains(line)).map(|line| format!("fresh: {line}")))
            .collect();
        panic!("they differ:\n{}", different.join("\n"));
    }
    // what everybody was granted before, he has in the new version too
    let may: bool =
        one(&old, &format!("SELECT has_function_privilege('{}', 'mill_private.s_novelty()', 'EXECUTE')", old.owner()));
    assert!(may);
    let back = run(binary::launcher(), &old, "upgrade");
    assert!(back.code == Some(1) && back.stderr.contains("this program has no migration from"), "{}", back.all());
    let install = run(binary::launcher(), &old, "install");
    assert!(install.code == Some(1) && install.stderr.contains("launcher upgrade"), "{}", install.all());
}

#[test]
fn a_failed_upgrade_changes_nothing() {
    let database = Cluster::shared().database();
    let next = binary::next_launcher();
    install(binary::launcher(), &database);
    // in the way of the second step
    database.run("CREATE FUNCTION mill.novelty() RETURNS int LANGUAGE sql RETURN 1");
    let before = dump(&database);
    let said = run(&next, &database, "upgrade");
    assert!(said.code == Some(1) && said.stderr.contains("nothing was changed"), "{}", said.all());
    assert_eq!(dump(&database), before);
    // somebody reads the catalog in a transaction that he leaves open: it gives up in time
    database.run("DROP FUNCTION mill.novelty()");
    let mut reader = database.connect_superuser();
    reader.batch_execute("BEGIN; SELECT * FROM mill.meta").expect("read");
    let said = run(&next, &database, "upgrade");
    assert!(said.code == Some(1) && said.stderr.contains("lock"), "{}", said.all());
    reader.batch_execute("ROLLBACK").expect("roll back");
    assert_eq!(run(&next, &database, "upgrade").code, Some(0));
}

#[test]
fn a_row_that_says_auto_is_upgraded_by_the_scheduler_that_finds_it() {
    let database = Cluster::shared().database();
    install(binary::launcher(), &database);
    let id = database.insert("SELECT 1");
    let launch = Supervisor::of(&database).program(binary::next_launcher()).queue_key("upgrade", "auto");
    let mill = launch.start();
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    assert_eq!(version(&database), NEXT_VERSION);
    assert!(mill.log_contains("catalog upgraded"), "{}", mill.describe());
}

#[test]
fn a_scheduler_killed_in_the_middle_of_an_upgrade_changes_nothing_and_the_next_one_upgrades() {
    let database = Cluster::shared().database();
    install(binary::launcher(), &database);
    let id = database.insert("SELECT 1");
    let launch = Supervisor::of(&database).program(binary::next_launcher()).queue_key("upgrade", "auto");
    let mill = launch.fault("upgrade.before_commit:kill@1").start();
    mill.wait("it runs").within(Duration::from_secs(60)).until(|| database.finished(id));
    assert!(mill.log_contains("fault point="), "{}", mill.describe());
    assert_eq!(version(&database), NEXT_VERSION);
}

#[test]
fn without_auto_a_new_program_runs_the_old_version_of_a_catalog() {
    let database = Cluster::shared().database();
    install(binary::launcher(), &database);
    let workdir = Workdir::new();
    let folder = versions(&workdir);
    let launch = Supervisor::of(&database).program(binary::next_launcher()).key("versions", folder.to_str());
    let mill = launch.start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    assert_eq!(version(&database), VERSION);
    let program = fs::read_link(format!("/proc/{}/exe", mill.schedulers()[0].pid)).expect("its program");
    assert_eq!(program, binary::scheduler());
}

#[test]
fn installing_the_missing_program_and_a_start_heal_the_row() {
    let database = Cluster::shared().database();
    install(&binary::next_launcher(), &database);
    let workdir = Workdir::new();
    let folder = workdir.home().join("versions");
    let mill = Supervisor::of(&database).key("versions", folder.to_str()).start();
    let disabled = || (mill.status()?["databases"][0]["state"] == "DISABLED").then_some(());
    mill.eventually("the queue is disabled", disabled);
    // without the program another start is no use
    mill.command(&["start", database.name()]);
    mill.eventually("the queue is disabled again", || {
        let told = mill.log().lines().iter().filter(|line| line.contains("queue disabled")).count();
        disabled().filter(|()| told == 2)
    });
    versions(&workdir);
    let started = mill.command(&["start", database.name()]);
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
}

/// The SQL of an upgrade, but for its COMMIT.
fn open_upgrade(workdir: &Workdir) -> String {
    let printed = workdir.run_program(&binary::next_launcher(), &["upgrade", "--print", VERSION]);
    assert_eq!(printed.code, Some(0), "{}", printed.all());
    printed.stdout.trim_end().strip_suffix("COMMIT;").expect("it ends with a commit").to_owned()
}

#[test]
fn an_upgrade_in_an_open_transaction_ends_the_old_scheduler_and_the_new_one_waits_for_its_outcome() {
    let database = Cluster::shared().database();
    install(binary::launcher(), &database);
    let workdir = Workdir::new();
    let folder = versions(&workdir);
    let mill = Supervisor::of(&database).key("versions", folder.to_str()).start();
    let upgrade = open_upgrade(&workdir);
    for (outcome, version_then) in [("ROLLBACK", VERSION), ("COMMIT", NEXT_VERSION)] {
        let before = mill.schedulers()[0].pid;
        // by hand: as the owner of the catalog
        let mut upgrader = database.connect();
        upgrader.batch_execute(&upgrade).expect("upgrade");
        assert!(mill.schedulers().iter().all(|scheduler| scheduler.pid != before), "{}", mill.describe());
        // nobody runs anything meanwhile
        let id = database.insert("SELECT 1");
        tests::steadily("the task waits", std::time::Duration::from_secs(1), || {
            crate::queries::state(&database, id) == "PLAN"
        });
        let waiting: i64 = one(
            &database,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
            AND application_name LIKE 'pg_work %' AND wait_event_type = 'Lock'",
        );
        assert_eq!(waiting, 1, "{}", mill.describe());
        upgrader.batch_execute(outcome).expect("end the transaction");
        mill.finished(&database, id);
        assert_eq!(version(&database), version_then);
        let program = fs::read_link(format!("/proc/{}/exe", mill.schedulers()[0].pid)).expect("its program");
        assert_eq!(program == binary::next_scheduler(), version_then == NEXT_VERSION, "{}", mill.describe());
    }
}

#[test]
fn an_upgrade_under_a_running_launcher_loses_no_task_and_runs_none_twice() {
    let database = Cluster::shared().database();
    install(binary::launcher(), &database);
    let workdir = Workdir::new();
    let folder = versions(&workdir);
    let mill = Supervisor::of(&database).key("versions", folder.to_str()).start();
    database.run("CREATE TABLE public.did (id bigint); GRANT ALL ON public.did TO PUBLIC");
    let count: i64 = tests::sized(60, 2000);
    database.run(&format!(
        "INSERT INTO public.task (input, \"group\", \"max\", atomic) SELECT 'INSERT INTO public.did VALUES (current_setting(''pg_task.id'')::bigint)', \
         'load', 3, true FROM generate_series(1, {count})"
    ));
    let said = run(&binary::next_launcher(), &database, "upgrade");
    assert_eq!(said.code, Some(0), "{}", said.all());
    mill.wait("all are done").within(std::time::Duration::from_secs(120)).until(|| {
        one::<i64>(&database, "SELECT count(*) FROM public.did") == count
            && one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state <> 'DONE'") == 0
    });
    assert_eq!(one::<i64>(&database, "SELECT count(DISTINCT id) FROM public.did"), count);
    assert_eq!(version(&database), NEXT_VERSION);
}
