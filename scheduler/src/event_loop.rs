//! The loop of a scheduler: wait, event, step, log the change, run the effects.
//!
//! It holds the one connection of the process, the table of running tasks and the bell. No call in here blocks:
//! questions to the database are in flight while the loop waits, and forking is quick. What goes wrong with the server
//! is a reason in the notes, one line in the log, and another try. What is asked and what the answers lead to is in
//! `serving`.

use crate::attempt::attempt_table::{RunId, RunTable, WorkerEnd};
use crate::attempt::batch_return::Returns;
use crate::attempt::begin::Guests;
use crate::attempt::leftovers::Leftovers;
use crate::attempt::record::Errands;
use crate::attempt::refused_end::Rewritten;
use crate::attempt::remote_search::Elsewhere;
use crate::attempt::settle::Settlement;
use crate::claim::pass::{Group, GroupCursor, Seen};
use crate::claim::poll_timer::Doze;
use crate::claim::process_limit::{Shortage, is_shortage};
use crate::graph::graph_state::GraphEvent;
use crate::graph::keeper::{Graph, GraphAnswer, Watched};
use crate::jobs::job_statements::JobStatements;
use crate::jobs::job_table::{Definition, Jobs};
use crate::pool::connection_pool::Lending;
use crate::session::catalog::{Access, Lack};
use crate::session::home_server::Home;
use crate::session::installer_session::CatalogCheck;
use crate::session::session_state::{Session, SessionEffect, SessionEvent};
use crate::session::start_gate::{self as waiting, Verdict};
use crate::session::write_pause::{Refused, WritePause};
use crate::table::make::{self as queue, Owner, Past, Prepared, Readiness, Unfinished};
use crate::table::table_repair::{self as mending, Mended};
use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use shared::config::Settings;
use shared::db::back_off::BackOff;
use shared::db::link::{Link, LinkEvent};
use shared::db::migrate::Upgraded;
use shared::db::saying::Saying;
use shared::db::statement::Queue;
use shared::db::trouble::Trouble;
use shared::exit_code::ExitCode;
use shared::hand_over::{SchedulerOrder, Start};
use shared::log::Level;
use shared::nursery::Nursery;
use shared::region::{LET_GO, Notes, Phase, Returned, SlotHandle};
use shared::stopping::{self, StopEvent, Stopping};
use shared::sys::signal::Bell;
use shared::sys::wait::End;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest wait: the beat in the notes must not stand still.
const BEAT: Duration = Duration::from_secs(5);
/// How long the server may take for an answer before the connection is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long mending may take (an index of a large table), and how far apart its tries are.
const MEND_PATIENCE: Duration = Duration::from_secs(6 * 3600);
const MEND_FIRST: Duration = Duration::from_secs(1);
const MEND_LAST: Duration = Duration::from_secs(60);

/// How long a look that only takes may have the loop to itself.
const ABSORBED: Duration = Duration::from_millis(3);

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
        run: RunId,
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
    Chores {
        rows: i64,
        bytes: i64,
        deleted: u64,
    },
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
        asked: Vec<RunId>,
        begun: Vec<i64>,
    },
    Mended(Mended),
    /// Whether the graph is ours to keep.
    Graph(Watched),
    /// What is asked about jobs is prepared, or why it has to wait.
    Jobs(Result<Rc<JobStatements>, String>),
    JobsFailed(String),
    /// Next starts were filled in; whether there may be more.
    Filled(bool),
    Watched {
        asked: Vec<i32>,
        found: Vec<Definition>,
    },
    RunsDeleted {
        deleted: i64,
        last: Option<i32>,
    },
    /// The launcher's login has made the catalog, or let us in.
    Attended,
    /// The catalog has been upgraded to our version.
    Upgraded(Upgraded),
    /// The queue is registered with the catalog, or why not.
    Registered(Result<Access, Lack>),
    /// So many ordered runs have their rows in the queue.
    Put(i32),
    /// Rows were recalled from the queue; how many could not be reached yet.
    Recalled {
        left: i64,
    },
    /// What became of a row whose end was refused.
    Rewritten {
        task: i64,
        attempt: i32,
        what: Rewritten,
    },
    /// Runs and rows were compared: how many disagreed.
    Compared(i64),
}

/// The question which rows are claimed and unfinished. It is never in flight together with a look: a row that the look
/// has taken and not yet brought home would be mistaken for somebody's who died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfinishedQuestion {
    None,
    Wanted,
    InFlight,
}

