//! Servers that go away, have no room, say no, or are not yet what they will be: nobody gives up, nobody storms, and
//! the log says once what is wrong and what to do.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, socket};
use serde_json::json;
use tests::cluster::conninfo_quote;
use tests::process;
use tests::{Cluster, Database, ShutdownMode, Supervisor, sized, steadily};

/// CPU of a process and of its reaped children, in seconds.
fn cpu_s(pid: i32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse().ok())
        .collect();
    fields.iter().sum::<f64>() / 100.0
}

fn cpu_of_all(supervisor: &Supervisor<'_>) -> f64 {
    let children: HashMap<i32, f64> =
        supervisor.schedulers().iter().map(|child| (child.pid, cpu_s(child.pid))).collect();
    children.values().sum::<f64>() + cpu_s(supervisor.pid())
}

#[test]
fn a_server_that_is_away_costs_little_and_is_served_soon_after_it_is_back() {
    let rows = 20;
    let away = Duration::from_secs(sized(8, 60));
    let cluster = Cluster::start();
    let databases: Vec<Database> = (0..rows).map(|_| cluster.database()).collect();
    let mut launch = Supervisor::bare().key("max_workers", 2 * rows + 4);
    for database in &databases {
        launch = launch.and(database);
    }
    // one login for all rows, as an operator would
    let login = databases[0].login().to_owned();
    let mut client = cluster.connect("postgres");
    for database in &databases {
        client.batch_execute(&format!("GRANT \"{}\" TO \"{login}\"", database.owner())).expect("grant");
    }
    drop(client);
    let supervisor = launch.start();
    supervisor.eventually("every row is served", || {
        supervisor.log().lines().iter().filter(|line| line.contains("queue served")).count() == rows
    });
    let mark = supervisor.log().mark();
    cluster.stop(ShutdownMode::Fast);
    let (before, began) = (cpu_of_all(&supervisor), Instant::now());
    let pids: Vec<i32> = supervisor.schedulers().iter().map(|child| child.pid).collect();
    assert_eq!(pids.len(), rows);
    steadily("every process stays", away, || supervisor.exit_status().is_none());
    let (spent, took) = (cpu_of_all(&supervisor) - before, began.elapsed());
    cluster.start_again();
    let back = Instant::now();
    supervisor.wait("every row is served again").within(Duration::from_secs(20)).until(|| {
        let lines = supervisor.log().since(mark);
        lines.iter().filter(|line| line.contains("queue served again")).count() == rows
    });
    let served = back.elapsed();
    let now: Vec<i32> = supervisor.schedulers().iter().map(|child| child.pid).collect();
    assert_eq!(now, pids, "the same processes");
    let lines = supervisor.log().since(mark);
    for database in &databases {
        let said: Vec<&String> =
            lines.iter().filter(|line| line.contains(&format!("\"{} public.task\"", database.name()))).collect();
        assert!(said.len() <= 2, "{said:#?}");
    }
    println!("{rows} rows, {took:.1?} away: {spent:.2} s of CPU; all served {served:.2?} after the start");
    let budget = 0.5 * took.as_secs_f64() / 60.0 + 0.1;
    assert!(spent < budget.min(0.5), "{spent} s of CPU in {took:?}");
    assert!(served < Duration::from_secs(5), "{served:?}");
}

/// A port where every connect waits: somebody listens, and takes nobody.
struct Swallow {
    _listener: OwnedFd,
    _waiting: Vec<TcpStream>,
    port: u16,
}

impl Swallow {
    fn open() -> Swallow {
        let listener = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).expect("bind");
        listen(&listener, Backlog::new(0).expect("a backlog")).expect("listen");
        let port = getsockname::<SockaddrIn>(listener.as_raw_fd()).expect("its port").port();
        let place = SocketAddr::from(([127, 0, 0, 1], port));
        let waiting =
            std::iter::from_fn(|| TcpStream::connect_timeout(&place, Duration::from_millis(300)).ok()).collect();
        Swallow { _listener: listener, _waiting: waiting, port }
    }

    /// How many connects wait at this moment, by the kernel's table (state 02 is SYN_SENT). The table is no picture of one
    /// moment: one that goes and one that comes while it is read may both stand in it, so the least of three counts.
    fn waiting(&self) -> usize {
        let place = format!("0100007F:{:04X} 02", self.port);
        let count = || {
            let table = fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
            table.lines().filter(|line| line.contains(&place)).count()
        };
        [count(), count(), count()].into_iter().min().unwrap_or(0)
    }
}

