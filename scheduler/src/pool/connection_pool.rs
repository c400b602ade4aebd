//! Connections that one worker leaves and the next one inherits: a process per task need not mean a login per task.
//!
//! A worker that has to connect offers its connection, with the socket; from then on it is in this table. When the
//! worker is gone, and only if it left in order (`returned`), the connection is made as new (`renewal`) and lent to a
//! worker that is just being forked. While it is lent nobody here touches the socket. Whatever is not exactly as it
//! should be retires the connection: nothing is written to it, because a request that was half sent would swallow it;
//! its backend is terminated first, and only when that is gone is the socket closed.

use crate::limits::{CLOSE_PAUSE, CLOSE_TIMEOUT, POOL_LIFETIME, POOL_SIZE, POOL_USES, RESET_SOON, RESET_TIMEOUT};
use crate::pool::reset::{Progress, Renewal, is_chat};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use nix::unistd::Pid;
use shared::process::order::{Lent, Offered};
use shared::region::{Region, Seat, SlotHandle};
use shared::sys::pass;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

/// A farewell, as the protocol has it.
const FAREWELL: &[u8] = b"X\0\0\0\x04";

#[cfg(test)]
mod tests;

#[derive(Debug)]
enum State {
    /// In the hands of the worker in this slot.
    Lent(SlotHandle),
    /// `promised`: somebody waits for it.
    Renewing {
        renewal: Renewal,
        deadline: Instant,
        promised: bool,
    },
    Idle,
    /// For a task that is just being begun.
    Promised,
    /// Farewell was said; the server will hang up.
    Parting {
        until: Instant,
    },
    /// Its backend is to be ended; the question is put when it is due.
    Retiring {
        due: Option<Instant>,
    },
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    facts: Rc<Lent>,
    _seat: Option<Seat>,
    made: Instant,
    uses: u32,
    /// Somebody has changed what a session begins with, by ALTER ROLE or ALTER DATABASE.
    outdated: bool,
    state: State,
}

/// A backend that is to be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToRetire {
    pub backend: i32,
    pub began: String,
}

/// A connection that was promised.
#[derive(Debug)]
pub enum Gift {
    Here(Rc<Lent>, OwnedFd),
    /// It is being made as new.
    Coming,
    /// It was not what it was said to be.
    Gone,
}

#[derive(Debug)]
pub struct Lending {
    ours: OwnedFd,
    theirs: OwnedFd,
    connections: Vec<Connection>,
    /// Counts the retired, for the log.
    retired: u64,
    session_defaults: Option<i64>,
}

impl Lending {
    pub fn open() -> io::Result<Lending> {
        let (ours, theirs) = pass::pair()?;
        Ok(Lending { ours, theirs, connections: Vec::new(), retired: 0, session_defaults: None })
    }

    /// What sessions begin with, as it was last seen.
    pub fn session_defaults(&self) -> Option<i64> {
        self.session_defaults
    }

    /// Connections that began with something else are lent no more.
    pub fn begin_with(&mut self, session_defaults: i64) {
        if self.session_defaults.replace(session_defaults) != Some(session_defaults) {
            self.outdate(Instant::now());
        }
    }

    /// None of the present connections is lent again.
    pub fn outdate(&mut self, now: Instant) {
        for connection in &mut self.connections {
            connection.outdated = true;
        }
        self.part(now, 0);
    }

    /// As many workers can start without a login.
    pub fn idle(&self) -> usize {
        self.connections.iter().filter(|connection| matches!(connection.state, State::Idle)).count()
    }

    /// As many can be promised: those, and what will be as new in a moment.
    pub fn to_be_had(&self, now: Instant) -> usize {
        self.idle() + self.connections.iter().filter(|connection| connection.is_coming(now)).count()
    }

    /// Backends that run nothing: a row that names one of them is not being run by it.
    pub fn idle_backends(&self) -> Vec<i32> {
        let quiet = |connection: &&Connection| {
            matches!(connection.state, State::Idle | State::Promised | State::Renewing { .. })
        };
        self.connections.iter().filter(quiet).map(|connection| connection.facts.backend).collect()
    }

