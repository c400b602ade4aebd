//! The queue in the database: made if it is missing, checked if it is there, held while we serve it.
//!
//! Called once per session of the scheduler, before the first claim. Nothing is changed when nothing has to be; what
//! has to be made is made in one transaction under a lock timeout. What can go wrong is said as `DbError`, in a
//! sentence that tells the operator what to do; the scheduler tries again later.

use crate::attempt::leftovers::Unfinished;
use crate::attempt::settle::SettleStatements;
use crate::session::catalog;
use crate::session::catalog::Installed;
use crate::session::home_server::{self, Standing};
use crate::session::start_gate;
use crate::table::defaults as column_defaults;
use crate::table::former_table;
use crate::table::table_repair;
use shared::config::ColumnDefaults;
use shared::db::db_error::{DbError, DbErrorKind};
use shared::db::identifier::quoted;
use shared::db::lock_key;
use shared::db::server::{HomeServer, halves};
use shared::db::statement::{self, Queue};
use shared::limits::CLAIM_WALKS;
use std::rc::Rc;
use tokio_postgres::{Client, Row, Statement};

const LOCK_TIMEOUT: &str = "2s";

/// The statements of the loop, prepared once per session.
#[derive(Debug)]
pub struct QueueStatements {
    /// For statements whose text depends on the columns that the table has at that moment.
    pub queue: Queue,
    pub relid: u32,
    pub walk_few: Statement,
    pub walk_many: Statement,
    pub groups: Statement,
    pub one_group: Statement,
    pub release: Statement,
    pub session_defaults: Statement,
    pub next_plan: Statement,
    pub read_runs: Statement,
    pub return_batch: Statement,
    pub lock: Statement,
    pub unlock: Statement,
    pub measure: Statement,
    pub delete_old: Statement,
    pub settle: SettleStatements,
    pub read_name: Statement,
    pub close_backend: Statement,
    pub begin_many: Statement,
    pub end_many: Statement,
    pub begin: Statement,
    /// The claim lets its own commit go without.
    pub commit: Statement,
    pub unfinished: Statement,
    pub find_marker: Statement,
}

/// How large the queue is, and how many old rows were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    pub rows: i64,
    pub bytes: i64,
    pub deleted: u64,
}

/// Whose sessions ours are: the launcher's name, and the session by which it leads.
#[derive(Clone, Debug)]
pub struct Owner {
    pub launcher: String,
    pub term: i32,
}

/// What preparing came to.
#[derive(Debug)]
pub enum Readiness {
    Ready(Box<Ready>),
    /// Another scheduler holds the queue.
    HeldElsewhere,
    /// The catalog is of another version than this code.
    OtherVersion(Installed),
    /// The name belongs to another table than the one that this process has served, which has this name now.
    OtherTable {
        former: Option<String>,
    },
    /// There is none, and it is not for us to make one.
    NoTable {
        why: String,
    },
}

/// What the process knows from before.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// The OID of the table that it has served.
    pub served: Option<u32>,
    /// The queue was found by `*`: its table is never made.
    pub found: bool,
}

#[derive(Debug)]
pub struct Ready {
    pub statements: Rc<QueueStatements>,
    pub unfinished: Vec<Unfinished>,
    /// The table lacks something that it can be served without.
    pub repairs: bool,
    /// What may be done with the catalog, or why the queue is served without it.
    pub access: Result<catalog::Access, catalog::Lack>,
    pub superuser: bool,
    /// The marker table of the catalog, if there is one by now.
    pub marker: Option<u32>,
    pub backend: i32,
    /// Names and values of the scheduler's settings below our config.
    pub settings: Vec<(String, String)>,
    /// The server, and the launcher's number that was found there.
    pub home: HomeServer,
    pub leader: Option<i64>,
}

