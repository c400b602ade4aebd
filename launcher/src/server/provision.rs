//! Makes what a row needs and the server lacks: its role and its database.
//!
//! Only on the launcher's own server, with the launcher's own rights. What may not be made is said once, with the SQL
//! that somebody else can run; the row is tried again, and the other rows run on.

use crate::leader::leadership::Signature;
use crate::limits::PROVISION_TIMEOUT;
use nix::poll::PollFlags;
use shared::conninfo::Target;
use shared::db::identifier::quoted;
use shared::db::link::{Link, LinkEvent};
use shared::db::statement::LOOK_ROW;
use shared::db::trouble::Trouble;
use shared::region::Region;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Instant;
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

/// What a row's role and database still need, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub needed: Needed,
    lacks: &'static str,
    steps: Vec<String>,
}

/// Sorts rows by whether anything is missing. On the launcher's own session: quick.
pub async fn look_for_missing(
    client: Rc<Client>,
    rows: Vec<Needed>,
    signature: Signature,
) -> Result<(Vec<Report>, Vec<Lacking>), Trouble> {
    let text = signature.sign(LOOK_ROW);
    let (mut there, mut lacking) = (Vec::new(), Vec::new());
    for needed in rows {
        let (lacks, steps) = look(&client, &text, &needed).await?;
        if steps.is_empty() {
            there.push(Report { needed, missing: None });
        } else {
            lacking.push(Lacking { needed, lacks, steps });
        }
    }
    Ok((there, lacking))
}

async fn look(client: &Client, text: &str, needed: &Needed) -> Result<(&'static str, Vec<String>), Trouble> {
    let Needed { role, database } = needed;
    let found = client.query_one(text, &[role, database]).await.map_err(|error| Trouble::of(&error))?;
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
    Ok((lacks, steps))
}

/// A short session that makes what is missing. Not the launcher's own: a database's files take their time to be copied,
/// and the leader must not fall silent meanwhile.
#[derive(Debug)]
pub struct Provisioning {
    link: Link<Vec<Report>>,
    lacking: Vec<Lacking>,
}

impl Provisioning {
    pub fn begin(target: &Target, region: &Region, lacking: Vec<Lacking>) -> Provisioning {
        Provisioning { link: Link::dial(target, "pg_conf", Some(region), false), lacking }
    }

    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.link.interest()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.link.deadline()
    }

    /// Drives the session. Once it is over: what came of it, nothing if it was lost.
    pub fn turn(&mut self, now: Instant) -> Option<Vec<Report>> {
        for event in self.link.turn(now) {
            match event {
                LinkEvent::Up => {
                    let lacking = std::mem::take(&mut self.lacking);
                    self.link.ask("making what rows need", PROVISION_TIMEOUT, |client| make_missing(client, lacking));
                }
                LinkEvent::Answered(reports) => return Some(reports),
                LinkEvent::Notified | LinkEvent::CatalogRang => {}
                LinkEvent::Lost(trouble) => {
                    shared::debug!("what rows need is not made yet", why = trouble);
                    return Some(Vec::new());
                }
            }
        }
        None
    }
}

async fn make_missing(client: Rc<Client>, lacking: Vec<Lacking>) -> Result<Vec<Report>, Trouble> {
    let mut reports = Vec::with_capacity(lacking.len());
    for Lacking { needed, lacks, steps } in lacking {
        let missing = make(&client, &needed, lacks, steps).await?;
        reports.push(Report { needed, missing });
    }
    Ok(reports)
}

async fn make(client: &Client, needed: &Needed, lacks: &str, steps: Vec<String>) -> Result<Option<String>, Trouble> {
    let Needed { role, database } = needed;
    for step in steps {
        match client.batch_execute(&step).await {
            Ok(()) => shared::info!("made for a row", database = database, role = role, sql = step),
            Err(error) => {
                let trouble = Trouble::of(&error);
                // Somebody else made it in between: the next look finds it.
                if trouble.passes() {
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