#[test]
fn a_server_that_does_not_answer_holds_up_nobody_and_is_not_stormed() {
    let swallow = Swallow::open();
    let database = Cluster::shared().database();
    let mut launch = Supervisor::of(&database).key("max_workers", 40);
    for number in 0..12 {
        let connect = format!("host=127.0.0.1 port={}", swallow.port);
        launch = launch.queue(json!({"data": format!("d{number}"), "user": "nobody", "connect": connect}));
    }
    let supervisor = launch.launch();
    supervisor.eventually("the schedulers run", || supervisor.schedulers().len() == 13);
    supervisor.eventually("connects wait", || swallow.waiting() > 0);
    supervisor.eventually("the good row has its table", || database.query("SELECT FROM public.task", &[]).is_some());
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE", "the good row works");
    let before = cpu_of_all(&supervisor);
    let mut most = 0;
    steadily("few are at it", Duration::from_secs(sized(12, 60)), || {
        most = most.max(swallow.waiting());
        most <= 4
    });
    let spent = cpu_of_all(&supervisor) - before;
    println!("at most {most} connects waited; {spent:.2} s of CPU");
    // 14 processes, of which twelve try to connect: 2.5 percent of a core, and what it takes to begin.
    assert!(spent < sized(0.5, 1.5), "{spent} s of CPU");
}

#[test]
fn connects_after_an_outage_come_by_one_two_and_four() {
    let cluster = Cluster::start();
    let databases: Vec<Database> = (0..8).map(|_| cluster.database()).collect();
    let mut launch = Supervisor::bare().key("max_workers", 20);
    for database in &databases {
        launch = launch.and(database);
    }
    let login = databases[0].login().to_owned();
    let mut client = cluster.connect("postgres");
    for database in &databases {
        client.batch_execute(&format!("GRANT \"{}\" TO \"{login}\"", database.owner())).expect("grant");
    }
    // a login takes a while, so that connects would pile up if they could
    client.batch_execute("ALTER SYSTEM SET pre_auth_delay = 1").expect("delay");
    drop(client);
    let supervisor = launch.start();
    cluster.restart(ShutdownMode::Immediate);
    let postmaster = cluster.postmaster().expect("it runs");
    // a backend that has not yet begun its login still has the postmaster's title
    let at_it = || {
        let all = process::all();
        all.iter().filter(|child| child.parent == postmaster && child.title.contains(" -D ")).count()
    };
    let mut seen = Vec::new();
    supervisor.wait("every row is served again").within(Duration::from_secs(60)).until(|| {
        seen.push(at_it());
        let lines = supervisor.log().lines();
        lines.iter().filter(|line| line.contains("queue served again")).count() == databases.len()
    });
    seen.dedup();
    println!("connects at once: {seen:?}");
    assert!(seen.iter().all(|count| *count <= 4), "{seen:?}");
    assert!(seen.contains(&2) && seen.contains(&4), "it opens step by step: {seen:?}");
}

#[test]
fn a_budget_of_connections_is_never_exceeded() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let supervisor = Supervisor::of(&database).key("connections", 5).key("max_workers", 16).start();
    let ids: Vec<i64> =
        (0..20).map(|number| database.insert_with("SELECT pg_sleep(0.1)", &format!("group = 'g{number}'"))).collect();
    let mut most = 0;
    supervisor.wait("all tasks are done").within(Duration::from_secs(60)).until(|| {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pg\\_%'";
        if let Some(rows) = database.query(sql, &[]) {
            most = most.max(rows[0].get::<_, i64>(0));
        }
        ids.iter().all(|id| database.finished(*id).is_some())
    });
    println!("at most {most} sessions of 5");
    assert!((4..=5).contains(&most), "{most} sessions");
    let states: Vec<_> = ids.iter().filter_map(|id| database.finished(*id)).map(|row| row["state"].clone()).collect();
    assert!(states.iter().all(|state| state == "DONE"), "{states:?}");
}

