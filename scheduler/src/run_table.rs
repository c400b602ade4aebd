//! The tasks that this scheduler has taken and not seen end: their machines, children, slots and cells.
//!
//! A worker may run further tasks of its group after the one it was started for; which one it is at stands in the notes
//! of its slot, written before the input is sent. An entry keeps the name of the first task until its worker dies.
//!
//! Policy is `task_state`; this room carries its effects out on processes and the region. What needs the database
//! (settling) is handed back to the event loop.

use crate::task_state::{self, Effect, TaskEvent, TaskState};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use shared::region::{Cancel, Region, Request, SlotHandle, Ticket};
use shared::sys::wait::{Child, End};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::Instant;

/// A process that runs, or ran, a task.
#[derive(Debug)]
struct Hands {
    child: Child,
    slot: SlotHandle,
    ticket: Ticket,
}

#[derive(Debug)]
struct Run {
    attempt: i32,
    state: TaskState,
    hands: Option<Hands>,
}

/// A question for the database about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToSettle {
    pub task: i64,
    pub attempt: i32,
    pub terminate: bool,
}

/// A worker that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnd {
    pub task: i64,
    pub end: End,
    /// Its server process, if it died without having finished: rows that name it are nobody's now.
    pub left: Option<i32>,
    /// Why it could not begin, as it left it in its slot.
    pub reason: Option<String>,
}

#[derive(Debug)]
pub struct RunTable {
    region: Region,
    runs: BTreeMap<i64, Run>,
}

impl RunTable {
    pub fn new(region: &Region) -> RunTable {
        RunTable { region: region.clone(), runs: BTreeMap::new() }
    }

