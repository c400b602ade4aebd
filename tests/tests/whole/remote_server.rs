//! The other server of the tests of remote tasks, and helpers that start a task there and look at its session.

use std::sync::OnceLock;

use serde_json::Value;
use tests::cluster::conninfo_quote;
use tests::{Cluster, Database, Supervisor};

pub const PASSWORD: &str = "s3cret w'ord";

/// The other server of all tests that do not restart it.
pub fn far_cluster() -> &'static Cluster {
    static FAR: OnceLock<Cluster> = OnceLock::new();
    FAR.get_or_init(|| Cluster::configure().tcp().start())
}

pub fn far_database(cluster: &Cluster) -> Database {
    let far = cluster.database();
    far.set_password(PASSWORD);
    far
}

pub fn conninfo_at(far: &Database, port: u16) -> String {
    let (user, password) = (conninfo_quote(far.owner()), conninfo_quote(PASSWORD));
    format!("host=127.0.0.1 port={port} dbname={} user={user} password={password}", far.name())
}

pub fn conninfo(far: &Database) -> String {
    conninfo_at(far, far.server().port)
}

/// A column of an insert.
pub fn remote(conninfo: &str) -> String {
    format!("remote = '{}'", conninfo.replace('\'', "''"))
}

/// Over for this task, at home; the row.
#[track_caller]
pub fn run(mill: &Supervisor<'_>, home: &Database, input: &str, columns: &str) -> Value {
    let id = home.insert_with(input, columns);
    mill.finished(home, id)
}

/// The task runs, and its far backend is known.
#[track_caller]
pub fn running(mill: &Supervisor<'_>, home: &Database, id: i64) -> i32 {
    mill.eventually("it runs on its remote", || {
        let row = home.task(id).filter(|row| row["state"] == "WORK")?;
        row["pid"].as_i64().map(|pid| pid as i32)
    })
}

/// Waits until that far backend works on something.
#[track_caller]
pub fn working(mill: &Supervisor<'_>, home: &Database, far: &Database, id: i64) -> i32 {
    let pid = running(mill, home, id);
    mill.eventually("its input runs there", || {
        let sql = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND wait_event = 'PgSleep'";
        far.query(sql, &[&pid]).is_some_and(|rows| !rows.is_empty())
    });
    pid
}

pub fn is_there(far: &Database, backend: i32) -> bool {
    far.query("SELECT 1 FROM pg_stat_activity WHERE pid = $1", &[&backend]).is_none_or(|rows| !rows.is_empty())
}

pub fn why(home: &Database, id: i64) -> String {
    home.query("SELECT mill.why($1::bigint)", &[&id]).map_or(String::new(), |rows| rows[0].get(0))
}

/// Nowhere in log, titles and rows.
#[track_caller]
pub fn no_password(mill: &Supervisor<'_>, home: &Database) {
    let log = mill.log().lines().join("\n");
    assert!(!log.contains("s3cret"), "{log}");
    assert!(mill.children().iter().all(|child| !child.title.contains("s3cret")));
    for row in home.tasks() {
        assert!(!format!("{}{}", row["output"], row["error"]).contains("s3cret"), "{row}");
    }
}
