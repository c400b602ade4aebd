//! A short session as the launcher's own login that makes the catalog, upgrades it, or lets the queue's user into it,
//! where that user may not. The queue is served without the catalog when it fails, and says so.

use super::catalog::{self, Access, Installed, Lack};
use super::session_state::SessionEvent;
use crate::command::{Command, Opening, SessionName, query, query_on};
use crate::limits::ANSWER_TIMEOUT;
use crate::turn::Turn;
use shared::db::back_off::BackOff;
use shared::db::db_error::DbError;
use shared::db::migrate::{self, Upgraded};
use std::time::{Duration, Instant};

/// An upgrade may build indexes.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(600);

/// How soon a catalog that is missing or closed is looked for again. The first pause is also how long another queue of a new
/// database may take to make it: the advice would be wrong before.
const CHECK_FIRST: Duration = Duration::from_secs(1);
const CHECK_LAST: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub enum InstallerAnswer {
    /// The launcher's login has made the catalog, or let us in.
    Made,
    /// The catalog has been upgraded to our version.
    Upgraded(Upgraded),
    /// The queue is registered with the catalog, or why not.
    Registered(Result<Access, Lack>),
}

/// What the session is open for.
#[derive(Debug)]
enum Work {
    Make(Lack),
    Upgrade,
}

/// What is known about a catalog that cannot be used, and when it is looked for again.
#[derive(Debug)]
pub struct Installer {
    /// The session as the launcher's login is open, or being opened.
    work: Option<Work>,
    found: Option<String>,
    said: Option<String>,
    /// For what the launcher's login was asked in this session of the queue.
    asked: Option<String>,
    check_at: Option<Instant>,
    pause: BackOff,
}

impl Installer {
    pub fn new() -> Installer {
        let pause = BackOff::new(CHECK_FIRST, CHECK_LAST);
        Installer { work: None, found: None, said: None, asked: None, check_at: None, pause }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.check_at.filter(|_| self.work.is_none())
    }

    /// Why the queue is served without the catalog, as it was reported.
    pub fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// The queue's session is gone, and with it the query in flight.
    pub fn forget(&mut self) {
        (self.work, self.check_at, self.asked) = (None, None, None);
    }

    /// The catalog may have been made, opened or agreed to since.
    pub fn turn(&mut self, turn: &Turn<'_>) -> Vec<Command<InstallerAnswer>> {
        if turn.session.state.working() && !turn.stop.asked() && self.deadline().is_some_and(|at| turn.now >= at) {
            self.check_at = None;
            return register(turn).into_iter().collect();
        }
        Vec::new()
    }

    pub fn answered(&mut self, answer: InstallerAnswer, turn: &Turn<'_>) -> Vec<Command<InstallerAnswer>> {
        match answer {
            InstallerAnswer::Made => {
                self.work = None;
                register(turn).into_iter().collect()
            }
            InstallerAnswer::Upgraded(upgraded) => {
                self.work = None;
                if let Upgraded::From(version) = upgraded {
                    shared::info!("catalog upgraded", queue = turn.label(), from = version, to = shared::VERSION);
                }
                vec![Command::Prepare]
            }
            InstallerAnswer::Registered(access) => self.found(access, turn),
        }
    }

    /// What was found out about the catalog.
    pub fn found(&mut self, access: Result<Access, Lack>, turn: &Turn<'_>) -> Vec<Command<InstallerAnswer>> {
        match access {
            Ok(access) => self.has_catalog(access, turn),
            Err(lack) => self.lacks_catalog(lack, turn).into_iter().collect(),
        }
    }

    /// The catalog is ours to use.
    fn has_catalog(&mut self, access: Access, turn: &Turn<'_>) -> Vec<Command<InstallerAnswer>> {
        (self.check_at, self.found) = (None, None);
        let mut commands = Vec::new();
        if self.said.take().is_some() {
            shared::info!("queue uses the catalog mill now", queue = turn.label());
            commands.push(Command::ShowReason);
        }
        commands.push(Command::Admitted(access));
        commands
    }

