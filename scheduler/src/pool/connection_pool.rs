//! Connections that one worker leaves and the next one uses: a process per task need not mean a login per task.
//!
//! A worker that has to connect offers its connection, with the socket; from then on it is in the pool. When that worker is
//! gone, and only if it left in order (`returned`), the connection is reset (`reset`) and handed to a worker that is just being
//! forked. While a worker has it the scheduler does not touch the socket. Any other connection is closed (`connection`).

use super::connection::{Connection, ConnectionState};
use crate::command::{Command, Refused, refusable};
use crate::limits::{CLOSE_PAUSE, CLOSE_TIMEOUT, POOL_SIZE};
use crate::turn::Turn;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::Pid;
use shared::db::db_error::DbError;
use shared::process::order::{Offered, PooledConnection};
use shared::region::{Region, SlotHandle};
use shared::sys::pass;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

#[cfg(test)]
mod tests;

/// Whether the backend of a connection that is not trusted any more is gone.
#[derive(Debug)]
pub struct PoolAnswer {
    pub backend: i32,
    pub gone: bool,
}

/// A backend that is to be terminated.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ToTerminate {
    backend: i32,
    began: String,
}

/// A connection that was reserved.
#[derive(Debug)]
pub enum Checkout {
    Here(Rc<PooledConnection>, OwnedFd),
    /// It is being reset.
    Resetting,
    /// Its reset has failed.
    Gone,
}

#[derive(Debug)]
pub struct ConnectionPool {
    ours: OwnedFd,
    theirs: OwnedFd,
    connections: Vec<Connection>,
    session_defaults: Option<i64>,
}

impl ConnectionPool {
    pub fn open() -> io::Result<ConnectionPool> {
        let (ours, theirs) = pass::pair()?;
        Ok(ConnectionPool { ours, theirs, connections: Vec::new(), session_defaults: None })
    }

    /// The settings of new sessions, as they were last read.
    pub fn session_defaults(&self) -> Option<i64> {
        self.session_defaults
    }

    /// Connections that began with other settings are closed.
    pub fn set_session_defaults(&mut self, session_defaults: i64) {
        if self.session_defaults.replace(session_defaults) != Some(session_defaults) {
            self.outdate(Instant::now());
        }
    }

    /// None of the present connections is used again.
    pub fn outdate(&mut self, now: Instant) {
        for connection in &mut self.connections {
            connection.outdated = true;
        }
        self.close_idle(now, 0);
    }

    /// As many workers can start without a login.
    pub fn idle(&self) -> usize {
        self.connections.iter().filter(|connection| matches!(connection.state, ConnectionState::Idle)).count()
    }

    /// As many can be reserved: idle ones, and those whose reset ends in a moment.
    pub fn available(&self, now: Instant) -> usize {
        self.idle() + self.connections.iter().filter(|connection| connection.is_reset_soon(now)).count()
    }

    /// Backends that run nothing: a row that names one of them is not being run by it.
    pub fn idle_backends(&self) -> Vec<i32> {
        let quiet = |connection: &&Connection| {
            matches!(
                connection.state,
                ConnectionState::Idle | ConnectionState::Reserved | ConnectionState::Resetting { .. }
            )
        };
        self.connections.iter().filter(quiet).map(|connection| connection.facts.backend).collect()
    }

    /// Backends that do not run `task`, whatever its row says: idle ones, and those of workers that run another.
    /// `task_at` names the task of the worker in a slot.
    pub fn strangers_to(&self, task: i64, task_at: impl Fn(SlotHandle) -> Option<i64>) -> Vec<i32> {
        let stranger = |connection: &&Connection| match connection.state {
            ConnectionState::Idle | ConnectionState::Reserved | ConnectionState::Resetting { .. } => true,
            ConnectionState::CheckedOut(slot) => task_at(slot).is_some_and(|other| other != task),
            ConnectionState::Closing { .. } | ConnectionState::Terminating { .. } => false,
        };
        self.connections.iter().filter(stranger).map(|connection| connection.facts.backend).collect()
    }

