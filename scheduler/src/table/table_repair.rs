//! The steps of `table_plan`, done: the reshape before the queue is served, the repairs beside it.
//!
//! DDL that waits for a lock makes everybody else wait behind it. So nothing is even tried while somebody's
//! transaction stands in its way for longer than a moment (a running pg_dump), and what is tried gives up after
//! `LOCK_TIMEOUT`. The reshape is then tried again with the session; the repairs are left for later, and the queue is
//! served meanwhile. A step that the server refuses for good is said once and left alone until the next session.

use crate::table::defaults as column_defaults;
use crate::table::index_place::IndexPlace;
use crate::table::lock_holder::holder;
use crate::table::shape::{self, Shape};
use crate::table::table_plan::{self, Repair, Reshape, SMALL_BYTES, TablePlan, TableRefusal};
use shared::config::ColumnDefaults;
use shared::db::db_error::{DbError, DbErrorKind};
use shared::db::identifier::{qualified, quoted};
use shared::db::lock_key;
use shared::db::statement::{self, Queue};
use shared::db::task_column::task_column;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

const LOCK_TIMEOUT: &str = "2s";
/// An index built beside writers ends only when all older transactions have; that wait stands in nobody's way.
const BUILD_TIMEOUT: &str = "10min";
const HASHES_AT_ONCE: i64 = 10_000;

/// What came of the repairs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    pub done: Vec<String>,
    /// Why something is left for later.
    pub later: Option<String>,
    /// What the server refused.
    pub failed: Vec<String>,
}

/// Makes the table one that can be served; whether something is left to repair beside the service.
pub async fn reshape(client: &Client, queue: &Queue, defaults: &ColumnDefaults) -> Result<bool, DbError> {
    let shape = shape::read(client, queue).await?;
    let plan = planned(&shape, queue, defaults)?;
    if plan.labels.is_empty() && plan.reshape.is_empty() {
        return Ok(!plan.repairs.is_empty());
    }
    let named = |error: tokio_postgres::Error| {
        let db_error = DbError::of(&error);
        DbError { text: format!("cannot take over table {}: {}", queue.fill("{queue}"), db_error.text), ..db_error }
    };
    if !plan.labels.is_empty() {
        let labels = plan
            .labels
            .iter()
            .map(|label| format!("ALTER TYPE {} ADD VALUE IF NOT EXISTS '{label}'; ", plan.state_type));
        alter(client, &alone(&labels.collect::<String>())).await.map_err(named)?;
    }
    if !plan.reshape.is_empty() {
        if let Some(holder) = holder(client, shape.relid, true).await? {
            let text =
                format!("cannot take over table {}: {holder} locks it; waiting for its end", queue.fill("{queue}"));
            return Err(DbError { kind: DbErrorKind::Statement, text });
        }
        let steps = plan.reshape.iter().map(|step| format!("{}; ", reshape_text(step, queue)));
        alter(client, &alone(&steps.collect::<String>())).await.map_err(named)?;
    }
    shared::info!("table taken over", table = queue.fill("{queue}"), steps = told(&plan));
    let shape = shape::read(client, queue).await?;
    Ok(!planned(&shape, queue, defaults)?.repairs.is_empty())
}

/// Does what can be done now. Runs on a session of its own: an index may take long.
pub async fn repair(client: &Client, queue: &Queue, defaults: &ColumnDefaults) -> Result<Repaired, DbError> {
    let shape = shape::read(client, queue).await?;
    let plan = planned(&shape, queue, defaults)?;
    let mut repaired = Repaired::default();
    for step in &plan.repairs {
        match repair_one(client, queue, &shape, step).await {
            Ok(Some(done)) => repaired.done.push(done),
            Ok(None) => {}
            Err(Hitch::Later(why)) => repaired.later = Some(why),
            Err(Hitch::Refused(why)) => repaired.failed.push(why),
            Err(Hitch::Lost(db_error)) => return Err(db_error),
        }
    }
    if !column_defaults::align(client, queue, defaults).await? {
        repaired.later.get_or_insert_with(|| "column defaults of the config not changed yet".to_owned());
    }
    Ok(repaired)
}

enum Hitch {
    Later(String),
    Refused(String),
    Lost(DbError),
}

impl From<DbError> for Hitch {
    fn from(db_error: DbError) -> Hitch {
        Hitch::Lost(db_error)
    }
}