#[test]
fn a_server_without_room_makes_tasks_wait_and_none_fail() {
    let cluster = Cluster::configure().max_connections(12).setting("superuser_reserved_connections", "3").start();
    let database = cluster.database();
    let supervisor = Supervisor::of(&database).start();
    supervisor.eventually("the row is served", || supervisor.log_contains("queue served"));
    // eight for everybody else; the launcher and the scheduler have two of nine
    let mut others = Vec::new();
    while let Ok(client) = cluster.server().try_connect(database.owner(), database.name()) {
        others.push(client);
    }
    let mut client = database.connect_superuser();
    let mark = supervisor.log().mark();
    let ids: Vec<i64> = (0..4)
        .map(|_| {
            client
                .query_one("INSERT INTO public.task (input) VALUES ('SELECT 1') RETURNING id", &[])
                .expect("insert")
                .get(0)
        })
        .collect();
    steadily("nothing fails", Duration::from_secs(6), || {
        let sql = "SELECT count(*) FROM public.task WHERE state NOT IN ('PLAN', 'TAKE', 'WORK')";
        client.query_one(sql, &[]).expect("the query").get::<_, i64>(0) == 0
    });
    drop(others);
    let done = "SELECT count(*) FROM public.task WHERE id = ANY ($1) AND state = 'DONE'";
    supervisor
        .wait("all are done")
        .within(Duration::from_secs(10))
        .until(|| client.query_one(done, &[&ids]).expect("the query").get::<_, i64>(0) == 4);
    let lines = supervisor.log().since(mark);
    let about =
        lines.iter().filter(|line| line.contains("53300") || line.contains("waits") || line.contains("served again"));
    assert!((1..=3).contains(&about.count()), "{lines:#?}");
}

#[test]
fn a_refusal_of_pg_hba_and_a_changed_password_are_said_with_what_to_do_and_waited_for() {
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    database.set_password("first s3cret");
    let connect = cluster.server().conninfo_tcp(database.login(), "first s3cret");
    let supervisor = Supervisor::of(&database).key("connect", json!(connect)).start();
    let id = database.insert("SELECT 1");
    supervisor.finished(&database, id);
    let scheduler = supervisor.schedulers().first().map(|child| child.pid).expect("a scheduler");
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pg\\_%'";

    let reject = format!("host all \"{}\" 127.0.0.1/32 reject", database.owner());
    let mark = supervisor.log().mark();
    cluster.set_hba(&[&reject]);
    database.run(cut);
    let told = |mark: usize, text: &str| supervisor.log().since(mark).iter().any(|line| line.contains(text));
    supervisor.eventually("it names pg_hba", || {
        let status = supervisor.status()?;
        status["databases"][0]["why"].as_str()?.contains("pg_hba.conf").then_some(())
    });
    supervisor.eventually("the log says so", || told(mark, "pg_hba.conf"));
    cluster.set_hba(&[]);
    supervisor.wait("served again").within(Duration::from_secs(25)).until(|| told(mark, "queue served again"));

    let mark = supervisor.log().mark();
    database.set_password("second s3cret");
    database.run(cut);
    supervisor.eventually("it names the password", || told(mark, "set the right password"));
    database.set_password("first s3cret");
    supervisor.wait("served again").within(Duration::from_secs(25)).until(|| told(mark, "queue served again"));
    let id = database.insert("SELECT 2");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    assert_eq!(supervisor.schedulers().first().map(|child| child.pid), Some(scheduler), "the same process");
    let all = format!("{}\n{}", supervisor.log().lines().join("\n"), supervisor.status().unwrap_or_default());
    assert!(!all.contains("s3cret"), "no secret is told");
}

#[test]
fn a_repaired_password_file_needs_no_restart() {
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    database.set_password("s3cret");
    let connect = format!("host=127.0.0.1 port={} user={}", cluster.server().port, database.login());
    let supervisor = Supervisor::of(&database).key("connect", json!(connect)).launch();
    supervisor.eventually("it says that there is no password", || supervisor.log_contains("password missing"));
    let file = supervisor.home().join(".pgpass");
    fs::write(&file, "*:*:*:*:s3cret\n").expect("write a password file");
    supervisor.wait("it says that the file is too open").within(Duration::from_secs(25)).until(|| {
        let why = supervisor.status().and_then(|status| Some(status["why"].as_str()?.to_owned()));
        why.is_some_and(|why| why.contains("chmod 600"))
    });
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("mode of the file");
    supervisor.wait("it is served").within(Duration::from_secs(25)).until(|| supervisor.log_contains("queue served"));
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
}

