//! The loop of the launcher: wait, event, step, log the change, run the effects.
//!
//! A parent that must not die does little: no user SQL, no long query, nothing that blocks. It polls the signal pipe,
//! its own session, the control socket and the schedulers' pidfds; every pass reconciles what is wanted with what is.

use crate::control::control_socket::ControlSocket;
use crate::control::orders::Orders;
use crate::control::service_manager::ServiceManager;
use crate::embedded::{Embedded, ServerEvent, Stop};
use crate::leader::leader_state::{Leader, LeaderEvent};
use crate::leader::leadership::{Asked, Leadership};
use crate::limits::{ANSWER_TIMEOUT, PROVISION_PERIOD, REAP_MAX, STOP_MARGIN};
use crate::message::message_table::MessageKey;
use crate::queue::database_list::FoundDatabase;
use crate::queue::queue_state::Urgency;
use crate::queue::queue_table::QueueTable;
use crate::queue::wanted::Wanted;
use crate::server::lock_watch::Locks;
use crate::server::provision::{Lacking, Provisioning, Report, look_for_missing};
use crate::server::queue_probe::QueueProbe;
use crate::server::server_watch::{ServerWatch, WatchStatements};
use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use shared::conninfo::Target;
use shared::db::link::{Link, LinkEvent};
use shared::db::saying::Saying;
use shared::process::order::WaitFor;
use shared::process::spawn::Nursery;
use shared::process::stopping::{self, StopEvent, Stopping};
use shared::region::{HostMoment, Region};
use shared::sys::memory;
use shared::sys::signal::Bell;
use shared::sys::wait;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What a config read again may change.
pub struct Reloaded {
    pub target: Target,
    pub rows: Vec<Wanted>,
    pub operators: Option<String>,
}

/// Reads the config again; what is wrong has been said.
pub type Reload = Box<dyn FnMut() -> Option<Reloaded>>;

/// Everything the loop needs from whoever starts it.
pub struct Parts {
    pub region: Region,
    pub nursery: Nursery,
    pub bell: Bell,
    pub control: ControlSocket,
    pub embedded: Option<Embedded>,
    pub manager: ServiceManager,
    pub target: Target,
    pub name: String,
    pub poll: Duration,
    pub probe: Duration,
    /// The role whose members may send messages to every database.
    pub operators: Option<String>,
    pub rows: Vec<Wanted>,
    pub reload: Reload,
}

/// What comes back from the maintenance database.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Whether this launcher got the lock, and if not, who has it.
    Lock(Asked),
    /// What rows need: there, or to be made.
    Needed(Vec<Report>, Vec<Lacking>),
    Listening(Rc<WatchStatements>),
    Locks {
        locks: Locks,
        asked_at: HostMoment,
    },
    Databases {
        found: Vec<FoundDatabase>,
        asked_at: Instant,
    },
    Checked {
        key: MessageKey,
        may: bool,
    },
    /// Nothing follows from it.
    Done,
}

enum Event {
    Rang(Signal),
    Link(LinkEvent<Answer>),
    Passed,
}

pub struct Launcher {
    pub(crate) parts: Parts,
    pub(crate) rows: QueueTable,
    pub(crate) leader: Leader,
    pub(crate) leadership: Leadership,
    pub(crate) link: Option<Link<Answer>>,
    pub(crate) ear: ServerWatch,
    probe: QueueProbe,
    /// What operators have asked for through the control socket.
    pub(crate) orders: Orders,
    /// The session is known to have a backend of its own.
    pub(crate) proven: bool,
    events: (Sender<Event>, Receiver<Event>),
    pub(crate) stopping: Stopping,
    pub(crate) said: Saying,
    pub(crate) said_ready: bool,
    server_stopping: bool,
    /// What rows need is being looked at.
    looking: bool,
    /// And made.
    making: Option<Provisioning>,
    pub(crate) next_making: Instant,
}

impl Launcher {
    pub fn new(mut parts: Parts) -> Launcher {
        let now = Instant::now();
        let mut rows = QueueTable::new(&parts.region, parts.target.places.clone(), parts.probe);
        let probe = QueueProbe::new(parts.probe);
        rows.want(std::mem::take(&mut parts.rows), now);
        Launcher {
            parts,
            rows,
            leader: Leader::new(now),
            leadership: Leadership::new(),
            link: None,
            ear: ServerWatch::new(now),
            probe,
            orders: Orders::default(),
            proven: false,
            events: unbounded(),
            stopping: Stopping::No,
            said: Saying::default(),
            said_ready: false,
            server_stopping: false,
            looking: false,
            making: None,
            next_making: now,
        }
    }

    /// Runs until it is told to stop. True: an orderly end.
    pub fn run(mut self) -> bool {
        // The command line and the config have been read: nobody who is forked needs what is left of that.
        memory::shed_heap();
        loop {
            self.wait();
            while let Ok(event) = self.events.1.try_recv() {
                if matches!(event, Event::Rang(Signal::SIGQUIT)) {
                    return self.quit();
                }
                self.handle(event);
            }
            if self.ended() {
                self.parts.control.close();
                shared::info!("launcher ended");
                return true;
            }
        }
    }