    /// Sets an idle connection aside, or else one that is reset before its task has begun. Its backend names it.
    pub fn reserve(&mut self, now: Instant) -> Option<i32> {
        // The one used last is the likeliest to be warm.
        let mut newest = self.connections.iter_mut().rev();
        let idle = newest.find(|connection| matches!(connection.state, ConnectionState::Idle) && connection.is_quiet());
        if let Some(connection) = idle {
            connection.state = ConnectionState::Reserved;
            return Some(connection.facts.backend);
        }
        let coming = self.connections.iter_mut().find(|connection| connection.is_reset_soon(now))?;
        if let ConnectionState::Resetting { reserved, .. } = &mut coming.state {
            *reserved = true;
        }
        Some(coming.facts.backend)
    }

    /// It is not needed after all.
    pub fn unreserve(&mut self, backend: i32) {
        for connection in self.connections.iter_mut().filter(|connection| connection.facts.backend == backend) {
            match &mut connection.state {
                ConnectionState::Reserved => connection.state = ConnectionState::Idle,
                ConnectionState::Resetting { reserved, .. } => *reserved = false,
                _ => {}
            }
        }
    }

    /// The connection for the worker that it was reserved for.
    pub fn checkout(&self, backend: i32) -> Checkout {
        let connection = self.connections.iter().find(|connection| connection.facts.backend == backend);
        match connection.map(|connection| (&connection.state, connection)) {
            Some((ConnectionState::Resetting { reserved: true, .. }, _)) => Checkout::Resetting,
            Some((ConnectionState::Reserved, connection)) => match connection.socket.try_clone() {
                Ok(socket) => Checkout::Here(connection.facts.clone(), socket),
                Err(_) => Checkout::Gone,
            },
            _ => Checkout::Gone,
        }
    }

    /// For the next worker: a connection, or where it may offer its own.
    pub fn take_idle(&mut self) -> (Option<(Rc<PooledConnection>, OwnedFd)>, Option<OwnedFd>) {
        // The one used last is the likeliest to be warm.
        let idle = self
            .connections
            .iter()
            .rposition(|connection| matches!(connection.state, ConnectionState::Idle) && connection.is_quiet());
        if let Some(connection) = idle.and_then(|at| self.connections.get(at))
            && let Ok(socket) = connection.socket.try_clone()
        {
            return (Some((connection.facts.clone(), socket)), None);
        }
        let back = if self.connections.len() < POOL_SIZE { self.theirs.try_clone().ok() } else { None };
        (None, back)
    }

    /// The worker in this slot has been forked with it.
    pub fn checked_out(&mut self, backend: i32, slot: SlotHandle) {
        let found = self.connections.iter_mut().find(|connection| connection.facts.backend == backend);
        if let Some(connection) = found {
            connection.uses += 1;
            connection.state = ConnectionState::CheckedOut(slot);
        }
    }

    /// Takes in the connections that workers have offered. `slot_of` names the use of the slot, if it is a worker of ours.
    fn receive_offers(&mut self, region: &Region, slot_of: impl Fn(u32, i32) -> Option<SlotHandle>, now: Instant) {
        while let Some((bytes, socket)) = pass::receive(&self.ours) {
            let Ok(offered) = serde_json::from_slice::<Offered>(&bytes) else { continue };
            let Some(slot) = slot_of(offered.slot, offered.pid) else { continue };
            let connection_permit = offered
                .connection_permit
                .and_then(|place| region.adopt_connection_permit(place, Pid::from_raw(offered.pid)));
            let state = ConnectionState::CheckedOut(slot);
            let (facts, outdated) = (Rc::new(offered.pooled), false);
            self.connections.push(Connection {
                socket,
                facts,
                _permit: connection_permit,
                made: now,
                uses: 1,
                outdated,
                state,
            });
        }
    }

    /// Reads offers and answers; before the ends of workers are read.
    pub fn turn(&mut self, region: &Region, slot_of: impl Fn(u32, i32) -> Option<SlotHandle>, now: Instant) {
        self.receive_offers(region, slot_of, now);
        let readable = self.readable();
        for (connection, readable) in self.connections.iter_mut().zip(readable) {
            connection.turn(readable, now);
        }
        let (connections, taken) = region.connections();
        // Other sessions wait for a permit that an idle connection holds.
        self.close_idle(now, if taken >= connections { self.idle() } else { 0 });
        self.connections.retain(|connection| !connection.is_closed(now));
    }