/// What that question is asked for; what is wanted while it is in flight is for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purpose {
    /// Rows that nobody runs, whatever has left them.
    pub sweep: bool,
    /// What a dead worker has left.
    pub adopt: bool,
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
    pub(crate) start: Start,
    pub(crate) order: SchedulerOrder,
    pub(crate) queue: Queue,
    pub(crate) label: String,
    pub(crate) nursery: Nursery,
    bell: Bell,
    events: (Sender<Event>, Receiver<Event>),
    pub(crate) session: Session,
    pub(crate) link: Option<Link<Answer>>,
    /// The session is known to have a backend of its own.
    proven: bool,
    /// A second session that reads settings on reload: a role's own count only for new sessions.
    pub(crate) probe: Option<Link<Answer>>,
    /// Another one that mends the table beside the service, and when it is dialled.
    pub(crate) mender: Option<Link<Answer>>,
    pub(crate) mend_at: Option<Instant>,
    /// A third one, as the launcher's login, for what our user may not do; and what it is to mend.
    pub(crate) attendant: Option<Link<Answer>>,
    pub(crate) lack: Option<Lack>,
    /// The attendant is to upgrade the catalog.
    pub(crate) upgrading: bool,
    pub(crate) catalog_check: CatalogCheck,
    pub(crate) mend_pause: BackOff,
    pub(crate) statements: Option<Rc<Prepared>>,
    /// The table that this process served last.
    pub(crate) served: Option<u32>,
    /// The config's settings with the server's over them.
    pub(crate) settings: Settings,
    pub(crate) runs: RunTable,
    pub(crate) lending: Lending,
    /// The server on which the queue is served.
    pub(crate) home: Home,
    /// Whether it writes.
    pub(crate) write_pause: WritePause,
    pub(crate) errands: Errands,
    pub(crate) guests: Guests,
    /// What is to go back from batches, and when it is tried next; None while it is being done.
    pub(crate) returns: Returns,
    /// Sessions on remotes that dead workers have left.
    pub(crate) elsewhere: Elsewhere,
    /// Slots reserved for the rows of the look in flight.
    pub(crate) looking: Option<Vec<SlotHandle>>,
    /// The look in flight only takes; and when it is time for one that sees to everything.
    pub(crate) brief: bool,
    pub(crate) next_thorough: Instant,
    /// When the last look began.
    pub(crate) looked_at: Instant,
    /// The last look has filled all slots that it had.
    pub(crate) backlog: bool,
    /// Backends whose connections are promised to them.
    pub(crate) promised: Vec<i32>,
    /// No slot was free at the last look; the launcher rings when one is.
    pub(crate) wants_slot: bool,
    /// Slots came free by us since the last turn.
    pub(crate) freed: bool,
    pub(crate) unfinished: UnfinishedQuestion,
    pub(crate) jobs: Jobs,
    pub(crate) graph: Graph,
    pub(crate) doze: Doze,
    pub(crate) cursor: GroupCursor,
    /// The group whose plain tasks the last look has begun, if no other waited.
    pub(crate) only: Option<Rc<Group>>,
    /// Signs that stand in the database for `mill.why`.
    pub(crate) signs: Vec<i32>,
    /// When claimed rows are looked at that nobody runs, and what the last look has found.
    pub(crate) next_sweep: Instant,
    pub(crate) leftovers: Leftovers,
    pub(crate) purpose: Purpose,
    pub(crate) next_chores: Instant,
    /// Pause between looks while workers cannot even begin.
    pub(crate) stumbling: BackOff,
    /// A worker's reason for not beginning has been said, and none has got further since.
    pub(crate) stumbled: bool,
    /// Too few descriptors or processes.
    pub(crate) shortage: Shortage,
    pub(crate) stopping: Stopping,
    /// The trouble that has been said and not yet been taken back.
    pub(crate) said: Saying,
    pub(crate) leave: Option<ExitCode>,
    /// How it leaves once it has stopped, if nobody asked it to.
    pub(crate) parting: Option<ExitCode>,
    /// The marker table of the catalog, as it was when the session began.
    pub(crate) marker: Option<u32>,
    pub(crate) next_marker: Instant,
    /// This process was another version's before.
    pub(crate) handed_down: bool,
}

