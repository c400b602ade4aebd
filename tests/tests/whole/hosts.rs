//! Several launchers on one server: one per name is active, the others stand by; and the program is upgraded by
//! starting the new one beside the old.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tests::binary::{self, NEXT_VERSION};
use tests::{Cluster, Database, Desk, Signal, Supervisor};

use crate::asking::one;

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
    other.wait("the other one leads").within(Duration::from_secs(10)).until(|| leads(&other) == Some(true));
    all_done_once(&other, &database, count);
    assert!(active.schedulers().is_empty());
}

#[test]
fn a_rolling_upgrade_of_the_program_under_load_loses_nothing_and_runs_nothing_twice() {
    let database = Cluster::shared().database();
    let desk = Desk::new();
    let folder: PathBuf = desk.home().join("versions");
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
    desk.write("mill.json", &config.to_string());
    let arguments = ["upgrade", database.name(), "--config", "mill.json"];
    let said = desk.run_program(&binary::next_launcher(), &arguments);
    assert_eq!(said.code, Some(0), "{}", said.all());
    load(&database, count / 3);
    all_done_once(&new, &database, count);
    assert_eq!(one::<String>(&database, "SELECT version FROM mill.meta"), NEXT_VERSION);
}
