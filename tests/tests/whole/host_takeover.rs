//! A leader that is killed, cut off, frozen or half dead, and the launcher that stands by: who serves, since when, and
//! what the other one does when it is back.

use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::launch::Launch;
use tests::process::is_alive;
use tests::{Cluster, Database, Proxy, Signal, Supervisor, sized, steadily};

use crate::ledger;
use crate::queries::{one, state};

/// What is promised, and what a machine that does five things at once is granted.
fn promised() -> Duration {
    Duration::from_secs(sized(12, 5))
}

/// One that has just gone is no error.
pub fn tell(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Everything of a launcher stands still, or goes on.
pub fn tell_all(mill: &Supervisor<'_>, signal: Signal) {
    // the launcher first: it shall not see its children stand still; and those born meanwhile
    for _ in 0..2 {
        tell(mill.pid(), signal);
        mill.children().iter().for_each(|child| tell(child.pid, signal));
    }
}

pub fn leads(mill: &Supervisor<'_>) -> Option<bool> {
    mill.status()?["leading"].as_bool()
}

/// A launcher of a name, by its own way to the server.
fn launch<'d>(database: &'d Database, name: &str, port: Option<u16>) -> Launch<'d> {
    let launch = Supervisor::of(database).key("name", name).queue_key("sleep", 100).arg("--log-level").arg("debug");
    match port {
        Some(port) => {
            let login = database.login();
            launch.key("connect", json!(format!("host=127.0.0.1 port={port} user={login} password=s3cret")))
        }
        None => launch,
    }
}

/// The row that the other launcher's worker has in hand.
#[track_caller]
fn taken_over(other: &Supervisor<'_>, database: &Database, id: i64, began: Instant) -> Duration {
    other.wait("the other one runs the task").within(Duration::from_secs(30)).until(|| {
        database.task(id).is_some_and(|row| row["attempt"] == 2 && row["state"] != "PLAN" && row["state"] != "TAKE")
    });
    let took = began.elapsed();
    assert!(took < promised(), "{took:?}\n{}", other.describe());
    took
}

#[test]
fn a_frozen_host_is_replaced_and_when_it_wakes_up_it_finds_out_before_it_does_anything() {
    let database = Cluster::shared().database();
    let name = format!("{}-frozen", database.name());
    let frozen = launch(&database, &name, None).start();
    let other = launch(&database, &name, None).start();
    assert_eq!((leads(&frozen), leads(&other)), (Some(true), Some(false)));
    ledger::open(&database);
    let (id, backend) = ledger::begin(&frozen, &database);
    // a worker that would go on and on with the tasks of its group
    let chain = "INSERT INTO public.task (input, \"group\", live) SELECT 'SELECT pg_sleep(0.05)', 'chain', '1 hour' \
                   FROM generate_series(1, 100)";
    database.run(chain);
    frozen.eventually("the chain is at work", || frozen.workers().len() == 2);

    let began = Instant::now();
    tell_all(&frozen, Signal::SIGSTOP);
    let took = taken_over(&other, &database, id, began);
    println!("a frozen host was replaced after {took:?}");
    assert_eq!(leads(&other), Some(true));
    assert!(!ledger::is_connected(&database, backend), "the frozen worker's session was left");
    ledger::ended(&other, &database, id, 2);
    other.eventually("the chain goes on", || other.log_contains("worker started"));
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 1835597826 \
                AND objid = 'public.task'::regclass";
    assert_eq!(one::<i64>(&database, held), 1);

    let (mark, pids) = (frozen.log().mark(), frozen.children());
    tell_all(&frozen, Signal::SIGCONT);
    frozen
        .wait("it has let go")
        .within(Duration::from_secs(10))
        .until(|| frozen.children().is_empty() && frozen.status().is_some_and(|status| status["leading"] == false));
    let since = frozen.log().since(mark);
    for done in ["worker started", "scheduler started", "task planned again", "unfinished task found", "queue served"] {
        assert!(!since.iter().any(|line| line.contains(done)), "{done}: {since:#?}");
    }
    assert!(pids.iter().all(|process| !is_alive(process.pid)));
    assert_eq!(leads(&other), Some(true), "nobody disturbs the new one");
    // and it stands by as ever
    other.kill9(other.pid());
    frozen.wait("it takes over in its turn").within(Duration::from_secs(20)).until(|| leads(&frozen) == Some(true));
    frozen.wait("all are done").within(Duration::from_secs(60)).until(|| {
        let sql =
            "SELECT count(*) FILTER (WHERE state <> 'DONE'), count(*) FILTER (WHERE state = 'FAIL') FROM public.task";
        let rows = database.query(sql, &[])?;
        assert_eq!(rows[0].get::<_, i64>(1), 0, "no task fails by it");
        (rows[0].get::<_, i64>(0) == 0).then_some(())
    });
}

