//! The loop of a scheduler: wait, event, step, log the change, run the effects.
//!
//! It holds the one connection of the process, the table of running tasks and the bell. No call in here blocks:
//! questions to the database are in flight while the loop waits, and forking is quick. What goes wrong with the server
//! is a reason in the notes, one line in the log, and another try. What is asked and what the answers lead to is in
//! `serving`.

use crate::attempt::attempt_id::AttemptId;
use crate::attempt::attempt_table::{RunTable, WorkerEnd};
use crate::attempt::attempts::{Attempts, UnfinishedQuestion};
use crate::attempt::leftovers::Unfinished;
use crate::attempt::refused_end::Rewritten;
use crate::attempt::settle::Settlement;
use crate::base::Base;
use crate::claim::claims::Claims;
use crate::claim::pass::Seen;
use crate::claim::process_limit::is_shortage;
use crate::command::{Command, Purpose, Query, Refused, SessionName};
use crate::graph::graph_state::GraphEvent;
use crate::graph::keeper::{Graph, GraphAnswer, Watched};
use crate::jobs::job_queries::JobAnswer;
use crate::jobs::job_table::{Jobs, JobsTurn};
use crate::limits::{ANSWER_TIMEOUT, CLAIM_WAIT, HEARTBEAT_PERIOD, REPAIR_TIMEOUT};
use crate::pool::connection_pool::Lending;
use crate::session::catalog::{Access, Lack};
use crate::session::installer_session::Installer;
use crate::session::queue_session::QueueSession;
use crate::session::session_state::{SessionEffect, SessionEvent};
use crate::session::start_gate::{self as waiting, Verdict};
use crate::stop::Stop;
use crate::table::make::{self as queue, Measured, Owner, Past, Readiness};
use crate::table::table_repair::{self as mending, Mended};
use crate::table::upkeep::Upkeep;
use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use shared::db::link::{Link, LinkEvent};
use shared::db::migrate::Upgraded;
use shared::db::trouble::{Trouble, TroubleKind};
use shared::log::Level;
use shared::process::exit_code::ExitCode;
use shared::process::order::{SchedulerOrder, Start};
use shared::process::spawn::Nursery;
use shared::process::stopping::{self, StopEvent};
use shared::region::{LET_GO, Phase, Returned, SlotHandle};
use shared::sys::signal::Bell;
use shared::sys::wait::End;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// While our launcher cannot prove that it leads.
pub(crate) const UNLED: &str = "the launcher does not hold the leader lock; waiting until it does";

/// A worker leaves so when it has run its task and the database refuses every form of its end.
const UNWRITTEN: i32 = ExitCode::Permanent.status();
/// And so when only its task's remote can say what became of it.
const UNSETTLED: i32 = ExitCode::Unsettled.status();

/// What comes back from the database.
#[derive(Debug)]
pub enum Answer {
    Stood(Verdict),
    Prepared(Readiness),
    Seen(Box<Seen>),
    Settled {
        run: AttemptId,
        task: i64,
        settlement: Settlement,
    },
    Unfinished {
        claimed: Vec<Unfinished>,
        purpose: Purpose,
    },
    /// Of what was to go back from batches: what somebody has locked.
    Returned(Vec<(i64, i32)>),
    Settings(Vec<(String, String)>),
    Measured(Measured),
    /// The server has refused it, and the session is alive.
    Refused(Refused, Trouble),
    /// The launcher that holds this number leads on our server.
    LeaderFound(i64),
    /// The marker table as it is now.
    Marker(Option<u32>),
    /// Whether the column defaults are as the config wants them.
    Aligned(bool),
    Named,
    /// Whether the backend of a connection that is trusted no more is gone.
    Retired {
        backend: i32,
        gone: bool,
    },
    /// Whose results have been written.
    Booked(Vec<i64>),
    /// Of the workers that wanted to begin: whose tasks have.
    Begun {
        asked: Vec<AttemptId>,
        begun: Vec<i64>,
    },
    Mended(Mended),
    /// Whether the graph is ours to keep.
    Graph(Watched),
    Job(JobAnswer),
    /// The launcher's login has made the catalog, or let us in.
    Attended,
    /// The catalog has been upgraded to our version.
    Upgraded(Upgraded),
    /// The queue is registered with the catalog, or why not.
    Registered(Result<Access, Lack>),
    /// What became of a row whose end was refused.
    Rewritten {
        task: i64,
        attempt: i32,
        what: Rewritten,
    },
}