#[test]
fn a_stand_by_is_waited_for_and_served_once_it_is_promoted() {
    let primary = Cluster::start();
    let database = primary.database();
    let standby = Cluster::standby_of(&primary, false);
    let connect = standby.server().conninfo(database.login());
    let supervisor = Supervisor::of(&database).key("connect", json!(connect)).launch();
    supervisor.eventually("it says that it waits", || supervisor.log_contains("standby; waiting for its promotion"));
    assert!(supervisor.schedulers().is_empty());
    standby.promote();
    supervisor.eventually("it is served", || supervisor.log_contains("queue served"));
    let mut client = standby.server().try_connect(database.owner(), database.name()).expect("the new primary");
    let id: i64 = client
        .query_one("INSERT INTO public.task (input) VALUES ('SELECT 1') RETURNING id", &[])
        .expect("insert")
        .get(0);
    supervisor.eventually("the task is done", || {
        let row = client.query_one("SELECT state::text FROM public.task WHERE id = $1", &[&id]).expect("the query");
        row.get::<_, String>(0) == "DONE"
    });
}

#[test]
fn after_a_switch_over_the_other_host_is_served() {
    let primary = Cluster::start();
    let database = primary.database();
    let standby = Cluster::standby_of(&primary, false);
    let (one, two) = (primary.server(), standby.server());
    let connect = format!(
        "host={},{} port={},{} user={} target_session_attrs=read-write",
        one.socket_folder.display(),
        two.socket_folder.display(),
        one.port,
        two.port,
        conninfo_quote(database.login())
    );
    let supervisor = Supervisor::of(&database).key("connect", json!(connect)).start();
    let id = database.insert("SELECT 1");
    supervisor.finished(&database, id);
    let mark = supervisor.log().mark();
    primary.stop(ShutdownMode::Fast);
    standby.promote();
    supervisor
        .wait("the other host is served")
        .within(Duration::from_secs(20))
        .until(|| supervisor.log().since(mark).iter().any(|line| line.contains("queue served again")));
}

#[test]
fn secrets_stand_nowhere_but_in_the_memory_of_those_who_log_in() {
    let cluster = Cluster::configure().tcp().start();
    let database = cluster.database();
    let secret = "s3cretissimo";
    database.set_password(secret);
    let connect = cluster.server().conninfo_tcp(database.login(), secret);
    let supervisor = Supervisor::of(&database).key("connect", json!(connect)).arg("--log-level").arg("debug").start();
    let id = database.insert("SELECT pg_sleep(2)");
    supervisor.eventually("a worker runs it", || !supervisor.workers().is_empty());
    supervisor.eventually("cells are accepted", || database.task(id).is_some_and(|row| row["state"] == "WORK"));
    // the region is a memfd: what it holds is what a core dump of it would show
    let region = |pid: i32| {
        fs::read_dir(format!("/proc/{pid}/fd")).ok().into_iter().flatten().flatten().find_map(|entry| {
            let link = fs::read_link(entry.path()).ok()?;
            link.to_string_lossy().contains("memfd:pgmill").then(|| fs::read(entry.path()).ok()).flatten()
        })
    };
    supervisor.eventually("the cells are wiped", || {
        let bytes = region(supervisor.pid()).expect("the region");
        !bytes.windows(secret.len()).any(|part| part == secret.as_bytes())
    });
    let titles: String = supervisor.children().iter().map(|child| child.title.clone()).collect();
    let status = supervisor.command(&["status", "--json"]);
    let shown = format!("{titles}{}{}", String::from_utf8_lossy(&status.stdout), supervisor.log().lines().join("\n"));
    assert!(!shown.contains(secret));
    for child in supervisor.children() {
        let environment = fs::read(format!("/proc/{}/environ", child.pid)).unwrap_or_default();
        assert!(!environment.windows(secret.len()).any(|part| part == secret.as_bytes()));
    }
}

/// A row that is due and may not start must not keep its launcher awake.
#[test]
fn a_launcher_sleeps_while_somebody_works_on_a_database_of_its_own() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let supervisor = Supervisor::of(&database).start();
    supervisor.finished(&database, database.insert("SELECT 1"));
    let mut root = cluster.connect("postgres");
    database.leave();
    let renaming = format!("BEGIN; ALTER DATABASE {} RENAME TO renamed", database.name());
    root.batch_execute(&renaming).expect("its scheduler makes room");
    supervisor.eventually("nobody serves it", || supervisor.schedulers().is_empty());
    let (before, began) = (cpu_s(supervisor.pid()), Instant::now());
    steadily("it waits", Duration::from_secs(3), || supervisor.schedulers().is_empty());
    let (spent, took) = (cpu_s(supervisor.pid()) - before, began.elapsed().as_secs_f64());
    // A busy loop takes all it can get.
    assert!(spent < 0.1 * took, "{spent} s of CPU in {took} s");
    root.batch_execute("ROLLBACK").expect("let go");
    supervisor.finished(&database, database.insert("SELECT 1"));
}