    /// Backends that do not run `task`, whatever its row says: idle ones, and those of workers that are at another.
    /// `task_at` says what the worker in a slot is at.
    pub fn strangers_to(&self, task: i64, task_at: impl Fn(SlotHandle) -> Option<i64>) -> Vec<i32> {
        let stranger = |connection: &&Connection| match connection.state {
            State::Idle | State::Promised | State::Renewing { .. } => true,
            State::Lent(slot) => task_at(slot).is_some_and(|other| other != task),
            State::Parting { .. } | State::Retiring { .. } => false,
        };
        self.connections.iter().filter(stranger).map(|connection| connection.facts.backend).collect()
    }

    /// Sets an idle connection aside, or else one that will be as new before its task has begun; and says which.
    pub fn promise(&mut self, now: Instant) -> Option<i32> {
        // The one used last is the likeliest to be warm.
        let mut newest = self.connections.iter_mut().rev();
        let idle = newest.find(|connection| matches!(connection.state, State::Idle) && connection.is_silent());
        if let Some(connection) = idle {
            connection.state = State::Promised;
            return Some(connection.facts.backend);
        }
        let coming = self.connections.iter_mut().find(|connection| connection.is_coming(now))?;
        if let State::Renewing { promised, .. } = &mut coming.state {
            *promised = true;
        }
        Some(coming.facts.backend)
    }

    /// It is not needed after all.
    pub fn unpromise(&mut self, backend: i32) {
        for connection in self.connections.iter_mut().filter(|connection| connection.facts.backend == backend) {
            match &mut connection.state {
                State::Promised => connection.state = State::Idle,
                State::Renewing { promised, .. } => *promised = false,
                _ => {}
            }
        }
    }

    /// What the worker gets that it was promised to.
    pub fn gift(&self, backend: i32) -> Gift {
        let connection = self.connections.iter().find(|connection| connection.facts.backend == backend);
        match connection.map(|connection| (&connection.state, connection)) {
            Some((State::Renewing { promised: true, .. }, _)) => Gift::Coming,
            Some((State::Promised, connection)) => match connection.socket.try_clone() {
                Ok(socket) => Gift::Here(connection.facts.clone(), socket),
                Err(_) => Gift::Gone,
            },
            _ => Gift::Gone,
        }
    }

    /// What the next worker gets: a connection, or where it may offer its own.
    pub fn checkout(&mut self) -> (Option<(Rc<Lent>, OwnedFd)>, Option<OwnedFd>) {
        // The one used last is the likeliest to be warm.
        let idle = self
            .connections
            .iter()
            .rposition(|connection| matches!(connection.state, State::Idle) && connection.is_silent());
        if let Some(connection) = idle.and_then(|at| self.connections.get(at))
            && let Ok(socket) = connection.socket.try_clone()
        {
            return (Some((connection.facts.clone(), socket)), None);
        }
        let back = if self.connections.len() < POOL_SIZE { self.theirs.try_clone().ok() } else { None };
        (None, back)
    }

    /// The worker in this slot has been forked with it.
    pub fn lent(&mut self, backend: i32, slot: SlotHandle) {
        let found = self.connections.iter_mut().find(|connection| connection.facts.backend == backend);
        if let Some(connection) = found {
            connection.uses += 1;
            connection.state = State::Lent(slot);
        }
    }

    /// Takes in what workers have offered. `slot_of` says which use of the slot it is, if it is a worker of ours.
    fn welcome(&mut self, region: &Region, slot_of: impl Fn(u32, i32) -> Option<SlotHandle>, now: Instant) {
        while let Some((bytes, socket)) = pass::receive(&self.ours) {
            let Ok(offered) = serde_json::from_slice::<Offered>(&bytes) else { continue };
            let Some(slot) = slot_of(offered.slot, offered.pid) else { continue };
            let seat = offered.seat.and_then(|place| region.adopt_seat(place, Pid::from_raw(offered.pid)));
            let state = State::Lent(slot);
            let (facts, outdated) = (Rc::new(offered.lent), false);
            self.connections.push(Connection { socket, facts, _seat: seat, made: now, uses: 1, outdated, state });
        }
    }