pub async fn prepare(
    client: Rc<Client>,
    queue: Queue,
    defaults: ColumnDefaults,
    owner: Owner,
    past: Past,
    standing: Standing,
) -> Result<Readiness, DbError> {
    let mut found = read(&client, &queue).await?;
    if found.get::<_, bool>("standby") {
        return Err(DbError::passing("the server is a stand-by; waiting for its promotion"));
    }
    let home = match home_server::stand(&client, &standing).await {
        Ok(home) => home,
        Err(db_error) => {
            leave_note(&client, &queue, found.get("relid"), Some(&db_error.text)).await;
            return Err(db_error);
        }
    };
    if let Some(found) = other_version(&client, &queue).await? {
        return Ok(Readiness::OtherVersion(found));
    }
    let named = found.get::<_, Option<u32>>("relid");
    if let Some(served) = past.served.filter(|served| named != Some(*served)) {
        let former = former_table::name(&client, served).await?;
        if let Some(former) = &former {
            // Its owner may be another one by now, and its triggers would run as us.
            match checked(former, &read(&client, former).await?) {
                Ok(relid) if relid == served => former_table::give_back(&client, former).await?,
                Ok(_) => {}
                Err(db_error) => shared::warning!("the former table is left as it is", why = db_error),
            }
        }
        let former = former.map(|former| former.fill("{queue}"));
        match (named, former) {
            (Some(_), former) => return Ok(Readiness::OtherTable { former }),
            (None, Some(former)) if !past.found => return Err(renamed(&queue, &former)),
            (None, _) => {}
        }
    }
    if named.is_none() && past.found {
        let why = format!("there is no table {} any more", queue.fill("{queue}"));
        return Ok(Readiness::NoTable { why });
    }
    if named.is_none() {
        make(&client, &queue, &defaults).await?;
        found = read(&client, &queue).await?;
    }
    let relid = checked(&queue, &found)?;
    if !hold(&client, relid, &owner, standing.proof).await? {
        return Ok(Readiness::HeldElsewhere);
    }
    // Whoever upgrades the catalog holds all queues meanwhile: what is read now stays while the queue is ours.
    if let Some(found) = other_version(&client, &queue).await? {
        return Ok(Readiness::OtherVersion(found));
    }
    let repairs = table_repair::reshape(&client, &queue, &defaults).await?;
    let aligned = column_defaults::align(&client, &queue, &defaults).await?;
    let access = catalog::prepare(&client, &queue, relid).await?;
    if access.is_ok() {
        note(&client, &queue, relid, None).await?;
    }
    client.batch_execute(&format!("LISTEN mill_{relid}")).await.map_err(|error| DbError::of(&error))?;
    let statements = prepare_statements(&client, &queue, relid).await?;
    let unfinished = unfinished(&client, &statements).await?;
    Ok(Readiness::Ready(Box::new(Ready {
        statements: Rc::new(statements),
        unfinished,
        repairs: repairs || !aligned,
        access,
        superuser: found.get("superuser"),
        marker: start_gate::marker(&client, &queue).await?.map(|marker| marker.relid),
        backend: found.get("backend"),
        settings: settings(&client).await?,
        leader: standing.leader.map(|leader| leader.proof),
        home,
    })))
}

/// What `mill.why` says of a queue that is not served here. None is left where the catalog may not be used.
pub async fn leave_note(client: &Client, queue: &Queue, relid: Option<u32>, db_error: Option<&str>) {
    let Some(relid) = relid else { return };
    if matches!(catalog::installed(client, queue).await, Ok(Some(_)))
        && let Err(error) = note(client, queue, relid, db_error).await
    {
        shared::debug!("the catalog takes no note", error = error);
    }
}

pub async fn note(client: &Client, queue: &Queue, relid: u32, db_error: Option<&str>) -> Result<(), DbError> {
    let text = queue.fill_of_jobs(statement::RECORD_ERROR, relid);
    client.execute(&text, &[&db_error]).await.map(|_| ()).map_err(|error| DbError::of(&error))
}

/// An empty table made now would stand in the way of the one that is to be given this name.
fn renamed(queue: &Queue, former: &str) -> DbError {
    let name = queue.fill("{queue}");
    DbError::standing(format!(
        "table {name} has been renamed to {former}, and there is no {name}; give a table this name, or restart the queue to \
         have an empty one made"
    ))
}