impl Scheduler {
    pub fn new(start: Start, order: SchedulerOrder, bell: Bell, handed_down: bool) -> std::io::Result<Scheduler> {
        let now = Instant::now();
        let nursery = Nursery::open(
            &start.region,
            start.slot,
            ["scheduler.before_fork", "scheduler.after_fork", "scheduler.after_hand_over"],
        )?;
        Ok(Scheduler {
            queue: Queue { schema: order.schema.clone(), table: order.table.clone() },
            label: format!("{} {}.{}", order.target.database, order.schema, order.table),
            nursery,
            bell,
            events: unbounded(),
            session: Session::new(now),
            link: None,
            proven: false,
            probe: None,
            mender: None,
            mend_at: None,
            attendant: None,
            lack: None,
            upgrading: false,
            catalog_check: CatalogCheck::new(),
            mend_pause: BackOff::new(MEND_FIRST, MEND_LAST),
            statements: None,
            served: None,
            settings: order.settings.clone(),
            runs: RunTable::new(&start.region),
            lending: Lending::open()?,
            home: Home::default(),
            write_pause: WritePause::default(),
            errands: Errands::new(
                Queue { schema: order.schema.clone(), table: order.table.clone() },
                !order.settings.synchronous_commit,
            ),
            guests: Guests::default(),
            returns: Returns::default(),
            elsewhere: Elsewhere::default(),
            looking: None,
            brief: false,
            next_thorough: now,
            looked_at: now,
            backlog: false,
            promised: Vec::new(),
            wants_slot: false,
            freed: false,
            unfinished: UnfinishedQuestion::None,
            jobs: Jobs::new(),
            graph: Graph::new(now),
            doze: Doze::new(now),
            cursor: GroupCursor::default(),
            only: None,
            signs: Vec::new(),
            next_sweep: now,
            leftovers: Leftovers::default(),
            purpose: Purpose::default(),
            next_chores: now,
            stumbling: BackOff::new(Duration::from_millis(200), Duration::from_secs(5)),
            stumbled: false,
            shortage: Shortage::new(start.region.slots().limit(), now),
            stopping: Stopping::No,
            said: Saying::default(),
            leave: None,
            parting: None,
            marker: None,
            next_marker: now,
            handed_down,
            start,
            order,
        })
    }

