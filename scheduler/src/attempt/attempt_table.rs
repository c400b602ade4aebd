//! All attempts of this scheduler: their machines, processes, slots, cells and results. There is no other container of them.
//!
//! A worker may run further tasks of its group after the one it was started for; the slot status names the present one,
//! written before the input is sent. An entry has a number of its own: a user may plan a finished task again while the
//! worker that was started for it runs others.
//!
//! Policy is `attempt_state`; this module carries its effects out on processes and the region. A question for the database
//! (settling) is returned to the caller. The bulk writers ask the table: `to_begin`, `to_record`, `to_return`. The ends of
//! workers are in `reap`, and which rows the table accounts for is in `rows`.

use super::attempt_id::AttemptId;
use super::attempt_state::{self, AttemptEvent, AttemptState, Door, Effect};
use super::death::Death;
use super::group::Group;
use crate::limits::DOUBT_TIMEOUT;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use shared::db::server::ServerName;
use shared::process::begin_channel;
use shared::region::{Cancel, Phase, Region, Request, SlotHandle, TaskResult, Ticket};
use shared::sys::wait::Child;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;
use worker::TaskRow;

pub mod bulk;
pub mod reap;
mod rows;

/// What the run of a job is closed with when its worker is gone: nobody knows better, or we stopped it ourselves.
const CRASHED: &str = "crashed";
const INTERRUPTED: &str = "interrupted";

/// A process that runs, or ran, a task.
#[derive(Debug)]
struct WorkerProcess {
    child: Child,
    slot: SlotHandle,
    /// Of a worker that takes its order out of a cell.
    ticket: Option<Ticket>,
    /// Where a worker with a connection of its own reports its backend, and waits.
    channel: Option<OwnedFd>,
    /// The backend that it has reported.
    backend: Option<i32>,
    /// It records a result and runs nothing.
    records: bool,
}

/// A row that was claimed.
#[derive(Debug)]
pub struct Claim {
    pub task: i64,
    pub attempt: i32,
    pub group: Rc<Group>,
    /// All that its worker has to know of it, where the fork hands it over.
    pub row: Option<Rc<TaskRow>>,
    /// On which server it has begun, or begins.
    pub server: Option<Rc<ServerName>>,
    /// The slot, and the backend of the connection that is reserved for it: the claim has recorded the begin.
    pub reserved: Option<(SlotHandle, i32)>,
}

#[derive(Debug)]
struct Attempt {
    /// The task that the worker was started for; once the worker is dead, the one it died over.
    task: i64,
    attempt: i32,
    state: AttemptState,
    worker: Option<WorkerProcess>,
    /// All that its worker runs is of this group.
    group: Option<Rc<Group>>,
    row: Option<Rc<TaskRow>>,
    server: Option<Rc<ServerName>>,
    reserved: Option<(SlotHandle, i32)>,
    began: Instant,
    result: Option<Box<TaskResult<'static>>>,
    /// Why it ended, should it end without a result: what the run of a job is closed with.
    why: &'static str,
    /// What its worker died of, if the task may have been the cause.
    death: Option<Death>,
    /// Since when it is being found out what became of it.
    settling: Option<Instant>,
    /// The present session has answered what became of it, at least that it is still claimed.
    answered: bool,
    /// The database has refused to change its row, and that was reported.
    refusal_reported: bool,
    /// It has begun on another server than the present one.
    stray: bool,
}

/// A question for the database about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToSettle {
    pub run: AttemptId,
    pub task: i64,
    pub attempt: i32,
    pub terminate: bool,
    /// A backend that may belong to another session is still waited for.
    pub patient: bool,
    pub why: &'static str,
    pub death: Option<Death>,
}

#[derive(Debug)]
pub struct AttemptTable {
    region: Region,
    attempts: BTreeMap<AttemptId, Attempt>,
    next: u64,
}

impl AttemptTable {
    pub fn new(region: &Region) -> AttemptTable {
        AttemptTable { region: region.clone(), attempts: BTreeMap::new(), next: 1 }
    }

    /// A row was claimed; no process has it yet.
    pub fn claim(&mut self, claim: Claim) -> AttemptId {
        let Claim { task, attempt, group, row, server, reserved } = claim;
        let claimed = Attempt::new(task, attempt, AttemptState::Claimed);
        self.insert(Attempt { group: Some(group), row, server, reserved, ..claimed })
    }

