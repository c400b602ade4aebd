//! The loop of the launcher: wait, event, component, commands, run.
//!
//! It owns the components and runs their commands; nothing else does. A parent that must not die does little: no user
//! SQL, no long query, nothing that blocks. The loop polls the signals, its own session, the control socket and the
//! schedulers' pidfds; every pass compares what is wanted with what is.

use crate::base::{LauncherBase, Reloaded};
use crate::control::orders::{CallerRequest, Orders, not_done};
use crate::control::service_manager::ServiceManager;
use crate::embedded::own_server::OwnServer;
use crate::launcher_session::LauncherSession;
use crate::leader::leader_state::LeaderEvent;
use crate::leader::leadership::{LeadProof, Leadership, LockAnswer};
use crate::limits::STOP_MARGIN;
use crate::loop_command::LoopCommand;
use crate::message::messages::{MessageAnswer, Messages};
use crate::queue::orphans::reap_orphans;
use crate::queue::queue_counts;
use crate::queue::queue_state::Urgency;
use crate::queue::queue_table::QueueTable;
use crate::queue::wanted::WantedQueue;
use crate::server::end_sessions::end_sessions;
use crate::server::lock_watch::{Locks, MarkerLock};
use crate::server::open_transactions::OpenTransactions;
use crate::server::provision::{Provision, ProvisionAnswer};
use crate::server::queue_probe::QueueProbe;
use crate::server::server_watch::{ServerWatch, WatchAnswer};
use crate::status::status_report::{Subject, report};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shared::db::db_error::DbError;
use shared::db::link::LinkEvent;
use shared::process::spawn::Spawner;
use shared::process::stopping::{self, StopEvent, Stopping};
use shared::region::HostMoment;
use shared::sys::memory;
use shared::sys::signal::SignalPipe;
use std::os::fd::AsFd;
use std::time::Instant;

/// Everything that the loop needs at its start.
pub struct Parts {
    pub base: LauncherBase,
    pub spawner: Spawner,
    pub signals: SignalPipe,
    pub orders: Orders,
    pub server: OwnServer,
    pub manager: ServiceManager,
    pub queues: Vec<WantedQueue>,
}

/// What comes back on the launcher's session, by component.
#[derive(Debug)]
enum LauncherAnswer {
    Leader(LockAnswer),
    Watch(WatchAnswer),
    Message(MessageAnswer),
    Provision(ProvisionAnswer),
    Ended,
}

enum LauncherEvent {
    Signalled(Signal),
    Link(LinkEvent<LauncherAnswer>),
    Passed,
}

pub struct Launcher {
    base: LauncherBase,
    spawner: Spawner,
    signals: SignalPipe,
    session: LauncherSession<LauncherAnswer>,
    leadership: Leadership,
    watch: ServerWatch,
    messages: Messages,
    queues: QueueTable,
    probe: QueueProbe,
    provision: Provision,
    orders: Orders,
    server: OwnServer,
    manager: ServiceManager,
    stopping: Stopping,
}

impl Launcher {
    pub fn new(parts: Parts) -> Launcher {
        let now = Instant::now();
        let Parts { base, spawner, signals, orders, server, manager, queues: wanted } = parts;
        let mut queues = QueueTable::new(&base.region, base.target.places.clone(), base.probe);
        queues.want(wanted, now);
        Launcher {
            base,
            spawner,
            signals,
            session: LauncherSession::new(),
            leadership: Leadership::new(now),
            watch: ServerWatch::new(now),
            messages: Messages::default(),
            queues,
            probe: QueueProbe::default(),
            provision: Provision::new(now),
            orders,
            server,
            manager,
            stopping: Stopping::No,
        }
    }

    /// Runs until it is told to stop. True: an orderly end.
    pub fn run(mut self) -> bool {
        // The command line and the config have been read: no forked process needs what is left of that.
        memory::shed_heap();
        loop {
            for event in self.wait() {
                if matches!(event, LauncherEvent::Signalled(Signal::SIGQUIT)) {
                    return self.quit();
                }
                self.handle(event);
            }
            if self.ended() {
                self.orders.socket.close();
                shared::info!("launcher ended");
                return true;
            }
        }
    }

