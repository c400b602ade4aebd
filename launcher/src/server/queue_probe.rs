//! The short sessions that read which task tables covered databases have: one at a time, each as the launcher's own
//! login, and each reads system catalogs only.

use crate::limits::ANSWER_TIMEOUT;
use crate::queue::found_queue::{FoundQueue, list_queues};
use crate::queue::queue_table::QueueTable;
use nix::poll::PollFlags;
use shared::db::link::{Link, LinkEvent};
use shared::region::Region;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct QueueProbe {
    period: Duration,
    probed: HashMap<u32, Instant>,
    at: Option<(u32, Link<Vec<FoundQueue>>)>,
}

impl QueueProbe {
    pub fn new(period: Duration) -> QueueProbe {
        QueueProbe { period, probed: HashMap::new(), at: None }
    }

    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.at.as_ref().and_then(|(_, link)| link.interest())
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.at.as_ref().and_then(|(_, link)| link.deadline())
    }

    /// Begins with the next database that is due. `held`: databases that nothing of ours may be in. `waits`: databases
    /// in which a transaction is open whose end is to be seen.
    pub fn pass(
        &mut self,
        rows: &QueueTable,
        region: &Region,
        held: impl Fn(u32) -> bool,
        waits: impl Fn(u32) -> bool,
        now: Instant,
    ) {
        if self.at.as_ref().is_some_and(|(database, _)| held(*database)) {
            self.at = None;
        }
        if self.at.is_some() {
            return;
        }
        self.probed.retain(|database, _| rows.covered.contains(database));
        let due = |database: &u32| {
            let asked = rows.to_look.contains(database) && !waits(*database);
            let late = self.probed.get(database).is_none_or(|at| now >= *at + self.period);
            !held(*database) && (asked || late)
        };
        let Some(database) = rows.covered.iter().copied().find(due) else { return };
        let Some(target) = rows.probe_login(database) else { return };
        self.probed.insert(database, now);
        self.at = Some((database, Link::dial(&target, "pg_conf", Some(region), false)));
    }

    /// Drives the session; gives what it has read, or nothing if that cannot be read now.
    pub fn turn(&mut self, now: Instant) -> Option<(u32, Option<Vec<FoundQueue>>)> {
        let (database, link) = self.at.as_mut()?;
        let database = *database;
        for event in link.turn(now) {
            match event {
                LinkEvent::Up => {
                    link.ask("listing queues", ANSWER_TIMEOUT, |client| async move { list_queues(&client).await });
                }
                LinkEvent::Answered(queues) => {
                    self.at = None;
                    return Some((database, Some(queues)));
                }
                LinkEvent::Notified | LinkEvent::CatalogRang => {}
                LinkEvent::Lost(trouble) => {
                    shared::debug!("cannot list the queues of a database", database = database, why = trouble);
                    self.at = None;
                    return Some((database, None));
                }
            }
        }
        None
    }
}