    fn wait(&mut self) {
        let now = Instant::now();
        let mut fds = vec![PollFd::new(self.parts.bell.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.parts.control.poll_fds());
        fds.extend(self.link.as_ref().and_then(Link::interest).map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.probe.interest().map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.making.as_ref().and_then(Provisioning::interest).map(|(fd, flags)| PollFd::new(fd, flags)));
        fds.extend(self.rows.poll_fds());
        // EINTR and the like: the deadlines bring us back.
        let _ = poll(&mut fds, self.timeout(now));
        drop(fds);
        let now = Instant::now();
        // The receiver lives in the same struct: sending cannot fail.
        for signal in self.parts.bell.rung() {
            let _ = self.events.0.send(Event::Rang(signal));
        }
        if let Some(link) = &mut self.link {
            for event in link.turn(now) {
                let _ = self.events.0.send(Event::Link(event));
            }
        }
        let _ = self.events.0.send(Event::Passed);
    }

    fn timeout(&self, now: Instant) -> PollTimeout {
        let deadlines = [
            self.leader.deadline(),
            self.link.as_ref().and_then(Link::deadline),
            self.ear.deadline(),
            self.probe.deadline(),
            self.making.as_ref().and_then(Provisioning::deadline),
            self.orders.deadline(),
            self.rows.deadline(),
            self.parts.control.deadline(),
            self.stopping.deadline(),
            self.parts.manager.deadline(),
            self.parts.embedded.as_ref().map(|server| now + server.check_again_in(now)),
            Some(now + self.parts.poll),
        ];
        let wait = deadlines.into_iter().flatten().min().unwrap_or(now).saturating_duration_since(now);
        PollTimeout::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
    }

    fn handle(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Rang(Signal::SIGTERM) => {
                self.stop(StopEvent::Finish { now, close: self.rows.longest_close() + STOP_MARGIN });
            }
            Event::Rang(Signal::SIGINT) => self.stop(StopEvent::Cancel { now }),
            Event::Rang(Signal::SIGHUP) => self.reload(now),
            // SIGUSR2, SIGCHLD: look, which every pass does.
            Event::Rang(_) => {}
            Event::Link(LinkEvent::Up) => {
                self.proven |= self.link.as_ref().is_some_and(Link::is_proven);
                self.leader_event(LeaderEvent::Up);
            }
            Event::Link(LinkEvent::Answered(Answer::Lock(asked))) => self.lock_answered(asked, now),
            Event::Link(LinkEvent::Answered(Answer::Needed(there, lacking))) => {
                self.looking = false;
                self.rows.made(there);
                if !lacking.is_empty() {
                    self.making = Some(Provisioning::begin(&self.parts.target, &self.parts.region, lacking));
                }
            }
            Event::Link(LinkEvent::Answered(Answer::Listening(hearing))) => self.listening(hearing, now),
            Event::Link(LinkEvent::Answered(Answer::Locks { locks, asked_at })) => {
                if self.prove(&locks, asked_at, now) {
                    self.locks_seen(&locks, now);
                }
            }
            Event::Link(LinkEvent::Answered(Answer::Databases { found, asked_at })) => {
                self.databases_listed(found, asked_at, now);
            }
            Event::Link(LinkEvent::Answered(Answer::Checked { key, may })) => self.sender_checked(key, may),
            // It listens to nothing.
            Event::Link(LinkEvent::Answered(Answer::Done) | LinkEvent::Notified | LinkEvent::CatalogRang) => {}
            Event::Link(LinkEvent::Lost(trouble)) => self.session_lost(trouble, now),
            Event::Passed => self.pass(now),
        }
    }

    /// Reconciles everything, whatever woke us.
    fn pass(&mut self, now: Instant) {
        self.parts.manager.beat(now);
        self.parts.control.keep(now);
        self.rows.reap(now);
        self.reap_orphans();
        self.watch_server(now);
        self.leader_event(LeaderEvent::Passed { now });
        self.stop(StopEvent::Passed { now });
        self.hear(now);
        // Every row has its slot before the first scheduler runs: so all databases must be known.
        let leads = self.leading() && self.parts.region.leads();
        let may_start = leads && self.ear.knows_databases && !self.stopping.asked();
        self.make_missing(may_start, now);
        self.act(now);
        self.hear_callers(now);
        self.rows.pass(&self.parts.nursery, may_start, &self.ear, now);
        self.answer_messages(now);
        self.end_sessions();
        self.probe_queues(may_start, now);
        // After the rows themselves: a scheduler comes before a task.
        self.rows.offer_slots();
        self.say_ready();
        self.answer_callers(now);
    }

