//! Remote tasks whose worker, connection or remote is lost: the session on the remote is ended first, or the outcome stays unknown.

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::proxy::Loss;
use tests::{Cluster, Proxy, Supervisor, steadily};

use crate::ledger;
use crate::remote_server::{
    conninfo, conninfo_at, far_cluster, far_database, is_there, no_password, remote, run, why, working,
};

#[test]
fn a_dead_workers_session_on_the_remote_is_ended_before_the_task_runs_again() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    ledger::open(&far);
    let mill = Supervisor::of(&home).start();
    // nobody tells this session that its client is gone
    let input = format!("SET client_connection_check_interval = 0;{}", ledger::input());
    let id = home.insert_with(&input, &remote(&conninfo(&far)));
    let pid = working(&mill, &home, &far, id);
    mill.kill9(mill.workers()[0].pid);
    let row = mill.finished(&home, id);
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()));
    let entries = ledger::entries(&far);
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|(_, alone)| *alone), "two at once: {entries:?}");
    assert!(!is_there(&far, pid));
    no_password(&mill, &home);
}

#[test]
fn the_next_start_ends_what_a_killed_launcher_left_on_a_remote() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    ledger::open(&far);
    let mill = Supervisor::of(&home).start();
    // nobody tells this session that its client is gone
    let input = format!("SET client_connection_check_interval = 0;{}", ledger::input());
    let id = home.insert_with(&input, &remote(&conninfo(&far)));
    let pid = working(&mill, &home, &far, id);
    mill.kill9(mill.pid());
    mill.wait_gone(Duration::from_secs(5));
    assert!(is_there(&far, pid), "its statement runs on");
    drop(mill);
    let mill = Supervisor::of(&home).start();
    let row = mill.finished(&home, id);
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()));
    let entries = ledger::entries(&far);
    assert!(entries.len() == 2 && entries.iter().all(|(_, alone)| *alone), "{entries:?}");
}

#[test]
fn a_remote_that_cannot_be_reached_leaves_the_outcome_unknown_and_the_task_is_not_run_again() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    ledger::open(&far);
    let proxy = Proxy::before(far.server().port);
    let mill = Supervisor::of(&home).queue_key("run", 1).start();
    let there = remote(&format!("{} connect_timeout=2", conninfo_at(&far, proxy.port())));
    let id = home.insert_with(&ledger::input(), &there);
    working(&mill, &home, &far, id);
    proxy.play_dead(true);
    mill.kill9(mill.workers()[0].pid);
    mill.eventually("why says so", || why(&home, id) == "remote not reachable, outcome unknown");
    steadily("it stays WORK", Duration::from_secs(2), || home.task(id).is_some_and(|row| row["state"] == "WORK"));
    // nobody else waits for it, though only one may run
    assert_eq!(run(&mill, &home, "SELECT 1", "group = 'healthy'")["state"], "DONE");
    // a new scheduler comes to the same, and so does a new launcher
    mill.kill9(mill.schedulers()[0].pid);
    mill.eventually("why says so again", || why(&home, id) == "remote not reachable, outcome unknown");
    let asked = Instant::now();
    mill.signal(tests::Signal::SIGTERM);
    assert!(mill.wait_exit(Duration::from_secs(10)).success());
    assert!(asked.elapsed() < Duration::from_secs(5), "an unknown outcome delays no end: {:?}", asked.elapsed());
    assert_eq!(home.task(id).expect("there")["state"], "WORK");
    drop(mill);
    let mill = Supervisor::of(&home).start();
    mill.eventually("why says so once more", || why(&home, id) == "remote not reachable, outcome unknown");
    assert_eq!(ledger::entries(&far).len(), 1);
    proxy.play_dead(false);
    let row = mill.wait("it runs again").within(Duration::from_secs(60)).until(|| home.finished(id));
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()));
    let entries = ledger::entries(&far);
    assert!(entries.len() == 2 && entries.iter().all(|(_, alone)| *alone), "{entries:?}");
    no_password(&mill, &home);
}

#[test]
fn an_unknown_outcome_becomes_a_crash_after_reset_with_its_repetition() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let proxy = Proxy::before(far.server().port);
    let mill = Supervisor::of(&home).queue_key("reset", 2000).start();
    let there = remote(&format!("{} connect_timeout=2", conninfo_at(&far, proxy.port())));
    let id = home.insert_with("SELECT pg_sleep(100)", &format!("{there}, repeat = '1 hour'"));
    working(&mill, &home, &far, id);
    // the worker lives, and knows no more than anybody else
    proxy.play_dead(true);
    proxy.cut();
    mill.eventually("why says so", || why(&home, id) == "remote not reachable, outcome unknown");
    let row = mill.finished(&home, id);
    assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"crashed".into()));
    assert_eq!((&row["error"], &row["attempt"]), (&"ERROR:  task crashed".into(), &1.into()));
    let next: Vec<Value> = home.tasks().into_iter().filter(|next| next["parent"] == id).collect();
    assert_eq!(next.len(), 1, "one repetition");
    assert_eq!(next[0]["state"], "PLAN");
}

