//! How a worker gets its session: from the pool, or by a login of its own, which it then offers to the pool.
//!
//! A lost session is opened again on the server where the scheduler is at that moment. A task whose effects are on another
//! server is not recorded there.

use super::budget::connect_within_budget;
use super::setup;
use crate::task_row::TaskRow;
use crate::wire::{ConnectError, QueryError, Session};
use shared::conninfo::Place;
use shared::db::pinned::WATCH;
use shared::db::server::{ServerName, apart, is_elsewhere, proof_item};
use shared::db::statement::{NAME_SERVER, NAME_SERVER_BRIEFLY, bare};
use shared::process::order::{Offered, PooledConnection, WorkerOrder, encode};
use shared::region::{Region, SlotHandle};
use shared::sys::pass;
use std::cell::Cell;
use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Opens the sessions of one worker.
#[derive(Debug)]
pub(crate) struct Connector<'a> {
    order: &'a WorkerOrder,
    region: &'a Region,
    slot: SlotHandle,
    /// Where the first connection of our own is offered to the pool.
    offer_to: Option<&'a OwnedFd>,
    offered: Cell<bool>,
}

/// Why there is no session on which a result may be recorded.
#[derive(Debug)]
pub(crate) enum NotReopened {
    /// The server is away, or its scheduler has no session there yet; this may pass.
    Yet(String),
    /// The scheduler works on another server, which need not know what the task has done.
    Elsewhere(String),
}

