//! A task that sleeps long the first time and not at all the second, and a ledger that
//! tells which backends have run it and whether they were alone: what the tests of
//! interruptions have in common. Nothing here waits for a time, only for events.

use serde_json::Value;
use tests::{Database, Supervisor};

/// Longer than any test: whoever waits for its end instead of ending it is found out.
const FIRST_RUN_SECONDS: u32 = 120;

/// Makes the ledger as the queue's user.
pub fn open(database: &Database) {
    let table = "CREATE TABLE ledger (pid int, alone bool)";
    database.connect().batch_execute(table).expect("the owner may make tables");
}

/// Signs the ledger, then sleeps if it was the first to sign. The lock is the session's:
/// a second run that gets it knows that the first one's session is gone.
pub fn input() -> String {
    format!(
        "BEGIN;INSERT INTO ledger SELECT pg_backend_pid(), pg_try_advisory_lock(4711);COMMIT;\
         SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM ledger) = 1 THEN {FIRST_RUN_SECONDS} ELSE 0 END)"
    )
}

/// Backends that have signed so far, and whether each was alone.
pub fn entries(database: &Database) -> Vec<(i32, bool)> {
    let rows = database.query("SELECT pid, alone FROM ledger", &[]).unwrap_or_default();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Inserts the task and waits until it sleeps; gives id and backend.
#[track_caller]
pub fn begin(supervisor: &Supervisor<'_>, database: &Database) -> (i64, i32) {
    let id = database.insert(&input());
    (id, running(supervisor, database, id))
}

/// Waits until the task has signed and sleeps; gives its backend.
#[track_caller]
pub fn running(supervisor: &Supervisor<'_>, database: &Database, id: i64) -> i32 {
    supervisor.eventually("the task sleeps", || {
        let row = database.task(id).filter(|row| row["state"] == "WORK")?;
        let pid = row["pid"].as_i64()? as i32;
        entries(database).contains(&(pid, true)).then_some(pid)
    })
}

/// Waits until the task is done, and checks that it was run this often, never twice at once.
#[track_caller]
pub fn ended(supervisor: &Supervisor<'_>, database: &Database, id: i64, runs: usize) -> Value {
    let row = supervisor.finished(database, id);
    assert_eq!((&row["state"], &row["error"]), (&"DONE".into(), &Value::Null), "{}", supervisor.describe());
    let entries = entries(database);
    assert_eq!(entries.len(), runs, "{entries:?}");
    assert!(entries.iter().all(|(_, alone)| *alone), "two runs at once: {entries:?}");
    row
}

/// Is a session of that backend still there?
pub fn is_connected(database: &Database, backend: i32) -> bool {
    let rows = database.query("SELECT 1 FROM pg_stat_activity WHERE pid = $1", &[&backend]);
    rows.is_none_or(|rows| !rows.is_empty())
}

/// Waits until exactly these kinds of processes hold slots, such as `["launcher", "scheduler"]`.
#[track_caller]
pub fn slots_held_by(supervisor: &Supervisor<'_>, kinds: &[&str]) {
    supervisor.eventually("the slots are held by what runs", || {
        let status = supervisor.status()?;
        let holders = status["slots"]["holders"].as_array()?;
        let mut found: Vec<&str> = holders.iter().filter_map(|holder| holder["kind"].as_str()).collect();
        found.sort_unstable();
        let reserved = holders.iter().any(|holder| holder["reserved"] == true);
        (found == kinds && !reserved && status["slots"]["used"] == kinds.len()).then_some(())
    });
}