/// Says whose we are, then asks for the queue. A session that an earlier leader of our name has left in its place is
/// ended, and the queue asked for once more.
async fn hold(client: &Client, relid: u32, Owner { launcher, term }: &Owner, proof: i64) -> Result<bool, DbError> {
    let (name, session) = (lock_key::LAUNCHER, lock_key::TERM);
    let (high, low) = halves(proof);
    ask_one(client, &statement::bare(statement::MARK_SESSION), &[&name, launcher, &session, term, &high, &low]).await?;
    let hold = statement::bare(statement::HOLD_QUEUE);
    if ask_one(client, &hold, &[&lock_key::QUEUE, &relid]).await?.get("held") {
        return Ok(true);
    }
    let text = statement::bare(statement::END_LEFTOVER);
    let (queue, leader) = (lock_key::QUEUE, lock_key::LEADER);
    let ended = client.query(&text, &[&queue, &relid, &name, launcher, &session, term, &leader]).await;
    let ended = ended.map_err(|error| DbError::of(&error))?;
    for row in &ended {
        let backend: i32 = row.get("backend");
        shared::info!("a session that an earlier leader has left is ended", backend = backend, relid = relid);
    }
    Ok(!ended.is_empty() && ask_one(client, &hold, &[&lock_key::QUEUE, &relid]).await?.get("held"))
}

async fn other_version(client: &Client, queue: &Queue) -> Result<Option<Installed>, DbError> {
    Ok(catalog::installed(client, queue).await?.filter(|found| found.version != shared::VERSION))
}

async fn prepare_statements(client: &Client, queue: &Queue, relid: u32) -> Result<QueueStatements, DbError> {
    let text = async |text: String| client.prepare(&text).await.map_err(|error| DbError::of(&error));
    let [few, many] = CLAIM_WALKS;
    Ok(QueueStatements {
        queue: queue.clone(),
        relid,
        walk_few: text(queue.fill_claim_walk(few)).await?,
        walk_many: text(queue.fill_claim_walk(many)).await?,
        groups: text(queue.fill_claim_heads()).await?,
        one_group: text(queue.fill_claim_one_group()).await?,
        release: text(queue.fill(statement::RELEASE_HELD)).await?,
        session_defaults: text(statement::bare(statement::SESSION_DEFAULTS)).await?,
        next_plan: text(queue.fill(statement::NEXT_PLAN)).await?,
        read_runs: text(queue.fill(statement::READ_RUNS)).await?,
        return_batch: text(queue.fill(statement::RETURN_BATCH)).await?,
        lock: text(queue.fill(statement::LOCK_SIGN)).await?,
        unlock: text(queue.fill(statement::UNLOCK_SIGN)).await?,
        measure: text(queue.fill(statement::MEASURE_QUEUE)).await?,
        delete_old: text(queue.fill(statement::DELETE_OLD)).await?,
        settle: SettleStatements::prepare(client, queue).await?,
        read_name: text(queue.fill(statement::READ_NAME)).await?,
        close_backend: text(queue.fill(statement::CLOSE_BACKEND)).await?,
        begin_many: text(queue.fill_begin_many()).await?,
        end_many: text(queue.fill_end(statement::Rows::ManyUnlocked)).await?,
        begin: text("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".to_owned()).await?,
        commit: text("COMMIT".to_owned()).await?,
        unfinished: text(queue.fill(statement::LIST_UNFINISHED)).await?,
        find_marker: text(statement::bare(statement::FIND_MARKER)).await?,
    })
}

pub async fn unfinished(client: &Client, statements: &QueueStatements) -> Result<Vec<Unfinished>, DbError> {
    let rows = client.query(&statements.unfinished, &[]).await.map_err(|error| DbError::of(&error))?;
    let found =
        rows.iter().map(|row| Unfinished { task: row.get("id"), attempt: row.get("attempt"), backend: row.get("pid") });
    Ok(found.collect())
}

/// Once in a while: how large the queue is, and away with what is older than `keep`.
pub async fn chores(client: &Client, statements: &QueueStatements, keep_ms: Option<u64>) -> Result<Measured, DbError> {
    let deleted = match keep_ms {
        Some(keep) => {
            client.execute(&statements.delete_old, &[&(keep as f64)]).await.map_err(|error| DbError::of(&error))?
        }
        None => 0,
    };
    let row = client.query_one(&statements.measure, &[]).await.map_err(|error| DbError::of(&error))?;
    Ok(Measured { rows: row.get("rows"), bytes: row.get("bytes"), deleted })
}