async fn repair_one(client: &Client, queue: &Queue, shape: &Shape, step: &Repair) -> Result<Option<String>, Hitch> {
    match step {
        Repair::MakeTriggers { former } => {
            calm(client, shape, !former.is_empty()).await?;
            let table = queue.fill("{queue}");
            let drops: String = former.iter().map(|name| format!("; DROP TRIGGER {name} ON {table}")).collect();
            run(client, &alone(&format!("{}{drops}", queue.fill_make_triggers()))).await?;
            Ok(Some("wake-up triggers".to_owned()))
        }
        Repair::MakeHashTrigger => {
            calm(client, shape, false).await?;
            run(client, &alone(&queue.fill_make_hash_trigger())).await?;
            Ok(Some("hash trigger".to_owned()))
        }
        Repair::FillHash => fill_hash(client, queue).await,
        Repair::Index { place, broken } => {
            make_index(client, queue, shape, place, broken.as_deref()).await?;
            Ok(Some(format!("index {}", place.name)))
        }
        Repair::Check { column, condition, there } => check(client, queue, shape, column, condition, *there).await,
        Repair::Comment { columns } => {
            let table = queue.fill("{queue}");
            let bare = columns.iter().filter_map(|name| task_column(name));
            let script: String = bare.map(|column| format!("{}\n", column.comment_in(&table))).collect();
            run(client, &script).await?;
            Ok(Some("comments".to_owned()))
        }
    }
}

async fn fill_hash(client: &Client, queue: &Queue) -> Result<Option<String>, Hitch> {
    let missing = client.query_one(&queue.fill(statement::MISS_HASH), &[]).await.map_err(|error| hitch(&error))?;
    if !missing.get::<_, bool>("missing") {
        return Ok(None);
    }
    let mut filled = 0;
    loop {
        let text = queue.fill(statement::FILL_HASH);
        match client.execute(&text, &[&HASHES_AT_ONCE]).await.map_err(|error| hitch(&error))? {
            0 => return Ok(Some(format!("hash of {filled} row{}", if filled == 1 { "" } else { "s" }))),
            rows => filled += rows,
        }
    }
}

/// Rows that break a rule would refuse every change of theirs, ours too: then there is no rule.
async fn check(
    client: &Client,
    queue: &Queue,
    shape: &Shape,
    column: &str,
    condition: &str,
    there: bool,
) -> Result<Option<String>, Hitch> {
    let (table, rule) = (queue.fill("{queue}"), format!("{} {condition}", quoted(column)));
    let broken = format!("SELECT EXISTS (SELECT FROM {table} WHERE NOT ({rule})) AS broken");
    let broken = client.query_one(&broken, &[]).await.map_err(|error| hitch(&error))?;
    if broken.get::<_, bool>("broken") {
        return Err(Hitch::Refused(format!("rows violate the check {rule}; correct or delete them")));
    }
    let name = quoted(&format!("mill_check_{column}"));
    if !there {
        calm(client, shape, true).await?;
        run(client, &format!("ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({rule}) NOT VALID; ")).await?;
    }
    run(client, &format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}; ")).await?;
    Ok(Some(format!("check of {column}")))
}

async fn make_index(
    client: &Client,
    queue: &Queue,
    shape: &Shape,
    place: &IndexPlace,
    broken: Option<&str>,
) -> Result<(), Hitch> {
    let (table, definition) = (queue.fill("{queue}"), place.definition());
    if shape.bytes <= SMALL_BYTES {
        calm(client, shape, broken.is_some()).await?;
        let drop = broken.map(|name| format!("DROP INDEX {}; ", qualified(&queue.schema, name)));
        return run(client, &format!("{}CREATE INDEX ON {table} {definition}; ", drop.unwrap_or_default())).await;
    }
    if !shape.partitioned {
        if let Some(name) = broken {
            build(client, &format!("DROP INDEX CONCURRENTLY {}", qualified(&queue.schema, name))).await?;
        }
        return build(client, &format!("CREATE INDEX CONCURRENTLY ON {table} {definition}")).await;
    }
    let partitions = client.query(&queue.fill(statement::LIST_PARTITIONS), &[]).await.map_err(|error| hitch(&error))?;
    let parent_schemas: Vec<(u32, String)> = partitions.iter().map(|row| (row.get("oid"), row.get("schema"))).collect();
    for row in &partitions {
        let (oid, leaf): (u32, bool) = (row.get("oid"), row.get("leaf"));
        let (schema, name): (String, String) = (row.get("schema"), row.get("name"));
        let own = index_name(oid, place);
        let index = qualified(&schema, &own);
        let text = statement::bare(statement::READ_INDEX);
        let found = client.query_opt(&text, &[&schema, &own]).await.map_err(|error| hitch(&error))?;
        let (there, attached) =
            found.map_or((None, false), |row| (Some(row.get::<_, bool>("valid")), row.get("attached")));
        let on = qualified(&schema, &name);
        match (leaf, there) {
            (true, Some(false)) => {
                build(client, &format!("DROP INDEX CONCURRENTLY {index}")).await?;
                build(client, &format!("CREATE INDEX CONCURRENTLY {} ON {on} {definition}", quoted(&own))).await?;
            }
            (true, None) => {
                build(client, &format!("CREATE INDEX CONCURRENTLY {} ON {on} {definition}", quoted(&own))).await?;
            }
            (false, None) => run(client, &format!("CREATE INDEX {} ON ONLY {on} {definition}; ", quoted(&own))).await?,
            (true, Some(true)) | (false, Some(_)) => {}
        }
        let parent: Option<u32> = row.get("parent");
        let over = parent.and_then(|oid| parent_schemas.iter().find(|(parent, _)| *parent == oid));
        if let Some((parent, schema)) = over
            && !attached
        {
            let over = qualified(schema, &index_name(*parent, place));
            // The last index of a partition's partitions makes the server lock all tables above, from below; who reads
            // from above would meet it half-way. So the top is locked first.
            let lock = if *parent == shape.relid {
                String::new()
            } else {
                calm(client, shape, true).await?;
                format!("LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE; ")
            };
            run(client, &format!("{lock}ALTER INDEX {over} ATTACH PARTITION {index}; ")).await?;
        }
    }
    Ok(())
}

