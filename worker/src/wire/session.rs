//! One logged-in connection: how it is opened, inherited, left to the parent and closed, and what is known of it.

use super::cancel::Canceller;
use super::dial::{Peer, dial, look_up};
use super::error::{ConnectError, QueryError};
use super::incoming::{ServerSettings, TransactionStatus};
use super::link::WireLink;
use super::outgoing::Outgoing;
use super::pipe::Alarm;
use super::prepared::PreparedStatements;
use super::startup;
use crate::limits::{ANSWER_TIMEOUT, CLOSE_TIMEOUT};
use shared::conninfo::{Place, Target};
use shared::db::pinned;
use shared::db::route::{ConnectAttempt, Cover, Leg, Route};
use shared::db::tls::PreparedTls;
use shared::process::order::PooledConnection;
use shared::region::{ConnectionPermit, ConnectionReceipt, Region, SlotHandle};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// One logged-in connection. Dropping it closes the socket without a farewell.
pub struct Session {
    pub(super) link: WireLink,
    pub(super) canceller: Canceller,
    pub(super) parameters: ServerSettings,
    pub(super) status: TransactionStatus,
    pub(super) prepared: PreparedStatements,
    /// How long statements of ours may take.
    pub(super) answer_timeout: Duration,
    /// Its place in the budget of connections.
    pub(super) connection_permit: Option<ConnectionPermit>,
    /// Requests that end with a ReadyForQuery, sent and seen.
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// A cancel was sent: it may still be on its way.
    pub(super) tainted: bool,
    /// Left to the parent at the end, in the name of this slot.
    pub(super) heir: Option<(Region, SlotHandle)>,
    /// Which of the target's places it is at.
    pub(super) place: usize,
    /// The server asked for a password, and it was right.
    pub(super) password_counted: bool,
    /// The group that it was told by its login.
    pub(super) group: Option<String>,
}

/// What a session is made by.
struct LoginTarget<'a> {
    target: &'a Target,
    parameters: &'a [(&'a str, &'a str)],
    attempt: &'a ConnectAttempt,
    peer: Peer,
    tls: Option<PreparedTls>,
}

/// What a startup message may hold behind a pooler that knows only the usual; the rest is set afterwards.
const USUAL_PARAMETERS: [&str; 2] = ["application_name", "client_encoding"];

impl Session {
    /// Walks the target's route to a session, all of it before the deadline and each address within the target's own
    /// limit. The parameters (application_name and the like) go into the startup message, or are set afterwards where
    /// something on the way refuses them; an `options` among them is added to the target's, a `client_encoding`
    /// takes the place of UTF8 (a database in SQL_ASCII may hold bytes that UTF8 refuses).
    pub fn connect(target: &Target, parameters: &[(&str, &str)], deadline: Instant) -> Result<Session, ConnectError> {
        let mut route = Route::new(target);
        let mut leg = route.begin(ConnectError::NoConnectionPermit);
        loop {
            let soon = deadline.min(Instant::now() + target.connect_timeout());
            leg = match leg {
                Leg::Over(error) => return Err(error),
                Leg::Resolve { host, port } => match look_up(&host, port, soon) {
                    Ok(found) => {
                        let error = ConnectError::Io {
                            attempted: "look up",
                            place: host,
                            source: std::io::ErrorKind::NotFound.into(),
                        };
                        route.resolved(found, error)
                    }
                    Err(error) => route.failed(&error.failure(false), error),
                },
                Leg::Dial(attempt) => {
                    let mut encrypted = false;
                    match Session::attempt(&route, &attempt, parameters, soon, &mut encrypted) {
                        Ok(session) => return Ok(session),
                        Err(error) => route.failed(&error.failure(encrypted), error),
                    }
                }
            };
        }
    }