#[derive(Debug)]
enum Event {
    Rang(Signal),
    ParentGone,
    Link(LinkEvent<Answer>),
    Probe(LinkEvent<Answer>),
    Mender(LinkEvent<Answer>),
    Attendant(LinkEvent<Answer>),
    Graph(LinkEvent<GraphAnswer>),
    Passed,
}

/// What a wait came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    ForEvents,
    /// A part of an answer has come, and nothing else.
    ForMore,
}

#[derive(Debug)]
pub struct Scheduler {
    pub(crate) base: Base,
    bell: Bell,
    events: (Sender<Event>, Receiver<Event>),
    pub(crate) spawner: Nursery,
    pub(crate) links: Links,
    pub(crate) session: QueueSession,
    pub(crate) installer: Installer,
    pub(crate) table: Upkeep,
    pub(crate) claims: Claims,
    pub(crate) attempts: Attempts,
    pub(crate) pool: Lending,
    pub(crate) jobs: Jobs,
    pub(crate) graph: Graph,
    pub(crate) stop: Stop,
}

/// The connections of this process but those of the graph and to remotes.
#[derive(Debug, Default)]
pub struct Links {
    /// The one that serves the queue.
    pub queue: Option<Link<Answer>>,
    /// Reads settings on a reload: a role's own count only for new sessions.
    pub probe: Option<Link<Answer>>,
    /// Repairs the table beside the service.
    pub repair: Option<Link<Answer>>,
    /// As the launcher's login, for what our user may not do.
    pub installer: Option<Link<Answer>>,
}

impl Links {
    fn named(&mut self, session: SessionName) -> &mut Option<Link<Answer>> {
        match session {
            SessionName::Queue => &mut self.queue,
            SessionName::Settings => &mut self.probe,
            SessionName::Repair => &mut self.repair,
            SessionName::Installer => &mut self.installer,
        }
    }
}

impl Scheduler {
    pub fn new(start: Start, order: SchedulerOrder, bell: Bell, handed_down: bool) -> std::io::Result<Scheduler> {
        let now = Instant::now();
        let points = ["scheduler.before_fork", "scheduler.after_fork", "scheduler.after_hand_over"];
        let spawner = Nursery::open(&start.region, start.slot, points)?;
        let base = Base::new(start, order, handed_down);
        let region = &base.start.region;
        Ok(Scheduler {
            bell,
            events: unbounded(),
            spawner,
            links: Links::default(),
            session: QueueSession::new(now),
            installer: Installer::new(),
            table: Upkeep::new(),
            claims: Claims::new(region.slots().limit(), now),
            attempts: Attempts::new(region, base.queue.clone(), !base.settings.synchronous_commit, now),
            pool: Lending::open()?,
            jobs: Jobs::new(),
            graph: Graph::new(now),
            stop: Stop::new(),
            base,
        })
    }

    pub fn run(mut self) -> ExitCode {
        // One that only looks whether there is a catalog comes every minute, to every database.
        let level = if self.base.order.found { Level::Debug } else { Level::Info };
        shared::log_line!(level, "scheduler started", queue = self.base.label, version = shared::VERSION);
        loop {
            if self.wait() == Waited::ForMore {
                continue;
            }
            while let Ok(event) = self.events.1.try_recv() {
                self.handle(event);
            }
            self.ask_unfinished();
            self.start_look();
            self.book_errands();
            self.begin_guests();
            self.speak();
            self.start_waiting(Instant::now());
            self.offer_slots();
            if let Some(code) = self.finished() {
                let quiet = self.stop.leave == Some(code) && self.base.order.found || !self.base.start.region.leads();
                let level = if quiet { Level::Debug } else { Level::Info };
                shared::log_line!(level, "scheduler ended", queue = self.base.label, code = code.status());
                return code;
            }
        }
    }