    pub fn run(mut self) -> ExitCode {
        // One that only looks whether there is a catalog comes every minute, to every database.
        let level = if self.order.found { Level::Debug } else { Level::Info };
        shared::log_line!(level, "scheduler started", queue = self.label, version = shared::VERSION);
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
                let quiet = self.leave == Some(code) && self.order.found || !self.start.region.leads();
                let level = if quiet { Level::Debug } else { Level::Info };
                shared::log_line!(level, "scheduler ended", queue = self.label, code = code.status());
                return code;
            }
        }
    }

    pub(crate) fn notes(&self) -> Notes<'_> {
        self.start.region.slots().notes(self.start.slot)
    }

    /// Polls everything, then turns what happened into events.
    fn wait(&mut self) -> Waited {
        self.notes().count_beat();
        let timeout = self.timeout(Instant::now());
        let mut fds = vec![
            PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.start.life.as_fd(), PollFlags::POLLIN),
        ];
        let links = [&self.link, &self.probe, &self.mender, &self.attendant];
        let own = self.link.as_ref().and_then(Link::interest).map(|_| fds.len());
        let (absorbed, timeout) = match self.absorbed_for() {
            Some(left) => (true, timeout.min(left)),
            None => (false, timeout),
        };
        let interests = links.into_iter().flatten().filter_map(Link::interest);
        fds.extend(interests.map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.graph.link.as_ref().and_then(Link::interest).map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.elsewhere.interests().map(|(fd, flags)| PollFd::new(fd, flags)));
        if !absorbed {
            fds.extend(self.lending.poll_fds());
            fds.extend(self.guests.poll_fds());
            fds.extend(self.runs.poll_fds());
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
        if let Some(link) = &mut self.link {
            let events = link.turn(now);
            if only_own && events.is_empty() {
                return Waited::ForMore;
            }
            events.into_iter().for_each(|event| send(Event::Link(event)));
        }
        if let Some(probe) = &mut self.probe {
            probe.turn(now).into_iter().for_each(|event| send(Event::Probe(event)));
        }
        if let Some(mender) = &mut self.mender {
            mender.turn(now).into_iter().for_each(|event| send(Event::Mender(event)));
        }
        if let Some(attendant) = &mut self.attendant {
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
        let short = self.brief && self.looking.is_some() && self.errands.waiting() == 0;
        let left = ABSORBED.checked_sub(self.looked_at.elapsed()).filter(|left| short && !left.is_zero())?;
        PollTimeout::try_from(left.as_micros().div_ceil(1000)).ok()
    }

    /// What was asked goes out before workers are forked: the server is at it meanwhile.
    fn speak(&mut self) {
        if self.errands.waiting() > 0
            && let Some(link) = &mut self.link
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
        let (working, leads) = (self.session.working(), self.start.region.leads());
        let looks = working && leads && self.looking.is_none() && !self.stopping.asked();
        let deadlines = [
            self.session.deadline().filter(|_| leads || self.link.is_some()),
            self.link.as_ref().and_then(Link::deadline),
            self.probe.as_ref().and_then(Link::deadline),
            self.mender.as_ref().and_then(Link::deadline),
            self.attendant.as_ref().and_then(Link::deadline),
            self.mend_at.filter(|_| looks && self.mender.is_none()),
            self.runs.deadline(),
            self.lending.deadline().filter(|_| working),
            self.errands.deadline().filter(|_| working),
            self.returns.deadline().filter(|_| working),
            self.graph.deadline().filter(|_| leads && !self.stopping.asked()),
            self.jobs_deadline().filter(|_| working),
            self.catalog_check.deadline().filter(|_| working && self.attendant.is_none()),
            self.elsewhere.deadline(Duration::from_millis(self.settings.reset_ms)),
            self.stopping.deadline(),
            self.write_pause.deadline(now).filter(|_| working),
            looks.then_some(self.doze.next_look()),
            working.then_some(self.next_sweep),
            self.link.is_some().then(|| now + self.start.region.lease_left() + LET_GO),
            Some(now + BEAT),
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
                self.stop(StopEvent::Finish { now, close: Duration::from_millis(self.settings.close_ms) });
            }
            Event::Rang(Signal::SIGINT) => self.stop(StopEvent::Cancel { now }),
            Event::Rang(Signal::SIGHUP) => self.reload(),
            // SIGUSR2 and anything else means "look", and every pass looks at everything; a slot may be free.
            Event::Rang(_) => {
                if self.wants_slot && self.stumbling.fresh() {
                    self.doze.hurry(now);
                }
            }
            Event::Link(LinkEvent::Up) => {
                if let Some(link) = &self.link {
                    self.proven |= link.is_proven();
                    // What was learnt on the way is handed down to the workers.
                    self.order.target.late_settings = link.target().late_settings;
                    self.home.connected(link.place());
                }
                self.session_event(SessionEvent::Up);
            }
            Event::Link(LinkEvent::Answered(answer)) => self.answered(answer, now),
            Event::Link(LinkEvent::Notified) => {
                self.jobs.hurry(now);
                self.doze.ring(now);
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
        self.link = None;
        self.home.lost();
        self.notes().set_proof(0);
        self.notes().set_running(0, 0, 0);
        // Without a session a slot would be of no use.
        self.notes().set_wants_slot(false);
        self.wants_slot = false;
        self.statements = None;
        self.mender = None;
        self.mend_at = None;
        self.attendant = None;
        self.catalog_check.forget();
        // From here on the session has its own reason, and takes it back itself.
        self.stumbled = false;
        self.unfinished = UnfinishedQuestion::None;
        self.purpose = Purpose::default();
        self.doze.forget(now);
        self.jobs.forget();
        self.graph_event(GraphEvent::Gone);
        self.release_reserved();
        self.runs.all_unsettled(now);
        self.lending.all_unretired(now);
        self.errands_lost();
        self.guests.forget();
        self.returns.all_undone(now);
        self.elsewhere.all_unmarked();
        self.session_event(SessionEvent::Lost { now, trouble });
    }

    /// A lease that ran out so long ago that somebody else may lead: every session is given up, and with them the
    /// queue; what they had still to say is not heard. Found out before anything else is done, also after a long sleep.
    fn mind_lease(&mut self) {
        let lapsed = self.start.region.lapsed_since();
        if self.link.is_some() && lapsed.is_some_and(|since| since >= LET_GO) {
            self.probe = None;
            self.session_lost(Trouble::passing(UNLED), Instant::now());
        }
    }

    /// What is done on every turn, whatever woke us.
    fn pass(&mut self, now: Instant) {
        self.runs.acknowledge();
        self.hear_recorders(now);
        self.prove_leader();
        self.reap(now);
        self.retire(now);
        self.send_clerks(now);
        self.returns.add(self.runs.slow_batches(), now);
        self.give_back(now);
        let questions = self.runs.pass(now);
        self.put(questions, now);
        self.pass_jobs(now);
        self.pass_graph(now);
        self.check_catalog(now);
        self.search_elsewhere(now);
        // Nobody dials, and so holds a queue, whose launcher does not lead.
        if self.link.is_some() || self.start.region.leads() {
            self.session_event(SessionEvent::Passed { now });
        }
        self.stop(StopEvent::Passed { now });
        if self.session.working() && now >= self.next_sweep {
            self.next_sweep = now + self.sweep_pause();
            self.purpose.sweep = true;
            self.want_unfinished();
        }
        let idle = self.session.working() && !self.stopping.asked() && self.mender.is_none();
        if idle && self.mend_at.is_some_and(|at| now >= at) {
            self.mend_at = None;
            let region = Some(&self.start.region);
            let target = self.home.target(&self.order.target);
            let mender = Link::dial(&target, &self.application_name(), region, false);
            self.mender = Some(mender.beside(self.home.proof()));
        }
    }

    fn reap(&mut self, now: Instant) {
        let (ends, questions) = self.runs.reap(now);
        // Whoever has ended has offered before.
        self.lending.turn(&self.start.region, |slot, pid| slot_of(&ends, &self.runs, slot, pid), now);
        for worker in &ends {
            let quiet = worker.returned.is_some_and(Returned::is_quiet);
            self.lending.ended(worker.slot, worker.end == End::Exited(0) && quiet, now);
            self.errand_ended(worker, now);
            self.guests.ended(worker.run);
            self.stray_ended(worker.run);
        }
        for worker in &ends {
            match worker.end {
                End::Exited(0 | UNWRITTEN) => {
                    self.stumbling.succeeded();
                    if std::mem::take(&mut self.stumbled) {
                        self.say_well();
                        self.note_trouble(None);
                    }
                }
                End::Killed(_) => {
                    shared::warning!("worker died", queue = self.label, task = worker.task, end = worker.end);
                }
                End::Exited(UNSETTLED) => {}
                // It was started by an earlier session of ours, and is late for this one.
                End::Exited(_) if !self.is_of_this_session(worker.run) => {}
                End::Exited(_) => {
                    if let Some(reason) = worker.reason.as_ref().filter(|reason| is_shortage(reason)) {
                        self.worker_lacked(reason, now);
                    } else if let Some(reason) = &worker.reason {
                        if !std::mem::replace(&mut self.stumbled, true) {
                            self.note_trouble(Some(reason.clone()));
                        }
                        self.say(Trouble::passing(format!(
                            "its workers cannot begin; their tasks are planned again: {reason}"
                        )));
                    }
                    shared::debug!("worker left its task", queue = self.label, task = worker.task, end = worker.end);
                }
            }
        }
        self.freed |= !ends.is_empty();
        let stumbled = |end: End| matches!(end, End::Exited(status) if ![0, UNWRITTEN, UNSETTLED].contains(&status));
        if ends.iter().any(|worker| stumbled(worker.end) && self.is_of_this_session(worker.run)) {
            let pause = self.stumbling.next(now);
            self.doze.hold_off(pause);
        } else if !ends.is_empty() && self.stumbling.fresh() {
            // A finished task makes room for its successor at once, or with the next ones where many come and go.
            let gathering = if self.backlog { self.errands.gathering() } else { Duration::ZERO };
            self.doze.hurry(now + gathering);
        }
        self.put(questions, now);
        if ends.iter().any(|worker| worker.left.is_some()) {
            // It may have taken its next task in the moment it died.
            self.purpose.adopt = true;
            self.want_unfinished();
        }
    }

    fn want_unfinished(&mut self) {
        if self.unfinished == UnfinishedQuestion::None {
            self.unfinished = UnfinishedQuestion::Wanted;
        }
    }

    pub(crate) fn session_event(&mut self, event: SessionEvent) {
        for effect in self.session.handle(event) {
            match effect {
                SessionEffect::Dial => {
                    let region = &self.start.region;
                    let target = self.home.dial(&self.order.target, region.leader_server().as_ref());
                    self.link = Some(Link::dial(&target, &self.application_name(), Some(region), !self.proven));
                }
                SessionEffect::Stand => {
                    let (queue, wait) = (self.queue.clone(), self.order.wait);
                    let catalog = (self.order.found, self.order.installed);
                    if waiting::waits(wait) {
                        self.notes().set_reason("waits for the end of the transaction that asked for its restart");
                    }
                    if let Some(link) = &mut self.link {
                        link.ask("waiting for a transaction", waiting::PATIENCE, move |client| async move {
                            Ok(Answer::Stood(waiting::stand(client, queue, wait, catalog).await?))
                        });
                    }
                }
                SessionEffect::Prepare => self.prepare(),
                SessionEffect::Say(trouble) => self.say(trouble),
                // A server that is up again may still not write.
                SessionEffect::SayWell if self.write_pause.is_told() => {}
                SessionEffect::SayWell => self.say_well(),
                SessionEffect::GiveUp => {
                    shared::error!("another scheduler serves the queue; leaving it to that one", queue = self.label);
                    self.leave = Some(ExitCode::Temporary);
                }
            }
        }
    }

    pub(crate) fn prepare(&mut self) {
        let (queue, defaults) = (self.queue.clone(), self.order.defaults.clone());
        let owner = Owner { launcher: self.order.name.clone(), term: self.start.region.term() };
        let standing = self.home.standing(&self.order.target, self.start.region.leader_server());
        let past = Past { served: self.served, found: self.order.found };
        if let Some(link) = &mut self.link {
            link.ask("preparing the queue", PATIENCE, |client| async move {
                Ok(Answer::Prepared(queue::prepare(client, queue, defaults, owner, past, standing).await?))
            });
        }
    }

    /// What pg_stat_activity shows of this scheduler.
    pub(crate) fn application_name(&self) -> String {
        format!("pg_work {} {} {}", self.queue.schema, self.queue.table, self.settings.sleep_ms)
    }

    pub(crate) fn stop(&mut self, event: StopEvent) {
        let step = stopping::step(self.stopping, event);
        if step.next == self.stopping {
            return;
        }
        self.stopping = step.next;
        let how = if step.cancel_tasks { "cancelling tasks" } else { "letting tasks finish" };
        // One whose launcher does not lead any more: that one says it, once for all.
        let level = if self.start.region.leads() { Level::Info } else { Level::Debug };
        shared::log_line!(level, "scheduler stops", queue = self.label, how = how, tasks = self.runs.len());
        self.notes().set_phase(Phase::Stopping);
        if step.cancel_tasks {
            self.runs.cancel_all(Instant::now());
        } else {
            self.runs.finish_all();
        }
    }

    /// The session that mends the table. It is nobody's trouble when it fails: the queue is served without.
    fn mended(&mut self, event: LinkEvent<Answer>, now: Instant) {
        match event {
            LinkEvent::Up => {
                let (queue, defaults) = (self.queue.clone(), self.order.defaults.clone());
                if let Some(mender) = &mut self.mender {
                    mender.ask("mending the table", MEND_PATIENCE, |client| async move {
                        Ok(Answer::Mended(mending::mend(&client, &queue, &defaults).await?))
                    });
                }
            }
            LinkEvent::Answered(answer) => {
                self.mender = None;
                self.answered(answer, now);
            }
            LinkEvent::Notified | LinkEvent::CatalogRang => {}
            LinkEvent::Lost(trouble) => {
                self.mender = None;
                let mended = Mended { later: Some(trouble.text), ..Mended::default() };
                self.answered(Answer::Mended(mended), now);
            }
        }
    }

    fn finished(&self) -> Option<ExitCode> {
        if self.leave.is_some() {
            return self.leave;
        }
        if !self.stopping.asked() {
            return None;
        }
        // What only a remote knows that cannot be reached is for the next start.
        let done = self.looking.is_none() && self.errands.is_empty() && self.runs.len() <= self.elsewhere.unknown();
        // Without a server nothing can be settled; the next start will.
        let stranded = !self.session.working() && !self.runs.has_workers();
        (done || stranded || self.stopping.over(Instant::now())).then_some(self.parting.unwrap_or(ExitCode::Asked))
    }
}

/// Which use of a slot a worker of ours sits in, or sat in until just now.
fn slot_of(ends: &[WorkerEnd], runs: &RunTable, slot: u32, pid: i32) -> Option<SlotHandle> {
    let ended = ends.iter().find(|worker| worker.slot.index() == slot && worker.pid == pid);
    ended.map(|worker| worker.slot).or_else(|| runs.slot_of(slot, pid))
}
