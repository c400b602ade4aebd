//! A server that lies, floods or says nothing: whoever talks to it neither crashes nor hangs nor grows, and those who
//! talk to a healthy server notice nothing.

use std::time::{Duration, Instant};

use serde_json::json;
use tests::hostile::{AT_LOGIN, AT_QUESTION, Attack, Hostile, Moment, Plan};
use tests::process::{self, memory_kib};
use tests::{Cluster, Database, Signal, Supervisor, sized};

use crate::asking::linger;

/// More than this no process may ever have for itself: an answer at its longest, twice, and what it had before.
const MOST_KIB: u64 = 160 * 1024;

/// A cluster that asks nobody on 127.0.0.1 for a password, so that a server in between can be played.
fn trusting() -> Cluster {
    Cluster::configure().tcp().hba("host all all 127.0.0.1/32 trust").start()
}

/// The fattest of a launcher and its processes.
fn fattest(supervisor: &Supervisor<'_>) -> (u64, String) {
    let mut all = supervisor.children();
    all.extend(process::look(supervisor.pid()));
    let sizes = all.into_iter().filter_map(|one| Some((memory_kib(one.pid)?, one.title)));
    sizes.max().unwrap_or_default()
}

fn panics(supervisor: &Supervisor<'_>) -> Vec<String> {
    supervisor.log().lines().into_iter().filter(|line| line.contains("] panic") || line.contains("died")).collect()
}

/// A row of the config for a database that only a hostile server has.
fn row(port: u16, name: &str) -> serde_json::Value {
    json!({"data": name, "user": "nobody", "connect": format!("host=127.0.0.1 port={port} password=hush connect_timeout=2")})
}

#[test]
fn schedulers_of_hostile_servers_live_on_small_and_a_healthy_queue_is_served_beside_them() {
    let cluster = trusting();
    let (healthy, led) = (cluster.database(), cluster.database());
    // struck before and at the login; struck at the first question after a login that anybody is granted
    let mut servers: Vec<(String, Hostile)> = Vec::new();
    for how in AT_LOGIN {
        servers.push((format!("login {how:?}"), Hostile::alone(Moment::Login, how)));
    }
    for how in AT_QUESTION {
        servers.push((format!("question {how:?}"), Hostile::alone(Moment::Question(1), how)));
    }
    for how in [Attack::Silence, Attack::Garbage, Attack::EndlessNotices] {
        servers.push((format!("connect {how:?}"), Hostile::alone(Moment::Connect, how)));
    }
    servers.push(("types".into(), Hostile::alone(Moment::Question(1), Attack::UnknownColumnTypes)));
    // a few at a time: they share one machine with us
    for part in servers.chunks(sized(13, 13)) {
        let mut launch = Supervisor::of(&healthy).key("max_workers", 40);
        for (name, server) in part {
            launch = launch.row(row(server.port(), name));
        }
        let supervisor = launch.launch();
        supervisor
            .wait("everybody has been struck")
            .within(Duration::from_secs(30))
            .until(|| part.iter().all(|(_, server)| server.blows() > 0));
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(sized(5, 60)) {
            supervisor
                .wait("the healthy queue's table")
                .until(|| healthy.look("SELECT FROM public.task", &[]).is_some());
            let id = healthy.insert("SELECT 1");
            supervisor.finished(&healthy, id);
            let (most, who) = fattest(&supervisor);
            assert!(most < MOST_KIB, "{who} has {most} KiB");
            assert!(supervisor.status().is_some(), "status answers");
            linger(Duration::from_millis(100), "a pause between two tasks");
        }
        assert_eq!(panics(&supervisor), Vec::<String>::new());
        supervisor.signal(Signal::SIGTERM);
        assert!(supervisor.wait_exit(Duration::from_secs(10)).success());
    }
    drop(led);
}

