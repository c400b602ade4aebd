//! The components of a scheduler, and the commands that they return: some are for the outside, some for another component.
//!
//! A component owns its state, takes an event, and returns commands; none calls one that is above it. What an event means for
//! several of them (a lost session, a queue that is ours now) is carried out here, in order.

use crate::answer::Answer;
use crate::attempt::attempts::Attempts;
use crate::base::Base;
use crate::claim::claims::Claims;
use crate::command::{Command, Opening, Refused, SessionName};
use crate::graph::graph_state::GraphEvent;
use crate::graph::keeper::Graph;
use crate::jobs::job_table::{Jobs, JobsTurn};
use crate::links::Links;
use crate::pool::connection_pool::ConnectionPool;
use crate::session::catalog::Installed;
use crate::session::installer_session::Installer;
use crate::session::queue_session::QueueSession;
use crate::session::reload;
use crate::session::session_state::SessionEvent;
use crate::session::version_check::{self, OtherVersion};
use crate::stop::SchedulerStop;
use crate::table::make::Ready;
use crate::table::upkeep::Upkeep;
use crate::turn::{Turn, turn};
use shared::db::db_error::DbError;
use shared::process::exit_code::ExitCode;
use shared::process::order::{SchedulerOrder, Start};
use shared::process::spawn::Spawner;
use shared::process::stopping::StopEvent;
use std::time::Instant;

#[derive(Debug)]
pub struct Components {
    pub base: Base,
    pub spawner: Spawner,
    pub links: Links,
    pub session: QueueSession,
    pub installer: Installer,
    pub table: Upkeep,
    pub claims: Claims,
    pub attempts: Attempts,
    pub pool: ConnectionPool,
    pub jobs: Jobs,
    pub graph: Graph,
    pub stop: SchedulerStop,
}

impl Components {
    pub fn new(start: Start, order: SchedulerOrder, reexecuted: bool) -> std::io::Result<Components> {
        let now = Instant::now();
        let points = ["scheduler.before_fork", "scheduler.after_fork", "scheduler.after_transfer"];
        let spawner = Spawner::open(&start.region, start.slot, points)?;
        let base = Base::new(start, order, reexecuted);
        Ok(Components {
            spawner,
            links: Links::default(),
            session: QueueSession::new(now),
            installer: Installer::new(),
            table: Upkeep::new(now),
            claims: Claims::new(base.start.region.slots().limit(), now),
            attempts: Attempts::new(&base, now),
            pool: ConnectionPool::open()?,
            jobs: Jobs::new(),
            graph: Graph::new(now),
            stop: SchedulerStop::new(),
            base,
        })
    }

    pub fn session_lost(&mut self, db_error: DbError, now: Instant) {
        for name in [SessionName::Queue, SessionName::Repair, SessionName::Installer] {
            self.links.close(name);
        }
        self.session.lost(&self.base);
        self.table.forget();
        self.installer.forget();
        self.jobs.forget();
        self.graph_event(GraphEvent::Gone, now);
        self.claims.session_lost(&mut self.pool, &turn!(self, now));
        self.attempts.session_lost(now);
        self.pool.session_lost(now);
        self.session_event(SessionEvent::Lost { now, db_error });
    }

    pub fn session_event(&mut self, event: SessionEvent) {
        let commands = self.session.event(event, &self.base);
        self.run(commands, Answer::Session);
    }

    pub fn graph_event(&mut self, event: GraphEvent, now: Instant) {
        let commands = self.graph.event(event, &turn!(self, now));
        self.run(commands, Answer::Graph);
    }

    /// SIGHUP: the launcher has put new settings into our cell.
    pub fn reload(&mut self, now: Instant) {
        let Some(defaults_changed) = reload::accept(&mut self.base) else { return };
        if defaults_changed {
            let commands = self.table.align(&turn!(self, now)).into_iter().collect();
            self.run(commands, Answer::Table);
        }
        let target = self.session.home.target(&self.base.order.target);
        self.run(vec![Opening::alone(SessionName::Settings, target)], Answer::Session);
    }

    /// The server's settings over the config's.
    pub fn apply(&mut self, from_server: Vec<(String, String)>, now: Instant) {
        let commands = reload::apply(&mut self.base, from_server).into_iter().collect();
        self.run(commands, Answer::Session);
        self.attempts.sweep_later(&self.base, now);
        self.claims.timer.hurry(now);
    }