    fn attempt(
        route: &Route,
        attempt: &ConnectAttempt,
        parameters: &[(&str, &str)],
        deadline: Instant,
        encrypted: &mut bool,
    ) -> Result<Session, ConnectError> {
        let target = route.target();
        let peer = Peer::of(attempt);
        let place = peer.to_string();
        let mut tls = match (target.tls_at(&attempt.place), &attempt.place) {
            (Some(tls), Place::Tcp { host, .. }) if attempt.cover != Cover::Plain => {
                let prepared = shared::db::tls::prepare(tls, host);
                Some(prepared.map_err(|source| ConnectError::Tls { place: place.clone(), source })?)
            }
            _ => None,
        };
        let mut link = WireLink::new(dial(&peer, &target.keepalive, deadline)?, Some(deadline));
        if let Some(prepared) = &tls {
            *encrypted = link.encrypt(prepared, attempt.cover == Cover::Insisted, &place)?;
        }
        tls = tls.filter(|_| *encrypted);
        let mut session = Session::log_in(link, LoginTarget { target, parameters, attempt, peer, tls })?;
        let report = |name| session.parameter(name).and_then(|value| std::str::from_utf8(value).ok());
        route
            .suits(report("in_hot_standby"), report("default_transaction_read_only"))
            .map_err(|why| ConnectError::Unsuitable { place: place.clone(), why })?;
        if target.late_settings {
            session.set_late(parameters, &place)?;
        }
        session.link.set_deadline(None);
        Ok(session)
    }

    fn log_in(mut link: WireLink, login: LoginTarget<'_>) -> Result<Session, ConnectError> {
        let LoginTarget { target, parameters, attempt, peer, tls } = login;
        let usual: Vec<(&str, &str)> = parameters
            .iter()
            .filter(|(name, _)| !target.late_settings || USUAL_PARAMETERS.contains(name))
            .copied()
            .collect();
        let greeting = startup::log_in(&mut link, target, &attempt.place, &usual, &peer.to_string())?;
        link.forget_long();
        let key = (greeting.pid, greeting.secret);
        Ok(Session {
            link,
            canceller: Canceller { peer, keepalive: target.keepalive, tls, key, backend: greeting.pid },
            parameters: greeting.parameters,
            status: greeting.status,
            prepared: PreparedStatements::of(greeting.pid),
            answer_timeout: ANSWER_TIMEOUT,
            connection_permit: None,
            asked: 0,
            answered: 0,
            tainted: false,
            heir: None,
            place: target.index_of(&attempt.place),
            password_counted: greeting.password_counted,
            group: None,
        })
    }

    /// Goes on with a connection that an earlier worker has left, and that its parent has made as new.
    pub fn inherit(
        socket: OwnedFd,
        pooled: &PooledConnection,
        target: &Target,
        heir: (Region, SlotHandle),
    ) -> Option<Session> {
        let place = target.places.get(pooled.place)?.clone();
        let peer = Peer::of(&ConnectAttempt { place, address: pooled.address, cover: Cover::Plain });
        let text = |(name, value): &(String, String)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let (keepalive, key, backend) = (target.keepalive, pooled.key, pooled.backend);
        Some(Session {
            link: WireLink::new(socket, None),
            canceller: Canceller { peer, keepalive, tls: None, key, backend },
            parameters: pooled.parameters.iter().map(text).collect(),
            status: TransactionStatus::Idle,
            prepared: PreparedStatements::of(pooled.backend),
            answer_timeout: ANSWER_TIMEOUT,
            connection_permit: None,
            asked: 0,
            answered: 0,
            tainted: false,
            heir: Some(heir),
            place: pooled.place,
            password_counted: false,
            group: None,
        })
    }