    /// Which task tables covered databases have. A new session is driven at once: nothing else wakes us for it.
    fn probe_queues(&mut self, may: bool, now: Instant) {
        if let Some((database, queues)) = self.probe.turn(now) {
            self.rows.queues_listed(database, queues, now);
        }
        if may {
            let (locks, messages) = (&self.ear.locks, &self.ear.messages);
            let waits = |database| messages.waits_for(database) != WaitFor::default() || messages.holds_back(database);
            self.probe.pass(&self.rows, &self.parts.region, |database| locks.holds(database), waits, now);
        }
    }

    /// Roles and databases of rows that do not work yet.
    fn make_missing(&mut self, may: bool, now: Instant) {
        if let Some(made) = self.making.as_mut().and_then(|making| making.turn(now)) {
            self.making = None;
            self.rows.made(made);
        }
        if !may || self.looking || self.making.is_some() || now < self.next_making {
            return;
        }
        self.next_making = now + PROVISION_PERIOD;
        let (needed, signature) = (self.rows.needed(&self.parts.target.places), self.signature());
        if let (Some(link), false) = (&mut self.link, needed.is_empty()) {
            self.looking = true;
            link.ask("looking for what rows need", ANSWER_TIMEOUT, |client| async move {
                let (there, lacking) = look_for_missing(client, needed, signature).await?;
                Ok(Answer::Needed(there, lacking))
            });
        }
    }

    /// Workers of a dead scheduler become our children: their slots are swept, then they are let go.
    fn reap_orphans(&mut self) {
        // Bounded by what can have ended at once; the rest comes with the next pass.
        for _ in 0..REAP_MAX {
            let Some((pid, end)) = wait::any_ended() else { return };
            let servers = self.parts.embedded.as_ref().and_then(Embedded::pid);
            if self.rows.has_child(pid) || servers == Some(pid) {
                // Known children are reaped by their owners; waitid would show this one again and again.
                return;
            }
            let slots = self.parts.region.sweep(pid);
            shared::debug!("orphan ended", pid = pid, end = end, slots = slots);
            wait::reap(pid);
        }
    }

    fn watch_server(&mut self, now: Instant) {
        let Some(server) = &mut self.parts.embedded else { return };
        match server.check(now) {
            Some(ServerEvent::Died { pid, status }) if !self.server_stopping => {
                shared::error!("embedded server died; it is started again", pid = pid, status = status);
            }
            Some(ServerEvent::Restarted { pid }) => shared::info!("embedded server started again", pid = pid),
            Some(ServerEvent::StartFailed { why }) => shared::error!("embedded server cannot be started", why = why),
            Some(ServerEvent::Died { .. }) | None => {}
        }
    }

    fn stop(&mut self, event: StopEvent) {
        let step = stopping::step(self.stopping, event);
        if step.next == self.stopping {
            return;
        }
        self.stopping = step.next;
        let rung = if step.cancel_tasks { Urgency::Cancel } else { Urgency::Finish };
        let how = if step.cancel_tasks { "cancelling tasks" } else { "letting tasks finish" };
        shared::info!("launcher stops", how = how);
        self.parts.manager.stopping(how);
        self.rows.end_all(rung, Instant::now());
    }

    /// SIGQUIT: leave now. Every process of ours dies with us; the next start recovers.
    fn quit(mut self) -> bool {
        shared::warning!("launcher quits at once");
        self.parts.manager.stopping("quitting at once");
        if let Some(server) = &mut self.parts.embedded {
            server.stop(Stop::Immediate);
        }
        self.parts.control.close();
        false
    }

    /// Rows first, the embedded server last.
    fn ended(&mut self) -> bool {
        if !self.stopping.asked() || (self.rows.has_schedulers() && !self.rows_given_up()) {
            return false;
        }
        match &mut self.parts.embedded {
            None => true,
            Some(server) => {
                if !self.server_stopping {
                    self.server_stopping = true;
                    self.link = None;
                    server.stop(Stop::Fast);
                }
                server.stopped()
            }
        }
    }

    /// The ladder of each row ends with SIGKILL, so this is for a process that even that does not end.
    fn rows_given_up(&self) -> bool {
        self.stopping.deadline().is_some_and(|until| {
            matches!(self.stopping, Stopping::Cancel { .. }) && Instant::now() >= until + STOP_MARGIN
        })
    }

    /// The session is gone, and with it the questions in flight.
    pub(crate) fn hang_up(&mut self) {
        self.link = None;
        self.looking = false;
        self.ear.lose();
    }

    fn reload(&mut self, now: Instant) {
        self.parts.manager.reloading();
        self.parts.control.check(now);
        match (self.parts.reload)() {
            Some(Reloaded { target, rows, operators }) => {
                self.parts.operators = operators;
                if target != self.parts.target {
                    self.parts.target = target;
                    self.proven = false;
                    self.hang_up();
                    self.making = None;
                    self.rows.move_home(self.parts.target.places.clone());
                    self.leader_event(LeaderEvent::LoginChanged { now });
                }
                self.rows.want(rows, now);
                self.next_making = now;
                self.said_ready = false;
                shared::info!("config read again");
            }
            None => {
                shared::error!("the config has mistakes; the old one stays in force");
                self.parts.manager.ready("the config has mistakes; the old one stays in force");
            }
        }
    }
}
