//! Creates what a queue needs and the server lacks: its role and its database.
//!
//! Only on the launcher's own server, with the launcher's own rights. What the launcher may not create is logged once,
//! with the SQL that somebody else can run; the queue is tried again, and the other queues run on.

use crate::base::LauncherBase;
use crate::host::Signature;
use crate::limits::{PROVISION_PERIOD, PROVISION_TIMEOUT};
use crate::loop_command::{LoopCommand, query};
use crate::queue::needed::{Needed, Provided};
use nix::poll::PollFlags;
use shared::conninfo::Target;
use shared::db::db_error::DbError;
use shared::db::identifier::quoted;
use shared::db::link::{Link, LinkEvent};
use shared::db::statement::FIND_MISSING;
use shared::region::Region;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Instant;
use tokio_postgres::Client;

/// What the server answers: what exists, and what is to be created.
#[derive(Debug)]
pub struct ProvisionAnswer {
    there: Vec<Provided>,
    lacking: Vec<Lacking>,
}

/// What a queue's role and database still need, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    needed: Needed,
    lacks: &'static str,
    steps: Vec<String>,
}

#[derive(Debug)]
pub struct Provision {
    /// The server is being asked what is missing.
    asked: bool,
    creating: Option<Creating>,
    next: Instant,
}

impl Provision {
    pub fn new(now: Instant) -> Provision {
        Provision { asked: false, creating: None, next: now }
    }

    /// The launcher leads now, or its config has changed.
    pub fn hurry(&mut self, now: Instant) {
        self.next = now;
    }

    /// The launcher's session is gone, and with it the query in flight.
    pub fn session_lost(&mut self) {
        self.asked = false;
    }

    /// The launcher has another login: what is created with the former one is of no use.
    pub fn login_changed(&mut self) {
        self.creating = None;
    }

    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.creating.as_ref().and_then(|creating| creating.link.interest())
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.creating.as_ref().and_then(|creating| creating.link.deadline())
    }

    /// Drives the session that creates. Once it is over: what it created, nothing if it was lost.
    pub fn drive(&mut self, now: Instant) -> Vec<Provided> {
        let provided = self.creating.as_mut().and_then(|creating| creating.drive(now));
        if provided.is_some() {
            self.creating = None;
        }
        provided.unwrap_or_default()
    }

    /// Asks what is missing, if that is due.
    pub fn pass(&mut self, needed: impl FnOnce() -> Vec<Needed>, now: Instant) -> Option<LoopCommand<ProvisionAnswer>> {
        if self.asked || self.creating.is_some() || now < self.next {
            return None;
        }
        self.next = now + PROVISION_PERIOD;
        let needed = needed();
        if needed.is_empty() {
            return None;
        }
        self.asked = true;
        Some(query("checking the roles and databases of queues", |client, signature| {
            find_missing(client, needed, signature)
        }))
    }

    /// What exists already. The rest is created.
    pub fn answered(&mut self, answer: ProvisionAnswer, base: &LauncherBase) -> Vec<Provided> {
        self.asked = false;
        if !answer.lacking.is_empty() {
            self.creating = Some(Creating::begin(&base.target, &base.region, answer.lacking));
        }
        answer.there
    }
}

/// Sorts queues by whether anything is missing. On the launcher's own session: quick.
async fn find_missing(
    client: Rc<Client>,
    queues: Vec<Needed>,
    signature: Signature,
) -> Result<ProvisionAnswer, DbError> {
    let text = signature.sign(FIND_MISSING);
    let (mut there, mut lacking) = (Vec::new(), Vec::new());
    for needed in queues {
        let (lacks, steps) = read_missing(&client, &text, &needed).await?;
        if steps.is_empty() {
            there.push(Provided { needed, missing: None });
        } else {
            lacking.push(Lacking { needed, lacks, steps });
        }
    }
    Ok(ProvisionAnswer { there, lacking })
}

async fn read_missing(client: &Client, text: &str, needed: &Needed) -> Result<(&'static str, Vec<String>), DbError> {
    let Needed { role, database } = needed;
    let found = client.query_one(text, &[role, database]).await.map_err(|error| DbError::of(&error))?;
    let mut steps = Vec::new();
    let lacks = if found.get::<_, bool>("role") { "database" } else { "role" };
    if !found.get::<_, bool>("role") {
        steps.push(format!("CREATE ROLE {} LOGIN", quoted(role)));
        if !found.get::<_, bool>("superuser") {
            // CREATE DATABASE .. OWNER needs membership, and so does ending the queue's sessions.
            let how = if found.get("inherits") { " WITH SET TRUE, INHERIT TRUE" } else { "" };
            steps.push(format!("GRANT {} TO CURRENT_USER{how}", quoted(role)));
        }
    }
    if !found.get::<_, bool>("database") {
        steps.push(format!("CREATE DATABASE {} OWNER {}", quoted(database), quoted(role)));
    }
    Ok((lacks, steps))
}

/// A short session that creates what is missing. Not the launcher's own: CREATE DATABASE takes long, and the leader
/// must not fall silent meanwhile.
#[derive(Debug)]
struct Creating {
    link: Link<Vec<Provided>>,
    lacking: Vec<Lacking>,
}

impl Creating {
    fn begin(target: &Target, region: &Region, lacking: Vec<Lacking>) -> Creating {
        Creating { link: Link::dial(target, "pg_conf", Some(region), false), lacking }
    }

    fn drive(&mut self, now: Instant) -> Option<Vec<Provided>> {
        for event in self.link.drive(now) {
            match event {
                LinkEvent::Up => {
                    let lacking = std::mem::take(&mut self.lacking);
                    self.link.ask("creating the roles and databases of queues", PROVISION_TIMEOUT, |client| {
                        create_missing(client, lacking)
                    });
                }
                LinkEvent::Answered(provided) => return Some(provided),
                LinkEvent::Notified | LinkEvent::CatalogChanged => {}
                LinkEvent::Lost(db_error) => {
                    shared::debug!("roles and databases of queues not created yet", why = db_error);
                    return Some(Vec::new());
                }
            }
        }
        None
    }
}

async fn create_missing(client: Rc<Client>, lacking: Vec<Lacking>) -> Result<Vec<Provided>, DbError> {
    let mut provided = Vec::with_capacity(lacking.len());
    for Lacking { needed, lacks, steps } in lacking {
        let missing = create(&client, &needed, lacks, steps).await?;
        provided.push(Provided { needed, missing });
    }
    Ok(provided)
}

async fn create(client: &Client, needed: &Needed, lacks: &str, steps: Vec<String>) -> Result<Option<String>, DbError> {
    let Needed { role, database } = needed;
    for step in steps {
        match client.batch_execute(&step).await {
            Ok(()) => shared::info!("created for a queue", database = database, role = role, sql = step),
            Err(error) => {
                let db_error = DbError::of(&error);
                // Somebody else created it in between: the next query finds it.
                if db_error.passes() {
                    return Err(db_error);
                }
                let name = if lacks == "role" { role } else { database };
                return Ok(Some(format!(
                    "{lacks} {} does not exist, and the launcher may not create it; run as a role that may: {step}",
                    quoted(name)
                )));
            }
        }
    }
    Ok(None)
}
