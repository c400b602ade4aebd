//! The tasks that this scheduler has taken and not seen end: their machines, children, slots and cells.
//!
//! A worker may run further tasks of its group after the one it was started for; which one it is at stands in the notes
//! of its slot, written before the input is sent. An entry has a number of its own: a user may plan a finished task again
//! while the worker that was started for it is still at others.
//!
//! Policy is `task_state`; this room carries its effects out on processes and the region. What needs the database
//! (settling) is handed back to the event loop.

use crate::attempt::attempt_id::AttemptId;
use crate::attempt::attempt_state::{self as task_state, Effect, TaskEvent, TaskState};
use crate::attempt::death::Death;
use crate::claim::group::Group;
use crate::limits::DOUBT_TIMEOUT;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use shared::process::exit_code::ExitCode;
use shared::region::{Cancel, Phase, Region, Request, Returned, SlotHandle, TaskKey, TaskResult, Ticket};
use shared::sys::wait::{Child, End};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

mod claims;

/// What the run of a job is closed with when its worker is gone: nobody knows better, or we stopped it ourselves.
const CRASHED: &str = "crashed";
const INTERRUPTED: &str = "interrupted";

/// A process that runs, or ran, a task.
#[derive(Debug)]
struct Hands {
    child: Child,
    slot: SlotHandle,
    /// Of a worker that takes its order out of a cell.
    ticket: Option<Ticket>,
    /// It writes a result down and runs nothing.
    clerk: bool,
}

#[derive(Debug)]
struct Run {
    /// The task that the worker was started for; once the worker is dead, the one it died over.
    task: i64,
    attempt: i32,
    state: TaskState,
    hands: Option<Hands>,
    /// All that its worker runs is of this group.
    group: Option<Rc<Group>>,
    /// Why it ended, should it end without a result: what the run of a job is closed with.
    why: &'static str,
    /// What its worker died of, if the task may have been the cause.
    death: Option<Death>,
    /// Since when it is being found out what became of it.
    settling: Option<Instant>,
    /// The database has refused to change its row, and that was said.
    refused: bool,
}

/// A question for the database about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToSettle {
    pub run: AttemptId,
    pub task: i64,
    pub attempt: i32,
    pub terminate: bool,
    /// A backend that may be somebody else's is still waited for.
    pub patient: bool,
    pub why: &'static str,
    pub death: Option<Death>,
}

/// A worker that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnd {
    pub run: AttemptId,
    pub task: i64,
    pub end: End,
    pub slot: SlotHandle,
    pub pid: i32,
    /// Its server process, if it died without having finished: rows that name it are nobody's now.
    pub left: Option<i32>,
    /// Why it could not begin, as it left it in its slot.
    pub reason: Option<String>,
    /// Its last word about its connection, and the result that it leaves to us.
    pub returned: Option<Returned>,
    pub handed_in: Option<TaskResult<'static>>,
}

#[derive(Debug)]
pub struct RunTable {
    region: Region,
    runs: BTreeMap<AttemptId, Run>,
    next: u64,
    /// Tasks that have run and whose end the database refuses: never run again. Whether it was said that their rows cannot be
    /// changed at all.
    unwritten: BTreeMap<(i64, i32), bool>,
}

impl RunTable {
    pub fn new(region: &Region) -> RunTable {
        RunTable { region: region.clone(), runs: BTreeMap::new(), next: 1, unwritten: BTreeMap::new() }
    }

    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Some worker process is still there.
    pub fn has_workers(&self) -> bool {
        self.runs.values().any(|run| run.hands.is_some())
    }

    /// The task that an entry is at.
    fn at(&self, run: &Run) -> i64 {
        let running = run.hands.as_ref().and_then(|hands| self.region.slots().notes(hands.slot).running());
        running.map_or(run.task, |(task, _, _)| task)
    }

    /// (task, attempt, backend) of every live worker that has begun.
    fn current(&self) -> impl Iterator<Item = (i64, i32, i32)> {
        self.runs
            .values()
            .filter_map(|run| run.hands.as_ref())
            .filter_map(|hands| self.region.slots().notes(hands.slot).running())
    }