/// Led by the real server into a session at work, then struck.
#[test]
fn a_scheduler_struck_in_the_middle_of_its_work_lives_on_and_goes_on_when_the_server_is_sane_again() {
    let cluster = trusting();
    let database = cluster.database();
    let hostile = Hostile::before(cluster.server().port);
    let supervisor = Supervisor::bare()
        .key("connect", json!(cluster.server().conninfo(database.login())))
        .row(json!({"data": database.name(), "user": database.owner(), "sleep": 100,
            "connect": format!("host=127.0.0.1 port={} connect_timeout=2", hostile.port())}))
        .start();
    let id = database.insert("SELECT 1");
    supervisor.finished(&database, id);
    let scheduler = supervisor.schedulers()[0].pid;
    let mut attacks = AT_QUESTION.to_vec();
    attacks.push(Attack::UnknownColumnTypes);
    // silence here costs the patience of a question, half a minute; it has its own test below the program
    attacks.retain(|how| !matches!(how, Attack::Silence | Attack::HalfMessage));
    for (number, how) in attacks.into_iter().enumerate() {
        // the same blows fall on launchers in the test below; here every other one will do for every day
        if number % 3 != 0 && sized(true, false) {
            continue;
        }
        let place = 1 + number % 7;
        let when = match how {
            Attack::UnknownColumnTypes => Moment::Question(4),
            // from these the library goes on to its next question, and that one's patience is long
            Attack::UnknownType | Attack::WrongRow => Moment::Bind(2),
            _ if number % 2 == 0 => Moment::Bind(place),
            _ => Moment::Question(place + 1),
        };
        hostile.set(vec![Plan { whom: "pg_work", when: when.clone(), how }]);
        // the session at hand goes, the next one is struck
        database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg_work%'");
        let what = format!("struck at {when:?} by {how:?}");
        supervisor.wait(&what).within(Duration::from_secs(20)).until(|| hostile.blows() > 0);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(sized(300, 10_000)) {
            let (most, who) = fattest(&supervisor);
            assert!(most < MOST_KIB, "{what}: {who} has {most} KiB");
            linger(Duration::from_millis(20), "a pause between two measurements");
        }
        hostile.set(Vec::new());
        let id = database.insert("SELECT 1");
        supervisor
            .wait(&format!("served again after {what}"))
            .within(Duration::from_secs(45))
            .until(|| database.finished(id));
        eprintln!("{what}: served again after {:?}", began.elapsed());
        assert_eq!(supervisor.schedulers().iter().map(|one| one.pid).collect::<Vec<_>>(), [scheduler], "{what}");
    }
    assert_eq!(panics(&supervisor), Vec::<String>::new());
}

