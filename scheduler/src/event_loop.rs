//! The loop of a scheduler: wait, event, step, log the change, run the effects.
//!
//! It holds the one connection of the process, the table of running tasks and the bell. No call in here blocks:
//! questions to the database are in flight while the loop waits, and forking is quick. What goes wrong with the server is
//! a reason in the notes, one line in the log, and another try.

use crate::queue::{self, Prepared, Readiness};
use crate::run_table::{RunTable, ToSettle};
use crate::session_state::{Session, SessionEffect, SessionEvent};
use crate::settle::{Settlement, settle};
use crate::take::{Taken, take};
use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use shared::db::back_off::BackOff;
use shared::db::link::{Link, LinkEvent};
use shared::db::statement::Queue;
use shared::exit_code::ExitCode;
use shared::fault;
use shared::hand_over::{SchedulerOrder, Start, WorkerOrder};
use shared::nursery::Nursery;
use shared::region::{Kind, Phase, SlotHandle};
use shared::stopping::{self, StopEvent, Stopping};
use shared::sys::signal::Bell;
use shared::sys::wait::End;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest wait: the beat in the notes must not stand still.
const BEAT: Duration = Duration::from_secs(5);
/// How long the server may take for an answer before the connection is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rows taken, and so processes forked, in one go.
const TAKE_AT_ONCE: usize = 64;

/// What comes back from the database.
#[derive(Debug)]
pub enum Answer {
    Prepared(Readiness),
    Taken(Vec<Taken>),
    Settled { task: i64, settlement: Settlement },
    Unfinished(Vec<(i64, i32)>),
}

#[derive(Debug)]
enum Event {
    Rang(Signal),
    ParentGone,
    Link(LinkEvent<Answer>),
    Passed,
}

#[derive(Debug)]
pub struct Scheduler {
    start: Start,
    order: SchedulerOrder,
    queue: Queue,
    label: String,
    nursery: Nursery,
    bell: Bell,
    events: (Sender<Event>, Receiver<Event>),
    session: Session,
    link: Option<Link<Answer>>,
    statements: Option<Rc<Prepared>>,
    runs: RunTable,
    /// Slots reserved for the rows of the take in flight.
    taking: Option<Vec<SlotHandle>>,
    next_take: Instant,
    next_reset: Instant,
    /// Pause between takes while workers cannot even begin.
    stumbling: BackOff,
    stopping: Stopping,
    /// The trouble that has been said and not yet been taken back.
    said: Option<String>,
    leave: Option<ExitCode>,
}

impl Scheduler {
    pub fn new(start: Start, order: SchedulerOrder, bell: Bell) -> std::io::Result<Scheduler> {
        let now = Instant::now();
        let nursery = Nursery::open(&start.region, start.slot, ["scheduler.before_fork", "scheduler.after_fork"])?;
        Ok(Scheduler {
            queue: Queue { schema: order.schema.clone(), table: order.table.clone() },
            label: format!("{} {}.{}", order.target.database, order.schema, order.table),
            nursery,
            bell,
            events: unbounded(),
            session: Session::new(now),
            link: None,
            statements: None,
            runs: RunTable::new(&start.region),
            taking: None,
            next_take: now,
            next_reset: now + Duration::from_millis(order.settings.reset_ms),
            stumbling: BackOff::new(Duration::from_millis(200), Duration::from_secs(5)),
            stopping: Stopping::No,
            said: None,
            leave: None,
            start,
            order,
        })
    }

    pub fn run(mut self) -> ExitCode {
        shared::info!("scheduler started", queue = self.label);
        loop {
            self.wait();
            while let Ok(event) = self.events.1.try_recv() {
                self.handle(event);
            }
            self.start_take();
            if let Some(code) = self.finished() {
                shared::info!("scheduler ended", queue = self.label, code = code.status());
                return code;
            }
        }
    }

