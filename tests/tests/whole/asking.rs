//! What the stories ask the database again and again, in a word each.

use std::time::Duration;

use postgres::Client;
use postgres::types::{FromSqlOwned, ToSql};
use shared::db::lock_key;
use tests::database::quote_ident;
use tests::{Database, Supervisor};

/// The first column of the one row that a query of the superuser gives.
#[track_caller]
pub fn one<T: FromSqlOwned>(database: &Database, sql: &str) -> T {
    one_with(database, sql, &[])
}

#[track_caller]
pub fn one_with<T: FromSqlOwned>(database: &Database, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> T {
    let rows = database.look(sql, parameters).unwrap_or_else(|| panic!("nobody answers {sql}"));
    rows.first().unwrap_or_else(|| panic!("no row from {sql}")).get(0)
}

/// The first column of every row.
#[track_caller]
pub fn all<T: FromSqlOwned>(database: &Database, sql: &str) -> Vec<T> {
    let rows = database.look(sql, &[]).unwrap_or_else(|| panic!("nobody answers {sql}"));
    rows.iter().map(|row| row.get(0)).collect()
}

/// The state of a task, or "none".
#[track_caller]
pub fn state(database: &Database, id: i64) -> String {
    database.task(id).map_or_else(|| "none".to_owned(), |row| row["state"].as_str().unwrap_or_default().to_owned())
}

/// Waits until a task runs; gives the server process that runs it.
#[track_caller]
pub fn running(mill: &Supervisor<'_>, database: &Database, id: i64) -> i32 {
    mill.eventually("the task runs", || {
        let row = database.task(id)?;
        // A row may be begun a moment before its worker is forked.
        if row["state"] != "WORK" || mill.workers().is_empty() {
            return None;
        }
        i32::try_from(row["pid"].as_i64()?).ok()
    })
}

/// Waits until a condition on the task table holds for all of its rows (and there is one).
#[track_caller]
pub fn all_are(mill: &Supervisor<'_>, database: &Database, condition: &str, seconds: u64) {
    let sql = format!("SELECT count(*) > 0 AND bool_and({condition}) FROM public.task");
    mill.wait(&format!("all tasks are so that {condition}"))
        .within(Duration::from_secs(seconds))
        .until(|| database.look(&sql, &[]).is_some_and(|rows| rows[0].get::<_, Option<bool>>(0) == Some(true)));
}

/// How many tasks that meet the condition ran at the same moment, at most: a sweep over their starts and ends.
#[track_caller]
pub fn most_at_once(database: &Database, condition: &str) -> i64 {
    one(
        database,
        &format!(
            "SELECT coalesce(max(n), 0)::bigint \
               FROM (SELECT sum(step) OVER (ORDER BY at, step ROWS UNBOUNDED PRECEDING) AS n \
                       FROM (SELECT start AS at, 1 AS step FROM public.task \
                              WHERE start < coalesce(stop, 'infinity') AND ({condition}) \
                             UNION ALL SELECT stop, -1 FROM public.task WHERE start < stop AND ({condition})) AS m) AS s"
        ),
    )
}

/// A setting of the row user in its database.
#[track_caller]
pub fn set_for_owner(database: &Database, name: &str, value: &str) {
    database.run(&format!(
        "ALTER ROLE {} IN DATABASE {} SET {name} = '{value}'",
        quote_ident(database.owner()),
        quote_ident(database.name())
    ));
}

/// What a session says about a statement that it refuses.
#[track_caller]
pub fn refusal(client: &mut Client, sql: &str) -> String {
    let error = client.batch_execute(sql).expect_err("it should be refused");
    let said = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    format!("{} {}", said.code().code(), said.message())
}

/// The worker process that is at this task, by its title.
pub fn worker_of(mill: &Supervisor<'_>, id: i64) -> Option<i32> {
    let end = format!("#{id}");
    mill.workers().into_iter().find(|worker| worker.title.ends_with(&end)).map(|worker| worker.pid)
}

/// Time itself is the event, for this reason. Where something must stay as it is, use `steadily`; else wait for an event.
pub fn linger(duration: Duration, reason: &str) {
    tests::steadily(reason, duration, || true);
}

/// Waits until the scheduler of the queue `public.task` sleeps: it holds the lock by which an insert finds that out.
#[track_caller]
pub fn wait_until_asleep(mill: &Supervisor<'_>, database: &Database) {
    let held = "SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                 WHERE l.locktype = 'advisory' AND l.classid::bigint = $1 AND l.objid = 'public.task'::regclass \
                   AND l.mode = 'ExclusiveLock' AND l.granted AND d.datname = current_database()";
    mill.eventually("the scheduler sleeps", || {
        database.look(held, &[&i64::from(lock_key::BELL)]).is_some_and(|rows| !rows.is_empty())
    });
}

/// Tasks whose workers were killed twice in a row wait for their next attempt; those that a test kills at random need not.
pub fn forgive(database: &Database) {
    let sql = "WITH gone AS (UPDATE public.task SET crashes = 0, plan = now() WHERE crashes > 1 AND state = 'PLAN' RETURNING 1) \
               SELECT count(*) FROM gone";
    let _ = database.look(sql, &[]);
}
