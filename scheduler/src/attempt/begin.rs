//! Plain tasks whose workers have a connection each: the row is handed down by the fork, the scheduler writes the
//! beginnings and, as for errands, the ends, many at once.
//!
//! A session that has just begun knows nothing of the table: to look at the row and to change it would cost the server
//! more than the login. So the worker only connects, reports its backend (`shared::process::begin_channel`) and waits; when the row says
//! WORK with that backend, it is told to go on. Nothing has begun before that: a worker that is gone, or is let go
//! because the session is lost or everything ends, leaves a row that was only taken.

use crate::attempt::attempt_id::AttemptId;
use crate::claim::group::Group;
use crate::command::Refused;
use crate::event_loop::{Answer, Scheduler};
use crate::limits::ANSWER_TIMEOUT;
use crate::session::write_pause::or_refused;
use nix::poll::{PollFd, PollFlags};
use shared::db::trouble::Trouble;
use shared::process::begin_channel::{self, Reply};
use shared::region::{Kind, SlotHandle};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;
use worker::{Assignment, TaskRow};

/// A row that was taken for a worker with a connection of its own.
#[derive(Debug)]
pub struct Guest {
    task: i64,
    attempt: i32,
    row: Rc<TaskRow>,
    group: Rc<Group>,
    slot: SlotHandle,
}

impl Guest {
    pub fn new(task: i64, attempt: i32, row: Rc<TaskRow>, group: Rc<Group>, slot: SlotHandle) -> Guest {
        Guest { task, attempt, row, group, slot }
    }
}

/// A worker that has not been told to go on.
#[derive(Debug)]
struct Waiting {
    task: i64,
    attempt: i32,
    worker: OwnedFd,
    /// Once it has connected.
    backend: Option<i32>,
}

#[derive(Debug, Default)]
pub struct Guests {
    waiting: BTreeMap<AttemptId, Waiting>,
    /// Those whose beginning is being written.
    asking: bool,
}

impl Guests {
    /// The session is gone, and perhaps the answer with it: they leave, and their tasks are looked at.
    pub fn forget(&mut self) {
        *self = Guests::default();
    }

    /// Their beginning could not be written: it is asked for again.
    pub fn refused(&mut self) {
        self.asking = false;
    }

    /// The worker is gone.
    pub fn ended(&mut self, run: AttemptId) {
        self.waiting.remove(&run);
    }

    /// What to poll for.
    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let silent = self.waiting.values().filter(|guest| guest.backend.is_none());
        silent.map(|guest| PollFd::new(guest.worker.as_fd(), PollFlags::POLLIN))
    }

    fn hear(&mut self) {
        for guest in self.waiting.values_mut().filter(|guest| guest.backend.is_none()) {
            guest.backend = begin_channel::asked(&guest.worker);
        }
    }
}

impl Scheduler {
    pub(crate) fn start_guest(&mut self, guest: Guest, now: Instant) {
        let Guest { task, attempt, row, group, slot } = guest;
        self.base.start.region.expect_return(slot);
        self.base.start.region.expect_result(slot);
        let started = begin_channel::pair().map_err(|error| error.to_string()).and_then(|(ours, theirs)| {
            let (context, kept) = (self.queue_context(), [theirs.as_raw_fd()]);
            let child = self.spawner.spawn_plain(
                (slot, Kind::Worker, &self.base.label),
                worker::run,
                |start| Assignment::own_connection(start, &context, &row, &theirs),
                &kept,
            );
            child.map(|child| (child, ours)).map_err(|error| error.to_string())
        });
        match started {
            Ok((child, worker)) => {
                shared::debug!("worker started", queue = self.base.label, task = task, pid = child.pid());
                let run = self.attempts.table.started_plain(task, attempt, child, slot, false);
                self.attempts.table.set_group(run, group);
                self.attempts.records.expect(run, row, self.session.home.name());
                self.attempts.begins.waiting.insert(run, Waiting { task, attempt, worker, backend: None });
            }
            Err(error) => self.not_started(task, attempt, &error, now),
        }
    }

    /// Writes down that tasks begin whose workers have connected, all at once, and one such writing at a time.
    pub(crate) fn begin_guests(&mut self) {
        if self.attempts.begins.waiting.is_empty() {
            return;
        }
        if !self.base.start.region.leads() || !self.stop.state.lets_finish() {
            // Nothing of theirs has begun. Those that wait for us leave by themselves; others may wait for the server.
            let waiting = std::mem::take(&mut self.attempts.begins.waiting);
            let silent = waiting.iter().filter(|(_, guest)| guest.backend.is_none());
            silent.for_each(|(run, _)| self.attempts.table.kill(*run));
            return;
        }
        self.attempts.begins.hear();
        if self.attempts.begins.asking
            || !self.session.state.working()
            || self.session.write_pause.pauses(Instant::now())
        {
            return;
        }
        let (Some(link), Some(statements)) = (&mut self.links.queue, self.session.statements.clone()) else { return };
        let ready = self.attempts.begins.waiting.iter().filter_map(|(run, guest)| Some((*run, guest, guest.backend?)));
        let (mut asked, mut tasks, mut attempts, mut backends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (run, guest, backend) in ready {
            asked.push(run);
            tasks.push(guest.task);
            attempts.push(guest.attempt);
            backends.push(backend);
        }
        if asked.is_empty() {
            return;
        }
        self.attempts.begins.asking = true;
        shared::process::fault::point("scheduler.before_guests");
        link.ask("beginning tasks", ANSWER_TIMEOUT, move |client| {
            or_refused(Refused::Begins, async move {
                let rows = client.query(&statements.begin_many, &[&tasks, &attempts, &backends]).await;
                let begun = match rows.map_err(|error| Trouble::of(&error)) {
                    Ok(rows) => rows.iter().map(|row| row.get("id")).collect(),
                    Err(trouble) if trouble.passes() => return Err(trouble),
                    Err(trouble) => {
                        shared::warning!("tasks cannot begin together; each is tried alone", error = trouble);
                        Vec::new()
                    }
                };
                Ok(Answer::Begun { asked, begun })
            })
        });
    }

    /// What was not begun is left to its worker: it may wait where we may not.
    pub(crate) fn begun(&mut self, asked: &[AttemptId], begun: &[i64]) {
        self.attempts.begins.asking = false;
        shared::process::fault::point("scheduler.after_guests");
        for run in asked {
            let Some(guest) = self.attempts.begins.waiting.remove(run) else { continue };
            let reply = if begun.contains(&guest.task) { Reply::Begun } else { Reply::Yourself };
            // Without an answer it leaves.
            if self.base.start.region.leads() {
                begin_channel::answer(&guest.worker, reply);
            }
        }
    }
}