    /// Polls everything, then turns what happened into events.
    fn wait(&mut self) -> Waited {
        self.base.notes().count_beat();
        let timeout = self.timeout(Instant::now());
        let mut fds = vec![
            PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.base.start.life.as_fd(), PollFlags::POLLIN),
        ];
        let links = [&self.links.queue, &self.links.probe, &self.links.repair, &self.links.installer];
        let own = self.links.queue.as_ref().and_then(Link::interest).map(|_| fds.len());
        let (absorbed, timeout) = match self.absorbed_for() {
            Some(left) => (true, timeout.min(left)),
            None => (false, timeout),
        };
        let interests = links.into_iter().flatten().filter_map(Link::interest);
        fds.extend(interests.map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.graph.link.as_ref().and_then(Link::interest).map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.attempts.remotes.interests().map(|(fd, flags)| PollFd::new(fd, flags)));
        if !absorbed {
            fds.extend(self.pool.poll_fds());
            fds.extend(self.attempts.begins.poll_fds());
            fds.extend(self.attempts.table.poll_fds());
        }
        // EINTR and the like: the deadlines bring us back.
        let _ = poll(&mut fds, timeout);
        let parent_gone = fds[1].any().unwrap_or(false);
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        let ready = fds.iter().filter(|fd| is_ready(fd)).count();
        let only_own = ready == 1 && own.is_some_and(|own| is_ready(&fds[own])) && timeout != PollTimeout::ZERO;
        drop(fds);
        let now = Instant::now();
        // Before anything that may have come while we stood still is read.
        self.mind_lease();
        let send = |event| {
            // The receiver lives in the same struct: this cannot fail.
            let _ = self.events.0.send(event);
        };
        if parent_gone {
            send(Event::ParentGone);
        }
        self.bell.rung().into_iter().for_each(|signal| send(Event::Rang(signal)));
        if let Some(link) = &mut self.links.queue {
            let events = link.turn(now);
            if only_own && events.is_empty() {
                return Waited::ForMore;
            }
            events.into_iter().for_each(|event| send(Event::Link(event)));
        }
        if let Some(probe) = &mut self.links.probe {
            probe.turn(now).into_iter().for_each(|event| send(Event::Probe(event)));
        }
        if let Some(mender) = &mut self.links.repair {
            mender.turn(now).into_iter().for_each(|event| send(Event::Mender(event)));
        }
        if let Some(attendant) = &mut self.links.installer {
            attendant.turn(now).into_iter().for_each(|event| send(Event::Attendant(event)));
        }
        if let Some(link) = &mut self.graph.link {
            link.turn(now).into_iter().for_each(|event| send(Event::Graph(event)));
        }
        send(Event::Passed);
        Waited::ForEvents
    }

    /// While a look that only takes is under way, and for no longer than such a one takes, ends of workers and connections that
    /// are as new wait for its answer: nothing could be done with them before, and each would make the loop go round.
    fn absorbed_for(&self) -> Option<PollTimeout> {
        let short = self.claims.brief && self.claims.looking.is_some() && self.attempts.records.waiting() == 0;
        let left = CLAIM_WAIT.checked_sub(self.claims.looked_at.elapsed()).filter(|left| short && !left.is_zero())?;
        PollTimeout::try_from(left.as_micros().div_ceil(1000)).ok()
    }

    /// What was asked goes out before workers are forked: the server is at it meanwhile.
    fn speak(&mut self) {
        if self.attempts.records.waiting() > 0
            && let Some(link) = &mut self.links.queue
        {
            for event in link.turn(Instant::now()) {
                let _ = self.events.0.send(Event::Link(event));
            }
        }
    }

    fn timeout(&self, now: Instant) -> PollTimeout {
        if !self.events.1.is_empty() {
            return PollTimeout::ZERO;
        }
        let (working, leads) = (self.session.state.working(), self.base.start.region.leads());
        let looks = working && leads && self.claims.looking.is_none() && !self.stop.state.asked();
        let deadlines = [
            self.session.state.deadline().filter(|_| leads || self.links.queue.is_some()),
            self.links.queue.as_ref().and_then(Link::deadline),
            self.links.probe.as_ref().and_then(Link::deadline),
            self.links.repair.as_ref().and_then(Link::deadline),
            self.links.installer.as_ref().and_then(Link::deadline),
            self.table.mend_at.filter(|_| looks && self.links.repair.is_none()),
            self.attempts.table.deadline(),
            self.pool.deadline().filter(|_| working),
            self.attempts.records.deadline().filter(|_| working),
            self.attempts.returns.deadline().filter(|_| working),
            self.graph.deadline().filter(|_| leads && !self.stop.state.asked()),
            self.jobs.deadline(self.stop.state.asked()).filter(|_| working),
            self.installer.catalog_check.deadline().filter(|_| working && self.links.installer.is_none()),
            self.attempts.remotes.deadline(Duration::from_millis(self.base.settings.reset_ms)),
            self.stop.state.deadline(),
            self.session.write_pause.deadline(now).filter(|_| working),
            looks.then_some(self.claims.timer.next_look()),
            working.then_some(self.attempts.next_sweep),
            self.links.queue.is_some().then(|| now + self.base.start.region.lease_left() + LET_GO),
            Some(now + HEARTBEAT_PERIOD),
        ];
        let wait = deadlines.into_iter().flatten().min().unwrap_or(now).saturating_duration_since(now);
        // Rounded up: a wait that ends a moment too early would spin.
        PollTimeout::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
    }

    fn handle(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::ParentGone | Event::Rang(Signal::SIGQUIT) => shared::sys::fork::leave(ExitCode::Asked),
            Event::Rang(Signal::SIGTERM) => {
                self.stop(StopEvent::Finish { now, close: Duration::from_millis(self.base.settings.close_ms) });
            }
            Event::Rang(Signal::SIGINT) => self.stop(StopEvent::Cancel { now }),
            Event::Rang(Signal::SIGHUP) => self.reload(),
            // SIGUSR2 and anything else means "look", and every pass looks at everything; a slot may be free.
            Event::Rang(_) => {
                if self.claims.wants_slot && self.claims.stumbling.fresh() {
                    self.claims.timer.hurry(now);
                }
            }
            Event::Link(LinkEvent::Up) => {
                if let Some(link) = &self.links.queue {
                    self.session.proven |= link.is_proven();
                    // What was learnt on the way is handed down to the workers.
                    self.base.order.target.late_settings = link.target().late_settings;
                    self.session.home.connected(link.place());
                }
                self.session_event(SessionEvent::Up);
            }
            Event::Link(LinkEvent::Answered(answer)) => self.answered(answer, now),
            Event::Link(LinkEvent::Notified) => {
                self.jobs.hurry(now);
                self.claims.timer.ring(now);
            }
            Event::Link(LinkEvent::CatalogRang) => self.graph_event(GraphEvent::Rang),
            Event::Link(LinkEvent::Lost(trouble)) => self.session_lost(trouble, now),
            Event::Probe(event) => self.probed(event, now),
            Event::Mender(event) => self.mended(event, now),
            Event::Attendant(event) => self.attended(event, now),
            Event::Graph(event) => self.graph_spoke(event, now),
            Event::Passed => self.pass(now),
        }
    }

    fn session_lost(&mut self, trouble: Trouble, now: Instant) {
        self.links.queue = None;
        self.session.home.lost();
        self.base.notes().set_proof(0);
        self.base.notes().set_running(0, 0, 0);
        // Without a session a slot would be of no use.
        self.base.notes().set_wants_slot(false);
        self.claims.wants_slot = false;
        self.session.statements = None;
        self.links.repair = None;
        self.table.mend_at = None;
        self.links.installer = None;
        self.installer.catalog_check.forget();
        // From here on the session has its own reason, and takes it back itself.
        self.claims.stumbled = false;
        self.attempts.unfinished = UnfinishedQuestion::None;
        self.attempts.purpose = Purpose::default();
        self.claims.timer.forget(now);
        self.jobs.forget();
        self.graph_event(GraphEvent::Gone);
        self.release_reserved();
        self.attempts.table.all_unsettled(now);
        self.pool.all_unretired(now);
        self.errands_lost();
        self.attempts.begins.forget();
        self.attempts.returns.all_undone(now);
        self.attempts.remotes.all_unmarked();
        self.session_event(SessionEvent::Lost { now, trouble });
    }

    /// A lease that ran out so long ago that somebody else may lead: every session is given up, and with them the
    /// queue; what they had still to say is not heard. Found out before anything else is done, also after a long sleep.
    fn mind_lease(&mut self) {
        let lapsed = self.base.start.region.lapsed_since();
        if self.links.queue.is_some() && lapsed.is_some_and(|since| since >= LET_GO) {
            self.links.probe = None;
            self.session_lost(Trouble::passing(UNLED), Instant::now());
        }
    }

    /// Runs what a part wants done; `wrap` is how its answers come back.
    pub(crate) fn run_commands<A: 'static>(&mut self, commands: Vec<Command<A>>, wrap: fn(A) -> Answer) {
        for command in commands {
            match command {
                Command::Query(query) => self.send(query, wrap),
                Command::Open { session, target, beside } => {
                    let region = Some(&self.base.start.region);
                    let link = Link::dial(&target, &self.base.application_name(), region, false);
                    let proof = self.session.home.proof().filter(|_| beside);
                    *self.links.named(session) = Some(link.beside(proof));
                }
                Command::Close(session) => *self.links.named(session) = None,
                Command::PollAt(at) => self.claims.timer.hurry(at),
                Command::HoldOff(until) => self.claims.timer.hold_off(until),
                Command::Session(event) => self.session_event(event),
                Command::Report(trouble) => self.say(trouble),
                Command::ReportEnd => self.say_well(),
                Command::FindUnfinished(purpose) => {
                    self.attempts.purpose.sweep |= purpose.sweep;
                    self.attempts.purpose.adopt |= purpose.adopt;
                    self.want_unfinished();
                }
                Command::Orphaned(task, attempt) => self.attempts.table.orphaned(task, attempt, Instant::now()),
                Command::KeepGraph => self.graph_event(GraphEvent::Ready),
                Command::Stop(event) => self.stop(event),
                Command::StopAs(code) => {
                    self.stop.parting = Some(code);
                    self.stop(StopEvent::Cancel { now: Instant::now() });
                }
                Command::Exit(code) => self.stop.leave = Some(code),
            }
        }
    }

    fn send<A: 'static>(&mut self, query: Query<A>, wrap: fn(A) -> Answer) {
        let Query { session, what, timeout, refusable, question } = query;
        let Some(link) = self.links.named(session) else { return };
        link.ask(what, timeout, move |client| async move {
            match (question(client).await, refusable) {
                (Err(trouble), Some(what)) if matches!(trouble.kind, TroubleKind::Short | TroubleKind::Busy) => {
                    Ok(Answer::Refused(what, trouble))
                }
                (answer, _) => Ok(wrap(answer?)),
            }
        });
    }

    /// Lets the jobs see what they need.
    pub(crate) fn jobs_turn<T>(&mut self, work: impl FnOnce(&mut Jobs, &mut JobsTurn<'_>) -> T) -> T {
        let prepared = self.session.statements.as_ref().filter(|_| self.session.state.working());
        let (base, table, stopping) = (&self.base, &mut self.attempts.table, self.stop.state.asked());
        work(&mut self.jobs, &mut JobsTurn { base, table, prepared, stopping })
    }

    pub(crate) fn jobs_admitted(&mut self, access: Access) {
        let commands = self.jobs.admitted(access, &self.base, self.session.statements.as_ref());
        self.run_commands(commands, Answer::Job);
    }

    /// What is done on every turn, whatever woke us.
    fn pass(&mut self, now: Instant) {
        self.attempts.table.acknowledge();
        self.hear_recorders(now);
        self.prove_leader();
        self.reap(now);
        self.retire(now);
        self.send_clerks(now);
        self.attempts.returns.add(self.attempts.table.slow_batches(), now);
        self.give_back(now);
        let questions = self.attempts.table.pass(now);
        self.put(questions, now);
        let commands = self.jobs_turn(|jobs, turn| jobs.turn(turn, now));
        self.run_commands(commands, Answer::Job);
        self.pass_graph(now);
        self.check_catalog(now);
        self.search_elsewhere(now);
        // Nobody dials, and so holds a queue, whose launcher does not lead.
        if self.links.queue.is_some() || self.base.start.region.leads() {
            self.session_event(SessionEvent::Passed { now });
        }
        self.stop(StopEvent::Passed { now });
        if self.session.state.working() && now >= self.attempts.next_sweep {
            self.attempts.next_sweep = now + self.sweep_pause();
            self.attempts.purpose.sweep = true;
            self.want_unfinished();
        }
        let idle = self.session.state.working() && !self.stop.state.asked() && self.links.repair.is_none();
        if idle && self.table.mend_at.is_some_and(|at| now >= at) {
            self.table.mend_at = None;
            let region = Some(&self.base.start.region);
            let target = self.session.home.target(&self.base.order.target);
            let mender = Link::dial(&target, &self.base.application_name(), region, false);
            self.links.repair = Some(mender.beside(self.session.home.proof()));
        }
    }

    fn reap(&mut self, now: Instant) {
        let (ends, questions) = self.attempts.table.reap(now);
        // Whoever has ended has offered before.
        self.pool.turn(&self.base.start.region, |slot, pid| slot_of(&ends, &self.attempts.table, slot, pid), now);
        for worker in &ends {
            let quiet = worker.returned.is_some_and(Returned::is_quiet);
            self.pool.ended(worker.slot, worker.end == End::Exited(0) && quiet, now);
            self.errand_ended(worker, now);
            self.attempts.begins.ended(worker.run);
            self.stray_ended(worker.run);
        }
        for worker in &ends {
            match worker.end {
                End::Exited(0 | UNWRITTEN) => {
                    self.claims.stumbling.succeeded();
                    if std::mem::take(&mut self.claims.stumbled) {
                        self.say_well();
                        self.note_trouble(None);
                    }
                }
                End::Killed(_) => {
                    shared::warning!("worker died", queue = self.base.label, task = worker.task, end = worker.end);
                }
                End::Exited(UNSETTLED) => {}
                // It was started by an earlier session of ours, and is late for this one.
                End::Exited(_) if !self.is_of_this_session(worker.run) => {}
                End::Exited(_) => {
                    if let Some(reason) = worker.reason.as_ref().filter(|reason| is_shortage(reason)) {
                        self.worker_lacked(reason, now);
                    } else if let Some(reason) = &worker.reason {
                        if !std::mem::replace(&mut self.claims.stumbled, true) {
                            self.note_trouble(Some(reason.clone()));
                        }
                        self.say(Trouble::between(format!(
                            "its workers cannot begin; their tasks are planned again: {reason}"
                        )));
                    }
                    shared::debug!(
                        "worker left its task",
                        queue = self.base.label,
                        task = worker.task,
                        end = worker.end
                    );
                }
            }
        }
        self.claims.freed |= !ends.is_empty();
        let stumbled = |end: End| matches!(end, End::Exited(status) if ![0, UNWRITTEN, UNSETTLED].contains(&status));
        if ends.iter().any(|worker| stumbled(worker.end) && self.is_of_this_session(worker.run)) {
            let pause = self.claims.stumbling.next(now);
            self.claims.timer.hold_off(pause);
        } else if !ends.is_empty() && self.claims.stumbling.fresh() {
            // A finished task makes room for its successor at once, or with the next ones where many come and go.
            let gathering = if self.claims.backlog { self.attempts.records.gathering() } else { Duration::ZERO };
            self.claims.timer.hurry(now + gathering);
        }
        self.put(questions, now);
        if ends.iter().any(|worker| worker.left.is_some()) {
            // It may have taken its next task in the moment it died.
            self.attempts.purpose.adopt = true;
            self.want_unfinished();
        }
    }

    fn want_unfinished(&mut self) {
        if self.attempts.unfinished == UnfinishedQuestion::None {
            self.attempts.unfinished = UnfinishedQuestion::Wanted;
        }
    }

    pub(crate) fn session_event(&mut self, event: SessionEvent) {
        for effect in self.session.state.handle(event) {
            match effect {
                SessionEffect::Dial => {
                    let region = &self.base.start.region;
                    let target = self.session.home.dial(&self.base.order.target, region.leader_server().as_ref());
                    self.links.queue =
                        Some(Link::dial(&target, &self.base.application_name(), Some(region), !self.session.proven));
                }
                SessionEffect::Stand => {
                    let (queue, wait) = (self.base.queue.clone(), self.base.order.wait);
                    let catalog = (self.base.order.found, self.base.order.installed);
                    if waiting::waits(wait) {
                        self.base.notes().set_reason("waits for the end of the transaction that asked for its restart");
                    }
                    if let Some(link) = &mut self.links.queue {
                        link.ask("waiting for a transaction", waiting::PATIENCE, move |client| async move {
                            Ok(Answer::Stood(waiting::stand(client, queue, wait, catalog).await?))
                        });
                    }
                }
                SessionEffect::Prepare => self.prepare(),
                SessionEffect::Say(trouble) => self.say(trouble),
                // A server that is up again may still not write.
                SessionEffect::SayWell if self.session.write_pause.is_told() => {}
                SessionEffect::SayWell => self.say_well(),
                SessionEffect::GiveUp => {
                    shared::error!(
                        "another scheduler serves the queue; leaving it to that one",
                        queue = self.base.label
                    );
                    self.stop.leave = Some(ExitCode::Temporary);
                }
            }
        }
    }

    pub(crate) fn prepare(&mut self) {
        let (queue, defaults) = (self.base.queue.clone(), self.base.order.defaults.clone());
        let owner = Owner { launcher: self.base.order.name.clone(), term: self.base.start.region.term() };
        let standing = self.session.home.standing(&self.base.order.target, self.base.start.region.leader_server());
        let past = Past { served: self.table.served, found: self.base.order.found };
        if let Some(link) = &mut self.links.queue {
            link.ask("preparing the queue", ANSWER_TIMEOUT, |client| async move {
                Ok(Answer::Prepared(queue::prepare(client, queue, defaults, owner, past, standing).await?))
            });
        }
    }

    pub(crate) fn stop(&mut self, event: StopEvent) {
        let step = stopping::step(self.stop.state, event);
        if step.next == self.stop.state {
            return;
        }
        self.stop.state = step.next;
        let how = if step.cancel_tasks { "cancelling tasks" } else { "letting tasks finish" };
        // One whose launcher does not lead any more: that one says it, once for all.
        let level = if self.base.start.region.leads() { Level::Info } else { Level::Debug };
        shared::log_line!(
            level,
            "scheduler stops",
            queue = self.base.label,
            how = how,
            tasks = self.attempts.table.len()
        );
        self.base.notes().set_phase(Phase::Stopping);
        if step.cancel_tasks {
            self.attempts.table.cancel_all(Instant::now());
        } else {
            self.attempts.table.finish_all();
        }
    }

    /// The session that mends the table. It is nobody's trouble when it fails: the queue is served without.
    fn mended(&mut self, event: LinkEvent<Answer>, now: Instant) {
        match event {
            LinkEvent::Up => {
                let (queue, defaults) = (self.base.queue.clone(), self.base.order.defaults.clone());
                if let Some(mender) = &mut self.links.repair {
                    mender.ask("mending the table", REPAIR_TIMEOUT, |client| async move {
                        Ok(Answer::Mended(mending::mend(&client, &queue, &defaults).await?))
                    });
                }
            }
            LinkEvent::Answered(answer) => {
                self.links.repair = None;
                self.answered(answer, now);
            }
            LinkEvent::Notified | LinkEvent::CatalogRang => {}
            LinkEvent::Lost(trouble) => {
                self.links.repair = None;
                let mended = Mended { later: Some(trouble.text), ..Mended::default() };
                self.answered(Answer::Mended(mended), now);
            }
        }
    }

    fn finished(&self) -> Option<ExitCode> {
        if self.stop.leave.is_some() {
            return self.stop.leave;
        }
        if !self.stop.state.asked() {
            return None;
        }
        // What only a remote knows that cannot be reached is for the next start.
        let done = self.claims.looking.is_none()
            && self.attempts.records.is_empty()
            && self.attempts.table.len() <= self.attempts.remotes.unknown();
        // Without a server nothing can be settled; the next start will.
        let stranded = !self.session.state.working() && !self.attempts.table.has_workers();
        (done || stranded || self.stop.state.over(Instant::now()))
            .then_some(self.stop.parting.unwrap_or(ExitCode::Asked))
    }
}

/// Which use of a slot a worker of ours sits in, or sat in until just now.
fn slot_of(ends: &[WorkerEnd], runs: &RunTable, slot: u32, pid: i32) -> Option<SlotHandle> {
    let ended = ends.iter().find(|worker| worker.slot.index() == slot && worker.pid == pid);
    ended.map(|worker| worker.slot).or_else(|| runs.slot_of(slot, pid))
}
