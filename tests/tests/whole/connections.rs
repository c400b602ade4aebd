//! Ways to a server: what is said when there is none, that it is served as soon as the
//! cause is repaired, and every way to log in.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::cluster::Options;
use tests::{Cluster, Database, Proxy, ShutdownMode, Signal, Supervisor, steadily};

const SECRET: &str = "pa55-w0rd's";
/// What "within a few seconds" means here; the pause between two tries is part of it.
const SOON: Duration = Duration::from_secs(10);

/// Lines that somebody should look at.
fn complaints(supervisor: &Supervisor<'_>) -> Vec<String> {
    let lines = supervisor.log().lines();
    lines.into_iter().filter(|line| line.contains(" warning ") || line.contains(" error ")).collect()
}

/// An error lasts for a while: it is logged once, with these words, nobody dies of it, and
/// `status` has the same reason.
#[track_caller]
fn waits_patiently(supervisor: &Supervisor<'_>, words: &[&str]) {
    supervisor.eventually("the error is logged", || !complaints(supervisor).is_empty());
    let processes = |supervisor: &Supervisor<'_>| -> Vec<i32> {
        supervisor.schedulers().iter().map(|process| process.pid).collect()
    };
    let before = processes(supervisor);
    steadily("it waits", Duration::from_secs(2), || supervisor.exit_status().is_none());
    assert_eq!(processes(supervisor), before, "no process dies");
    let said = complaints(supervisor);
    assert!(said.len() <= 2, "said too often:\n{}", said.join("\n"));
    for word in words {
        assert!(said.iter().any(|line| line.contains(word)), "{word:?} is not in\n{}", said.join("\n"));
    }
    let asked = Instant::now();
    let status = supervisor.status().expect("it answers");
    assert!(asked.elapsed() < Duration::from_secs(1), "the loop is held up: {:?}", asked.elapsed());
    let why = status["databases"][0]["why"].as_str().unwrap_or_default();
    assert!(words.iter().all(|word| why.contains(word)), "{words:?}: {status}");
    assert!(!supervisor.log().lines().concat().contains(SECRET) && !status.to_string().contains(SECRET));
}

/// After the cause is repaired: served without a restart.
#[track_caller]
fn is_served_soon(supervisor: &Supervisor<'_>, database: &Database) {
    supervisor.wait("the queue is served").within(SOON).until(|| supervisor.log_contains("] queue served"));
    runs_a_task(supervisor, database);
    assert!(complaints(supervisor).len() <= 2, "{}", complaints(supervisor).join("\n"));
    assert!(!supervisor.log_contains("died"));
    let status = supervisor.status().expect("it answers");
    assert!(status["why"].is_null() && status["databases"][0]["why"].is_null(), "{status}");
}

#[track_caller]
fn runs_a_task(supervisor: &Supervisor<'_>, database: &Database) {
    let id = database.insert("SELECT current_user");
    let row = supervisor.finished(database, id);
    assert_eq!((row["state"].as_str(), row["output"].as_str()), (Some("DONE"), Some(database.owner())), "{row}");
}

/// Over TCP, with a timeout for a busy machine.
fn by_tcp(database: &Database, password: &str) -> String {
    format!("{} connect_timeout=60", database.server().conninfo_tcp(database.login(), password))
}

#[test]
fn a_server_that_is_down_is_waited_for() {
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    database.set_password(SECRET);
    cluster.stop(ShutdownMode::Fast);
    let supervisor = Supervisor::of(&database).key("connect", by_tcp(&database, SECRET)).start();
    let place = format!("port {}", database.server().port);
    waits_patiently(&supervisor, &[&place, "refused", "start the server"]);
    cluster.start_again();
    is_served_soon(&supervisor, &database);
}