    /// Polls everything, then turns what happened into events.
    fn wait(&mut self) {
        self.start.region.slots().notes(self.start.slot).count_beat();
        let timeout = self.timeout(Instant::now());
        let mut fds = vec![
            PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.start.life.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(self.link.as_ref().and_then(Link::interest).map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.runs.poll_fds());
        // EINTR and the like: the deadlines bring us back.
        let _ = poll(&mut fds, timeout);
        let parent_gone = fds[1].any().unwrap_or(false);
        drop(fds);
        let now = Instant::now();
        let send = |event| {
            // The receiver lives in the same struct: this cannot fail.
            let _ = self.events.0.send(event);
        };
        if parent_gone {
            send(Event::ParentGone);
        }
        self.bell.rung().into_iter().for_each(|signal| send(Event::Rang(signal)));
        if let Some(link) = &mut self.link {
            link.turn(now).into_iter().for_each(|event| send(Event::Link(event)));
        }
        send(Event::Passed);
    }

    fn timeout(&self, now: Instant) -> PollTimeout {
        let take =
            (self.session.working() && self.taking.is_none() && !self.stopping.asked()).then_some(self.next_take);
        let reset = self.session.working().then_some(self.next_reset);
        let deadlines = [
            self.session.deadline(),
            self.link.as_ref().and_then(Link::deadline),
            self.runs.deadline(),
            self.stopping.deadline(),
            take,
            reset,
            Some(now + BEAT),
        ];
        let wait = deadlines.into_iter().flatten().min().unwrap_or(now).saturating_duration_since(now);
        // Rounded up: a wait that ends a moment too early would spin.
        PollTimeout::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
    }

    fn handle(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::ParentGone => shared::sys::fork::leave(ExitCode::Asked),
            Event::Rang(Signal::SIGQUIT) => shared::sys::fork::leave(ExitCode::Asked),
            Event::Rang(Signal::SIGTERM) => {
                self.stop(StopEvent::Finish { now, close: Duration::from_millis(self.order.settings.close_ms) });
            }
            Event::Rang(Signal::SIGINT) => self.stop(StopEvent::Cancel { now }),
            Event::Rang(Signal::SIGHUP) => self.reload(),
            // SIGUSR2 and anything else means "look", and every pass looks at everything.
            Event::Rang(_) => {}
            Event::Link(LinkEvent::Up) => self.session_event(SessionEvent::Up),
            Event::Link(LinkEvent::Answered(answer)) => self.answered(answer, now),
            Event::Link(LinkEvent::Lost(trouble)) => {
                self.link = None;
                self.statements = None;
                self.release_reserved();
                self.runs.all_unsettled(now);
                self.session_event(SessionEvent::Lost { now, trouble });
            }
            Event::Passed => self.pass(now),
        }
    }

    /// What is done on every turn, whatever woke us.
    fn pass(&mut self, now: Instant) {
        self.runs.acknowledge();
        let (ends, questions) = self.runs.reap(now);
        for worker in &ends {
            match worker.end {
                End::Exited(0) => self.stumbling.succeeded(),
                End::Killed(_) => {
                    shared::warning!("worker died", queue = self.label, task = worker.task, end = worker.end);
                }
                End::Exited(_) => {
                    shared::debug!("worker left its task", queue = self.label, task = worker.task, end = worker.end);
                }
            }
        }
        if ends.iter().any(|worker| matches!(worker.end, End::Exited(status) if status != 0)) {
            self.next_take = self.stumbling.next(now);
        } else if !ends.is_empty() && self.stumbling.fresh() {
            // A finished task makes room for its successor at once.
            self.next_take = now;
        }
        self.put(questions, now);
        let questions = self.runs.pass(now);
        self.put(questions, now);
        self.session_event(SessionEvent::Passed { now });
        self.stop(StopEvent::Passed { now });
        if self.session.working() && now >= self.next_reset {
            self.next_reset = now + Duration::from_millis(self.order.settings.reset_ms);
            if let (Some(link), Some(statements)) = (&mut self.link, self.statements.clone()) {
                link.ask("unfinished tasks", PATIENCE, move |client| async move {
                    Ok(Answer::Unfinished(queue::unfinished(&client, &statements).await?))
                });
            }
        }
    }

