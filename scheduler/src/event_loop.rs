//! The loop of a scheduler: wait, event, component, commands, run.
//!
//! It owns the components, hands them events, and runs the commands that they return. No call in here blocks: queries to
//! the database are in flight while the loop waits, and forking is quick. What goes wrong with the server is a reason in the
//! slot status, one line in the log, and another try.

use crate::answer::{Answer, Event};
use crate::attempt::attempts::AttemptAnswer;
use crate::claim::claims::ClaimAnswer;
use crate::claim::pass_end::Starters;
use crate::claim::slots;
use crate::command::{Command, SessionName};
use crate::components::Components;
use crate::graph::graph_state::GraphEvent;
use crate::limits::HEARTBEAT_PERIOD;
use crate::links::Links;
use crate::pool::connection_pool::PoolAnswer;
use crate::session::queue_session::{self, SessionAnswer};
use crate::session::reload;
use crate::session::session_state::SessionEvent;
use crate::table::make::Readiness;
use crate::turn::{Turn, turn};
use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use shared::db::db_error::DbError;
use shared::db::link::LinkEvent;
use shared::limits::LET_GO;
use shared::log::Level;
use shared::process::exit_code::ExitCode;
use shared::process::order::{SchedulerOrder, Start};
use shared::process::stopping::StopEvent;
use shared::sys::signal::SignalPipe;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// While our launcher cannot prove that it leads.
const UNLED: &str = "the launcher does not hold the leader lock; waiting for it";

/// What a wait came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    ForEvents,
    /// A part of an answer has come, and nothing else.
    ForMore,
}

#[derive(Debug)]
pub struct Scheduler {
    signals: SignalPipe,
    events: (Sender<Event>, Receiver<Event>),
    parts: Components,
}

impl Scheduler {
    pub fn new(
        start: Start,
        order: SchedulerOrder,
        signals: SignalPipe,
        reexecuted: bool,
    ) -> std::io::Result<Scheduler> {
        let parts = Components::new(start, order, reexecuted)?;
        Ok(Scheduler { signals, events: unbounded(), parts })
    }

    pub fn run(mut self) -> ExitCode {
        // One that only looks whether there is a catalog comes every minute, to every database.
        let level = if self.parts.base.order.found { Level::Debug } else { Level::Info };
        shared::log_line!(level, "scheduler started", queue = self.parts.base.label, version = shared::VERSION);
        loop {
            if self.wait() == Waited::ForMore {
                continue;
            }
            while let Ok(event) = self.events.1.try_recv() {
                self.handle(event);
            }
            self.ask();
            self.start_claimed();
            if self.parts.claims.process_limit.take_changed() {
                self.parts.show_reason();
            }
            if self.parts.claims.take_freed() | self.parts.attempts.take_freed() {
                slots::offer(&self.parts.base);
            }
            if let Some(code) = self.finished() {
                let quiet = self.parts.stop.exit == Some(code) && self.parts.base.order.found
                    || !self.parts.base.start.region.leads();
                let level = if quiet { Level::Debug } else { Level::Info };
                shared::log_line!(level, "scheduler ended", queue = self.parts.base.label, code = code.status());
                return code;
            }
        }
    }