    /// Offers, answers and what idle connections say; before the ends of workers are looked at.
    pub fn turn(&mut self, region: &Region, slot_of: impl Fn(u32, i32) -> Option<SlotHandle>, now: Instant) {
        self.welcome(region, slot_of, now);
        let spoken = self.spoken();
        for (connection, spoken) in self.connections.iter_mut().zip(spoken) {
            connection.turn(spoken, now);
        }
        let (seats, taken) = region.seats();
        // Others wait for what we only keep.
        self.part(now, if taken >= seats { self.idle() } else { 0 });
        self.connections.retain(|connection| !connection.has_parted(now));
    }

    /// Says farewell to idle connections that are worn, and to as many more. Their seats are kept until the server has
    /// hung up: it counts them so long.
    pub(crate) fn part(&mut self, now: Instant, mut more: usize) {
        for connection in &mut self.connections {
            if matches!(connection.state, State::Idle) && (more > 0 || connection.is_worn(now)) {
                more = more.saturating_sub(1);
                connection.say_farewell();
                connection.state = State::Parting { until: now + CLOSE_TIMEOUT };
            }
        }
    }

    /// Which of them have something to say to us, asked in one call.
    fn spoken(&self) -> Vec<bool> {
        let mut fds: Vec<PollFd<'_>> = self
            .connections
            .iter()
            .map(|connection| {
                let heard = connection.is_heard();
                PollFd::new(connection.socket.as_fd(), if heard { PollFlags::POLLIN } else { PollFlags::empty() })
            })
            .collect();
        if poll(&mut fds, PollTimeout::ZERO).is_err() {
            return vec![true; fds.len()];
        }
        fds.iter().map(|fd| fd.any().unwrap_or(true)).collect()
    }

    /// A worker is gone. `clean`: it left by itself, with status 0, and its last word was that nothing is under way.
    pub fn ended(&mut self, slot: SlotHandle, clean: bool, now: Instant) {
        let in_hand = |connection: &&mut Connection| matches!(connection.state, State::Lent(held) if held == slot);
        for connection in self.connections.iter_mut().filter(in_hand) {
            connection.state = if clean && connection.is_silent() {
                connection.renew(now)
            } else {
                State::Retiring { due: Some(now) }
            };
        }
    }

    /// Whose backends are to be ended now.
    pub fn due_for_retirement(&mut self, now: Instant) -> Vec<ToRetire> {
        let mut due = Vec::new();
        for connection in &mut self.connections {
            if let State::Retiring { due: at @ Some(_) } = &mut connection.state
                && at.is_some_and(|at| now >= at)
            {
                *at = None;
                let Lent { backend, began, .. } = &*connection.facts;
                due.push(ToRetire { backend: *backend, began: began.clone() });
            }
        }
        due
    }

    /// What was found: a backend that is gone takes its socket with it; one that is not is looked at again.
    pub fn retired(&mut self, backend: i32, gone: bool, now: Instant) {
        let before = self.connections.len();
        self.connections.retain_mut(|connection| {
            let State::Retiring { due } = &mut connection.state else { return true };
            if connection.facts.backend != backend {
                return true;
            }
            *due = Some(now + CLOSE_PAUSE);
            if gone {
                let _ = shutdown(connection.socket.as_raw_fd(), Shutdown::Both);
            }
            !gone
        });
        self.retired += (before - self.connections.len()) as u64;
    }

    /// The scheduler's own session is gone, and with it every answer.
    pub fn all_unretired(&mut self, now: Instant) {
        for connection in &mut self.connections {
            if let State::Retiring { due } = &mut connection.state {
                *due = Some(now + CLOSE_PAUSE);
            }
        }
    }

