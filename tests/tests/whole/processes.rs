//! Life and death of processes: kill -9 and named faults at every step of a task's way.
//! Whatever dies: no process, no session and no slot is left, and the task is run again
//! when, and only when, its first run is over.

use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;
use tests::process::{self, is_alive};
use tests::{Cluster, Database, Signal, Supervisor, sized};

use crate::ledger;

/// How long anything of a killed process may stay.
pub const GONE_WITHIN: Duration = Duration::from_secs(1);

/// A launcher makes the table and leaves, so that the first take of the next one finds a task.
pub fn prepare(database: &Database) {
    let supervisor = Supervisor::of(database).start();
    supervisor.signal(Signal::SIGTERM);
    assert!(supervisor.wait_exit(Duration::from_secs(5)).success());
}

/// The backend of the scheduler's session.
pub fn scheduler_session(database: &Database) -> Option<i32> {
    database.sessions().iter().find(|session| session.application_name.starts_with("pg_work ")).map(|found| found.pid)
}

#[test]
fn titles_and_sessions_say_who_is_who() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 70).start();
    let id = database.insert_with("SELECT pg_sleep(60)", "group = 'a group'");
    let name = database.name();
    let worker = format!("pgmill: worker {name} public.task a group #{id}");
    supervisor
        .eventually("the worker has its title", || supervisor.workers().iter().any(|found| found.title == worker));
    let titles: Vec<String> = supervisor.schedulers().into_iter().map(|process| process.title).collect();
    assert_eq!(titles, [format!("pgmill: scheduler {name} public.task")]);
    assert_eq!(process::find(supervisor.pid()).expect("it lives").title, "pgmill: launcher");

    let sessions = supervisor.eventually("all three are connected", || {
        let mut sessions: Vec<(String, String)> =
            database.sessions().into_iter().map(|session| (session.application_name, session.user)).collect();
        sessions.sort_unstable();
        let settled = sessions.iter().any(|(name, _)| name.ends_with("a group"));
        (sessions.len() == 3 && settled).then_some(sessions)
    });
    let (login, owner) = (database.login().to_owned(), database.owner().to_owned());
    let expected = [
        ("pg_conf".to_owned(), login),
        ("pg_task public task a group".to_owned(), owner.clone()),
        ("pg_work public task 70".to_owned(), owner),
    ];
    assert_eq!(sessions, expected);
}

#[test]
fn a_process_never_shows_the_title_of_its_parent() {
    let stages = [
        ("scheduler.before_accept:hang", "pgmill: scheduler".to_owned()),
        ("worker.before_accept:hang", "pgmill: worker".to_owned()),
        ("worker.after_accept:hang", "pgmill: worker {} public.task #1".to_owned()),
    ];
    for (fault, title) in stages {
        let database = Cluster::shared().database();
        prepare(&database);
        database.insert("SELECT 1");
        let title = title.replace("{}", database.name());
        let supervisor = Supervisor::of(&database).fault(fault).queue_key("sleep", 50).launch();
        supervisor.eventually(&title, || supervisor.children().iter().any(|child| child.title == title));
    }
}

#[test]
fn every_process_has_a_group_of_its_own_so_that_a_terminal_reaches_the_launcher_alone() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    database.insert("SELECT pg_sleep(60)");
    supervisor.eventually("it runs", || !supervisor.workers().is_empty());
    for child in supervisor.children() {
        let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(child.pid)));
        assert_eq!(group.map(nix::unistd::Pid::as_raw), Ok(child.pid), "{}", child.title);
    }
}

#[test]
fn a_killed_worker_leaves_nothing_and_its_task_runs_again() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (id, backend) = ledger::begin(&supervisor, &database);
    let scheduler = supervisor.schedulers()[0].pid;
    let worker = supervisor.workers()[0].pid;
    supervisor.kill9(worker);
    supervisor
        .wait("worker and session are gone")
        .within(GONE_WITHIN)
        .until(|| process::find(worker).is_none() && !ledger::is_connected(&database, backend));
    let row = ledger::ended(&supervisor, &database, id, 2);
    assert_eq!(row["attempt"], 2);
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    assert!(is_alive(scheduler));
}