#[test]
fn a_remote_that_is_restarted_or_cut_off_runs_the_task_again_only_when_the_first_run_is_over() {
    let far_cluster = Cluster::configure().tcp().start();
    let (home, far) = (Cluster::shared().database(), far_database(&far_cluster));
    ledger::open(&far);
    let mill = Supervisor::of(&home).start();
    let id = home.insert_with(&ledger::input(), &remote(&conninfo(&far)));
    working(&mill, &home, &far, id);
    far_cluster.restart(tests::ShutdownMode::Immediate);
    let row = mill.wait("it runs again").within(Duration::from_secs(60)).until(|| home.finished(id));
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()), "{}", mill.describe());
    // cut in the middle: the server knows nothing of it
    far.run("TRUNCATE ledger");
    let proxy = Proxy::before(far.server().port);
    let input = format!("SET client_connection_check_interval = 0;{}", ledger::input());
    let id = home.insert_with(&input, &remote(&conninfo_at(&far, proxy.port())));
    working(&mill, &home, &far, id);
    proxy.cut();
    let row = mill.wait("it runs again").within(Duration::from_secs(60)).until(|| home.finished(id));
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()), "{}", mill.describe());
    let entries = ledger::entries(&far);
    assert!(entries.len() == 2 && entries.iter().all(|(_, alone)| *alone), "{entries:?}");
}

#[test]
fn a_task_that_is_stopped_and_planned_again_waits_for_its_first_run_to_end() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    ledger::open(&far);
    let mill = Supervisor::of(&home).start();
    let there = conninfo(&far);
    // it does not heed a cancel at once
    let slow = "DO $$ BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(1); END $$";
    let first = "BEGIN;INSERT INTO ledger SELECT pg_backend_pid(), pg_try_advisory_lock(4711);COMMIT";
    let id = home.insert_with(&format!("{first};{slow}"), &format!("{}, max = 5", remote(&there)));
    working(&mill, &home, &far, id);
    home.run(&format!("UPDATE public.task SET input = '{first}', state = 'STOP' WHERE id = {id}"));
    home.run(&format!("UPDATE public.task SET state = 'PLAN' WHERE id = {id}"));
    mill.finished(&home, id);
    let entries = ledger::entries(&far);
    assert!(entries.len() == 2 && entries.iter().all(|(_, alone)| *alone), "{entries:?}");
}

#[test]
fn a_remote_that_falls_silent_after_the_login_or_in_the_middle_keeps_no_worker_for_ever() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let proxy = Proxy::before(far.server().port);
    let mill = Supervisor::of(&home).start();
    let there = remote(&format!("{} connect_timeout=2", conninfo_at(&far, proxy.port())));
    proxy.lose_at("pg_postmaster_start_time", "nothing of the kind", Loss::Silence);
    let row = run(&mill, &home, "SELECT 1", &there);
    assert!(proxy.has_lost());
    assert!(row["error"].as_str().expect("an error").contains("timeout"), "{row}");
    assert!(!row["error"].as_str().expect("an error").contains("STATEMENT"), "{row}");

    let id = home.insert_with("SELECT pg_sleep(300)", &format!("{there}, timeout = '500 ms'"));
    working(&mill, &home, &far, id);
    proxy.play_dead(true);
    proxy.hush();
    let soon = Duration::from_secs(60);
    mill.wait("it is given up").within(soon).until(|| mill.log_contains("closing the connection"));
    mill.wait("nobody knows").within(soon).until(|| why(&home, id) == "remote not reachable, outcome unknown");
    ledger::slots_held_by(&mill, &["launcher", "scheduler"]);
    // nobody wants it any more: nothing is written, and nothing is run
    home.run(&format!("DELETE FROM public.task WHERE id = {id}"));
    proxy.play_dead(false);
    mill.wait("its backend is gone").within(soon).until(|| {
        far.query("SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(300)%' AND pid <> pg_backend_pid()", &[])
            .is_some_and(|rows| rows.is_empty())
    });
}

#[test]
fn a_result_waits_for_our_own_server_to_come_back() {
    let cluster = Cluster::start();
    let (home, far) = (cluster.database(), far_database(far_cluster()));
    ledger::open(&far);
    let mill = Supervisor::of(&home).start();
    let input = "INSERT INTO ledger VALUES (pg_backend_pid(), true);SELECT pg_sleep(2)";
    let id = home.insert_with(input, &remote(&conninfo(&far)));
    let pid = working(&mill, &home, &far, id);
    cluster.stop(tests::ShutdownMode::Immediate);
    mill.eventually("it has ended there", || {
        let sql = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active'";
        far.query(sql, &[&pid]).is_some_and(|rows| rows.is_empty())
    });
    cluster.start_again();
    let row = mill.wait("its result is there").within(Duration::from_secs(30)).until(|| home.finished(id));
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &1.into()), "{}", mill.describe());
    assert_eq!(ledger::entries(&far).len(), 1);
}

#[test]
fn deaths_of_the_worker_and_of_the_far_server_process_count_and_a_restart_of_the_remote_does_not() {
    let (home, cluster) = (Cluster::shared().database(), Cluster::configure().tcp().start());
    let far = far_database(&cluster);
    let mill = Supervisor::of(&home).start();
    let id = home.insert_with("SELECT pg_sleep(60)", &remote(&conninfo(&far)));
    let crashes = || home.task(id).map(|row| row["crashes"].clone()).unwrap_or_default();
    working(&mill, &home, &far, id);
    mill.kill9(mill.workers()[0].pid);
    mill.eventually("it is counted", || crashes() == 1);
    working(&mill, &home, &far, id);
    cluster.restart(tests::ShutdownMode::Immediate);
    mill.wait("it runs again")
        .within(Duration::from_secs(40))
        .until(|| home.task(id).is_some_and(|row| row["state"] == "WORK" && row["attempt"] == 3));
    assert_eq!(crashes(), 1);
    let pid = working(&mill, &home, &far, id);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), tests::Signal::SIGSEGV).expect("kill the server process");
    mill.wait("it is counted").within(Duration::from_secs(40)).until(|| crashes() == 2);
}