    /// What the worker of a run is at. One that has not said a word yet will be at what it was started for: the row may say so
    /// already, and be stopped. A clerk runs nothing.
    fn at_work(&self, run: &Run) -> Option<(i64, i32)> {
        let hands = run.hands.as_ref()?;
        let said = self.region.slots().notes(hands.slot).running().map(|(task, attempt, _)| (task, attempt));
        said.or((!hands.clerk).then_some((run.task, run.attempt)))
    }

    /// Asks the worker that runs this attempt, or will, to cancel it. The worker checks that it still does. A later attempt of the
    /// same task, in another worker, is none of this.
    pub fn drop_unwanted(&self, unwanted: (i64, i32)) {
        let (task, attempt) = unwanted;
        for run in self.runs.values().filter(|run| self.at_work(run) == Some(unwanted)) {
            if let Some(hands) = &run.hands {
                let notes = self.region.slots().notes(hands.slot);
                notes.request(Request { cancel: Cancel::Unwanted, task, attempt });
                hands.child.signal(Signal::SIGUSR1);
            }
        }
    }

    /// No further tasks for the workers that run.
    pub fn finish_all(&self) {
        self.runs.values().filter_map(|run| run.hands.as_ref()).for_each(|hands| hands.child.signal(Signal::SIGTERM));
    }

    /// A worker was forked for the task.
    pub fn started(
        &mut self,
        task: i64,
        attempt: i32,
        worker: (Child, Ticket),
        slot: SlotHandle,
        ack_by: Instant,
    ) -> AttemptId {
        let hands = Some(Hands { child: worker.0, slot, ticket: Some(worker.1), clerk: false });
        self.insert(Run {
            task,
            attempt,
            state: TaskState::Starting { ack_by },
            hands,
            group: None,
            why: CRASHED,
            death: None,
            settling: None,
            refused: false,
        })
    }

    /// One was forked that has nothing to accept.
    pub fn started_plain(&mut self, task: i64, attempt: i32, child: Child, slot: SlotHandle, clerk: bool) -> AttemptId {
        let hands = Some(Hands { child, slot, ticket: None, clerk });
        self.insert(Run {
            task,
            attempt,
            state: TaskState::Running,
            hands,
            group: None,
            why: CRASHED,
            death: None,
            settling: None,
            refused: false,
        })
    }

    /// Why the server does not take the result of a worker, if one waits with one.
    pub fn recording(&self) -> Option<String> {
        let mut hands = self.runs.values().filter_map(|run| run.hands.as_ref());
        hands.find_map(|hands| {
            let notes = self.region.slots().notes(hands.slot);
            if notes.phase() == Some(Phase::Recording) { notes.reason() } else { None }
        })
    }

    /// The name of the next entry.
    pub fn next_id(&self) -> AttemptId {
        AttemptId(self.next)
    }

    pub fn ids(&self) -> impl Iterator<Item = AttemptId> {
        self.runs.keys().copied()
    }

    pub fn has_worker(&self, id: AttemptId) -> bool {
        self.runs.get(&id).is_some_and(|run| run.hands.is_some())
    }

    /// Asks the worker of a job's run to cancel it; `why` is what it is closed with if it cannot do so itself. A run that
    /// has not begun finds the request when it does.
    pub fn end_run(&mut self, id: AttemptId, cancel: Cancel, why: &'static str) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.why = why;
        if let Some(hands) = &run.hands {
            let notes = self.region.slots().notes(hands.slot);
            let (task, attempt) = notes.running().map_or((run.task, run.attempt), |(task, attempt, _)| (task, attempt));
            notes.request(Request { cancel, task, attempt });
            hands.child.signal(Signal::SIGUSR1);
        }
    }