#[test]
fn a_missing_socket_file_is_named() {
    let cluster = Cluster::start();
    let database = cluster.database();
    cluster.stop(ShutdownMode::Fast);
    let supervisor = Supervisor::of(&database).start();
    let socket = format!(".s.PGSQL.{}", database.server().port);
    waits_patiently(&supervisor, &[&socket, "No such file", "start the server"]);
    cluster.start_again();
    is_served_soon(&supervisor, &database);
}

#[test]
fn a_server_that_accepts_and_never_answers_holds_nothing_up() {
    let database = Cluster::shared().database();
    database.set_password(SECRET);
    let proxy = Proxy::before(database.server().port);
    proxy.play_dead(true);
    let connect = by_tcp(&database, SECRET)
        .replace(&format!("port={}", database.server().port), &format!("port={}", proxy.port()))
        .replace("connect_timeout=60", "connect_timeout=2");
    let supervisor = Supervisor::of(&database).key("connect", connect).launch();
    supervisor.eventually("it answers while it connects", || supervisor.status());
    supervisor.wait_ready();
    waits_patiently(&supervisor, &[&format!("port {}", proxy.port()), "did not answer in time", "start the server"]);
    proxy.play_dead(false);
    is_served_soon(&supervisor, &database);
}

#[test]
fn a_row_whose_server_is_away_does_not_disturb_the_others() {
    let cluster = Cluster::shared();
    let (served, waiting) = (cluster.database(), cluster.database());
    served.set_password(SECRET);
    waiting.set_password(SECRET);
    let proxy = Proxy::before(cluster.server().port);
    proxy.play_dead(true);
    let away = format!("port={} connect_timeout=2", proxy.port());
    let supervisor = Supervisor::of(&waiting)
        .queue_key("connect", away)
        .and(&served)
        .key("connect", by_tcp(&served, SECRET))
        .start();
    waits_patiently(&supervisor, &["did not answer in time"]);
    let id = served.insert("SELECT 1");
    assert_eq!(supervisor.finished(&served, id)["state"], "DONE");
    proxy.play_dead(false);
    supervisor.wait("the queue is served again").within(SOON).until(|| supervisor.log_contains("queue served again"));
    let id = waiting.insert("SELECT 1");
    assert_eq!(supervisor.finished(&waiting, id)["state"], "DONE");
    assert!(!supervisor.log_contains("died"));
}

#[test]
fn a_wrong_password_is_said_without_it_and_repaired_on_the_server() {
    let database = Cluster::shared().database();
    database.set_password("another");
    let supervisor = Supervisor::of(&database).key("connect", by_tcp(&database, SECRET)).start();
    waits_patiently(&supervisor, &["password authentication failed", "28P01", "set the right password"]);
    database.set_password(SECRET);
    is_served_soon(&supervisor, &database);
}

#[test]
fn a_wrong_password_is_repaired_in_the_config() {
    let database = Cluster::shared().database();
    database.set_password(SECRET);
    let supervisor = Supervisor::of(&database).key("connect", by_tcp(&database, "wrong")).start();
    waits_patiently(&supervisor, &["password authentication failed"]);
    let path = supervisor.config().expect("it has one");
    let text = fs::read_to_string(path).expect("read the config");
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    config["connect"] = json!(by_tcp(&database, SECRET));
    supervisor.rewrite_config(&config.to_string());
    supervisor.signal(Signal::SIGHUP);
    is_served_soon(&supervisor, &database);
}

#[test]
fn a_password_that_is_asked_for_and_not_given_is_said() {
    let database = Cluster::shared().database();
    database.set_password(SECRET);
    let server = database.server();
    let connect = format!("host=127.0.0.1 port={} user={}", server.port, database.login());
    let supervisor = Supervisor::of(&database).key("connect", connect).start();
    waits_patiently(&supervisor, &["password missing", "PGPASSWORD"]);
    assert!(!supervisor.log_contains("start the server"));
}