    /// What another process must know to go on with it; None: it is encrypted, and nobody else can.
    pub fn to_pooled(&self, began: String) -> Option<PooledConnection> {
        if self.canceller.tls.is_some() || self.link.is_encrypted() {
            return None;
        }
        let address = match &self.canceller.peer {
            Peer::Unix(_) => None,
            Peer::Tcp { address, .. } => Some(*address),
        };
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).ok();
        let parameters = self.parameters.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        Some(PooledConnection {
            backend: self.canceller.backend,
            began,
            key: self.canceller.key,
            place: self.place,
            address,
            parameters: parameters.collect(),
        })
    }

    /// At its end the connection is left to the parent, not closed. The parent has a copy of the socket, and takes the
    /// permit over as soon as it polls; until then it stays in our name, or the budget would count one too few.
    pub fn bequeath(&mut self, heir: (Region, SlotHandle)) {
        self.heir = Some(heir);
        std::mem::forget(self.connection_permit.take());
    }

    pub fn connection_permit(&self) -> Option<u64> {
        self.connection_permit.as_ref().map(ConnectionPermit::place)
    }

    /// A cancel was sent to it: whatever comes next, it is not left to anybody.
    pub fn taint(&mut self) {
        self.tainted = true;
    }

    /// What could not go into the startup message; and who the backend is, since a pooler has its own numbers.
    fn set_late(&mut self, parameters: &[(&str, &str)], place: &str) -> Result<(), ConnectError> {
        let late: Vec<(&str, &str)> = parameters
            .iter()
            .filter(|(name, _)| !USUAL_PARAMETERS.contains(name) && *name != "options")
            .copied()
            .collect();
        let sql = format!("{}, pg_catalog.pg_backend_pid()", pinned::set(&late));
        let sql = if late.is_empty() { "SELECT pg_catalog.pg_backend_pid()".to_owned() } else { sql };
        match self.execute(&sql, &[]) {
            Ok(rows) => {
                self.learn_backend(rows.first().and_then(|row| row.last()).and_then(Option::as_deref));
                Ok(())
            }
            Err(QueryError::Server(error)) => Err(ConnectError::Server(error)),
            Err(QueryError::Link(lost)) => Err(ConnectError::Io {
                attempted: "log in to",
                place: place.to_owned(),
                source: std::io::Error::other(lost.to_string()),
            }),
        }
    }

    /// The backend's number as the server itself tells it.
    pub fn learn_backend(&mut self, text: Option<&[u8]>) {
        let number = text.and_then(|text| std::str::from_utf8(text).ok()).and_then(|text| text.parse().ok());
        self.canceller.backend = number.unwrap_or(self.canceller.backend);
    }

    /// If an answer is not there by then, `wake` is called, once.
    pub fn set_alarm(&mut self, at: Instant, wake: impl FnOnce() + Send + 'static) {
        self.link.set_alarm(Some(Alarm { at, wake: Box::new(wake) }));
    }

    pub fn clear_alarm(&mut self) {
        self.link.set_alarm(None);
    }

    /// Holds a place in the budget as long as the session lives.
    pub fn set_connection_permit(&mut self, connection_permit: Option<ConnectionPermit>) {
        self.connection_permit = connection_permit;
    }

    /// Where the session stood when its last request ended.
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// The server's process, as in pg_stat_activity.
    pub fn backend_pid(&self) -> i32 {
        self.canceller.backend
    }

    /// Which of the target's places the session is at.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The server's address, for messages.
    pub fn whereabouts(&self) -> String {
        self.canceller.peer.to_string()
    }

    pub fn is_encrypted(&self) -> bool {
        self.link.is_encrypted()
    }

    /// Its login has told it the group.
    pub fn set_group(&mut self, group: &str) {
        self.group = Some(group.to_owned());
    }

    /// However often its settings are reset, they are right for tasks of this group.
    pub fn is_of_group(&self, group: &[u8]) -> bool {
        self.group.as_ref().is_some_and(|own| own.as_bytes() == group)
    }

    /// The server let us in because of the password.
    pub fn password_counted(&self) -> bool {
        self.password_counted
    }

    /// A setting that the server reports (server_version, client_encoding, ..), as last told.
    pub fn parameter(&self, name: &str) -> Option<&[u8]> {
        self.parameters.get(name.as_bytes()).map(Vec::as_slice)
    }

    /// The means to cancel this session from another thread.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Was something received that no request has read yet (a farewell, a changed parameter)? Polling the
    /// descriptor does not see it.
    pub fn has_unread(&self) -> bool {
        self.link.has_unread()
    }

    /// Says farewell and closes. A server that no longer listens is closed all the same. A connection that the parent
    /// inherits is left as it is, with a word about its state; a tainted one without.
    pub fn close(mut self) {
        if let Some((region, slot)) = self.heir.take() {
            let status = match self.status {
                TransactionStatus::Idle => b'I',
                TransactionStatus::InBlock => b'T',
                TransactionStatus::Failed => b'E',
            };
            let unread = u64::from(self.link.has_unread());
            if !self.tainted {
                region.leave_clean(
                    slot,
                    ConnectionReceipt { status, unread, asked: self.asked, answered: self.answered },
                );
            }
            return;
        }
        self.link.set_deadline(Some(Instant::now() + CLOSE_TIMEOUT));
        let mut farewell = Outgoing::default();
        farewell.own(b"X\0\0\0\x04");
        let _ = self.link.send_all(&mut farewell);
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?}, {:?}, {:?})", self.canceller, self.status, self.connection_permit.is_some())
    }
}