/// `pg_task.sleep` and the like, as this session sees them.
pub async fn settings(client: &Client) -> Result<Vec<(String, String)>, DbError> {
    let text = shared::db::statement::bare(statement::READ_SETTINGS);
    let rows = client.query(&text, &[]).await.map_err(|error| DbError::of(&error))?;
    Ok(rows.iter().filter_map(|row| Some((row.get("name"), row.get::<_, Option<String>>("value")?))).collect())
}

async fn read(client: &Client, queue: &Queue) -> Result<Row, DbError> {
    ask_one(client, &queue.fill(statement::READ_QUEUE), &[]).await
}

/// The table's OID, or why it cannot be served.
fn checked(queue: &Queue, found: &Row) -> Result<u32, DbError> {
    let refuse = |text: String| DbError { kind: DbErrorKind::Standing, text };
    let Some(relid) = found.get::<_, Option<u32>>("relid") else {
        return Err(DbError::passing(format!("table {} vanished while it was looked at", queue.fill("{queue}"))));
    };
    let kind: String = found.get("kind");
    if kind != "r" && kind != "p" {
        let kind = match kind.as_str() {
            "v" | "m" => "a view",
            "f" => "a foreign table",
            _ => "no table",
        };
        return Err(refuse(format!("{} is {kind}; choose another name for the queue", queue.fill("{queue}"))));
    }
    if !found.get::<_, bool>("trusted") {
        let (table, owner) = (queue.fill("{queue}"), quoted(&found.get::<_, String>("owner")));
        return Err(refuse(format!(
            "{table} belongs to {owner}, who could run anything with the rights of the queue's user; make it the queue's \
             (ALTER TABLE {table} OWNER TO ..), or give the queue the user {owner}"
        )));
    }
    if found.get("guarded") {
        return Err(refuse(format!(
            "row security of {} applies to this user, so it would not see all tasks; give it BYPASSRLS or another table",
            queue.fill("{queue}")
        )));
    }
    Ok(relid)
}

/// Makes what is missing, all or nothing; two sessions at once wait for each other, and the second looks at what the
/// first has left to do (a schema and its type belong to several queues). After an error the connection is given up,
/// and the transaction with it.
async fn make(client: &Client, queue: &Queue, defaults: &ColumnDefaults) -> Result<(), DbError> {
    let named = |error: tokio_postgres::Error| {
        let db_error = DbError::of(&error);
        DbError { text: format!("cannot make table {}: {}", queue.fill("{queue}"), db_error.text), ..db_error }
    };
    let alone = format!(
        "BEGIN; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; SELECT pg_catalog.pg_advisory_xact_lock({}, 0)",
        lock_key::INSTALL
    );
    client.batch_execute(&alone).await.map_err(named)?;
    let found = read(client, queue).await?;
    if found.get::<_, Option<u32>>("relid").is_some() {
        return client.batch_execute("COMMIT").await.map_err(named);
    }
    let mut script = String::new();
    if found.get::<_, Option<u32>>("schema").is_none() {
        script += &format!("{}; ", queue.fill(statement::MAKE_SCHEMA));
    }
    if found.get::<_, Option<u32>>("state").is_none() {
        script += &format!("{}; ", queue.fill(statement::MAKE_STATE));
    }
    script += &format!("{}; ", queue.fill_make_table(defaults));
    script += &queue.fill(statement::MAKE_INDEXES);
    script += &queue.fill_make_guarded();
    script += &queue.fill(statement::COMMENT_TABLE);
    script += "COMMIT";
    client.batch_execute(&script).await.map_err(named)?;
    shared::info!("table made", table = queue.fill("{queue}"));
    Ok(())
}

async fn ask_one(
    client: &Client,
    text: &str,
    parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
) -> Result<Row, DbError> {
    client.query_one(text, parameters).await.map_err(|error| DbError::of(&error))
}