    /// A worker was forked for it.
    pub fn forked(
        &mut self,
        id: AttemptId,
        (child, slot, door): (Child, SlotHandle, Door),
        ticket: Option<Ticket>,
        channel: Option<OwnedFd>,
        now: Instant,
    ) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            let records = door == Door::Recorder;
            attempt.worker = Some(WorkerProcess { child, slot, ticket, channel, backend: None, records });
            attempt.reserved = None;
            attempt.began = now;
        }
        self.event(id, AttemptEvent::Forked(door));
    }

    /// It gets no worker: its row is settled. The slot and the backend that were reserved for it.
    pub fn not_forked(&mut self, id: AttemptId, now: Instant) -> Option<(SlotHandle, i32)> {
        self.event(id, AttemptEvent::NotForked { now });
        self.attempts.get_mut(&id)?.reserved.take()
    }

    /// A claimed row without a process: left by another session, or by a worker that died.
    pub fn orphaned(&mut self, task: i64, attempt: i32, now: Instant) {
        self.insert(Attempt::new(task, attempt, AttemptState::Settling { tries: 0, next: Some(now) }));
    }

    fn insert(&mut self, attempt: Attempt) -> AttemptId {
        let id = AttemptId(self.next);
        self.attempts.insert(id, attempt);
        self.next += 1;
        id
    }

    /// The name of the next entry.
    pub fn next_id(&self) -> AttemptId {
        AttemptId(self.next)
    }

    /// How many have a worker, or a row that is being settled.
    pub fn active(&self) -> usize {
        self.attempts.values().filter(|attempt| attempt.is_active()).count()
    }

    /// How many wait for their connection.
    pub fn claimed(&self) -> usize {
        self.attempts.values().filter(|attempt| attempt.state == AttemptState::Claimed).count()
    }

    /// How many workers run whose results will be recorded here.
    pub fn reporting(&self) -> usize {
        self.attempts.values().filter(|attempt| attempt.worker().is_some() && attempt.is_plain()).count()
    }

    /// No result is left to be recorded, and nothing claimed is left to be started.
    pub fn has_recorded_all(&self) -> bool {
        !self.attempts.values().any(|attempt| attempt.result.is_some() || attempt.state == AttemptState::Claimed)
    }

    /// Some worker process is still there.
    pub fn has_workers(&self) -> bool {
        self.workers().next().is_some()
    }

    fn workers(&self) -> impl Iterator<Item = &WorkerProcess> {
        self.attempts.values().filter_map(|attempt| attempt.worker.as_ref())
    }

    pub fn has_worker(&self, id: AttemptId) -> bool {
        self.attempts.get(&id).is_some_and(|attempt| attempt.worker.is_some())
    }

    /// No further tasks for the workers that run.
    pub fn finish_all(&self) {
        self.workers().for_each(|worker| worker.child.signal(Signal::SIGTERM));
    }

    /// Why the server does not accept the result of a worker, if one waits with one.
    pub fn record_refusal(&self) -> Option<String> {
        self.workers().find_map(|worker| {
            let notes = self.region.slots().notes(worker.slot);
            if notes.phase() == Some(Phase::Recording) { notes.reason() } else { None }
        })
    }

    /// Asks the worker of a job's run to cancel it; `why` is what it is closed with if it cannot do so itself. A run that
    /// has not begun finds the request when it does.
    pub fn end_run(&mut self, id: AttemptId, cancel: Cancel, why: &'static str) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.why = why;
        if let Some(worker) = &attempt.worker {
            let notes = self.region.slots().notes(worker.slot);
            let (task, attempt) =
                notes.running().map_or((attempt.task, attempt.attempt), |(task, attempt, _)| (task, attempt));
            notes.request(Request { cancel, task, attempt });
            worker.child.signal(Signal::SIGUSR1);
        }
    }

    /// What the run of a job is closed with, should it have to be.
    pub fn why(&self, id: AttemptId) -> &'static str {
        self.attempts.get(&id).map_or(CRASHED, |attempt| attempt.why)
    }

    pub fn task_of(&self, id: AttemptId) -> Option<i64> {
        self.attempts.get(&id).map(|attempt| attempt.task)
    }

    /// What its worker died of.
    pub fn death(&self, id: AttemptId) -> Option<Death> {
        self.attempts.get(&id).and_then(|attempt| attempt.death)
    }

    pub fn kill(&self, id: AttemptId) {
        if let Some(worker) = self.attempts.get(&id).and_then(|attempt| attempt.worker.as_ref()) {
            worker.child.signal(Signal::SIGKILL);
        }
    }

    /// The descriptors that become readable when a worker ends, or has connected.
    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let ends = self.workers().map(|worker| PollFd::new(worker.child.as_fd(), PollFlags::POLLIN));
        let silent = self.workers().filter(|worker| worker.backend.is_none());
        let channels = silent.filter_map(|worker| worker.channel.as_ref());
        ends.chain(channels.map(|channel| PollFd::new(channel.as_fd(), PollFlags::POLLIN)))
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.attempts.values().filter_map(|attempt| attempt.state.deadline()).min()
    }

    /// Looks at all cells: the signal does not tell whose was read.
    pub fn acknowledge(&mut self) {
        let is_accepted = |attempt: &Attempt| {
            let ticket = attempt.worker.as_ref().and_then(|worker| worker.ticket);
            ticket.is_some_and(|ticket| self.region.accepted(ticket))
        };
        for id in self.ids_where(is_accepted) {
            self.event(id, AttemptEvent::Acknowledged);
        }
    }

    /// Lets time pass for all.
    pub fn pass(&mut self, now: Instant) -> Vec<ToSettle> {
        let due = self.ids_where(|attempt| attempt.state.deadline().is_some_and(|at| now >= at));
        due.into_iter().filter_map(|id| self.event(id, AttemptEvent::Passed { now })).collect()
    }

    pub fn cancel_all(&mut self, now: Instant) {
        for id in self.ids_where(|_| true) {
            if let Some(attempt) = self.attempts.get_mut(&id)
                && attempt.worker.is_some()
                && attempt.why == CRASHED
            {
                attempt.why = INTERRUPTED;
            }
            self.event(id, AttemptEvent::CancelAsked { now });
        }
    }

    /// The session is lost, and with it every answer.
    pub fn session_lost(&mut self, now: Instant) {
        for id in self.ids_where(|_| true) {
            if let Some(attempt) = self.attempts.get_mut(&id) {
                attempt.answered = false;
            }
            self.event(id, AttemptEvent::SessionLost { now });
        }
    }

    /// The database refuses to change the row: it is asked again later. True: that was not reported yet.
    pub fn refused(&mut self, id: AttemptId, now: Instant) -> bool {
        self.event(id, AttemptEvent::Refused { now });
        self.attempts.get_mut(&id).is_some_and(|attempt| !std::mem::replace(&mut attempt.refusal_reported, true))
    }

    fn ids_where(&self, wanted: impl Fn(&Attempt) -> bool) -> Vec<AttemptId> {
        self.attempts.iter().filter(|(_, attempt)| wanted(attempt)).map(|(id, _)| *id).collect()
    }

    /// One step of the machine, and its effects. An attempt that is over is forgotten once its worker is gone.
    pub fn event(&mut self, id: AttemptId, event: AttemptEvent) -> Option<ToSettle> {
        let attempt = self.attempts.get_mut(&id)?;
        let step = attempt_state::step(attempt.state, event);
        attempt.state = step.next;
        let mut question = None;
        for effect in step.effects {
            match (effect, &mut attempt.worker) {
                (Effect::FreeCell, Some(worker)) => {
                    if let Some(ticket) = worker.ticket {
                        self.region.free(ticket);
                    }
                }
                (Effect::Kill, Some(worker)) => {
                    let (task, pid) = (attempt.task, worker.child.pid());
                    shared::warning!("worker killed: it did not answer in time", task = task, pid = pid);
                    worker.child.signal(Signal::SIGKILL);
                }
                (Effect::Abandon, Some(worker)) => worker.child.signal(Signal::SIGKILL),
                // INT means "plan what you run again": the worker knows best what that is.
                (Effect::Cancel, Some(worker)) => worker.child.signal(Signal::SIGINT),
                (Effect::Answer(reply), Some(worker)) => {
                    if let Some(channel) = &worker.channel {
                        begin_channel::answer(channel, reply);
                    }
                }
                (Effect::CloseChannel, Some(worker)) => worker.channel = None,
                (Effect::Settle { terminate }, _) => {
                    let patient = attempt.settling.get_or_insert_with(Instant::now).elapsed() < DOUBT_TIMEOUT;
                    let Attempt { task, attempt, why, death, .. } = *attempt;
                    question = Some(ToSettle { run: id, task, attempt, terminate, patient, why, death });
                }
                (
                    Effect::FreeCell
                    | Effect::Kill
                    | Effect::Abandon
                    | Effect::Cancel
                    | Effect::Answer(_)
                    | Effect::CloseChannel,
                    None,
                ) => {}
            }
        }
        if attempt.state == AttemptState::Over && attempt.worker.is_none() {
            self.attempts.remove(&id);
        }
        question
    }
}

impl Attempt {
    fn new(task: i64, attempt: i32, state: AttemptState) -> Attempt {
        Attempt {
            task,
            attempt,
            state,
            worker: None,
            group: None,
            row: None,
            server: None,
            reserved: None,
            began: Instant::now(),
            result: None,
            why: CRASHED,
            death: None,
            settling: None,
            answered: false,
            refusal_reported: false,
            stray: false,
        }
    }

    fn is_active(&self) -> bool {
        self.worker.is_some() || matches!(self.state, AttemptState::Settling { .. })
    }

    /// Its result, if it is short, is recorded by the scheduler.
    fn is_plain(&self) -> bool {
        self.row.is_some()
    }

    /// The process that runs its task.
    fn worker(&self) -> Option<&WorkerProcess> {
        self.worker.as_ref().filter(|worker| !worker.records)
    }

    fn key(&self) -> (i64, i32) {
        (self.task, self.attempt)
    }
}