    fn session_event(&mut self, event: SessionEvent) {
        for effect in self.session.handle(event) {
            match effect {
                SessionEffect::Dial => {
                    let name =
                        format!("pg_work {} {} {}", self.queue.schema, self.queue.table, self.order.settings.sleep_ms);
                    self.link = Some(Link::dial(&self.order.target, &name, Instant::now()));
                }
                SessionEffect::Prepare => {
                    let (queue, defaults) = (self.queue.clone(), self.order.defaults.clone());
                    if let Some(link) = &mut self.link {
                        link.ask("preparing the queue", PATIENCE, |client| async move {
                            Ok(Answer::Prepared(queue::prepare(client, queue, defaults).await?))
                        });
                    }
                }
                SessionEffect::Say(reason) => self.say(reason),
                SessionEffect::SayWell => self.say_well(),
                SessionEffect::GiveUp => {
                    shared::error!(
                        "the queue is served by another scheduler; leaving it to that one",
                        queue = self.label
                    );
                    self.leave = Some(ExitCode::Temporary);
                }
            }
        }
    }

    fn answered(&mut self, answer: Answer, now: Instant) {
        match answer {
            Answer::Prepared(Readiness::HeldElsewhere) => self.session_event(SessionEvent::Refused { now }),
            Answer::Prepared(Readiness::Ready { statements, unfinished, superuser, backend }) => {
                if superuser && !self.session.held_before {
                    shared::warning!(
                        "tasks of this queue run as a superuser; give the row a user of its own",
                        queue = self.label
                    );
                }
                self.start.region.slots().notes(self.start.slot).set_running(0, 0, backend);
                self.statements = Some(statements);
                self.session_event(SessionEvent::Prepared);
                self.adopt(unfinished, now);
                self.next_take = now;
            }
            Answer::Unfinished(unfinished) => self.adopt(unfinished, now),
            Answer::Taken(taken) => self.taken(taken, now),
            Answer::Settled { task, settlement } => match settlement {
                Settlement::StillRunning => self.runs.unsettled(task, now),
                Settlement::PlannedAgain => {
                    shared::info!("task planned again", queue = self.label, task = task);
                    self.runs.settled(task);
                    if self.stumbling.fresh() {
                        self.next_take = now;
                    }
                }
                Settlement::NotOurs => self.runs.settled(task),
            },
        }
    }

    /// Rows that were claimed and are nobody's: not one of our workers'.
    fn adopt(&mut self, unfinished: Vec<(i64, i32)>, now: Instant) {
        for (task, attempt) in unfinished {
            if !self.runs.knows(task) {
                shared::info!("unfinished task found", queue = self.label, task = task);
                self.runs.orphaned(task, attempt, now);
            }
        }
    }

    /// Slots first, then as many rows.
    fn start_take(&mut self) {
        let now = Instant::now();
        let idle = self.taking.is_none() && !self.stopping.asked() && self.session.working();
        if !idle || now < self.next_take {
            return;
        }
        let settings = &self.order.settings;
        let may_run = (settings.run as usize).saturating_sub(self.runs.len());
        let count = may_run.min(settings.limit as usize).min(TAKE_AT_ONCE);
        let counter = self.start.region.slots();
        let slots: Vec<SlotHandle> = std::iter::from_fn(|| counter.reserve()).take(count).collect();
        self.next_take = now + Duration::from_millis(settings.sleep_ms);
        let (Some(link), Some(statements), false) = (&mut self.link, self.statements.clone(), slots.is_empty()) else {
            slots.into_iter().for_each(|slot| {
                counter.release(slot);
            });
            return;
        };
        let count = slots.len();
        self.taking = Some(slots);
        link.ask("taking tasks", PATIENCE, move |client| async move {
            Ok(Answer::Taken(take(client, statements, count).await?))
        });
    }

    fn taken(&mut self, taken: Vec<Taken>, now: Instant) {
        let mut slots = self.taking.take().unwrap_or_default();
        if taken.len() == slots.len() && !taken.is_empty() {
            self.next_take = now;
        }
        fault::point("scheduler.after_take");
        let notes = self.start.region.slots().notes(self.start.slot);
        if notes.phase() == Some(Phase::Waiting) {
            notes.set_phase(Phase::Running);
            self.start.ring_parent();
        }
        for row in taken {
            match slots.pop() {
                Some(slot) if !self.stopping.asked() => self.start_worker(row, slot, now),
                slot => {
                    slots.extend(slot);
                    self.runs.orphaned(row.task, row.attempt, now);
                }
            }
        }
        self.taking = Some(slots);
        self.release_reserved();
    }

