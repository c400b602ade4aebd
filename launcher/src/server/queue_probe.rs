//! The short sessions that read which task tables covered databases have: one at a time, each with the launcher's own
//! login, and each reads system catalogs only.

use crate::base::LauncherBase;
use crate::limits::ANSWER_TIMEOUT;
use crate::queue::database_list::DatabaseList;
use crate::queue::found_queue::{FoundQueue, list_queues};
use crate::queue::start_conditions::StartConditions;
use nix::poll::PollFlags;
use shared::db::link::{Link, LinkEvent};
use shared::process::order::WaitFor;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::Instant;

#[derive(Debug, Default)]
pub struct QueueProbe {
    probed: HashMap<u32, Instant>,
    at: Option<(u32, Link<Vec<FoundQueue>>)>,
}

impl QueueProbe {
    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.at.as_ref().and_then(|(_, link)| link.interest())
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.at.as_ref().and_then(|(_, link)| link.deadline())
    }

    /// Begins with the next database that is due. One in which a message's transaction is open is searched at its end.
    pub fn pass(&mut self, databases: &DatabaseList, open: &impl StartConditions, base: &LauncherBase, now: Instant) {
        if self.at.as_ref().is_some_and(|(database, _)| open.held(*database)) {
            self.at = None;
        }
        if self.at.is_some() {
            return;
        }
        self.probed.retain(|database, _| databases.covers(*database));
        let waits = |database| open.waits_for(database, None) != WaitFor::default() || open.held_back(database);
        let due = |database: &u32| {
            let asked = databases.is_to_be_searched(*database) && !waits(*database);
            let late = self.probed.get(database).is_none_or(|at| now >= *at + base.probe);
            !open.held(*database) && (asked || late)
        };
        let Some(database) = databases.covered().find(due) else { return };
        let Some(target) = databases.probe_login(database) else { return };
        self.probed.insert(database, now);
        self.at = Some((database, Link::dial(&target, "pg_conf", Some(&base.region), false)));
    }

    /// Drives the session; returns what it has read, or nothing if that cannot be read now.
    pub fn drive(&mut self, now: Instant) -> Option<(u32, Option<Vec<FoundQueue>>)> {
        let (database, link) = self.at.as_mut()?;
        let database = *database;
        for event in link.drive(now) {
            match event {
                LinkEvent::Up => {
                    link.ask("listing queues", ANSWER_TIMEOUT, |client| async move { list_queues(&client).await });
                }
                LinkEvent::Answered(queues) => {
                    self.at = None;
                    return Some((database, Some(queues)));
                }
                LinkEvent::Notified | LinkEvent::CatalogChanged => {}
                LinkEvent::Lost(db_error) => {
                    shared::debug!("cannot list the queues of a database", database = database, why = db_error);
                    self.at = None;
                    return Some((database, None));
                }
            }
        }
        None
    }
}
