//! The catalog `mill` of the database: which version it has, made if it is missing, told of the queue.
//!
//! A queue's first start makes it as the queue's user; where that one may not, a second session as the launcher's own
//! login does (`installer_session`), and lets the queue's user in. Tasks work without it: then the status says what is
//! missing and which SQL would help.

use crate::table::lock_holder::holder;
use shared::VERSION;
use shared::db::catalog;
use shared::db::db_error::DbError;
use shared::db::identifier::quoted;
use shared::db::lock_key;
use shared::db::statement::{self, Queue};
use tokio_postgres::{Client, Row};

/// Why the queue is served without the catalog, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    pub why: String,
    /// A role with more rights can repair it: create the catalog, or admit the user of the queue.
    pub repairable: bool,
    /// There is none, which another queue of a new database may be about to change.
    pub absent: bool,
}

fn db_error(error: tokio_postgres::Error) -> DbError {
    DbError::of(&error)
}

async fn read(client: &Client, queue: &Queue) -> Result<Row, DbError> {
    catalog::read(client, Some(queue)).await.map_err(db_error)
}

/// What is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    pub version: String,
    /// Our user owns it.
    pub ours: bool,
}

/// The version that is installed; None: no catalog, or none that we may look into.
pub async fn installed(client: &Client, queue: &Queue) -> Result<Option<Installed>, DbError> {
    let found = read(client, queue).await?;
    if !["marked", "admitted", "trusted"].into_iter().all(|what| found.get::<_, bool>(what)) {
        return Ok(None);
    }
    let row = client.query_one(&statement::bare(statement::READ_VERSION), &[]).await.map_err(db_error)?;
    let ours = found.get("ours");
    row.get::<_, Option<String>>("version").map(|version| Some(Installed { version, ours })).ok_or_else(|| {
        DbError::standing("the table mill.meta of the catalog is empty; insert its row with the version again")
    })
}

/// The catalog is ours to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Our user may fire timers and move tokens.
    pub keeps: bool,
}

/// Makes the catalog if it is missing and we may, and registers the queue with it.
pub async fn prepare(client: &Client, queue: &Queue, relid: u32) -> Result<Result<Access, Lack>, DbError> {
    let mut found = read(client, queue).await?;
    if !found.get::<_, bool>("there") && found.get::<_, bool>("may") {
        if let Err(refused) = make(client, None, queue).await {
            return without(client, "created", refused).await;
        }
        found = read(client, queue).await?;
    }
    let (database, me): (String, String) = (found.get("database"), found.get("me"));
    let absent = !found.get::<_, bool>("there");
    let lack = |why: String, repairable| Ok(Err(Lack { why, repairable, absent }));
    if absent {
        let advice = catalog::installation_advice(&database, &me);
        return lack(format!("tasks run without the catalog mill, which cannot be created; run: {advice}"), true);
    }
    if !found.get::<_, bool>("marked") {
        let why = "tasks run without the catalog: the schema mill does not belong to pgmill; rename it".to_owned();
        return lack(why, false);
    }
    if !found.get::<_, bool>("trusted") {
        let owner: String = found.get("owner");
        let why = if found.get("superuser") {
            format!(
                "tasks run without the catalog mill of {}, who could run anything through it with the rights of {}; \
                 let a superuser own it (REASSIGN OWNED), or give the queue a user that is not a superuser",
                quoted(&owner),
                quoted(&me)
            )
        } else {
            format!(
                "tasks run without the catalog mill of {}: the queue has not agreed to it; run as {}: {}",
                quoted(&owner),
                quoted(&me),
                catalog::consent_advice(queue, &owner)
            )
        };
        return lack(why, false);
    }
    if !found.get::<_, bool>("admitted") {
        let advice = catalog::admission_advice(&me);
        let owner = quoted(&found.get::<_, String>("owner"));
        return lack(format!("tasks run without the catalog mill of {owner}; run as that role: {advice}"), true);
    }
    match client.execute(&statement::bare(statement::REGISTER_QUEUE), &[&relid]).await.map_err(db_error) {
        Ok(_) => Ok(Ok(Access { keeps: found.get("keeps") })),
        Err(refused) => without(client, "used to register the queue", refused).await,
    }
}

/// What the server refuses here is no reason to leave the queue alone.
async fn without(client: &Client, what: &str, refused: DbError) -> Result<Result<Access, Lack>, DbError> {
    if refused.passes() {
        return Err(refused);
    }
    client.batch_execute("ROLLBACK").await.map_err(db_error)?;
    Ok(Err(Lack {
        why: format!("tasks run without the catalog mill, which cannot be {what}: {refused}"),
        repairable: true,
        absent: false,
    }))
}

/// All or nothing; two sessions at once wait for each other, and the second finds it made. `admit`: who is let in.
pub async fn make(client: &Client, admit: Option<&str>, queue: &Queue) -> Result<(), DbError> {
    client.batch_execute(&catalog::alone()).await.map_err(db_error)?;
    let there = match admit {
        // As the launcher's login, which calls nothing of a role that it does not trust.
        Some(_) => catalog::read_trusted(client).await?.get("there"),
        None => read(client, queue).await?.get::<_, bool>("there"),
    };
    if !there {
        for piece in catalog::pieces(VERSION) {
            client.batch_execute(&piece).await.map_err(db_error)?;
        }
    }
    if let Some(user) = admit {
        client.batch_execute(&catalog::admission(user)).await.map_err(db_error)?;
    }
    client.batch_execute("COMMIT").await.map_err(db_error)?;
    if !there {
        shared::info!("catalog mill created", version = VERSION);
    }
    Ok(())
}

/// Creates the row triggers of jobs on the queue, if they are missing. Some(why): not now, another session is in the way.
pub async fn attach(client: &Client, queue: &Queue, relid: u32) -> Result<Option<String>, DbError> {
    let row = client.query_one(&statement::bare(statement::READ_RUN_TRIGGERS), &[&relid]).await.map_err(db_error)?;
    if !row.get::<_, bool>("there") {
        if let Some(who) = holder(client, relid, false).await? {
            return Ok(Some(format!("{who} locks the table")));
        }
        // One message is one transaction, and an error leaves none open.
        let script = format!(
            "SET LOCAL lock_timeout = '{}'; SELECT pg_catalog.pg_advisory_xact_lock({}, 0); {}",
            shared::limits::LOCK_TIMEOUT,
            lock_key::INSTALL,
            queue.fill_run_triggers(relid, row.get::<_, u32>("me"))
        );
        if let Err(error) = client.batch_execute(&script).await {
            let refused = db_error(error);
            return if refused.passes() { Err(refused) } else { Ok(Some(refused.text)) };
        }
        shared::debug!("triggers of jobs created", table = queue.fill("{queue}"));
    }
    let clock: bool =
        client.query_one(&statement::bare(statement::READ_CLOCK), &[]).await.map_err(db_error)?.get("moved");
    if clock {
        shared::warning!("clock of jobs is moved: mill.meta.clock is not 0, which is for tests only");
    }
    Ok(None)
}
