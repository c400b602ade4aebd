//! How a link comes up: the two permits, the legs of its route, the greeting, and the probe for poolers.

use super::session::{LinkSession, greet};
use super::{Link, LinkEvent, Role, Stage, UNKNOWN, advised, nowhere};
use crate::conninfo::{Place, SessionAttributes};
use crate::db::address::Resolving;
use crate::db::db_error::DbError;
use crate::db::dial::{Dialling, Failed};
use crate::db::route::{Failure, Leg};
use crate::limits::PROBE_TIMEOUT;
use crate::region::server_key;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

impl<A> Link<A> {
    /// The connection permit first, then the connect permit: without the first the second is of no use.
    pub(super) fn queue(&mut self, since: Instant, now: Instant) -> Result<(), DbError> {
        if let Some(region) = &self.region {
            let key = server_key(self.route.target());
            self.connection_permit = self.connection_permit.take().or_else(|| region.take_connection_permit());
            if self.connection_permit.is_some() {
                self.connect_permit = region.take_connect_permit(key);
            }
            if self.connection_permit.is_none() && now >= since + self.route.target().connect_timeout() {
                return Err(DbError::passing("the budget of connections is used up; raise connections in the config"));
            }
            if self.connect_permit.is_none() {
                return Ok(());
            }
        }
        let leg = self.route.begin(nowhere());
        self.follow(now, leg)
    }

    /// What the route says next.
    pub(super) fn follow(&mut self, now: Instant, mut leg: Leg<DbError>) -> Result<(), DbError> {
        // Bounded: each turn of it uses up an address, a host, or the one change of cover.
        loop {
            self.deadline = now + self.route.target().connect_timeout();
            self.woken.0.store(true, SeqCst);
            leg = match leg {
                Leg::Over(db_error) => return Err(db_error),
                Leg::Resolve { host, port } => match Resolving::start(&host, port) {
                    Ok(resolving) => {
                        self.stage = Stage::Resolving(resolving);
                        return Ok(());
                    }
                    Err(error) => {
                        let db_error = DbError::passing(format!("cannot resolve \"{host}\": {error}{UNKNOWN}"));
                        self.route.failed(&Failure::Unreachable, db_error)
                    }
                },
                Leg::Dial(attempt) => match Dialling::begin(self.route.target(), &attempt, &self.application_name) {
                    Ok(dialling) => {
                        self.stage = Stage::Dialling(Box::new(dialling));
                        return Ok(());
                    }
                    Err(Failed { failure, db_error }) => {
                        let db_error = self.located(advised(&failure, db_error));
                        self.adjust_connect_limit(&failure);
                        self.route.failed(&failure, db_error)
                    }
                },
            };
        }
    }

    pub(super) fn go_on(&mut self, now: Instant, failure: Failure, db_error: DbError) -> Result<(), DbError> {
        let db_error = self.located(db_error);
        self.adjust_connect_limit(&failure);
        let leg = self.route.failed(&failure, db_error);
        self.follow(now, leg)
    }

    /// A server that is away is approached by one, then by two, then by four.
    pub(super) fn adjust_connect_limit(&self, failure: &Failure) {
        let away = match failure {
            Failure::Unreachable | Failure::Broken => true,
            Failure::Refused { code, .. } => code.starts_with("57P") || code.starts_with("53"),
            Failure::Tls | Failure::SettingsRefused | Failure::Unsuitable => false,
        };
        if let (Some(connect_permit), true) = (&self.connect_permit, away) {
            connect_permit.narrow();
        }
    }

    pub(super) fn greet(
        &mut self,
        now: Instant,
        session: LinkSession,
        events: &mut Vec<LinkEvent<A>>,
    ) -> Result<(), DbError> {
        let parameter = |name| session.conversation.parameter(name);
        let suits = self.route.suits(parameter("in_hot_standby"), parameter("default_transaction_read_only"));
        if let Err(why) = suits {
            return self.go_on(now, Failure::Unsuitable, DbError::passing(why));
        }
        if let Some(connect_permit) = self.connect_permit.take() {
            connect_permit.widen();
        }
        let late = self.route.target().late_settings && !self.route.target().foreign;
        if !late && self.role == Role::Trusted && self.proof.is_none() {
            self.stage = Stage::Up(session);
            events.push(LinkEvent::Up);
            return Ok(());
        }
        let greeting = Box::pin(greet(session.client.clone(), late, self.proof));
        self.stage = Stage::Greeting { session, greeting };
        self.woken.0.store(true, SeqCst);
        Ok(())
    }

    /// A second connection, to the very same place.
    pub(super) fn probe(&mut self, events: &mut Vec<LinkEvent<A>>) {
        let Stage::Greeting { session, .. } = std::mem::replace(&mut self.stage, Stage::Down) else { return };
        if self.role != Role::Doubtful {
            self.stage = Stage::Up(session);
            events.push(LinkEvent::Up);
            return;
        }
        let mut target = self.route.target().clone();
        target.attributes = SessionAttributes::Any;
        if let Some(attempt) = self.route.attempt() {
            let mut place = attempt.place.clone();
            if let (Place::Tcp { address, .. }, Some(dialled)) = (&mut place, attempt.address) {
                *address = Some(dialled.ip());
            }
            target.places = vec![place];
        }
        let mut probe = Link::dial(&target, &self.application_name, self.region.as_ref(), false);
        probe.role = Role::Probe;
        self.deadline = Instant::now() + PROBE_TIMEOUT;
        self.stage = Stage::Probing { session, probe: Box::new(probe) };
        self.woken.0.store(true, SeqCst);
    }

    pub(super) fn probed(&mut self, said: &[LinkEvent<()>], events: &mut Vec<LinkEvent<A>>) -> Result<(), DbError> {
        let Stage::Probing { probe, .. } = &self.stage else { return Ok(()) };
        let failed = said.iter().any(|event| matches!(event, LinkEvent::Lost(_)));
        let theirs = probe.backend;
        if theirs.is_none() && !failed {
            return Ok(());
        }
        if theirs.is_some() && theirs == self.backend {
            return Err(DbError::standing(
                "a transaction-pooling proxy is between pgmill and the server, so advisory locks do not hold; connect \
                 to the server itself, or set pool_mode=session for this database and user",
            ));
        }
        if theirs.is_some() {
            self.role = Role::Trusted;
        }
        self.end_probe(events);
        Ok(())
    }

    pub(super) fn end_probe(&mut self, events: &mut Vec<LinkEvent<A>>) {
        if let Stage::Probing { session, .. } = std::mem::replace(&mut self.stage, Stage::Down) {
            self.stage = Stage::Up(session);
            self.woken.0.store(true, SeqCst);
            events.push(LinkEvent::Up);
        }
    }
}