#[test]
fn workers_that_cannot_log_in_are_said_once_and_their_tasks_run_later() {
    let database = Cluster::shared().database();
    database.set_password(SECRET);
    let launch = Supervisor::of(&database).key("connect", by_tcp(&database, SECRET)).queue_key("pool", false);
    let supervisor = launch.start();
    runs_a_task(&supervisor, &database);
    // the scheduler's session stands, new ones are refused
    database.set_password("another");
    let ids: Vec<i64> = (0..5).map(|_| database.insert("SELECT current_user")).collect();
    supervisor.eventually("it is said", || !complaints(&supervisor).is_empty());
    steadily("no task is lost", Duration::from_secs(4), || ids.iter().all(|id| database.task(*id).is_some()));
    let said = complaints(&supervisor);
    assert!(said.len() <= 2, "said too often:\n{}", said.join("\n"));
    assert!(said[0].contains("28P01") && said[0].contains("password"), "{said:?}");
    let status = supervisor.status().expect("it answers");
    let why = status["databases"][0]["why"].as_str().unwrap_or_default();
    assert!(why.contains("28P01"), "{status}");
    database.set_password(SECRET);
    for id in ids {
        let row = supervisor.wait("the task is done").within(SOON).until(|| database.finished(id));
        assert_eq!(row["state"], "DONE");
    }
    supervisor.eventually("the reason is gone", || {
        supervisor.status().is_some_and(|status| status["databases"][0]["why"].is_null())
    });
    assert!(!supervisor.log().lines().concat().contains(SECRET));
}

#[test]
fn a_login_that_pg_hba_refuses_is_said_and_repaired_there() {
    let cluster = Cluster::configure().tcp().hba("host refused all 127.0.0.1/32 reject").start();
    let database = cluster.database_named("refused", "refused_owner");
    database.set_password(SECRET);
    let supervisor = Supervisor::of(&database).key("connect", by_tcp(&database, SECRET)).start();
    waits_patiently(&supervisor, &["pg_hba.conf", "refused_owner", "28000"]);
    let path = cluster.home().join("data/pg_hba.conf");
    let hba = fs::read_to_string(&path).expect("read pg_hba.conf");
    fs::write(&path, hba.replace("reject", "scram-sha-256")).expect("write pg_hba.conf");
    database.run("SELECT pg_reload_conf()");
    is_repaired(&supervisor, &database);
}

#[test]
fn a_missing_database_is_said_and_served_once_it_is_there() {
    let cluster = Cluster::start();
    let database = cluster.database_named("later", "later_owner");
    let mut client = cluster.connect("postgres");
    client.batch_execute("DROP DATABASE later").expect("drop");
    let supervisor = Supervisor::of(&database).start();
    waits_patiently(&supervisor, &["later", "does not exist", "CREATE DATABASE"]);
    client.batch_execute("CREATE DATABASE later OWNER later_owner").expect("create");
    is_repaired(&supervisor, &database);
}

/// As [`is_served_soon`], where the scheduler itself has waited.
#[track_caller]
fn is_repaired(supervisor: &Supervisor<'_>, database: &Database) {
    supervisor.wait("the queue is served again").within(SOON).until(|| supervisor.log_contains("queue served again"));
    is_served_soon(supervisor, database);
}

#[test]
fn every_way_to_give_a_password_works() {
    let options: Options = Cluster::configure()
        .tcp()
        .hba("host plain all 127.0.0.1/32 password")
        .hba("host hashed all 127.0.0.1/32 md5")
        .hba("host scrambled all 127.0.0.1/32 scram-sha-256");
    let cluster = options.start();
    let plain = cluster.database_named("plain", "plain_owner");
    let hashed = cluster.database_named("hashed", "hashed_owner");
    let scrambled = cluster.database_named("scrambled", "scrambled_owner");
    plain.set_password(SECRET);
    scrambled.set_password(SECRET);
    let role = "ALTER ROLE hashed_owner PASSWORD 'pa55-w0rd''s'";
    hashed.run(&format!("SET password_encryption = md5; {role}"));
    let supervisor =
        Supervisor::of(&scrambled).and(&plain).and(&hashed).key("connect", by_tcp(&scrambled, SECRET)).start();
    for database in [&scrambled, &plain, &hashed] {
        runs_a_task(&supervisor, database);
    }
    let stored = cluster
        .connect("postgres")
        .query_one("SELECT rolpassword LIKE 'md5%' FROM pg_authid WHERE rolname = 'hashed_owner'", &[]);
    assert!(stored.expect("query").get::<_, bool>(0), "the server did keep an md5 hash");
    assert!(complaints(&supervisor).is_empty(), "{}", complaints(&supervisor).join("\n"));
    assert!(!supervisor.log().lines().concat().contains(SECRET));
}

