//! The sessions of this process but those on remotes: opened and closed by commands, driven on every turn of the loop.

use crate::answer::Answer;
use crate::command::{Opening, Query, SessionName};
use nix::poll::PollFlags;
use shared::db::db_error::DbErrorKind;
use shared::db::link::{Link, LinkEvent};
use shared::region::Region;
use std::os::fd::BorrowedFd;
use std::time::Instant;

const NAMES: [SessionName; 5] =
    [SessionName::Queue, SessionName::Settings, SessionName::Repair, SessionName::Installer, SessionName::Graph];

#[derive(Debug, Default)]
pub struct Links {
    /// In the order of `NAMES`.
    links: [Option<Link<Answer>>; NAMES.len()],
}

impl Links {
    pub fn get(&self, session: SessionName) -> Option<&Link<Answer>> {
        self.links[session as usize].as_ref()
    }

    pub fn get_mut(&mut self, session: SessionName) -> Option<&mut Link<Answer>> {
        self.links[session as usize].as_mut()
    }

    pub fn is_open(&self, session: SessionName) -> bool {
        self.get(session).is_some()
    }

    /// `proof`: the number that another session on the same server must hold.
    pub fn open(&mut self, opening: &Opening, application_name: &str, region: &Region, proof: Option<i64>) {
        let link = Link::dial(&opening.target, application_name, Some(region), opening.doubtful);
        self.links[opening.session as usize] = Some(link.beside(proof.filter(|_| opening.beside)));
    }

    pub fn close(&mut self, session: SessionName) {
        self.links[session as usize] = None;
    }

    pub fn close_all(&mut self) {
        *self = Links::default();
    }

    /// Sends a query. Without the session it is dropped; `wrap` is how its answer comes back.
    pub fn send<A: 'static>(&mut self, query: Query<A>, wrap: fn(A) -> Answer) {
        let Query { session, what, timeout, refusable, question } = query;
        let Some(link) = self.get_mut(session) else { return };
        link.ask(what, timeout, move |client| async move {
            match (question(client).await, refusable) {
                (Err(db_error), Some(what)) if matches!(db_error.kind, DbErrorKind::Short | DbErrorKind::Busy) => {
                    Ok(Answer::Refused(what, db_error))
                }
                (answer, _) => Ok(wrap(answer?)),
            }
        });
    }

    /// What to poll for, the session that serves the queue first.
    pub fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.links.iter().flatten().filter_map(Link::interest)
    }

    /// When `drive` must be called even if nothing arrives. `graph`: its session counts.
    pub fn deadline(&self, graph: bool) -> Option<Instant> {
        let counted = NAMES.iter().zip(&self.links).filter(|(name, _)| graph || **name != SessionName::Graph);
        counted.filter_map(|(_, link)| link.as_ref()?.deadline()).min()
    }

    /// Drives one session as far as it goes without waiting.
    pub fn drive(&mut self, session: SessionName, now: Instant) -> Vec<LinkEvent<Answer>> {
        self.get_mut(session).map(|link| link.drive(now)).unwrap_or_default()
    }

    /// The sessions beside the one that serves the queue.
    pub fn others() -> impl Iterator<Item = SessionName> {
        NAMES.into_iter().skip(1)
    }
}