#[test]
fn a_host_that_is_cut_off_is_replaced_and_ends_its_schedulers_by_itself() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    database.set_password("s3cret");
    let name = format!("{}-cut", database.name());
    let proxy = Proxy::before(cluster.server().port);
    let cut = launch(&database, &name, Some(proxy.port())).start();
    let other = launch(&database, &name, None).start();
    assert_eq!((leads(&cut), leads(&other)), (Some(true), Some(false)));
    ledger::open(&database);
    let (id, backend) = ledger::begin(&cut, &database);
    let schedulers = cut.schedulers();

    let began = Instant::now();
    // neither side is told, and nobody gets through
    proxy.play_dead(true);
    proxy.hush();
    let took = taken_over(&other, &database, id, began);
    println!("a host that was cut off was replaced after {took:?}");
    ledger::ended(&other, &database, id, 2);
    assert!(!ledger::is_connected(&database, backend));
    cut.wait("its schedulers and workers are gone").within(Duration::from_secs(15)).until(|| cut.children().is_empty());
    println!("it had let go of everything after {:?}", began.elapsed());
    assert!(schedulers.iter().all(|process| !is_alive(process.pid)));
    assert!(cut.log_contains("launcher lost the leader lock; stopping schedulers"), "{}", cut.describe());

    proxy.play_dead(false);
    cut.wait("it stands by").within(Duration::from_secs(40)).until(|| {
        let status = cut.status()?;
        (status["leading"] == false && status["why"].as_str()?.contains("standing by")).then_some(())
    });
    assert!(cut.schedulers().is_empty());
    assert_eq!(leads(&other), Some(true));
}

/// The server process of the session by which a launcher leads.
fn leader(database: &Database, name: &str) -> Option<i32> {
    let sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 1835597825 \
               AND objid::bigint = hashtext($1)::bigint & 4294967295";
    database.query(sql, &[&name])?.first().map(|row| row.get(0))
}

#[test]
fn a_launcher_whose_former_session_does_not_end_lets_go_and_leads_again_when_it_has() {
    let database = Cluster::shared().database();
    let name = format!("{}-former", database.name());
    let mill = launch(&database, &name, None).start();
    ledger::open(&database);
    let (id, _) = ledger::begin(&mill, &database);
    let schedulers = mill.schedulers();
    let former = leader(&database, &name).expect("somebody leads");
    tell(former, Signal::SIGSTOP);
    mill.wait("it knows whose session that is").within(Duration::from_secs(15)).until(|| {
        let status = mill.status()?;
        status["why"].as_str()?.contains("still holds the leader lock").then_some(())
    });
    // two seconds later nothing of it serves any more; what ran is interrupted, in order
    mill.wait("its schedulers are gone").within(Duration::from_secs(15)).until(|| mill.children().is_empty());
    assert_eq!((state(&database, id).as_str(), mill.exit_status()), ("PLAN", None));
    assert!(schedulers.iter().all(|process| !is_alive(process.pid)));
    tell(former, Signal::SIGCONT);
    mill.wait("it leads again").within(Duration::from_secs(15)).until(|| leads(&mill) == Some(true));
    ledger::ended(&mill, &database, id, 2);
    assert_ne!(leader(&database, &name), Some(former));
}