#[test]
fn a_killed_worker_whose_backend_does_not_look_for_its_client_is_settled_too() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    // without the look at its client, the statement would go on and commit
    let busy = ledger::input().replace("SELECT pg_sleep(", "SET client_connection_check_interval = 0;SELECT pg_sleep(");
    let id = database.insert(&busy);
    let backend = ledger::running(&supervisor, &database, id);
    supervisor.kill9(supervisor.workers()[0].pid);
    supervisor.wait("the session is gone").within(GONE_WITHIN).until(|| !ledger::is_connected(&database, backend));
    assert_eq!(ledger::ended(&supervisor, &database, id, 2)["attempt"], 2);
}

#[test]
fn a_killed_worker_whose_statement_catches_the_cancel_is_settled_too() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let stubborn = "BEGIN;INSERT INTO ledger SELECT pg_backend_pid(), pg_try_advisory_lock(4711);COMMIT;\
                    SET client_connection_check_interval = 0;\
                    DO $$BEGIN WHILE (SELECT count(*) = 1 FROM ledger) LOOP BEGIN PERFORM pg_sleep(1); \
                    EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END$$";
    let id = database.insert(stubborn);
    let backend = ledger::running(&supervisor, &database, id);
    supervisor.kill9(supervisor.workers()[0].pid);
    supervisor.wait("the session is gone").within(GONE_WITHIN).until(|| !ledger::is_connected(&database, backend));
    assert_eq!(ledger::ended(&supervisor, &database, id, 2)["attempt"], 2);
}

#[test]
fn a_killed_scheduler_leaves_nothing_and_is_started_again() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (id, backend) = ledger::begin(&supervisor, &database);
    let (scheduler, worker) = (supervisor.schedulers()[0].pid, supervisor.workers()[0].pid);
    let session = scheduler_session(&database).expect("the scheduler is connected");
    supervisor.kill9(scheduler);
    supervisor.wait("scheduler, worker and their sessions are gone").within(GONE_WITHIN).until(|| {
        process::find(scheduler).is_none()
            && process::find(worker).is_none()
            && !ledger::is_connected(&database, session)
            && !ledger::is_connected(&database, backend)
    });
    supervisor
        .wait("there is a new one")
        .within(GONE_WITHIN)
        .until(|| supervisor.schedulers().iter().any(|new| new.pid != scheduler));
    assert_eq!(ledger::ended(&supervisor, &database, id, 2)["attempt"], 2);
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
}

#[test]
fn a_killed_launcher_leaves_nothing_and_the_next_one_runs_the_task_again() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (id, _) = ledger::begin(&supervisor, &database);
    supervisor.kill9(supervisor.pid());
    supervisor.wait("all processes and sessions are gone").within(GONE_WITHIN).until(|| {
        supervisor.exit_status().is_some() && supervisor.children().is_empty() && database.sessions().is_empty()
    });
    drop(supervisor);
    let next = Supervisor::of(&database).queue_key("sleep", 50).start();
    assert_eq!(ledger::ended(&next, &database, id, 2)["attempt"], 2);
    ledger::slots_held_by(&next, &["launcher", "scheduler"]);
}

#[test]
fn three_killed_workers_in_a_row_cost_three_attempts_and_no_slot() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert("SELECT pg_sleep(60)");
    for attempt in 1..=3 {
        let worker = supervisor.eventually("the next attempt runs", || {
            let row = database.task(id)?;
            let worker = supervisor.workers().first()?.pid;
            (row["state"] == "WORK" && row["attempt"] == attempt).then_some(worker)
        });
        supervisor.kill9(worker);
    }
    supervisor.eventually("the fourth attempt runs", || {
        database.task(id).is_some_and(|row| row["state"] == "WORK" && row["attempt"] == 4)
    });
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler", "worker"]);
}