    pub fn len(&self) -> usize {
        self.runs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Some worker process is still there.
    pub fn has_workers(&self) -> bool {
        self.runs.values().any(|run| run.hands.is_some())
    }

    /// Whether a claimed row is in our hands: by its own name, or because a live worker's backend runs it.
    pub fn knows(&self, task: i64, backend: Option<i32>) -> bool {
        self.runs.contains_key(&task) || (backend.is_some() && self.current().any(|(_, _, live)| Some(live) == backend))
    }

    /// (task, attempt, backend) of every live worker that has begun.
    fn current(&self) -> impl Iterator<Item = (i64, i32, i32)> {
        self.runs
            .values()
            .filter_map(|run| run.hands.as_ref())
            .filter_map(|hands| self.region.slots().notes(hands.slot).running())
    }

    /// What runs at this moment.
    pub fn running(&self) -> Vec<(i64, i32)> {
        self.current().map(|(task, attempt, _)| (task, attempt)).collect()
    }

    /// Asks the worker that runs `task` to cancel it. The worker checks that it still does.
    pub fn drop_unwanted(&self, task: i64) {
        for hands in self.runs.values().filter_map(|run| run.hands.as_ref()) {
            let notes = self.region.slots().notes(hands.slot);
            if let Some((current, attempt, _)) = notes.running()
                && current == task
            {
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
    pub fn started(&mut self, task: i64, attempt: i32, worker: (Child, Ticket), slot: SlotHandle, ack_by: Instant) {
        let hands = Some(Hands { child: worker.0, slot, ticket: worker.1 });
        self.runs.insert(task, Run { attempt, state: TaskState::Starting { ack_by }, hands });
    }

    /// A claimed row without a process: left by somebody who died, or never started.
    pub fn orphaned(&mut self, task: i64, attempt: i32, now: Instant) {
        let state = TaskState::Settling { looks: 0, next_look: Some(now) };
        self.runs.insert(task, Run { attempt, state, hands: None });
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
        let accepted: Vec<i64> = self
            .runs
            .iter()
            .filter(|(_, run)| run.hands.as_ref().is_some_and(|hands| self.region.accepted(hands.ticket)))
            .map(|(task, _)| *task)
            .collect();
        for task in accepted {
            let none = self.step(task, TaskEvent::Acknowledged);
            debug_assert!(none.is_none());
        }
    }

    /// Sweeps and reaps the workers that have ended.
    pub fn reap(&mut self, now: Instant) -> (Vec<WorkerEnd>, Vec<ToSettle>) {
        let ended: Vec<(i64, End)> = self
            .runs
            .iter()
            .filter_map(|(task, run)| run.hands.as_ref()?.child.ended().map(|end| (*task, end)))
            .collect();
        let mut questions = Vec::new();
        let mut ends = Vec::new();
        for (task, end) in ended {
            let clean = end == End::Exited(0);
            let current = self.current_of(task);
            let task = if clean { task } else { self.rename(task, current) };
            // The cell's ticket is freed by the step, the slot by the sweep, and only then may the pid be reused.
            questions.extend(self.step(task, TaskEvent::Ended { clean, now }));
            let hands = self.runs.get_mut(&task).and_then(|run| run.hands.take());
            let mut reason = None;
            if let Some(hands) = hands {
                reason = self.region.slots().notes(hands.slot).reason();
                self.region.sweep(hands.child.pid());
                hands.child.reap();
            }
            let left = current.filter(|_| !clean).map(|(_, _, backend)| backend);
            ends.push(WorkerEnd { task, end, left, reason });
            self.forget_if_over(task);
        }
        (ends, questions)
    }

    /// Lets time pass for all.
    pub fn pass(&mut self, now: Instant) -> Vec<ToSettle> {
        let due: Vec<i64> = self
            .runs
            .iter()
            .filter(|(_, run)| run.state.deadline().is_some_and(|at| now >= at))
            .map(|(task, _)| *task)
            .collect();
        due.into_iter().filter_map(|task| self.step(task, TaskEvent::Passed { now })).collect()
    }

    pub fn cancel_all(&mut self, now: Instant) {
        let tasks: Vec<i64> = self.runs.keys().copied().collect();
        for task in tasks {
            let none = self.step(task, TaskEvent::CancelAsked { now });
            debug_assert!(none.is_none());
        }
    }

    pub fn settled(&mut self, task: i64) {
        let _ = self.step(task, TaskEvent::Settled);
        self.forget_if_over(task);
    }

    pub fn unsettled(&mut self, task: i64, now: Instant) {
        let _ = self.step(task, TaskEvent::Unsettled { now });
    }

    /// The link is lost, and with it every answer: the questions are put again later.
    pub fn all_unsettled(&mut self, now: Instant) {
        let tasks: Vec<i64> = self.runs.keys().copied().collect();
        tasks.into_iter().for_each(|task| self.unsettled(task, now));
    }

    fn step(&mut self, task: i64, event: TaskEvent) -> Option<ToSettle> {
        let run = self.runs.get_mut(&task)?;
        let state = std::mem::replace(&mut run.state, TaskState::Over);
        let step = task_state::step(state, event);
        run.state = step.next;
        let mut question = None;
        for effect in step.effects {
            match (effect, &run.hands) {
                (Effect::FreeCell, Some(hands)) => self.region.free(hands.ticket),
                (Effect::Kill, Some(hands)) => {
                    shared::warning!("worker killed: it did not answer in time", task = task, pid = hands.child.pid());
                    hands.child.signal(Signal::SIGKILL);
                }
                // INT means "give back what you run": the worker knows best what that is.
                (Effect::TellCancel, Some(hands)) => hands.child.signal(Signal::SIGINT),
                (Effect::Settle { terminate }, _) => {
                    question = Some(ToSettle { task, attempt: run.attempt, terminate });
                }
                (Effect::FreeCell | Effect::Kill | Effect::TellCancel, None) => {}
            }
        }
        question
    }

    fn current_of(&self, task: i64) -> Option<(i64, i32, i32)> {
        let hands = self.runs.get(&task)?.hands.as_ref()?;
        self.region.slots().notes(hands.slot).running()
    }

    /// A dead worker's entry takes the name of the task it died over.
    fn rename(&mut self, task: i64, current: Option<(i64, i32, i32)>) -> i64 {
        match current {
            Some((now, attempt, _)) if now != task => {
                if let Some(mut run) = self.runs.remove(&task) {
                    run.attempt = attempt;
                    self.runs.insert(now, run);
                }
                now
            }
            _ => task,
        }
    }

    fn forget_if_over(&mut self, task: i64) {
        if self.runs.get(&task).is_some_and(|run| run.state == TaskState::Over) {
            self.runs.remove(&task);
        }
    }
}
