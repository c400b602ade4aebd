//! Makes what a row needs and the server lacks: its role and its database.
//!
//! Only on the launcher's own server, with the launcher's own rights. What may not be made is said once, with the SQL
//! that somebody else can run; the row is tried again, and the other rows run on.

use shared::db::identifier::quoted;
use shared::db::statement::{LOOK_ROW, bare};
use shared::db::trouble::{Trouble, TroubleKind};
use std::rc::Rc;
use tokio_postgres::Client;

/// A row's role and database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    pub role: String,
    pub database: String,
}

/// What came of it: None when all is there, else why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub needed: Needed,
    pub missing: Option<String>,
}

pub async fn make_missing(client: Rc<Client>, rows: Vec<Needed>) -> Result<Vec<Report>, Trouble> {
    let mut reports = Vec::with_capacity(rows.len());
    for needed in rows {
        let missing = make(&client, &needed).await?;
        reports.push(Report { needed, missing });
    }
    Ok(reports)
}

async fn make(client: &Client, needed: &Needed) -> Result<Option<String>, Trouble> {
    let Needed { role, database } = needed;
    let found = client.query_one(&bare(LOOK_ROW), &[role, database]).await.map_err(|error| Trouble::of(&error))?;
    let mut steps = Vec::new();
    let lacks = if found.get::<_, bool>("role") { "database" } else { "role" };
    if !found.get::<_, bool>("role") {
        steps.push(format!("CREATE ROLE {} LOGIN", quoted(role)));
        if !found.get::<_, bool>("superuser") {
            // CREATE DATABASE .. OWNER needs membership, and so does ending the row's sessions.
            let how = if found.get("inherits") { " WITH SET TRUE, INHERIT TRUE" } else { "" };
            steps.push(format!("GRANT {} TO CURRENT_USER{how}", quoted(role)));
        }
    }
    if !found.get::<_, bool>("database") {
        steps.push(format!("CREATE DATABASE {} OWNER {}", quoted(database), quoted(role)));
    }
    for step in steps {
        match client.batch_execute(&step).await {
            Ok(()) => shared::info!("made for a row", database = database, role = role, sql = step),
            Err(error) => {
                let trouble = Trouble::of(&error);
                // Somebody else made it in between: the next look finds it.
                if trouble.kind == TroubleKind::Passing {
                    return Err(trouble);
                }
                let name = if lacks == "role" { role } else { database };
                return Ok(Some(format!(
                    "{lacks} {} does not exist, and the launcher may not make it; run as a role that may: {step}",
                    quoted(name)
                )));
            }
        }
    }
    Ok(None)
}