#[test]
fn fifty_tasks_run_at_once_and_killing_all_their_workers_loses_none() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).key("max_workers", 60).queue_key("sleep", 50).start();
    let tasks = 50;
    database.run("CREATE TABLE public.seen (id bigint, alone bool); GRANT ALL ON public.seen TO PUBLIC");
    let mut owner = database.connect();
    let input = "BEGIN;INSERT INTO public.seen SELECT i, pg_try_advisory_lock(i) \
                 FROM (SELECT current_setting('pg_task.id')::bigint) AS a (i);COMMIT;\
                 SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM public.seen \
                 WHERE id = current_setting('pg_task.id')::bigint) = 1 THEN 120 ELSE 0 END)";
    owner
        .execute(
            "INSERT INTO public.task (input, \"group\") SELECT $1, 'g' || n FROM generate_series(1, 50) n",
            &[&input],
        )
        .expect("insert");
    let seen = |sql: &str| database.query(sql, &[]).map_or(-1, |rows| rows[0].get::<_, i64>(0));
    supervisor
        .wait("all have begun")
        .within(Duration::from_secs(30))
        .until(|| seen("SELECT count(*) FROM public.seen") == tasks);
    supervisor.eventually("they have their titles", || supervisor.workers().len() == 50);
    for worker in supervisor.workers() {
        supervisor.kill9(worker.pid);
    }
    supervisor
        .wait("all are done")
        .within(Duration::from_secs(30))
        .until(|| seen("SELECT count(*) FROM public.task WHERE state = 'DONE' AND attempt = 2") == tasks);
    assert_eq!(seen("SELECT count(*) FROM public.seen WHERE alone"), 2 * tasks);
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
}

#[test]
fn random_kills_of_workers_and_schedulers_lose_no_task_and_no_slot() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let tasks: i64 = sized(60, 300);
    database.run("CREATE TABLE public.seen (id bigint, alone bool); GRANT ALL ON public.seen TO PUBLIC");
    let input = "BEGIN;INSERT INTO public.seen SELECT i, pg_try_advisory_lock(i) \
                 FROM (SELECT current_setting('pg_task.id')::bigint) AS a (i);COMMIT;SELECT pg_sleep(0.4)";
    let insert = "INSERT INTO public.task (input, \"group\") SELECT $1, 'g' || n FROM generate_series(1, $2) n";
    database.connect().execute(insert, &[&input, &i32::try_from(tasks).expect("few")]).expect("insert");
    let count = |sql: &str| database.query(sql, &[]).map_or(-1, |rows| rows[0].get::<_, i64>(0));
    let mut random = rand::rng();
    let mut killed = 0;
    supervisor.wait("all are done").within(Duration::from_secs(sized(60, 600))).until(|| {
        crate::queries::forgive(&database);
        // one in twenty is a scheduler, and one that has got to work; not more, or its restarts would be ever further apart
        let workers = supervisor.workers();
        let higher = !workers.is_empty() && random.random_ratio(1, 20);
        let victims = if higher { supervisor.schedulers() } else { workers };
        if let Some(victim) = victims.choose(&mut random) {
            // it may have ended by itself meanwhile
            let still = process::find(victim.pid).is_some_and(|found| found.parent == victim.parent && !found.zombie);
            if killed < tasks && still {
                let gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(victim.pid), Signal::SIGKILL);
                killed += i64::from(gone.is_ok());
            }
        }
        count("SELECT count(*) FROM public.task WHERE state = 'DONE'") == tasks
    });
    assert_eq!(count("SELECT count(*) FROM public.seen WHERE NOT alone"), 0, "{}", supervisor.describe());
    let attempts = count("SELECT sum(attempt)::bigint FROM public.task");
    assert!(attempts > tasks, "some were run again: {killed} kills, {attempts} attempts of {tasks} tasks");
    ledger::slots_held_by(&supervisor, &["launcher", "scheduler"]);
    supervisor.eventually("nothing else is left", || {
        // Connections that the next workers inherit may be kept.
        let kept = |session: &tests::database::Session| {
            session.state == "idle" && session.application_name.starts_with("pg_task")
        };
        let sessions = database.sessions();
        supervisor.children().len() == 1 && sessions.iter().filter(|session| !kept(session)).count() == 2
    });
}

#[test]
fn a_scheduler_that_stands_still_for_half_a_minute_is_replaced() {
    if !tests::scale::is_full() {
        eprintln!("it takes half a minute; scripts/test --full runs it");
        return;
    }
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let stopped = supervisor.schedulers()[0].pid;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(stopped), Signal::SIGSTOP).expect("stop it");
    supervisor
        .wait("another one serves the queue")
        .within(Duration::from_secs(50))
        .until(|| supervisor.schedulers().iter().any(|process| process.pid != stopped) && !is_alive(stopped));
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    assert!(supervisor.log_contains("scheduler hangs"));
}
