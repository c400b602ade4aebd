//! The queue in the database: made if it is missing, checked if it is there, held while we serve it.
//!
//! Called once per session of the scheduler, before the first take. Nothing is changed when nothing has to be; what
//! has to be made is made in one transaction under a lock timeout. What can go wrong is said as `Trouble`, in a
//! sentence that tells the operator what to do; the scheduler tries again later.

use shared::config::ColumnDefaults;
use shared::db::lock_key;
use shared::db::statement::{self, Queue};
use shared::db::trouble::{Trouble, TroubleKind};
use std::rc::Rc;
use tokio_postgres::{Client, Row, Statement};

/// What the statements read and write; a table that lacks one of them cannot be served.
const NEEDED: [&str; 39] = [
    "id",
    "parent",
    "plan",
    "start",
    "stop",
    "active",
    "live",
    "repeat",
    "timeout",
    "count",
    "hash",
    "max",
    "pid",
    "state",
    "delete",
    "drift",
    "header",
    "save",
    "string",
    "delimiter",
    "escape",
    "quote",
    "data",
    "error",
    "output",
    "group",
    "input",
    "null",
    "remote",
    "attempt",
    "priority",
    "held",
    "job",
    "at",
    "epoch",
    "run_of",
    "failures",
    "reason",
    "atomic",
];
const LOCK_TIMEOUT: &str = "2s";

/// The statements of the loop, prepared once per session.
#[derive(Debug)]
pub struct Prepared {
    pub expire: Statement,
    pub take: Statement,
    pub look: Statement,
    pub end_backend: Statement,
    pub plan_again: Statement,
    pub unfinished: Statement,
}

/// What preparing came to.
#[derive(Debug)]
pub enum Readiness {
    Ready {
        statements: Rc<Prepared>,
        unfinished: Vec<(i64, i32)>,
        superuser: bool,
        backend: i32,
    },
    /// Another scheduler holds the queue.
    HeldElsewhere,
}

pub async fn prepare(client: Rc<Client>, queue: Queue, defaults: ColumnDefaults) -> Result<Readiness, Trouble> {
    let mut found = look(&client, &queue).await?;
    if found.get::<_, bool>("standby") {
        return Err(Trouble::passing("the server is a stand-by; waiting for its promotion"));
    }
    if found.get::<_, Option<u32>>("relid").is_none() {
        make(&client, &queue, &defaults, &found).await?;
        found = look(&client, &queue).await?;
    }
    let relid = checked(&queue, &found)?;
    let held: bool =
        ask_one(&client, &queue.fill(statement::HOLD_QUEUE), &[&lock_key::QUEUE, &relid]).await?.get("held");
    if !held {
        return Ok(Readiness::HeldElsewhere);
    }
    let statements = Prepared {
        expire: prepared(&client, &queue, statement::EXPIRE_TASKS).await?,
        take: prepared(&client, &queue, statement::TAKE_TASKS).await?,
        look: prepared(&client, &queue, statement::LOOK_TASK).await?,
        end_backend: prepared(&client, &queue, statement::END_BACKEND).await?,
        plan_again: prepared(&client, &queue, statement::PLAN_AGAIN).await?,
        unfinished: prepared(&client, &queue, statement::LIST_UNFINISHED).await?,
    };
    let unfinished = unfinished(&client, &statements).await?;
    let superuser = found.get("superuser");
    Ok(Readiness::Ready { statements: Rc::new(statements), unfinished, superuser, backend: found.get("backend") })
}

pub async fn unfinished(client: &Client, statements: &Prepared) -> Result<Vec<(i64, i32)>, Trouble> {
    let rows = client.query(&statements.unfinished, &[]).await.map_err(|error| Trouble::of(&error))?;
    Ok(rows.iter().map(|row| (row.get("id"), row.get("attempt"))).collect())
}

async fn look(client: &Client, queue: &Queue) -> Result<Row, Trouble> {
    ask_one(client, &queue.fill(statement::LOOK_QUEUE), &[]).await
}

/// The table's OID, or why it cannot be served.
fn checked(queue: &Queue, found: &Row) -> Result<u32, Trouble> {
    let refuse = |text: String| Trouble { kind: TroubleKind::Standing, text };
    let Some(relid) = found.get::<_, Option<u32>>("relid") else {
        return Err(Trouble::passing(format!("table {} vanished while it was looked at", queue.fill("{queue}"))));
    };
    let kind: String = found.get("kind");
    if kind != "r" && kind != "p" {
        return Err(refuse(format!("{} is not a table; choose another name for the queue", queue.fill("{queue}"))));
    }
    if found.get("guarded") {
        return Err(refuse(format!(
            "row security of {} applies to this user, so it would not see all tasks; give it BYPASSRLS or another table",
            queue.fill("{queue}")
        )));
    }
    let columns: Vec<String> = found.get("columns");
    let missing: Vec<&str> = NEEDED.into_iter().filter(|name| !columns.iter().any(|column| column == name)).collect();
    if !missing.is_empty() {
        return Err(refuse(format!(
            "table {} is not a task table: it lacks {}; rename it, or choose another name for the queue",
            queue.fill("{queue}"),
            missing.join(", ")
        )));
    }
    Ok(relid)
}

/// Makes what is missing, all or nothing; two makers at once wait for each other.
async fn make(client: &Client, queue: &Queue, defaults: &ColumnDefaults, found: &Row) -> Result<(), Trouble> {
    let mut script = format!("BEGIN; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; ");
    script += &format!("SELECT pg_catalog.pg_advisory_xact_lock({}, 0); ", lock_key::INSTALL);
    if found.get::<_, Option<u32>>("schema").is_none() {
        script += &format!("{}; ", queue.fill(statement::MAKE_SCHEMA));
    }
    if found.get::<_, Option<u32>>("state").is_none() {
        script += &format!("{}; ", queue.fill(statement::MAKE_STATE));
    }
    script += &format!("{}; ", queue.fill_make_table(defaults));
    script += &queue.fill(statement::MAKE_INDEXES);
    script += &queue.fill(statement::COMMENT_TABLE);
    script += "COMMIT";
    client.batch_execute(&script).await.map_err(|error| {
        let trouble = Trouble::of(&error);
        Trouble { text: format!("cannot make table {}: {}", queue.fill("{queue}"), trouble.text), ..trouble }
    })?;
    shared::info!("table made", table = queue.fill("{queue}"));
    Ok(())
}

async fn prepared(client: &Client, queue: &Queue, text: &str) -> Result<Statement, Trouble> {
    client.prepare(&queue.fill(text)).await.map_err(|error| Trouble::of(&error))
}

async fn ask_one(
    client: &Client,
    text: &str,
    parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
) -> Result<Row, Trouble> {
    client.query_one(text, parameters).await.map_err(|error| Trouble::of(&error))
}