fn index_name(oid: u32, place: &IndexPlace) -> String {
    format!("mill_{oid}_{}", place.name)
}

async fn calm(client: &Client, shape: &Shape, strong: bool) -> Result<(), Hitch> {
    match holder(client, shape.relid, strong).await? {
        Some(who) => Err(Hitch::Later(format!("{who} locks the table"))),
        None => Ok(()),
    }
}

/// In one transaction that gives up soon. One message is one transaction, and an error leaves none open.
async fn alter(client: &Client, steps: &str) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {steps}")).await
}

async fn run(client: &Client, steps: &str) -> Result<(), Hitch> {
    alter(client, steps).await.map_err(|error| hitch(&error))
}

/// Types and functions belong to all queues of a schema: one session at a time.
fn alone(steps: &str) -> String {
    format!("SELECT pg_catalog.pg_advisory_xact_lock({}, 0); {steps}", lock_key::INSTALL)
}

/// A statement that must stand outside of a transaction.
async fn build(client: &Client, text: &str) -> Result<(), Hitch> {
    let set = format!("SET lock_timeout = '{BUILD_TIMEOUT}'");
    client.batch_execute(&set).await.map_err(|error| hitch(&error))?;
    client.batch_execute(text).await.map_err(|error| hitch(&error))
}

fn hitch(error: &tokio_postgres::Error) -> Hitch {
    let db_error = DbError::of(error);
    match error.code() {
        Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::T_R_DEADLOCK_DETECTED => {
            Hitch::Later(db_error.text)
        }
        _ if db_error.passes() => Hitch::Lost(db_error),
        _ => Hitch::Refused(db_error.text),
    }
}

fn planned(shape: &Shape, queue: &Queue, defaults: &ColumnDefaults) -> Result<TablePlan, DbError> {
    table_plan::plan(shape, queue, defaults).map_err(|TableRefusal(reasons)| DbError {
        kind: DbErrorKind::Standing,
        text: format!(
            "table {} cannot be served: {}; change the table, or choose another name for the queue",
            queue.fill("{queue}"),
            reasons.join("; ")
        ),
    })
}

fn reshape_text(step: &Reshape, queue: &Queue) -> String {
    let table = queue.fill("{queue}");
    match step {
        Reshape::AddColumn { name, definition } => {
            format!("ALTER TABLE {table} ADD COLUMN {} {definition}", quoted(name))
        }
        Reshape::SetDefault { name, expression } => {
            format!("ALTER TABLE {table} ALTER COLUMN {} SET DEFAULT {expression}", quoted(name))
        }
        Reshape::DropTrigger { name, function } => {
            let function = function.as_ref().map(|name| format!("; DROP FUNCTION {name}()")).unwrap_or_default();
            format!("DROP TRIGGER {} ON {table}{function}", quoted(name))
        }
        Reshape::MakeHashTrigger => queue.fill_make_hash_trigger(),
        Reshape::CommentUser => format!(
            "COMMENT ON COLUMN {table}.\"user\" IS 'who inserted the task; it runs as the user of the queue''s scheduler'"
        ),
    }
}

fn told(plan: &TablePlan) -> String {
    let labels = plan.labels.iter().map(|label| format!("label {label}"));
    let steps = plan.reshape.iter().map(|step| match step {
        Reshape::AddColumn { name, .. } => format!("column {name}"),
        Reshape::SetDefault { name, .. } => format!("default of {name}"),
        Reshape::DropTrigger { name, .. } => format!("without trigger {name}"),
        Reshape::MakeHashTrigger => "hash trigger".to_owned(),
        Reshape::CommentUser => "comment of user".to_owned(),
    });
    labels.chain(steps).collect::<Vec<_>>().join(", ")
}