#[test]
fn a_session_that_falls_silent_is_replaced_and_nobody_notices() {
    let cluster = Cluster::shared();
    let database = cluster.database();
    database.set_password("s3cret");
    let name = format!("{}-silent", database.name());
    let proxy = Proxy::before(cluster.server().port);
    // only the launcher's own session goes by the proxy
    let mill = launch(&database, &name, Some(proxy.port()))
        .queue_key("connect", cluster.server().conninfo(database.owner()))
        .start();
    ledger::open(&database);
    let (id, backend) = ledger::begin(&mill, &database);
    let (schedulers, former) = (mill.schedulers(), leader(&database, &name).expect("somebody leads"));
    proxy.hush();
    mill.wait("it leads by another session")
        .within(Duration::from_secs(15))
        .until(|| leader(&database, &name).is_some_and(|pid| pid != former) && leads(&mill) == Some(true));
    let next = database.insert_with("SELECT 1", "group = 'other'");
    assert_eq!(mill.finished(&database, next)["state"], "DONE");
    assert_eq!(mill.schedulers(), schedulers, "the same processes");
    let row = database.task(id).expect("it is there");
    assert_eq!((&row["state"], &row["attempt"], &row["pid"]), (&"WORK".into(), &1.into(), &backend.into()));
}

#[test]
fn a_leader_whose_session_is_ended_has_it_back_at_once_and_its_tasks_go_on() {
    let database = Cluster::shared().database();
    let name = format!("{}-ended", database.name());
    let mill = launch(&database, &name, None).start();
    ledger::open(&database);
    let (id, _) = ledger::begin(&mill, &database);
    let schedulers = mill.schedulers();
    for _ in 0..sized(3, 30) {
        let former = mill.eventually("somebody leads", || leader(&database, &name));
        database.query("SELECT pg_terminate_backend($1)", &[&former]).expect("the server is there");
        mill.eventually("it leads again", || leader(&database, &name).is_some_and(|pid| pid != former));
    }
    assert_eq!((mill.schedulers(), state(&database, id).as_str()), (schedulers, "WORK"));
    assert_eq!(database.task(id).expect("it is there")["attempt"], 1);
}

#[test]
fn status_tells_which_host_runs_what_also_on_a_host_that_stands_by() {
    let database = Cluster::shared().database();
    let name = format!("{}-status", database.name());
    let active = launch(&database, &name, None).start();
    let other = launch(&database, &name, None).start();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let host = host.trim();
    let since = |status: &Value| status["leader"]["since_ms"].as_i64();
    let own = active.status().expect("status");
    assert_eq!((&own["host"], &own["leader"]["host"]), (&host.into(), &host.into()));
    assert_eq!(own["leader"]["pid"], active.pid());
    // signed statements follow the lock within a look
    let seen = other.eventually("it knows the leader", || {
        let status = other.status()?;
        (status["leader"]["pid"] == active.pid() && since(&status) == since(&own)).then_some(status)
    });
    assert_eq!((&seen["leading"], &seen["host"], &seen["leader"]["host"]), (&false.into(), &host.into(), &host.into()));
    assert_eq!(seen["leader"]["backend"], leader(&database, &name).expect("somebody leads"));
    let why = seen["why"].as_str().unwrap_or_default();
    assert!(why.contains(&format!("is active on {host} pid {}", active.pid())), "{why}");
    let text = other.command(&["status"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.starts_with(&format!("launcher {name} on {host} pid {} ", other.pid())), "{text}");
    assert!(text.contains(&format!("\nleader on {host} pid {} since 20", active.pid())), "{text}");
    // said once, however often it asks
    steadily("nothing more is said", Duration::from_secs(1), || {
        other.log().lines().iter().filter(|line| line.contains("launcher waits")).count() <= 2
    });
}
