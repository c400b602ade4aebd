//! The attendant: a short session as the launcher's own login that makes the catalog, or lets the row's user into it,
//! where that user may not. Nobody's trouble when it fails: the queue is served without the catalog, and says so.

use crate::event_loop::{Answer, Scheduler};
use crate::limits::ANSWER_TIMEOUT;
use crate::session::catalog::{self, Access, Installed, Lack};
use shared::db::back_off::BackOff;
use shared::db::link::{Link, LinkEvent};
use shared::db::migrate;
use shared::db::trouble::Trouble;
use std::time::{Duration, Instant};

/// An upgrade may build indexes.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(600);

/// How soon a catalog that is missing or closed is looked for again. The first pause is also how long another queue of a new
/// database may take to make it: the advice would be wrong before.
const CHECK_FIRST: Duration = Duration::from_secs(1);
const CHECK_LAST: Duration = Duration::from_secs(10);

/// What is known about a catalog that cannot be used, and when it is looked for again.
#[derive(Debug)]
pub(crate) struct CatalogCheck {
    found: Option<String>,
    said: Option<String>,
    /// What the launcher's login was asked to mend in this session.
    asked: Option<String>,
    at: Option<Instant>,
    pause: BackOff,
}

/// The session as the launcher's login: what it is to make.
#[derive(Debug)]
pub struct Installer {
    pub(crate) lack: Option<Lack>,
    /// It is to upgrade the catalog.
    pub(crate) upgrading: bool,
    pub(crate) catalog_check: CatalogCheck,
}

impl Installer {
    pub fn new() -> Installer {
        Installer { lack: None, upgrading: false, catalog_check: CatalogCheck::new() }
    }
}

impl CatalogCheck {
    pub(crate) fn new() -> CatalogCheck {
        CatalogCheck { found: None, said: None, asked: None, at: None, pause: BackOff::new(CHECK_FIRST, CHECK_LAST) }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// Why the queue is served without the catalog, as it was told.
    pub(crate) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// The session is gone, and with it the question in flight.
    pub(crate) fn forget(&mut self) {
        (self.at, self.asked) = (None, None);
    }
}

impl Scheduler {
    /// The catalog may have been made, opened or agreed to since.
    pub(crate) fn check_catalog(&mut self, now: Instant) {
        let due = self.installer.catalog_check.at.is_some_and(|at| now >= at);
        if due && self.session.state.working() && !self.stop.state.asked() && self.links.installer.is_none() {
            self.installer.catalog_check.at = None;
            self.admitted();
        }
    }

    /// The catalog is ours to use.
    pub(crate) fn has_catalog(&mut self, access: Access) {
        self.installer.catalog_check.at = None;
        self.installer.catalog_check.found = None;
        if self.installer.catalog_check.said.take().is_some() {
            shared::info!("the catalog mill is used from now on", queue = self.base.label);
            if self.session.said.current().is_none() {
                self.base.notes().set_reason(self.claims.process_limit.reason().unwrap_or_default());
                self.base.start.ring_parent();
            }
        }
        self.jobs_admitted(access);
    }

    /// The queue is served without the catalog. With a login that may know more, that one is asked for help first.
    pub(crate) fn lacks_catalog(&mut self, lack: Lack, now: Instant) {
        let known = self.installer.catalog_check.found.replace(lack.why.clone()).as_ref() == Some(&lack.why);
        if !known {
            self.installer.catalog_check.pause.succeeded();
        }
        self.installer.catalog_check.at = Some(self.installer.catalog_check.pause.next(now));
        if lack.absent && !known || self.installer.catalog_check.said.as_ref() == Some(&lack.why) {
            return;
        }
        match &self.base.order.installer {
            Some(login)
                if lack.mendable
                    && self.links.installer.is_none()
                    && self.installer.catalog_check.asked.as_ref() != Some(&lack.why) =>
            {
                self.installer.catalog_check.asked = Some(lack.why.clone());
                let region = Some(&self.base.start.region);
                let attendant = Link::dial(login, &self.base.application_name(), region, false);
                self.links.installer = Some(attendant.beside(self.session.home.proof()));
                self.installer.lack = Some(lack);
            }
            _ => self.say_lack(lack),
        }
    }

    pub(crate) fn attended(&mut self, event: LinkEvent<Answer>, now: Instant) {
        match event {
            LinkEvent::Up => {
                let (user, queue) = (self.base.order.target.user.clone(), self.base.queue.clone());
                let Some(attendant) = &mut self.links.installer else { return };
                if self.installer.upgrading {
                    attendant.ask("upgrading the catalog", UPGRADE_PATIENCE, |client| async move {
                        Ok(Answer::Upgraded(migrate::upgrade(&client, false).await?))
                    });
                } else {
                    attendant.ask("making the catalog", ANSWER_TIMEOUT, |client| async move {
                        catalog::make(&client, Some(&user), &queue).await?;
                        Ok(Answer::Attended)
                    });
                }
            }
            LinkEvent::Answered(answer) => {
                self.links.installer = None;
                self.answered(answer, now);
            }
            LinkEvent::Notified | LinkEvent::CatalogRang => {}
            LinkEvent::Lost(trouble) if self.installer.upgrading => {
                self.links.installer = None;
                self.installer.upgrading = false;
                self.not_upgraded(trouble);
            }
            LinkEvent::Lost(trouble) => {
                self.links.installer = None;
                shared::debug!("the launcher's login did not help", queue = self.base.label, why = trouble);
                if let Some(lack) = self.installer.lack.take() {
                    self.say_lack(lack);
                }
            }
        }
    }

    /// The catalog is there for us now, or may be.
    pub(crate) fn admitted(&mut self) {
        self.installer.lack = None;
        let (queue, statements) = (self.base.queue.clone(), self.session.statements.clone());
        if let (Some(link), Some(statements)) = (&mut self.links.queue, statements) {
            link.ask("registering the queue", ANSWER_TIMEOUT, move |client| async move {
                let other = catalog::installed(&client, &queue).await?.filter(|found| found.version != shared::VERSION);
                if let Some(Installed { version, .. }) = other {
                    // The next session becomes the program of that version.
                    return Err(Trouble::passing(format!(
                        "a catalog mill of version {version} was made; beginning anew"
                    )));
                }
                Ok(Answer::Registered(catalog::prepare(&client, &queue, statements.relid).await?))
            });
        }
    }

    /// In the notes, where `status` shows it, and once in the log.
    pub(crate) fn say_lack(&mut self, lack: Lack) {
        if self.installer.catalog_check.said.as_ref() == Some(&lack.why) {
            return;
        }
        shared::warning!("no catalog", queue = self.base.label, why = lack.why);
        self.base.notes().set_reason(&lack.why);
        self.base.start.ring_parent();
        self.installer.catalog_check.said = Some(lack.why);
    }
}