#[test]
fn a_launcher_of_a_hostile_server_answers_stays_small_and_ends_when_told() {
    let cluster = trusting();
    let database = cluster.database();
    let mut servers: Vec<(String, Hostile)> = Vec::new();
    for how in AT_LOGIN {
        servers.push((format!("login {how:?}"), Hostile::alone(Moment::Login, how)));
    }
    for how in AT_QUESTION.into_iter().chain([Attack::UnknownColumnTypes]) {
        // half of them at the first word, half in the middle of the question for the leader's lock
        servers.push((format!("question {how:?}"), Hostile::alone(Moment::Question(1), how)));
        let led = Hostile::before(cluster.server().port);
        let when = if how == Attack::UnknownColumnTypes { Moment::Question(2) } else { Moment::Bind(1) };
        led.set(vec![Plan { whom: "pg_conf", when, how }]);
        servers.push((format!("led {how:?}"), led));
    }
    for part in servers.chunks(9) {
        let launchers: Vec<(&str, &Hostile, Supervisor<'_>)> =
            part.iter().map(|(name, server)| (name.as_str(), server, alone(&database, server.port()))).collect();
        for (name, server, supervisor) in &launchers {
            supervisor.wait(name).within(Duration::from_secs(30)).until(|| server.blows() > 0);
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(sized(2, 30)) {
            for (name, _, supervisor) in &launchers {
                let (most, who) = fattest(supervisor);
                assert!(most < MOST_KIB, "{name}: {who} has {most} KiB");
            }
            linger(Duration::from_millis(50), "a pause between two measurements");
        }
        for (name, _, supervisor) in &launchers {
            let asked = Instant::now();
            assert!(supervisor.status().is_some(), "{name}: status");
            assert!(asked.elapsed() < Duration::from_secs(5), "{name}: status took {:?}", asked.elapsed());
            assert_eq!(panics(supervisor), Vec::<String>::new(), "{name}");
            supervisor.signal(Signal::SIGTERM);
        }
        for (name, _, supervisor) in &launchers {
            let ended = supervisor.wait(name).within(Duration::from_secs(10)).until(|| supervisor.exit_status());
            assert!(ended.success(), "{name}: {ended}");
        }
    }
}

fn alone<'d>(database: &Database, port: u16) -> Supervisor<'d> {
    let login = format!("host=127.0.0.1 port={port} user={} password=hush connect_timeout=2", database.login());
    Supervisor::bare()
        .key("connect", json!(login))
        .row(json!({"data": database.name(), "user": database.owner()}))
        .launch()
}

#[test]
fn workers_struck_at_their_login_and_at_their_first_word_leave_and_their_tasks_run_later() {
    let cluster = trusting();
    let database = cluster.database();
    let hostile = Hostile::before(cluster.server().port);
    let supervisor = behind(&database, &hostile);
    let logins = AT_LOGIN.map(|how| (Moment::Login, how));
    // silence at the first word costs a minute; it has its own test in the worker's client
    let words = AT_QUESTION.map(|how| (Moment::Question(1), how));
    let attacks = logins.into_iter().chain(words.into_iter().filter(|(_, how)| !quiet(*how)));
    for (number, (when, how)) in attacks.enumerate() {
        if number % 3 != 0 && sized(true, false) {
            continue;
        }
        let what = format!("struck at {when:?} by {how:?}");
        hostile.set(vec![Plan { whom: "pg_task", when, how }]);
        let id = database.insert_with("SELECT 1", "active = '1 day'");
        supervisor.wait(&what).within(Duration::from_secs(20)).until(|| hostile.blows() > 0);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(sized(300, 3000)) {
            let (most, who) = fattest(&supervisor);
            assert!(most < MOST_KIB, "{what}: {who} has {most} KiB");
            linger(Duration::from_millis(20), "a pause between two measurements");
        }
        hostile.set(Vec::new());
        let again = format!("it runs after it was {what}");
        // A server that talks without an answer is heard for a minute.
        let row = supervisor.wait(&again).within(Duration::from_secs(90)).until(|| database.finished(id));
        assert_eq!((&row["state"], &row["output"]), (&"DONE".into(), &"1".into()), "{what}");
    }
    assert_eq!(panics(&supervisor), Vec::<String>::new());
    supervisor.eventually("no slot is lost", || supervisor.status().is_some_and(|status| status["slots"]["used"] == 2));
}

#[test]
fn workers_struck_while_their_task_runs_stay_small_and_come_to_an_end_at_its_timeout() {
    let cluster = trusting();
    let database = cluster.database();
    let hostile = Hostile::before(cluster.server().port);
    let supervisor = behind(&database, &hostile);
    let mut plans = Vec::new();
    let mut tasks = Vec::new();
    for (number, how) in AT_QUESTION.into_iter().enumerate() {
        let word = format!("strike {number}.");
        let columns = format!("active = '1 day', timeout = '1 s', group = 'g{number}'");
        plans.push(Plan { whom: "pg_task", when: Moment::Input(word.clone()), how });
        tasks.push((how, word, columns));
    }
    hostile.set(plans);
    let tasks: Vec<(Attack, i64)> = tasks
        .into_iter()
        .map(|(how, word, columns)| (how, database.insert_with(&format!("SELECT 1 /* {word} */"), &columns)))
        .collect();
    let mut struck = 0;
    supervisor.wait("all are struck, and none of them for ever").within(Duration::from_secs(60)).until(|| {
        let (most, who) = fattest(&supervisor);
        assert!(most < MOST_KIB, "{who} has {most} KiB");
        struck = struck.max(hostile.blows());
        // each of them: ended, or given back (and then struck again)
        struck >= tasks.len()
            && tasks.iter().all(|(_, id)| {
                database.task(*id).is_some_and(|row| {
                    row["state"] == "FAIL" || row["state"] == "DONE" || row["attempt"].as_i64() > Some(1)
                })
            })
    });
    hostile.set(Vec::new());
    for (how, id) in tasks {
        let row = supervisor.wait("it ends").within(Duration::from_secs(40)).until(|| database.finished(id));
        let said = row["error"].as_str().unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        eprintln!("{how:?}: {} after {} attempts: {said}", row["state"], row["attempt"]);
    }
    assert_eq!(panics(&supervisor), Vec::<String>::new());
    supervisor.eventually("no slot is lost", || supervisor.status().is_some_and(|status| status["slots"]["used"] == 2));
}

fn quiet(how: Attack) -> bool {
    matches!(how, Attack::Silence | Attack::HalfMessage)
}

/// Everybody of this supervisor connects through the hostile server, but the launcher itself.
fn behind<'d>(database: &'d Database, hostile: &Hostile) -> Supervisor<'d> {
    let supervisor = Supervisor::bare()
        .key("connect", json!(database.server().conninfo(database.login())))
        .key("max_workers", 40)
        .row(json!({"data": database.name(), "user": database.owner(), "sleep": 100, "lend": false,
            "connect": format!("host=127.0.0.1 port={} connect_timeout=2", hostile.port())}))
        .start();
    let id = database.insert("SELECT 1");
    supervisor.wait("the table is served").until(|| database.finished(id));
    supervisor
}