    /// Polls everything, then turns what happened into events.
    fn wait(&mut self) -> Waited {
        self.parts.base.slot_status().count_beat();
        let timeout = self.timeout(Instant::now());
        let absorbed = self.parts.claims.absorbs_for(&self.parts.attempts).and_then(to_timeout);
        let timeout = absorbed.map_or(timeout, |left| timeout.min(left));
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.parts.base.start.life.as_fd(), PollFlags::POLLIN),
        ];
        let own =
            self.parts.links.get(SessionName::Queue).is_some_and(|link| link.interest().is_some()).then_some(fds.len());
        fds.extend(self.parts.links.interests().map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.parts.attempts.remotes.interests().map(|(fd, flags)| PollFd::new(fd, flags)));
        if absorbed.is_none() {
            fds.extend(self.parts.pool.poll_fds());
            fds.extend(self.parts.attempts.table.poll_fds());
        }
        // EINTR and the like: the deadlines bring us back.
        let _ = poll(&mut fds, timeout);
        let parent_gone = fds[1].any().unwrap_or(false);
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        let ready = fds.iter().filter(|fd| is_ready(fd)).count();
        let only_own = ready == 1 && own.is_some_and(|own| is_ready(&fds[own])) && timeout != PollTimeout::ZERO;
        drop(fds);
        let now = Instant::now();
        // Before anything is read that may have come while the process stood still.
        self.mind_lease();
        let send = |event| {
            // The receiver lives in the same struct: this cannot fail.
            let _ = self.events.0.send(event);
        };
        if parent_gone {
            send(Event::ParentGone);
        }
        self.signals.received().into_iter().for_each(|signal| send(Event::Signal(signal)));
        let events = self.parts.links.drive(SessionName::Queue, now);
        if only_own && events.is_empty() && self.parts.links.is_open(SessionName::Queue) {
            return Waited::ForMore;
        }
        events.into_iter().for_each(|event| send(Event::Session(SessionName::Queue, event)));
        for name in Links::others() {
            self.parts.links.drive(name, now).into_iter().for_each(|event| send(Event::Session(name, event)));
        }
        send(Event::Passed);
        Waited::ForEvents
    }

    fn timeout(&self, now: Instant) -> PollTimeout {
        if !self.events.1.is_empty() {
            return PollTimeout::ZERO;
        }
        let (working, leads) = (self.parts.session.state.working(), self.parts.base.start.region.leads());
        let stopping = self.parts.stop.state.asked();
        let open = self.parts.links.is_open(SessionName::Queue);
        let passes = working && leads && !self.parts.claims.is_passing() && !stopping;
        let deadlines = [
            self.parts.session.state.deadline().filter(|_| leads || open),
            self.parts.links.deadline(leads && !stopping),
            self.parts.table.deadline().filter(|_| passes),
            self.parts.attempts.deadline(&self.parts.base, working),
            self.parts.pool.deadline().filter(|_| working),
            self.parts.graph.deadline().filter(|_| leads && !stopping),
            self.parts.jobs.deadline(stopping).filter(|_| working),
            self.parts.installer.deadline().filter(|_| working),
            self.parts.stop.state.deadline(),
            self.parts.session.write_pause.deadline(now).filter(|_| working),
            passes.then_some(self.parts.claims.timer.next_poll()),
            open.then(|| now + self.parts.base.start.region.lease_left() + LET_GO),
            Some(now + HEARTBEAT_PERIOD),
        ];
        let wait = deadlines.into_iter().flatten().min().unwrap_or(now).saturating_duration_since(now);
        to_timeout(wait).unwrap_or(PollTimeout::MAX)
    }

    fn handle(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::ParentGone | Event::Signal(Signal::SIGQUIT) => shared::sys::fork::leave(ExitCode::Asked),
            Event::Signal(Signal::SIGTERM) => {
                let close = Duration::from_millis(self.parts.base.settings.close_ms);
                self.parts.stop.event(StopEvent::Finish { now, close }, &mut self.parts.attempts, &self.parts.base);
            }
            Event::Signal(Signal::SIGINT) => {
                self.parts.stop.event(StopEvent::Cancel { now }, &mut self.parts.attempts, &self.parts.base);
            }
            Event::Signal(Signal::SIGHUP) => self.parts.reload(now),
            // SIGUSR2 and anything else means "look", and every turn looks at everything.
            Event::Signal(_) => self.parts.claims.signalled(now),
            Event::Session(name, LinkEvent::Answered(answer)) => {
                if name.answers_once() {
                    self.parts.links.close(name);
                }
                self.answered(answer, now);
            }
            Event::Session(SessionName::Queue, event) => self.queue_event(event, now),
            Event::Session(name, LinkEvent::Up) => self.up(name, now),
            Event::Session(name, LinkEvent::Lost(db_error)) => self.lost(name, db_error, now),
            Event::Session(SessionName::Graph, LinkEvent::CatalogChanged) => self.parts.graph.notified(now),
            Event::Session(_, LinkEvent::Notified | LinkEvent::CatalogChanged) => {}
            Event::Passed => self.turn(now),
        }
    }

    fn queue_event(&mut self, event: LinkEvent<Answer>, now: Instant) {
        match event {
            LinkEvent::Up => {
                if let Some(link) = self.parts.links.get(SessionName::Queue) {
                    self.parts.session.connected(link, &mut self.parts.base);
                }
                self.parts.session_event(SessionEvent::Up);
            }
            LinkEvent::Notified => {
                self.parts.jobs.hurry(now);
                self.parts.claims.timer.notify(now);
            }
            LinkEvent::CatalogChanged => self.parts.graph_event(GraphEvent::CatalogChanged, now),
            LinkEvent::Lost(db_error) => self.parts.session_lost(db_error, now),
            LinkEvent::Answered(answer) => self.answered(answer, now),
        }
    }

    /// A session beside the service is up.
    fn up(&mut self, name: SessionName, now: Instant) {
        let turn = turn!(self.parts, now);
        match name {
            SessionName::Queue => {}
            SessionName::Settings => self.parts.run(vec![reload::read_settings()], Answer::Session),
            SessionName::Repair => self.parts.run(vec![self.parts.table.repair(&turn)], Answer::Table),
            SessionName::Installer => {
                let commands = self.parts.installer.up(&turn).into_iter().collect();
                self.parts.run(commands, Answer::Installer);
            }
            SessionName::Graph => self.parts.graph_event(GraphEvent::Up, now),
        }
    }

    /// A session beside the service is lost.
    fn lost(&mut self, name: SessionName, db_error: DbError, now: Instant) {
        if name.answers_once() {
            self.parts.links.close(name);
        }
        let turn = turn!(self.parts, now);
        match name {
            SessionName::Queue => {}
            // Without a server the config's settings hold; the next session reads the rest.
            SessionName::Settings => self.parts.apply(Vec::new(), now),
            SessionName::Repair => {
                let commands = self.parts.table.repair_lost(db_error, &turn);
                self.parts.run(commands, Answer::Table);
            }
            SessionName::Installer => {
                let commands = self.parts.installer.lost(db_error, &turn);
                self.parts.run(commands, Answer::Installer);
            }
            SessionName::Graph => {
                let commands = self.parts.graph.lost(db_error, &turn);
                self.parts.run(commands, Answer::Graph);
            }
        }
    }

    /// A lease that ran out so long ago that another launcher may lead: every session is given up, and with them the queue; their
    /// messages are not read. Found out before anything else is done, also after a long sleep.
    fn mind_lease(&mut self) {
        let lapsed = self.parts.base.start.region.lapsed_since();
        if self.parts.links.is_open(SessionName::Queue) && lapsed.is_some_and(|since| since >= LET_GO) {
            self.parts.links.close(SessionName::Settings);
            self.parts.session_lost(DbError::passing(UNLED), Instant::now());
        }
    }

    fn answered(&mut self, answer: Answer, now: Instant) {
        match answer {
            Answer::Session(answer) => self.session_answered(answer, now),
            Answer::Installer(answer) => {
                let commands = self.parts.installer.answered(answer, &turn!(self.parts, now));
                self.parts.run(commands, Answer::Installer);
            }
            Answer::Table(answer) => {
                let commands = self.parts.table.answered(answer, &turn!(self.parts, now));
                self.parts.run(commands, Answer::Table);
            }
            Answer::Claim(ClaimAnswer::Done) => {}
            Answer::Claim(ClaimAnswer::Passed(result)) => {
                if result.has_written() || self.parts.attempts.table.has_recorded_all() {
                    self.parts.written();
                }
                let (attempts, pool, jobs) = (&mut self.parts.attempts, &mut self.parts.pool, &mut self.parts.jobs);
                let starters = Starters { attempts, pool, jobs, spawner: &self.parts.spawner };
                self.parts.claims.passed(*result, starters, &turn!(self.parts, now));
            }
            Answer::Attempt(answer) => {
                let recorded = matches!(answer, AttemptAnswer::Recorded(_));
                let starts = self.parts.claims.start_health();
                let commands = self.parts.attempts.answered(answer, starts, &turn!(self.parts, now));
                if recorded {
                    self.parts.written();
                }
                self.parts.run(commands, Answer::Attempt);
            }
            Answer::Pool(PoolAnswer { backend, gone }) => self.parts.pool.terminated(backend, gone, now),
            Answer::Job(answer) => {
                let commands = self.parts.with_jobs(|jobs, turn| jobs.answered(answer, turn, now));
                self.parts.run(commands, Answer::Job);
            }
            Answer::Graph(answer) => {
                let commands = self.parts.graph.answered(answer, &turn!(self.parts, now));
                self.parts.run(commands, Answer::Graph);
            }
            Answer::Refused(what, db_error) => self.parts.refused(what, &db_error, now),
        }
    }

    fn session_answered(&mut self, answer: SessionAnswer, now: Instant) {
        let commands = match answer {
            SessionAnswer::Done => Vec::new(),
            SessionAnswer::Admitted(verdict) => self.parts.session.admitted(verdict, &mut self.parts.base),
            SessionAnswer::LeaderFound(proof) => {
                self.parts.session.home.leader_found(proof);
                Vec::new()
            }
            SessionAnswer::Marker(_) if self.parts.stop.state.asked() => Vec::new(),
            SessionAnswer::Marker(marker) => {
                self.parts.session.marker_found(marker, &mut self.parts.base).into_iter().collect()
            }
            SessionAnswer::Settings(settings) => return self.parts.apply(settings, now),
            SessionAnswer::Prepared(Readiness::HeldElsewhere) => vec![Command::Session(SessionEvent::Refused { now })],
            SessionAnswer::Prepared(Readiness::OtherVersion(found)) => return self.parts.other_version(&found, now),
            SessionAnswer::Prepared(Readiness::OtherTable { former }) => {
                queue_session::leave_table(&self.parts.base, former)
            }
            SessionAnswer::Prepared(Readiness::NoTable { why }) => {
                queue_session::leave(&self.parts.base, ExitCode::NoQueue, &why)
            }
            SessionAnswer::Prepared(Readiness::Ready(ready)) => return self.parts.ready(*ready, now),
        };
        self.parts.run(commands, Answer::Session);
    }

    /// What is done on every turn, whatever woke us.
    fn turn(&mut self, now: Instant) {
        self.parts.attempts.table.acknowledge();
        self.watch_recorders(now);
        let commands = self.parts.session.find_leader(&self.parts.base).into_iter().collect();
        self.parts.run(commands, Answer::Session);
        let (ends, commands) = self.parts.attempts.reap(&mut self.parts.pool, &turn!(self.parts, now));
        let claims = self.parts.claims.workers_ended(&ends, &self.parts.attempts, &turn!(self.parts, now));
        self.parts.run(claims, Answer::Claim);
        self.parts.run(commands, Answer::Attempt);
        let commands = self.parts.pool.terminate(&turn!(self.parts, now));
        self.parts.run(commands, Answer::Pool);
        let commands = self.parts.attempts.turn(&self.parts.spawner, &self.parts.pool, &turn!(self.parts, now));
        self.parts.run(commands, Answer::Attempt);
        let commands = self.parts.with_jobs(|jobs, turn| jobs.turn(turn, now));
        self.parts.run(commands, Answer::Job);
        let commands = self.parts.graph.turn(&turn!(self.parts, now));
        self.parts.run(commands, Answer::Graph);
        let commands = self.parts.installer.turn(&turn!(self.parts, now));
        self.parts.run(commands, Answer::Installer);
        let commands = self.parts.attempts.search_remotes(&turn!(self.parts, now));
        self.parts.run(commands, Answer::Attempt);
        // A scheduler whose launcher does not lead opens no session, and so holds no queue.
        if self.parts.links.is_open(SessionName::Queue) || self.parts.base.start.region.leads() {
            self.parts.session_event(SessionEvent::Passed { now });
        }
        self.parts.stop.event(StopEvent::Passed { now }, &mut self.parts.attempts, &self.parts.base);
        self.parts.attempts.sweep_if_due(&turn!(self.parts, now));
        let commands = self.parts.table.turn(&turn!(self.parts, now)).into_iter().collect();
        self.parts.run(commands, Answer::Table);
    }

    /// Workers that wait until the server accepts their results.
    fn watch_recorders(&mut self, now: Instant) {
        if let Some(why) = self.parts.attempts.table.record_refusal() {
            self.parts.session.report_write_pause(&why, &self.parts.base, now);
        } else if self.parts.session.state.working() && self.parts.session.write_pause.ends(now) {
            self.parts.session.report_end(&self.parts.base);
        } else if self.parts.session.write_pause.is_told()
            && !self.parts.session.write_pause.has_written()
            && self.parts.attempts.table.has_recorded_all()
            && !self.parts.session.write_pause.pauses(now)
        {
            // Nothing waits to be recorded: the next claim shows whether the server writes.
            self.parts.claims.timer.hurry(now);
        }
    }

    /// Queries that are due: unfinished rows, a pass, results, begins.
    fn ask(&mut self) {
        let now = Instant::now();
        if !self.parts.claims.is_passing() {
            let commands = self.parts.attempts.read_unfinished(&turn!(self.parts, now)).into_iter().collect();
            self.parts.run(commands, Answer::Attempt);
        }
        self.start_pass(now);
        if !self.parts.claims.will_record(&self.parts.attempts, &turn!(self.parts, now)) {
            let commands = self.parts.attempts.record(&turn!(self.parts, now)).into_iter().collect();
            self.parts.run(commands, Answer::Attempt);
        }
        let commands = self.parts.attempts.begin(&turn!(self.parts, now)).into_iter().collect();
        self.parts.run(commands, Answer::Attempt);
    }

    fn start_pass(&mut self, now: Instant) {
        let turn = turn!(self.parts, now);
        let Some(statements) = turn.statements().cloned() else { return };
        let Some(plan) = self.parts.claims.plan(&self.parts.attempts, &self.parts.jobs, &mut self.parts.pool, &turn)
        else {
            return;
        };
        let record = if plan.is_empty() { self.parts.attempts.record(&turn) } else { None };
        let pass = self.parts.claims.begin(plan, &statements, &mut self.parts.attempts, &self.parts.pool, &turn);
        let measure = self.parts.table.measure(&statements, &turn).into_iter().collect();
        self.parts.run(record.into_iter().collect(), Answer::Attempt);
        self.parts.run(vec![pass], Answer::Claim);
        let marker = self.parts.session.find_marker(&statements, now).into_iter().collect();
        self.parts.run(marker, Answer::Session);
        self.parts.run(measure, Answer::Table);
    }

    /// Workers for claimed rows, once the queries that are due are sent: the server works on them meanwhile.
    fn start_claimed(&mut self) {
        let now = Instant::now();
        if self.parts.attempts.table.claimed() == 0 {
            return;
        }
        for event in self.parts.links.drive(SessionName::Queue, now) {
            let _ = self.events.0.send(Event::Session(SessionName::Queue, event));
        }
        let failed =
            self.parts.attempts.start_pooled(&mut self.parts.pool, &self.parts.spawner, &turn!(self.parts, now));
        self.parts.claims.not_started(failed, &turn!(self.parts, now));
    }

    fn finished(&self) -> Option<ExitCode> {
        let table = &self.parts.attempts.table;
        // The outcome of a task on a remote that cannot be reached is for the next start.
        let settled = !self.parts.claims.is_passing()
            && table.has_recorded_all()
            && table.active() <= self.parts.attempts.remotes.unknown();
        self.parts.stop.finished(settled, !self.parts.session.state.working() && !table.has_workers())
    }
}

/// Rounded up: a wait that ends a moment too early would spin.
fn to_timeout(wait: Duration) -> Option<PollTimeout> {
    PollTimeout::try_from(wait.as_micros().div_ceil(1000)).ok()
}