    /// What the run of a job is closed with, should it have to be.
    pub fn why(&self, id: AttemptId) -> &'static str {
        self.runs.get(&id).map_or(CRASHED, |run| run.why)
    }

    /// What its worker died of.
    pub fn death(&self, id: AttemptId) -> Option<Death> {
        self.runs.get(&id).and_then(|run| run.death)
    }

    pub fn kill(&self, id: AttemptId) {
        if let Some(hands) = self.runs.get(&id).and_then(|run| run.hands.as_ref()) {
            hands.child.signal(Signal::SIGKILL);
        }
    }

    /// A claimed row without a process: left by somebody who died, or never started.
    pub fn orphaned(&mut self, task: i64, attempt: i32, now: Instant) {
        let state = TaskState::Settling { looks: 0, next_look: Some(now) };
        self.insert(Run {
            task,
            attempt,
            state,
            hands: None,
            group: None,
            why: CRASHED,
            death: None,
            settling: None,
            refused: false,
        });
    }

    fn insert(&mut self, run: Run) -> AttemptId {
        let id = AttemptId(self.next);
        self.runs.insert(id, run);
        self.next += 1;
        id
    }

    /// The use of a slot that a worker sits in.
    pub fn slot_of(&self, slot: u32, pid: i32) -> Option<SlotHandle> {
        let hands = self.runs.values().filter_map(|run| run.hands.as_ref());
        hands
            .filter(|hands| hands.slot.index() == slot && hands.child.pid().as_raw() == pid)
            .map(|hands| hands.slot)
            .next()
    }

    /// The descriptors that say when a worker ends.
    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.runs
            .values()
            .filter_map(|run| run.hands.as_ref().map(|hands| PollFd::new(hands.child.as_fd(), PollFlags::POLLIN)))
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.runs.values().filter_map(|run| run.state.deadline()).min()
    }

    /// Looks at all cells: a bell does not say whose it is.
    pub fn acknowledge(&mut self) {
        let accepted: Vec<AttemptId> = self
            .runs
            .iter()
            .filter(|(_, run)| {
                run.hands.as_ref().is_some_and(|hands| hands.ticket.is_some_and(|ticket| self.region.accepted(ticket)))
            })
            .map(|(id, _)| *id)
            .collect();
        for id in accepted {
            let none = self.step(id, TaskEvent::Acknowledged);
            debug_assert!(none.is_none());
        }
    }

    /// Sweeps and reaps the workers that have ended.
    pub fn reap(&mut self, now: Instant) -> (Vec<WorkerEnd>, Vec<ToSettle>) {
        let ended: Vec<(AttemptId, End)> =
            self.runs.iter().filter_map(|(id, run)| run.hands.as_ref()?.child.ended().map(|end| (*id, end))).collect();
        let mut questions = Vec::new();
        let mut ends = Vec::new();
        for (id, end) in ended {
            let unwritten = end == End::Exited(ExitCode::Permanent.status());
            let (returned, handed_in, clerk) = self.left_by(id);
            // A task with a result has run, however its worker ended; and what a clerk leaves undone, another one does.
            let clean = end == End::Exited(ExitCode::Asked.status()) || unwritten || handed_in.is_some() || clerk;
            let current = self.current_of(id);
            if unwritten {
                let named = self.runs.get(&id).map(|run| (run.task, run.attempt));
                let one = current.map(|(task, attempt, _)| (task, attempt)).or(named);
                self.unwritten.extend(one.map(|key| (key, false)));
                // Others of its batch may be in the same case; those whose end is written are in nobody's way.
                let slot = self.runs.get(&id).and_then(|run| run.hands.as_ref()).map(|hands| hands.slot);
                let sent = slot.map(|slot| self.region.batch_sent(slot)).unwrap_or_default();
                self.unwritten.extend(sent.into_iter().map(|key| (key, false)));
            }
            if let (Some(run), Some((task, attempt, _)), false) = (self.runs.get_mut(&id), current, clean) {
                (run.task, run.attempt) = (task, attempt);
            }
            if let Some(run) = self.runs.get_mut(&id)
                && let Some(hands) = &run.hands
                && self.region.slots().notes(hands.slot).phase() == Some(Phase::Stopping)
            {
                run.why = INTERRUPTED;
            }
            self.note_death(id, end, current.is_some() && !clean);
            // The cell's ticket is freed by the step, the slot by the sweep, and only then may the pid be reused.
            questions.extend(self.step(id, TaskEvent::Ended { clean, now }));
            let Some(run) = self.runs.get_mut(&id) else { continue };
            let Some(hands) = run.hands.take() else { continue };
            let reason = self.region.slots().notes(hands.slot).reason();
            let (slot, pid) = (hands.slot, hands.child.pid());
            self.region.sweep(pid);
            hands.child.reap();
            let left = current.filter(|_| !clean).map(|(_, _, backend)| backend);
            let (task, pid) = (run.task, pid.as_raw());
            ends.push(WorkerEnd { run: id, task, end, slot, pid, left, reason, returned, handed_in });
            self.forget_if_over(id);
        }
        (ends, questions)
    }

    /// The task counts as the cause where its worker had begun it and was not asked to end, by us or by anybody who asks us.
    fn note_death(&mut self, id: AttemptId, end: End, at_work: bool) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let Some(hands) = &run.hands else { return };
        let left_alone = matches!(run.state, TaskState::Starting { .. } | TaskState::Running) && run.why == CRASHED;
        if at_work && left_alone {
            run.death = Death::of(end, self.region.slots().notes(hands.slot).severed());
        }
    }

    /// What a worker that has ended has left in its slot, read before the slot is given back; and whether it is a clerk.
    fn left_by(&self, id: AttemptId) -> (Option<Returned>, Option<TaskResult<'static>>, bool) {
        let Some(run) = self.runs.get(&id) else { return Default::default() };
        let Some(hands) = &run.hands else { return Default::default() };
        let result = self.region.take_result(hands.slot);
        let own = result.filter(|result| result.key == (TaskKey { task: run.task, attempt: run.attempt }));
        (self.region.left_clean(hands.slot), own, hands.clerk)
    }

    /// Lets time pass for all.
    pub fn pass(&mut self, now: Instant) -> Vec<ToSettle> {
        let due: Vec<AttemptId> = self
            .runs
            .iter()
            .filter(|(_, run)| run.state.deadline().is_some_and(|at| now >= at))
            .map(|(id, _)| *id)
            .collect();
        due.into_iter().filter_map(|id| self.step(id, TaskEvent::Passed { now })).collect()
    }

    pub fn cancel_all(&mut self, now: Instant) {
        let ids: Vec<AttemptId> = self.runs.keys().copied().collect();
        for id in ids {
            if let Some(run) = self.runs.get_mut(&id)
                && run.hands.is_some()
                && run.why == CRASHED
            {
                run.why = INTERRUPTED;
            }
            let none = self.step(id, TaskEvent::CancelAsked { now });
            debug_assert!(none.is_none());
        }
    }

    pub fn settled(&mut self, id: AttemptId) {
        let _ = self.step(id, TaskEvent::Settled);
        self.forget_if_over(id);
    }

    pub fn unsettled(&mut self, id: AttemptId, now: Instant) {
        let _ = self.step(id, TaskEvent::Unsettled { now });
    }

    /// The link is lost, and with it every answer: the questions are put again later.
    pub fn all_unsettled(&mut self, now: Instant) {
        let ids: Vec<AttemptId> = self.runs.keys().copied().collect();
        ids.into_iter().for_each(|id| self.unsettled(id, now));
    }

    fn step(&mut self, id: AttemptId, event: TaskEvent) -> Option<ToSettle> {
        let run = self.runs.get_mut(&id)?;
        let state = std::mem::replace(&mut run.state, TaskState::Over);
        let step = task_state::step(state, event);
        run.state = step.next;
        let mut question = None;
        for effect in step.effects {
            match (effect, &run.hands) {
                (Effect::FreeCell, Some(hands)) => {
                    if let Some(ticket) = hands.ticket {
                        self.region.free(ticket);
                    }
                }
                (Effect::Kill, Some(hands)) => {
                    shared::warning!(
                        "worker killed: it did not answer in time",
                        task = run.task,
                        pid = hands.child.pid()
                    );
                    hands.child.signal(Signal::SIGKILL);
                }
                // INT means "give back what you run": the worker knows best what that is.
                (Effect::TellCancel, Some(hands)) => hands.child.signal(Signal::SIGINT),
                (Effect::Settle { terminate }, _) => {
                    let patient = run.settling.get_or_insert_with(Instant::now).elapsed() < DOUBT_TIMEOUT;
                    let Run { task, attempt, why, death, .. } = *run;
                    question = Some(ToSettle { run: id, task, attempt, terminate, patient, why, death });
                }
                (Effect::FreeCell | Effect::Kill | Effect::TellCancel, None) => {}
            }
        }
        question
    }

    /// (task, attempt, backend) of a live worker that has begun.
    pub fn current_of(&self, id: AttemptId) -> Option<(i64, i32, i32)> {
        let hands = self.runs.get(&id)?.hands.as_ref()?;
        self.region.slots().notes(hands.slot).running()
    }

    fn forget_if_over(&mut self, id: AttemptId) {
        if self.runs.get(&id).is_some_and(|run| run.state == TaskState::Over) {
            self.runs.remove(&id);
        }
    }
}
