//! The attendant: a short session as the launcher's own login that makes the catalog, or lets the row's user into it,
//! where that user may not. Nobody's trouble when it fails: the queue is served without the catalog, and says so.

use crate::catalog::{self, Lack};
use crate::event_loop::{Answer, PATIENCE, Scheduler};
use shared::db::link::{Link, LinkEvent};
use shared::db::migrate;
use std::time::{Duration, Instant};

/// An upgrade may build indexes.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(600);

impl Scheduler {
    /// The queue is served without the catalog. With a login that may know more, that one is asked for help first.
    pub(crate) fn lacks_catalog(&mut self, lack: Lack) {
        match &self.order.installer {
            Some(login) if lack.mendable && self.attendant.is_none() => {
                let region = Some(&self.start.region);
                let attendant = Link::dial(login, &self.application_name(), region, false);
                self.attendant = Some(attendant.beside(self.home.proof()));
                self.lack = Some(lack);
            }
            _ => self.say_lack(lack),
        }
    }

    pub(crate) fn attended(&mut self, event: LinkEvent<Answer>, now: Instant) {
        match event {
            LinkEvent::Up => {
                let (user, queue) = (self.order.target.user.clone(), self.queue.clone());
                let Some(attendant) = &mut self.attendant else { return };
                if self.upgrading {
                    attendant.ask("upgrading the catalog", UPGRADE_PATIENCE, |client| async move {
                        Ok(Answer::Upgraded(migrate::upgrade(&client, false).await?))
                    });
                } else {
                    attendant.ask("making the catalog", PATIENCE, |client| async move {
                        catalog::make(&client, Some(&user), &queue).await?;
                        Ok(Answer::Attended)
                    });
                }
            }
            LinkEvent::Answered(answer) => {
                self.attendant = None;
                self.answered(answer, now);
            }
            LinkEvent::Notified | LinkEvent::CatalogRang => {}
            LinkEvent::Lost(trouble) if self.upgrading => {
                self.attendant = None;
                self.upgrading = false;
                self.not_upgraded(trouble);
            }
            LinkEvent::Lost(trouble) => {
                self.attendant = None;
                shared::debug!("the launcher's login did not help", queue = self.label, why = trouble);
                if let Some(lack) = self.lack.take() {
                    self.say_lack(lack);
                }
            }
        }
    }

    /// The catalog is there for us now.
    pub(crate) fn admitted(&mut self) {
        self.lack = None;
        let (queue, statements) = (self.queue.clone(), self.statements.clone());
        if let (Some(link), Some(statements)) = (&mut self.link, statements) {
            link.ask("registering the queue", PATIENCE, move |client| async move {
                Ok(Answer::Registered(catalog::prepare(&client, &queue, statements.relid).await?))
            });
        }
    }

    /// In the notes, where `status` shows it, and once in the log.
    pub(crate) fn say_lack(&mut self, lack: Lack) {
        if self.said_lack.as_ref() == Some(&lack.why) {
            return;
        }
        shared::warning!("no catalog", queue = self.label, why = lack.why);
        self.notes().set_reason(&lack.why);
        self.start.ring_parent();
        self.said_lack = Some(lack.why);
    }
}