    /// Polls everything, then returns what happened; a pass is always the last event.
    fn wait(&mut self) -> Vec<LauncherEvent> {
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.orders.socket.poll_fds());
        let links = [self.session.interest(), self.probe.interest(), self.provision.interest()];
        fds.extend(links.into_iter().flatten().map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.queues.poll_fds());
        // EINTR and the like: the deadlines bring us back.
        let _ = poll(&mut fds, self.timeout(Instant::now()));
        drop(fds);
        let now = Instant::now();
        let mut events: Vec<LauncherEvent> =
            self.signals.received().into_iter().map(LauncherEvent::Signalled).collect();
        events.extend(self.session.drive(now).into_iter().map(LauncherEvent::Link));
        events.push(LauncherEvent::Passed);
        events
    }

    fn timeout(&self, now: Instant) -> PollTimeout {
        let deadlines = [
            self.leadership.deadline(),
            self.session.deadline(),
            self.watch.deadline(),
            self.probe.deadline(),
            self.provision.deadline(),
            self.orders.deadline(),
            self.queues.deadline(),
            self.stopping.deadline(),
            self.manager.deadline(),
            self.server.deadline(now),
            Some(now + self.base.poll),
        ];
        let wait = deadlines.into_iter().flatten().min().unwrap_or(now).saturating_duration_since(now);
        PollTimeout::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
    }

    fn handle(&mut self, event: LauncherEvent) {
        let now = Instant::now();
        match event {
            LauncherEvent::Signalled(Signal::SIGTERM) => {
                self.stop(StopEvent::Finish { now, close: self.queues.longest_close() + STOP_MARGIN });
            }
            LauncherEvent::Signalled(Signal::SIGINT) => self.stop(StopEvent::Cancel { now }),
            LauncherEvent::Signalled(Signal::SIGHUP) => self.reload(now),
            // SIGUSR2, SIGCHLD: a pass follows anyway.
            LauncherEvent::Signalled(_) => {}
            LauncherEvent::Link(LinkEvent::Up) => {
                self.session.connected();
                self.leader_event(LeaderEvent::Up);
            }
            LauncherEvent::Link(LinkEvent::Answered(answer)) => self.answered(answer, now),
            // It listens to nothing.
            LauncherEvent::Link(LinkEvent::Notified | LinkEvent::CatalogChanged) => {}
            LauncherEvent::Link(LinkEvent::Lost(db_error)) => self.session_lost(db_error, now),
            LauncherEvent::Passed => self.pass(now),
        }
    }

    fn answered(&mut self, answer: LauncherAnswer, now: Instant) {
        match answer {
            LauncherAnswer::Leader(answer) => {
                let session = &self.session;
                let commands = self.leadership.answered(answer, &self.base, &|| session.place(), now);
                self.run_commands(commands, LauncherAnswer::Leader);
            }
            LauncherAnswer::Watch(WatchAnswer::Prepared(statements)) => self.watch.prepared(statements, now),
            LauncherAnswer::Watch(WatchAnswer::Locks { locks, asked_at }) => self.locks_read(&locks, asked_at, now),
            LauncherAnswer::Watch(WatchAnswer::Databases { found, asked_at }) => {
                self.queues.databases_listed(found, now);
                self.watch.databases_listed(asked_at);
            }
            LauncherAnswer::Message(answer) => {
                let commands = self.messages.answered(answer, &self.queues);
                self.run_commands(commands, LauncherAnswer::Message);
            }
            LauncherAnswer::Provision(answer) => self.queues.provided(self.provision.answered(answer, &self.base)),
            LauncherAnswer::Ended => {}
        }
    }

    fn locks_read(&mut self, locks: &Locks, asked_at: HostMoment, now: Instant) {
        match self.leadership.prove(&locks.leaders, asked_at, &self.base) {
            LeadProof::Missing => {
                self.session_lost(DbError::passing("the launcher's session has lost the leader lock"), now);
                return;
            }
            // A slow answer: the processes that have stood still meanwhile may go on.
            LeadProof::Held { resumed: true } => self.queues.wake_all(),
            LeadProof::Held { resumed: false } => {}
        }
        for MarkerLock { database, relation, .. } in self.watch.locks_read(locks, now) {
            self.queues.marker_locked(database, relation, now);
        }
        let alone = locks.leaders.len() <= 1;
        let commands = self.messages.seen(&locks.messages, alone, &self.queues, &self.base);
        self.run_commands(commands, LauncherAnswer::Message);
    }

    /// Compares everything that is wanted with what is, whatever woke us.
    fn pass(&mut self, now: Instant) {
        self.manager.beat(now);
        self.orders.socket.keep(now);
        self.queues.reap(now);
        reap_orphans(&self.base.region, |pid| self.queues.has_child(pid) || self.server.pid() == Some(pid));
        self.server.watch(now);
        self.leader_event(LeaderEvent::Passed { now });
        self.stop(StopEvent::Passed { now });
        let unlogged = self.base.region.take_unlogged_failures();
        if unlogged > 0 {
            shared::info!("more tasks failed: not logged one by one", count = unlogged);
        }
        let commands = self.watch.pass(&self.queues, self.base.poll, now);
        self.run_commands(commands, LauncherAnswer::Watch);
        // Every queue has its slot before the first scheduler runs: so all databases must be known.
        let leads = self.leadership.leads() && self.base.region.leads();
        let may_start = leads && self.watch.knows_databases && !self.stopping.asked();
        self.queues.provided(self.provision.drive(now));
        if may_start {
            let command = self.provision.pass(|| self.queues.needed(), now);
            self.run_commands(command.into_iter().collect(), LauncherAnswer::Provision);
        }
        if self.watch.knows_databases && self.messages.act(&mut self.queues, now) {
            self.watch.list_again(now);
        }
        self.take_requests(now);
        let open = OpenTransactions { locks: &self.watch.locks, messages: &self.messages.table };
        self.queues.pass(&self.spawner, may_start, &open, now);
        let outcomes = self.messages.outcomes(&self.queues, &open, now);
        let commands = self.messages.settle(outcomes, &self.queues);
        self.run_commands(commands, LauncherAnswer::Message);
        let to_end = self.queues.take_sessions_to_end();
        self.run_commands(to_end.into_iter().map(|(pids, user)| end_sessions(pids, user)).collect(), |()| {
            LauncherAnswer::Ended
        });
        self.probe_queues(may_start, now);
        // After the queues themselves: a scheduler comes before a task.
        self.queues.offer_slots();
        self.announce();
        self.orders.settle(&self.queues, now);
    }

    /// Which task tables covered databases have.
    fn probe_queues(&mut self, may: bool, now: Instant) {
        if let Some((database, queues)) = self.probe.drive(now) {
            self.queues.queues_listed(database, queues, now);
        }
        if may {
            let open = OpenTransactions { locks: &self.watch.locks, messages: &self.messages.table };
            self.probe.pass(&self.queues.databases, &open, &self.base, now);
        }
    }

    fn leader_event(&mut self, event: LeaderEvent) {
        let session = &self.session;
        let commands = self.leadership.handle(event, &self.base, &|| session.place());
        self.run_commands(commands, LauncherAnswer::Leader);
    }

    /// Runs what a component wants done; `wrap` is how its answers come back.
    fn run_commands<A: 'static>(&mut self, commands: Vec<LoopCommand<A>>, wrap: fn(A) -> LauncherAnswer) {
        for command in commands {
            match command {
                LoopCommand::Query(query) => self.session.ask(query, self.leadership.signature(), wrap),
                LoopCommand::Open(target) => self.session.open(&target, &self.base.region),
                LoopCommand::Lead => self.lead(Instant::now()),
                LoopCommand::EndSchedulers { all } => self.queues.suspend(all, Instant::now()),
            }
        }
    }

    fn lead(&mut self, now: Instant) {
        self.provision.hurry(now);
        let commands = self.messages.begin();
        self.run_commands(commands, LauncherAnswer::Message);
        self.run_commands(vec![self.watch.begin()], LauncherAnswer::Watch);
        self.leadership.begin();
        // The schedulers that were left in place may go on.
        self.queues.wake_all();
    }

    fn session_lost(&mut self, db_error: DbError, now: Instant) {
        self.close_session();
        self.leader_event(LeaderEvent::Lost { db_error, now });
    }

    /// The session is gone, and with it the queries in flight.
    fn close_session(&mut self) {
        self.session.close();
        self.provision.session_lost();
        self.watch.session_lost();
    }

    fn reload(&mut self, now: Instant) {
        self.manager.reloading();
        self.orders.socket.check(now);
        let Some(Reloaded { target, queues, operators }) = (self.base.reload)() else {
            shared::error!("config not reloaded: it has mistakes; the former one stays in force");
            self.manager.ready("config not reloaded: it has mistakes; the former one stays in force");
            return;
        };
        self.base.operators = operators;
        if target != self.base.target {
            self.base.target = target;
            self.session.login_changed();
            self.close_session();
            self.provision.login_changed();
            self.queues.move_home(self.base.target.places.clone());
            self.leader_event(LeaderEvent::LoginChanged { now });
        }
        self.queues.want(queues, now);
        self.provision.hurry(now);
        self.manager.announce_again();
        shared::info!("config reloaded");
    }

    fn stop(&mut self, event: StopEvent) {
        let step = stopping::step(self.stopping, event);
        if step.next == self.stopping {
            return;
        }
        self.stopping = step.next;
        let urgency = if step.cancel_tasks { Urgency::Cancel } else { Urgency::Finish };
        let how = if step.cancel_tasks { "cancelling tasks" } else { "finishing tasks" };
        shared::info!("launcher is stopping", how = how);
        self.manager.stopping(how);
        self.queues.end_all(urgency, Instant::now());
    }

    /// SIGQUIT: leave now. Every process of ours dies with us; the next start recovers.
    fn quit(mut self) -> bool {
        shared::warning!("launcher exits at once (SIGQUIT)");
        self.manager.stopping("exiting at once");
        self.server.quit();
        self.orders.socket.close();
        false
    }

    /// Schedulers first, the embedded server last.
    fn ended(&mut self) -> bool {
        if !self.stopping.asked() || (self.queues.has_schedulers() && !self.gave_up_schedulers()) {
            return false;
        }
        if self.server.stop() {
            self.session.close();
        }
        self.server.stopped()
    }

    /// Each scheduler is killed in the end, so this is for a process that even SIGKILL does not end.
    fn gave_up_schedulers(&self) -> bool {
        self.stopping.deadline().is_some_and(|until| {
            matches!(self.stopping, Stopping::Cancel { .. }) && Instant::now() >= until + STOP_MARGIN
        })
    }

    /// Once: every wanted queue is served or has its reason.
    fn announce(&mut self) {
        let waits = self.leadership.why().is_some() && !self.queues.has_schedulers();
        let ready =
            waits || (self.leadership.leads() && self.watch.knows_databases && queue_counts::is_ready(&self.queues));
        if ready && !self.stopping.asked() {
            let status = self.leadership.why().unwrap_or("serving");
            self.manager.announce(status, self.base.region.slots().limit());
        }
    }

    /// Reads what operators ask; what can be answered at once is.
    fn take_requests(&mut self, now: Instant) {
        for (caller, line) in self.orders.socket.drive(now) {
            let answer = match CallerRequest::parse(&line) {
                CallerRequest::Status => Some(self.status()),
                CallerRequest::Unknown => {
                    Some(json!({"error": "unknown command; known commands: status, start, stop, restart"}))
                }
                CallerRequest::Order { request, database } => match self.why_not_at_work() {
                    Some(why) => Some(not_done(&format!("the launcher is not serving: {why}"))),
                    None => self.orders.begin(caller, request, &database, &mut self.queues, now),
                },
            };
            if let Some(answer) = answer {
                self.orders.socket.reply(caller, &answer.to_string());
            }
        }
    }

    fn why_not_at_work(&self) -> Option<&str> {
        if self.stopping.asked() {
            return Some("it is stopping");
        }
        let at_work = self.leadership.leads() && self.watch.knows_databases;
        (!at_work).then(|| self.leadership.why().unwrap_or("it is starting"))
    }

    fn status(&self) -> Value {
        let (base, leadership, queues) = (&self.base, &self.leadership, &self.queues);
        let stopping = self.stopping.asked();
        report(&Subject { base, leadership, queues, stopping, server: self.server.description() })
    }
}