#[test]
fn a_host_is_found_by_name_in_a_child_and_the_launcher_stays_alone() {
    let database = Cluster::shared().database();
    database.set_password(SECRET);
    let connect = by_tcp(&database, SECRET).replace("host=127.0.0.1", "host=localhost");
    let supervisor = Supervisor::of(&database).key("connect", connect).start();
    for _ in 0..5 {
        runs_a_task(&supervisor, &database);
    }
    let threads = |pid: i32| fs::read_dir(format!("/proc/{pid}/task")).expect("it is alive").count();
    assert_eq!(threads(supervisor.pid()), 1);
    assert_eq!(threads(supervisor.schedulers()[0].pid), 1);
    supervisor.eventually("only the scheduler is left, and no zombie", || {
        let children = supervisor.children();
        children.len() == 1 && !children[0].zombie
    });
}

#[test]
fn a_name_that_nobody_knows_is_said() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).key("connect", "host=nowhere.invalid user=x").start();
    waits_patiently(&supervisor, &["nowhere.invalid", "set the right host"]);
}

/// The client's nonce in what it said first: the SASL initial response is the method's
/// name, a length, and `n,,n=,r=NONCE`.
fn nonce(said: &[u8]) -> Option<String> {
    let method = b"SCRAM-SHA-256\0";
    let at = said.windows(method.len()).position(|window| window == method)? + method.len();
    let length = usize::try_from(u32::from_be_bytes(said.get(at..at + 4)?.try_into().ok()?)).ok()?;
    let message = String::from_utf8(said.get(at + 4..at + 4 + length)?.to_vec()).ok()?;
    Some(message.split_once(",r=")?.1.to_owned())
}

#[test]
fn fifty_workers_log_in_with_fifty_nonces() {
    const WORKERS: usize = 50;
    let database = Cluster::shared().database();
    database.set_password(SECRET);
    let proxy = Proxy::before(database.server().port);
    let connect = by_tcp(&database, SECRET)
        .replace(&format!("port={}", database.server().port), &format!("port={}", proxy.port()));
    let supervisor = Supervisor::of(&database).key("connect", connect).key("max_workers", WORKERS + 6).start();
    let inserted = "INSERT INTO public.task (input, \"group\") \
                    SELECT 'SELECT pg_sleep(0.5)', 'g' || i FROM generate_series(1, 50) i";
    database.connect().batch_execute(inserted).expect("insert");
    supervisor.wait("all are done").within(Duration::from_secs(60)).until(|| {
        let rows = database.tasks();
        rows.len() == WORKERS && rows.iter().all(|row| row["state"] == "DONE")
    });
    let nonces: Vec<String> = proxy.said().iter().filter_map(|said| nonce(said)).collect();
    // besides the workers: launcher and scheduler
    assert!(nonces.len() >= WORKERS + 2, "{} logins were seen", nonces.len());
    assert!(nonces.iter().all(|nonce| nonce.len() >= 18), "{nonces:?}");
    let distinct: HashSet<&String> = nonces.iter().collect();
    assert_eq!(distinct.len(), nonces.len(), "a nonce was used twice: {nonces:?}");
}