impl<'a> Connector<'a> {
    pub(crate) fn new(
        order: &'a WorkerOrder,
        region: &'a Region,
        slot: SlotHandle,
        offer_to: Option<&'a OwnedFd>,
    ) -> Connector<'a> {
        Connector { order, region, slot, offer_to, offered: Cell::new(false) }
    }

    /// Our launcher is known to lead.
    pub(crate) fn is_led(&self) -> bool {
        self.region.leads()
    }

    /// The connection of the pool that the fork has handed down.
    pub(crate) fn inherit(&self, description: &PooledConnection, socket: &OwnedFd) -> Option<Session> {
        let socket = socket.try_clone().ok()?;
        Session::inherit(socket, description, &self.order.target, (self.region.clone(), self.slot))
    }

    /// Connects as the queue's user. Texts are carried as UTF-8, but for a SQL_ASCII database, which may hold any bytes:
    /// there they are carried as they are. Nothing in the worker depends on it, because it treats all text as bytes.
    pub(crate) fn open(&self) -> Result<Session, ConnectError> {
        let order = self.order;
        let settings = match &order.group {
            Some(group) => setup::login_of_group(order, group),
            None => vec![("application_name", setup::application_name(order))],
        };
        let mut session = self.connect("UTF8", &settings)?;
        if session.parameter("server_encoding") == Some(b"SQL_ASCII") {
            session.close();
            session = self.connect("SQL_ASCII", &settings)?;
        }
        if let Some(group) = &order.group {
            session.set_group(group);
        }
        if !order.target.late_settings {
            self.offer(&mut session);
        }
        Ok(session)
    }

    /// Connects for this one task. Whether the login has brought its settings.
    pub(crate) fn open_for(&self, row: &TaskRow) -> Result<(Session, bool), ConnectError> {
        match setup::login(self.order, row) {
            Some(settings) => self.connect("UTF8", &settings).map(|session| (session, true)),
            None => self.open().map(|session| (session, false)),
        }
    }

    fn connect(&self, encoding: &str, settings: &[(&'static str, String)]) -> Result<Session, ConnectError> {
        let mut parameters = vec![("client_encoding", encoding)];
        parameters.extend(settings.iter().map(|(name, value)| (*name, value.as_str())));
        // The server looks for us every 300 ms while it works: a killed worker's statement must not run on.
        parameters.extend(WATCH);
        let target = &self.order.target;
        connect_within_budget(self.region, target, &parameters, Instant::now() + target.total_connect_timeout())
    }

    /// Lets the parent inherit a connection of our own, once. If anything prevents that, the connection stays ours.
    fn offer(&self, session: &mut Session) {
        let Some(pool) = self.offer_to.filter(|_| !self.offered.replace(true)) else { return };
        // The function under the view pg_stat_activity: a new session would spend two milliseconds on reading what the view
        // joins.
        let query = "SELECT extract(epoch FROM a.backend_start)::pg_catalog.text \
                       FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a";
        let rows = session.execute(query, &[]).unwrap_or_default();
        let began = rows.into_iter().flatten().flatten().next().and_then(|text| String::from_utf8(text).ok());
        let Some(pooled) = began.and_then(|began| session.to_pooled(began)) else { return };
        let pid = nix::unistd::getpid().as_raw();
        let offered =
            encode(&Offered { slot: self.slot.index(), pid, connection_permit: session.connection_permit(), pooled });
        if pass::send(pool, &offered, &*session).is_ok() {
            session.bequeath((self.region.clone(), self.slot));
        }
    }

    /// A session in the place of a lost one, on the server where the scheduler is at this moment. `effects`: only if what
    /// the task has done on the server of its order is known there.
    pub(crate) fn reopen(&self, effects: bool) -> Result<Session, NotReopened> {
        let yet = |why: &dyn fmt::Display| NotReopened::Yet(why.to_string());
        let mut session = self.open().map_err(|error| yet(&error))?;
        let Some(home) = &self.order.home else { return Ok(session) };
        let proof = self.scheduler_proof().ok_or_else(|| yet(&"the scheduler has no session"))?;
        match session.execute(&format!("SELECT {}", proof_item(proof)), &[]) {
            Ok(_) => {}
            Err(QueryError::Server(refusal)) if is_elsewhere(refusal.code(), refusal.message()) => {
                let why = self.why_elsewhere(&mut session);
                session.taint();
                session.close();
                return Err(yet(&why));
            }
            Err(error) => return Err(yet(&error)),
        }
        if !effects {
            return Ok(session);
        }
        let name = name_server(&mut session, self.order).map_err(|error| yet(&error))?;
        if name.has_the_data_of(&home.name) {
            return Ok(session);
        }
        session.close();
        Err(NotReopened::Elsewhere(format!("the task ran on server {}; its queue is now served on {name}", home.name)))
    }

    fn scheduler_proof(&self) -> Option<i64> {
        self.region.scheduler_proof(self.slot)
    }

    /// A session that did not pass the proof: on which server it is, and on which its scheduler was. If that is one and the
    /// same, the scheduler's session has only been opened again.
    pub(crate) fn why_elsewhere(&self, session: &mut Session) -> String {
        let name = name_server(session, self.order);
        match (name, &self.order.home) {
            (Ok(here), Some(home))
                if self.scheduler_proof() == Some(home.proof) && !here.has_the_data_of(&home.name) =>
            {
                apart("a worker", &here, &format!("its scheduler is connected to server {}", home.name))
            }
            _ => "the scheduler's session was lost before the task began".to_owned(),
        }
    }
}

/// Which server a session is on; its place as the scheduler calls it, which compares them.
fn name_server(session: &mut Session, order: &WorkerOrder) -> Result<ServerName, QueryError> {
    let rows = match session.execute(&bare(NAME_SERVER), &[]) {
        Err(QueryError::Server(refusal)) if refusal.code() == Some(b"42501") => {
            session.execute(&bare(NAME_SERVER_BRIEFLY), &[])
        }
        rows => rows,
    }?;
    let mut values = rows.into_iter().next().unwrap_or_default().into_iter();
    let mut next = || values.next().flatten().and_then(|text| String::from_utf8(text).ok());
    let facts = [next(), next(), next()];
    let place = order.target.places.get(session.place()).map_or_else(|| session.whereabouts(), Place::to_string);
    Ok(ServerName::new(place, facts))
}

/// The task has not changed the encoding: its texts can be recorded on a session that is reset.
pub(crate) fn is_as_opened(session: &Session) -> bool {
    let ascii = session.parameter("server_encoding") == Some(b"SQL_ASCII");
    session.parameter("client_encoding") == Some(if ascii { b"SQL_ASCII" } else { b"UTF8" })
}
