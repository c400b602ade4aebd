//! A pooler between pgmill and the server: sessions assigned by session work, sessions assigned by transaction are found out
//! and refused with a sentence.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tests::dialect::{ConninfoFiles, leads};
use tests::guardian::Guardian;
use tests::server_programs::ServerUser;
use tests::{Cluster, Database, Supervisor, eventually};

/// A pgbouncer of the test's own.
struct Pooler {
    child: Child,
    port: u16,
    _guardian: Guardian,
}

impl Pooler {
    /// None, said aloud, where pgbouncer is not installed.
    fn start(cluster: &Cluster, mode: &str) -> Option<Pooler> {
        let program =
            ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].map(PathBuf::from).into_iter().find(|path| path.exists());
        let Some(program) = program else {
            tests::skip("a test behind a pooler", "pgbouncer is not installed (scripts/test installs it where it may)");
            return None;
        };
        let user = ServerUser::find();
        let guardian = Guardian::start(&user, "");
        let home = guardian.home().to_owned();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let server = cluster.server();
        let text = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}/users\npool_mode = {mode}\nlogfile = {}/log\n\
             pidfile = {}/pid\n",
            server.socket_folder.display(),
            server.port,
            home.display(),
            home.display(),
            home.display(),
        );
        fs::write(home.join("ini"), text).expect("write a config");
        let mut roles = cluster.connect("postgres");
        let roles = roles.query("SELECT rolname FROM pg_roles", &[]).expect("roles");
        let users: String = roles.iter().map(|row| format!("\"{}\" \"\"\n", row.get::<_, String>(0))).collect();
        fs::write(home.join("users"), users).expect("write users");
        let mut command = Command::new(program);
        command.arg(home.join("ini")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        user.become_it(&mut command);
        let child = command.spawn().expect("start pgbouncer");
        let pooler = Pooler { child, port, _guardian: guardian };
        eventually("pgbouncer listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(pooler)
    }

    fn connect(&self, user: &str) -> String {
        format!("host=127.0.0.1 port={} user={user} sslmode=disable", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn database() -> (&'static Cluster, Database) {
    let cluster = Cluster::shared();
    (cluster, cluster.database())
}

#[test]
fn behind_a_pooler_by_session_tasks_run_and_are_cancelled() {
    let (cluster, database) = database();
    let Some(pooler) = Pooler::start(cluster, "session") else { return };
    let supervisor = Supervisor::of(&database).key("connect", json!(pooler.connect(database.login()))).start();
    let interval = "SELECT current_setting('client_connection_check_interval')";
    let id = database.insert(interval);
    let row = supervisor.finished(&database, id);
    assert_eq!((&row["state"], &row["output"]), (&json!("DONE"), &json!("300ms")), "our settings hold there too");
    let id = database.insert_with("SELECT pg_sleep(60)", "timeout = '300 ms'");
    let row = supervisor.finished(&database, id);
    assert_eq!((&row["state"], &row["reason"]), (&json!("FAIL"), &json!("timeout")), "{row}");
}

#[test]
fn behind_a_pooler_by_transaction_it_refuses_and_says_why() {
    let (cluster, database) = database();
    let Some(pooler) = Pooler::start(cluster, "transaction") else { return };
    let supervisor = Supervisor::of(&database).key("connect", json!(pooler.connect(database.login()))).start();
    supervisor.eventually("it says why", || supervisor.log_contains("transaction-pooling proxy"));
    let status = supervisor.status().expect("it answers");
    assert!(status["why"].as_str().is_some_and(|why| why.contains("pool_mode=session")), "{status}");
    assert!(supervisor.schedulers().is_empty(), "nothing is started there");
    let said = supervisor.log().lines().iter().filter(|line| line.contains("transaction-pooling")).count();
    assert_eq!(said, 1, "once");
}

#[test]
fn a_row_behind_a_pooler_by_transaction_waits_and_the_others_work() {
    let (cluster, database) = database();
    let other = cluster.database();
    let Some(pooler) = Pooler::start(cluster, "transaction") else { return };
    let row = json!({"data": other.name(), "user": other.owner(), "connect": pooler.connect(other.owner())});
    let supervisor = Supervisor::of(&database).queue(row).start();
    let id = database.insert("SELECT 1");
    supervisor.finished(&database, id);
    supervisor.eventually("status tells the row's reason", || {
        let status = supervisor.status()?;
        let rows = status["databases"].as_array()?.clone();
        let row = rows.into_iter().find(|row| row["data"] == other.name())?;
        row["why"].as_str()?.contains("transaction-pooling").then_some(())
    });
}

#[test]
fn a_session_of_ones_own_is_proven_by_a_second_connection() {
    let (cluster, database) = database();
    let mut files = ConninfoFiles::new(env!("CARGO_BIN_EXE_dial"));
    files.word("who", database.owner());
    files.word("where", database.name());
    files.word("direct", cluster.server().port);
    files.word("socket", cluster.home().display());
    let direct = leads("host={socket} port={direct} user={who} dbname={where}").env("DIAL_DOUBTFUL", "1");
    let [link, worker] = files.ours(&direct);
    assert!(!link.starts_with('-') && !worker.starts_with('-'), "{link} {worker}");
    for (mode, fine) in [("session", true), ("transaction", false)] {
        let Some(pooler) = Pooler::start(cluster, mode) else { return };
        files.word(mode, pooler.port);
        let case = format!("host=127.0.0.1 port={{{mode}}} user={{who}} dbname={{where}} sslmode=disable");
        let [link, worker] = files.ours(&leads(&case).env("DIAL_DOUBTFUL", "1"));
        assert_eq!(link.starts_with('-'), !fine, "{mode}: {link}");
        assert!(!worker.starts_with('-'), "a worker asks nothing: {worker}");
    }
}
