//! The launcher's own session in its database: one at a time, with whatever answers the event loop wants from it.

use crate::host::Signature;
use crate::loop_command::LauncherQuery;
use nix::poll::PollFlags;
use shared::conninfo::{Preferred, Target};
use shared::db::link::{Link, LinkEvent};
use shared::region::Region;
use std::os::fd::BorrowedFd;
use std::time::Instant;

#[derive(Debug)]
pub struct LauncherSession<A> {
    link: Option<Link<A>>,
    /// A session with this login was known to have a backend of its own.
    proven: bool,
}

impl<A: 'static> LauncherSession<A> {
    pub fn new() -> LauncherSession<A> {
        LauncherSession { link: None, proven: false }
    }

    pub fn open(&mut self, target: &Target, region: &Region) {
        self.link = Some(Link::dial(target, "pg_conf", Some(region), !self.proven));
    }

    /// It is connected.
    pub fn connected(&mut self) {
        self.proven |= self.link.as_ref().is_some_and(Link::is_proven);
    }

    pub fn close(&mut self) {
        self.link = None;
    }

    /// The next session has another login, of which nothing is known yet.
    pub fn login_changed(&mut self) {
        self.proven = false;
    }

    /// The place of its server, while it has one.
    pub fn place(&self) -> Option<(Preferred, String)> {
        self.link.as_ref().and_then(Link::place)
    }

    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.link.as_ref().and_then(Link::interest)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.link.as_ref().and_then(Link::deadline)
    }

    pub fn drive(&mut self, now: Instant) -> Vec<LinkEvent<A>> {
        self.link.as_mut().map(|link| link.drive(now)).unwrap_or_default()
    }

    /// Sends a component's query, if there is a session; `wrap` is how the answer comes back.
    pub fn ask<B: 'static>(&mut self, query: LauncherQuery<B>, signature: Signature, wrap: fn(B) -> A) {
        let LauncherQuery { what, timeout, question } = query;
        if let Some(link) = &mut self.link {
            link.ask(what, timeout, |client| {
                let answer = question(client, signature);
                async move { Ok(wrap(answer.await?)) }
            });
        }
    }
}