    /// What a component wants done; `wrap` is how its answers come back.
    pub fn run<A: 'static>(&mut self, commands: Vec<Command<A>>, wrap: fn(A) -> Answer) {
        for command in commands {
            let now = Instant::now();
            match command {
                Command::Query(query) => self.links.send(query, wrap),
                Command::Open(opening) => {
                    let (name, region) = (self.base.application_name(), &self.base.start.region);
                    self.links.open(&opening, &name, region, self.session.home.proof());
                }
                Command::Close(session) => self.links.close(session),
                Command::PollAt(at) => self.claims.timer.hurry(at),
                Command::Session(event) => self.session_event(event),
                Command::Prepare => {
                    let command = self.session.prepare(&self.base);
                    self.run(vec![command], Answer::Session);
                }
                Command::Report(db_error) => self.session.report(db_error, &self.base),
                Command::ReportEnd => self.session.report_end(&self.base),
                Command::ShowReason => self.show_reason(),
                Command::Note(db_error) if self.jobs.has_catalog() => {
                    let command = self.session.note(db_error, &self.base);
                    self.run(vec![command], Answer::Session);
                }
                Command::Note(_) => {}
                Command::Admitted(access) => {
                    let commands = self.jobs.admitted(access, &self.base, self.session.statements.as_ref());
                    self.run(commands, Answer::Job);
                }
                Command::KeepGraph => self.graph_event(GraphEvent::Ready, now),
                Command::StopAs(code) => {
                    self.stop.exit_when_stopped = Some(code);
                    self.stop.event(StopEvent::Cancel { now }, &mut self.attempts, &self.base);
                }
                Command::Exit(code) => self.stop.exit = Some(code),
            }
        }
    }

    /// In the slot status, where no error of the session hides it: why fewer tasks run, or why there is no catalog.
    pub fn show_reason(&mut self) {
        if self.session.said.current().is_none() {
            let reason = self.claims.process_limit.reason().or(self.installer.said());
            self.base.slot_status().set_reason(reason.unwrap_or_default());
            self.base.start.signal_parent();
        }
    }

    /// The queue is ours, on this server.
    pub fn ready(&mut self, ready: Ready, now: Instant) {
        self.session.serves(&ready, &mut self.base);
        let Ready { home, leader, settings, unfinished, repairs, access, .. } = ready;
        let proof = home.proof;
        let moved = self.session.settle_in(home, leader, &self.base);
        self.attempts.settle_in(moved, proof, &mut self.pool, &turn!(self, now));
        self.session_event(SessionEvent::Prepared);
        self.apply(settings, now);
        self.attempts.adopt(unfinished, &self.base, now);
        self.claims.settle_in(now);
        self.table.begin(repairs, now);
        let commands = self.installer.found(access, &turn!(self, now));
        self.run(commands, Answer::Installer);
    }

    /// The catalog is of another version than this code.
    pub fn other_version(&mut self, found: &Installed, now: Instant) {
        let version = found.version.as_str();
        let why = match version_check::decide(found, &self.base, self.session.state.held_before) {
            OtherVersion::BeginAnew => {
                return self.run(vec![Command::StopAs(ExitCode::Asked)], Answer::Session);
            }
            OtherVersion::Upgrade => {
                let command = self.installer.upgrade(found, &turn!(self, now));
                return self.run(vec![command], Answer::Installer);
            }
            OtherVersion::Become(program) => {
                shared::info!(
                    "scheduler executes the program of the catalog's version",
                    queue = self.base.label,
                    version = version
                );
                self.links.close_all();
                self.claims.release(&mut self.pool, &turn!(self, now));
                version_check::become_version(&program, &self.base)
            }
            OtherVersion::Leave { why } => why,
        };
        self.base.slot_status().set_reason(&format!("no code for version {version} of the catalog: {why}"));
        self.stop.exit = Some(ExitCode::NoCode);
    }

    /// The server has written something, or there was nothing to write. The next turn tells if an outage is over.
    pub fn written(&mut self) {
        if self.attempts.table.record_refusal().is_none() {
            self.session.write_pause.accepted();
        }
    }

    pub fn with_jobs<T>(&mut self, work: impl FnOnce(&mut Jobs, &mut JobsTurn<'_>) -> T) -> T {
        let prepared = self.session.statements.as_ref().filter(|_| self.session.state.working());
        let (base, table, stopping) = (&self.base, &mut self.attempts.table, self.stop.state.asked());
        work(&mut self.jobs, &mut JobsTurn { base, table, prepared, stopping })
    }

    /// The server has refused a query, and the session lives: it is sent again later.
    pub fn refused(&mut self, what: Refused, db_error: &DbError, now: Instant) {
        self.session.refused(&what, db_error, &self.base, now);
        self.attempts.refused(&what, now);
        match what {
            Refused::Pass => {
                let commands = self.claims.refused(&mut self.pool, &turn!(self, now)).into_iter().collect();
                self.run(commands, Answer::Claim);
            }
            Refused::Termination(backend) => self.pool.terminated(backend, false, now),
            _ => {}
        }
        if let Some(until) = self.session.write_pause.pauses_until(now) {
            self.claims.timer.hold_off(until);
        }
    }
}