    fn start_worker(&mut self, row: Taken, slot: SlotHandle, now: Instant) {
        let order = WorkerOrder {
            target: self.order.target.clone(),
            schema: self.order.schema.clone(),
            table: self.order.table.clone(),
            task: row.task,
            attempt: row.attempt,
            output_limit: self.order.settings.output_limit,
        };
        match self.nursery.spawn(slot, Kind::Worker, &self.label, &order, worker::run) {
            Ok(worker) => {
                shared::debug!("worker started", queue = self.label, task = row.task, pid = worker.0.pid());
                let ack_by = now + Duration::from_millis(self.order.settings.close_ms);
                self.runs.started(row.task, row.attempt, worker, slot, ack_by);
            }
            Err(error) => {
                shared::error!(
                    "cannot start a worker; the task is planned again",
                    queue = self.label,
                    task = row.task,
                    error = error
                );
                self.runs.orphaned(row.task, row.attempt, now);
                self.next_take = self.stumbling.next(now);
            }
        }
    }

    fn put(&mut self, questions: Vec<ToSettle>, now: Instant) {
        for ToSettle { task, attempt, terminate } in questions {
            match (&mut self.link, self.statements.clone()) {
                (Some(link), Some(statements)) if self.session.working() => {
                    link.ask("settling a task", PATIENCE, move |client| async move {
                        let settlement = settle(client, statements, task, attempt, terminate).await?;
                        Ok(Answer::Settled { task, settlement })
                    });
                }
                _ => self.runs.unsettled(task, now),
            }
        }
    }

    fn release_reserved(&mut self) {
        for slot in self.taking.take().unwrap_or_default() {
            self.start.region.slots().release(slot);
        }
    }

    fn stop(&mut self, event: StopEvent) {
        let step = stopping::step(self.stopping, event);
        if step.next != self.stopping {
            let how = if step.cancel_tasks { "cancelling tasks" } else { "letting tasks finish" };
            shared::info!("scheduler stops", queue = self.label, how = how, tasks = self.runs.len());
            self.start.region.slots().notes(self.start.slot).set_phase(Phase::Stopping);
        }
        self.stopping = step.next;
        if step.cancel_tasks {
            self.runs.cancel_all(Instant::now());
        }
    }

    /// SIGHUP: the launcher has put a new order into our cell.
    fn reload(&mut self) {
        let Some(payload) = self.start.region.accept_published(self.start.slot.index()) else { return };
        self.start.ring_parent();
        let order = payload.ok().and_then(|payload| serde_json::from_slice::<SchedulerOrder>(&payload).ok());
        let Some(order) = order else {
            shared::error!("the new settings cannot be read; the old ones stay", queue = self.label);
            return;
        };
        self.order.settings = order.settings;
        self.order.defaults = order.defaults;
        self.next_take = Instant::now();
        self.next_reset = Instant::now() + Duration::from_millis(self.order.settings.reset_ms);
        shared::info!("settings changed", queue = self.label, sleep_ms = self.order.settings.sleep_ms);
    }

    /// A condition is said once when it begins; its changes go into the notes.
    fn say(&mut self, reason: String) {
        self.start.region.slots().notes(self.start.slot).set_reason(&reason);
        self.start.ring_parent();
        if self.said.is_none() {
            shared::warning!("queue waits", queue = self.label, reason = reason);
        } else {
            shared::debug!("queue still waits", queue = self.label, reason = reason);
        }
        self.said = Some(reason);
    }

    fn say_well(&mut self) {
        self.start.region.slots().notes(self.start.slot).set_reason("");
        self.start.ring_parent();
        match self.said.take() {
            Some(_) => shared::info!("queue served again", queue = self.label),
            None => shared::info!("queue served", queue = self.label),
        }
    }

    fn finished(&self) -> Option<ExitCode> {
        if self.leave.is_some() {
            return self.leave;
        }
        if !self.stopping.asked() {
            return None;
        }
        let done = self.taking.is_none() && self.runs.is_empty();
        // Without a server nothing can be settled; the next start will.
        let stranded = !self.session.working() && !self.runs.has_workers();
        (done || stranded || self.stopping.over(Instant::now())).then_some(ExitCode::Asked)
    }
}