    /// The queue is served without the catalog. A login that may do more is asked for help first.
    fn lacks_catalog(&mut self, lack: Lack, turn: &Turn<'_>) -> Option<Command<InstallerAnswer>> {
        let known = self.found.replace(lack.why.clone()).as_ref() == Some(&lack.why);
        if !known {
            self.pause.succeeded();
        }
        self.check_at = Some(self.pause.next(turn.now));
        if lack.absent && !known || self.said.as_ref() == Some(&lack.why) {
            return None;
        }
        match &turn.base.order.installer {
            Some(login) if lack.repairable && self.work.is_none() && self.asked.as_ref() != Some(&lack.why) => {
                self.asked = Some(lack.why.clone());
                self.work = Some(Work::Make(lack));
                Some(Opening::beside(SessionName::Installer, login.clone()))
            }
            _ => {
                self.report(lack, turn);
                None
            }
        }
    }

    /// In a session of its own, as the launcher's login if the catalog is not our user's.
    pub fn upgrade(&mut self, found: &Installed, turn: &Turn<'_>) -> Command<InstallerAnswer> {
        shared::info!("upgrading the catalog", queue = turn.label(), from = found.version, to = shared::VERSION);
        let order = &turn.base.order;
        let login = order.installer.as_ref().filter(|_| !found.ours).unwrap_or(&order.target);
        self.work = Some(Work::Upgrade);
        Opening::alone(SessionName::Installer, login.clone())
    }

    /// Its session is up.
    pub fn up(&self, turn: &Turn<'_>) -> Option<Command<InstallerAnswer>> {
        Some(match self.work.as_ref()? {
            Work::Upgrade => {
                query_on(SessionName::Installer, "upgrading the catalog", UPGRADE_TIMEOUT, |client| async move {
                    Ok(InstallerAnswer::Upgraded(migrate::upgrade(&client, false).await?))
                })
            }
            Work::Make(_) => {
                let (user, queue) = (turn.base.order.target.user.clone(), turn.base.queue.clone());
                query_on(SessionName::Installer, "creating the catalog", ANSWER_TIMEOUT, move |client| async move {
                    catalog::make(&client, Some(&user), &queue).await?;
                    Ok(InstallerAnswer::Made)
                })
            }
        })
    }

    /// Its session is lost. After an upgrade that failed the queue's session begins anew, and with it the next try.
    pub fn lost(&mut self, db_error: DbError, turn: &Turn<'_>) -> Vec<Command<InstallerAnswer>> {
        match self.work.take() {
            Some(Work::Upgrade) => {
                let text = format!("cannot upgrade the catalog: {db_error}");
                let lost = SessionEvent::Lost { now: turn.now, db_error: DbError { text, ..db_error } };
                vec![Command::Close(SessionName::Queue), Command::Session(lost)]
            }
            Some(Work::Make(lack)) => {
                shared::debug!(
                    "cannot create the catalog as the launcher's login",
                    queue = turn.label(),
                    why = db_error
                );
                self.report(lack, turn);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// In the slot status, where `status` shows it, and once in the log.
    fn report(&mut self, lack: Lack, turn: &Turn<'_>) {
        if self.said.as_ref() == Some(&lack.why) {
            return;
        }
        shared::warning!("queue served without the catalog", queue = turn.label(), why = lack.why);
        turn.base.slot_status().set_reason(&lack.why);
        turn.base.start.signal_parent();
        self.said = Some(lack.why);
    }
}

/// The catalog is there for us now, or may be.
fn register(turn: &Turn<'_>) -> Option<Command<InstallerAnswer>> {
    let (queue, statements) = (turn.base.queue.clone(), turn.statements()?.clone());
    Some(query("registering the queue", move |client| async move {
        let other = catalog::installed(&client, &queue).await?.filter(|found| found.version != shared::VERSION);
        if let Some(Installed { version, .. }) = other {
            // The next session becomes the program of that version.
            return Err(DbError::passing(format!("the catalog mill was created with version {version}; reconnecting")));
        }
        Ok(InstallerAnswer::Registered(catalog::prepare(&client, &queue, statements.relid).await?))
    }))
}