    /// What to poll for.
    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let heard = self.connections.iter().filter(|connection| connection.is_heard());
        let sockets = heard.map(|connection| PollFd::new(connection.socket.as_fd(), PollFlags::POLLIN));
        sockets.chain([PollFd::new(self.ours.as_fd(), PollFlags::POLLIN)])
    }

    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = self.connections.iter().filter_map(|connection| match &connection.state {
            State::Renewing { deadline, .. } => Some(*deadline),
            State::Parting { until } => Some(*until),
            State::Retiring { due } => *due,
            State::Lent(_) | State::Idle | State::Promised => None,
        });
        deadlines.min()
    }
}

impl Connection {
    /// It will be as new in a moment, and nobody waits for it.
    fn is_coming(&self, now: Instant) -> bool {
        let soon = |deadline: Instant| now + RESET_TIMEOUT < deadline + RESET_SOON && !self.is_worn(now);
        matches!(self.state, State::Renewing { deadline, promised: false, .. } if soon(deadline))
    }

    /// Not to be lent again.
    fn is_worn(&self, now: Instant) -> bool {
        self.outdated || self.uses >= POOL_USES || now.saturating_duration_since(self.made) >= POOL_LIFETIME
    }

    /// What it says is for us.
    fn is_heard(&self) -> bool {
        matches!(self.state, State::Idle | State::Renewing { .. } | State::Parting { .. })
    }

    /// The server has hung up, or has had time enough to.
    fn has_parted(&self, now: Instant) -> bool {
        let State::Parting { until } = self.state else { return false };
        now >= until || self.receive().is_err()
    }

    fn turn(&mut self, spoken: bool, now: Instant) {
        let state = std::mem::replace(&mut self.state, State::Idle);
        self.state = match state {
            State::Renewing { renewal, deadline, promised } if spoken || now >= deadline => {
                self.listen(renewal, deadline, promised, now)
            }
            State::Idle if spoken && !self.is_silent() => match self.receive() {
                Ok(Some(bytes)) if is_chat(&bytes) => State::Idle,
                _ => State::Retiring { due: Some(now) },
            },
            other => other,
        };
    }

    /// Sends what makes it as new; it fits into any socket that is as empty as this one should be.
    fn renew(&self, now: Instant) -> State {
        let renewal = Renewal::new(format!("{:032x}", rand::random::<u128>()));
        let request = renewal.request();
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(self.socket.as_raw_fd(), &request, flags) {
            Ok(count) if count == request.len() => {
                State::Renewing { renewal, deadline: now + RESET_TIMEOUT, promised: false }
            }
            _ => State::Retiring { due: Some(now) },
        }
    }

    fn listen(&self, mut renewal: Renewal, deadline: Instant, promised: bool, now: Instant) -> State {
        let progress = match self.receive() {
            Ok(Some(bytes)) => renewal.take(&bytes),
            Ok(None) => Progress::More,
            Err(_) => Progress::Wrong,
        };
        match progress {
            // The flags of the descriptor are shared with the worker, which may have changed them.
            Progress::Done if fcntl(&self.socket, FcntlArg::F_SETFL(OFlag::empty())).is_ok() => {
                if promised {
                    State::Promised
                } else {
                    State::Idle
                }
            }
            Progress::More if now < deadline => State::Renewing { renewal, deadline, promised },
            _ => State::Retiring { due: Some(now) },
        }
    }

    /// Nothing to be read, and nobody has hung up.
    fn is_silent(&self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
        matches!(recv(self.socket.as_raw_fd(), &mut [0; 1], flags), Err(Errno::EAGAIN))
    }

    /// What has arrived; None: nothing. An end of the stream is an error.
    fn receive(&self) -> Result<Option<Vec<u8>>, Errno> {
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(Errno::ECONNRESET),
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok((!all.is_empty()).then_some(all)),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn say_farewell(&self) {
        let _ = send(self.socket.as_raw_fd(), FAREWELL, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
    }
}
