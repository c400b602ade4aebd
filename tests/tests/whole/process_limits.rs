//! Too few file descriptors, too few processes: fewer tasks run at once, none waits without a reason, and log and status
//! say which limit it is.

use std::time::Duration;

use tests::{Cluster, Database, Supervisor};

use crate::queries::one;

/// A user of nobody else, not even of another run of these tests: the limit of processes counts all that a user has.
fn lonely(number: u32) -> u32 {
    100_000 + std::process::id() * 4 + number
}

fn insert(database: &Database, count: u32, input: &str) {
    database.run(&format!(
        "INSERT INTO public.task (input, \"group\") SELECT '{input}', 'g' || i FROM generate_series(1, {count}) AS i"
    ));
}

#[track_caller]
fn all_done(mill: &Supervisor<'_>, database: &Database, within: Duration) {
    mill.wait("all tasks are done")
        .within(within)
        .until(|| one::<i64>(database, "SELECT count(*) FROM public.task WHERE state <> 'DONE'") == 0);
}

/// The soft and the hard limit of a process, from a line of /proc/PID/limits.
fn limits(pid: i32, line: &str) -> (String, String) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("its limits");
    let words = text.lines().find(|found| found.starts_with(line)).expect("the line").split_at(26).1;
    let mut words = words.split_whitespace();
    (words.next().unwrap_or_default().into(), words.next().unwrap_or_default().into())
}

fn lines_with(mill: &Supervisor<'_>, text: &str) -> Vec<String> {
    mill.log().lines().into_iter().filter(|line| line.contains(text)).collect()
}

#[test]
fn limits_are_raised_to_their_hard_ones_for_launcher_and_schedulers() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).wrapped(&["prlimit", "--nofile=40:3000", "--nproc=2000:40000"]).start();
    for pid in [mill.pid(), mill.schedulers()[0].pid] {
        assert_eq!(limits(pid, "Max open files"), ("3000".into(), "3000".into()));
        assert_eq!(limits(pid, "Max processes"), ("40000".into(), "40000".into()));
    }
    assert_eq!(lines_with(&mill, "max_workers").len(), 0, "{}", mill.describe());
}

#[test]
fn with_twenty_file_descriptors_tasks_run_fewer_at_once_and_the_start_warns() {
    for pooled in [true, false] {
        let database = Cluster::shared().database();
        let mill = Supervisor::of(&database).queue_key("pool", pooled).wrapped(&["prlimit", "--nofile=20:20"]).start();
        insert(&database, 120, "SELECT 1");
        all_done(&mill, &database, Duration::from_secs(30));
        let warned = lines_with(&mill, "max_workers exceeds the limit of open files");
        assert!(warned.len() == 1 && warned[0].contains("limit=20"), "{}", mill.describe());
        assert!(lines_with(&mill, "cannot start a worker").len() <= 3, "{}", mill.describe());
        assert!(mill.log().lines().len() < 60, "{}", mill.describe());
        // the launcher still answers
        assert_eq!(mill.status().expect("it answers")["ready"], true);
    }
}

#[test]
fn with_sixty_four_file_descriptors_tasks_run_and_nothing_fails() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).key("max_workers", 60).wrapped(&["prlimit", "--nofile=64:64"]).start();
    insert(&database, 120, "SELECT pg_sleep(0.2)");
    all_done(&mill, &database, Duration::from_secs(30));
    assert_eq!(lines_with(&mill, "max_workers exceeds the limit of open files").len(), 1);
    assert_eq!(lines_with(&mill, "cannot start a worker").len(), 0, "{}", mill.describe());
}

#[test]
fn too_few_processes_are_named_in_log_and_status_and_tasks_run_fewer_at_once() {
    if !nix::unistd::geteuid().is_root() {
        return; // only root can start it as a user of nobody else
    }
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database)
        .key("max_workers", 40)
        .wrapped(&["prlimit", "--nproc=10:10"])
        .as_user(lonely(0))
        .start();
    let warned = lines_with(&mill, "max_workers exceeds the limit of processes");
    assert!(warned.len() == 1 && warned[0].contains("limit=10"), "{}", mill.describe());
    insert(&database, 60, "SELECT pg_sleep(0.4)");
    mill.eventually("status names the limit", || {
        let why = mill.status()?["databases"][0]["why"].as_str()?.to_owned();
        (why.contains("limit of processes") && why.contains("fewer tasks run at once")).then_some(())
    });
    all_done(&mill, &database, Duration::from_secs(60));
    let failed = lines_with(&mill, "cannot start a worker");
    assert!((1..=3).contains(&failed.len()), "{}", mill.describe());
    assert_eq!(mill.status().expect("it answers")["ready"], true);
}

#[test]
fn a_scheduler_that_cannot_be_forked_is_named_in_log_and_status() {
    if !nix::unistd::geteuid().is_root() {
        return; // only root can start it as a user of nobody else
    }
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).wrapped(&["prlimit", "--nproc=1:1"]).as_user(lonely(1)).launch();
    mill.eventually("status says why nothing is served", || {
        let status = mill.status()?;
        let why = status["why"].as_str()?.to_owned();
        (status["ready"] == false && why.contains("cannot start a scheduler: cannot fork: EAGAIN")).then_some(())
    });
    assert_eq!(lines_with(&mill, "cannot start a scheduler").len(), 1, "{}", mill.describe());
}