    /// Closes idle connections that are worn, and as many more. Their permits are kept until the server has hung up: it counts
    /// them so long.
    pub(crate) fn close_idle(&mut self, now: Instant, mut more: usize) {
        for connection in &mut self.connections {
            if matches!(connection.state, ConnectionState::Idle) && (more > 0 || connection.is_worn(now)) {
                more = more.saturating_sub(1);
                connection.send_terminate();
                connection.state = ConnectionState::Closing { until: now + CLOSE_TIMEOUT };
            }
        }
    }

    /// Which of them have something to read, by one call.
    fn readable(&self) -> Vec<bool> {
        let mut fds: Vec<PollFd<'_>> = self
            .connections
            .iter()
            .map(|connection| {
                let polled = connection.is_polled();
                PollFd::new(connection.socket.as_fd(), if polled { PollFlags::POLLIN } else { PollFlags::empty() })
            })
            .collect();
        if poll(&mut fds, PollTimeout::ZERO).is_err() {
            return vec![true; fds.len()];
        }
        fds.iter().map(|fd| fd.any().unwrap_or(true)).collect()
    }

    /// A worker is gone. `clean`: it exited with status 0, and had noted last that nothing is under way.
    pub fn ended(&mut self, slot: SlotHandle, clean: bool, now: Instant) {
        let in_hand = |connection: &&mut Connection| matches!(connection.state, ConnectionState::CheckedOut(held) if held == slot);
        for connection in self.connections.iter_mut().filter(in_hand) {
            connection.state = if clean && connection.is_quiet() {
                connection.reset(now)
            } else {
                ConnectionState::Terminating { due: Some(now) }
            };
        }
    }

    /// Terminates the backends of connections that are not to be used again.
    pub fn terminate(&mut self, turn: &Turn<'_>) -> Vec<Command<PoolAnswer>> {
        let Some(statements) = turn.statements() else { return Vec::new() };
        let due = self.due_for_termination(turn.now).into_iter();
        due.map(|ToTerminate { backend, began }| {
            let statements = statements.clone();
            refusable(Refused::Termination(backend), "closing a pooled connection", move |client| async move {
                let rows = client.query(&statements.close_backend, &[&backend, &began]).await;
                let gone = rows.map_err(|error| DbError::of(&error))?.is_empty();
                Ok(PoolAnswer { backend, gone })
            })
        })
        .collect()
    }

    /// Whose backends are to be terminated now.
    fn due_for_termination(&mut self, now: Instant) -> Vec<ToTerminate> {
        let mut due = Vec::new();
        for connection in &mut self.connections {
            if let ConnectionState::Terminating { due: at @ Some(_) } = &mut connection.state
                && at.is_some_and(|at| now >= at)
            {
                *at = None;
                let PooledConnection { backend, began, .. } = &*connection.facts;
                due.push(ToTerminate { backend: *backend, began: began.clone() });
            }
        }
        due
    }

    /// The socket of a backend that is gone is closed; one that is not is looked at again.
    pub fn terminated(&mut self, backend: i32, gone: bool, now: Instant) {
        self.connections.retain_mut(|connection| {
            let ConnectionState::Terminating { due } = &mut connection.state else { return true };
            if connection.facts.backend != backend {
                return true;
            }
            *due = Some(now + CLOSE_PAUSE);
            if gone {
                let _ = shutdown(connection.socket.as_raw_fd(), Shutdown::Both);
            }
            !gone
        });
    }

    /// The scheduler's own session is gone, and with it every answer.
    pub fn session_lost(&mut self, now: Instant) {
        for connection in &mut self.connections {
            if let ConnectionState::Terminating { due } = &mut connection.state {
                *due = Some(now + CLOSE_PAUSE);
            }
        }
    }

    /// What to poll for.
    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let polled = self.connections.iter().filter(|connection| connection.is_polled());
        let sockets = polled.map(|connection| PollFd::new(connection.socket.as_fd(), PollFlags::POLLIN));
        sockets.chain([PollFd::new(self.ours.as_fd(), PollFlags::POLLIN)])
    }

    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = self.connections.iter().filter_map(|connection| match &connection.state {
            ConnectionState::Resetting { deadline, .. } => Some(*deadline),
            ConnectionState::Closing { until } => Some(*until),
            ConnectionState::Terminating { due } => *due,
            ConnectionState::CheckedOut(_) | ConnectionState::Idle | ConnectionState::Reserved => None,
        });
        deadlines.min()
    }
}
