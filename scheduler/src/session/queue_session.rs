//! The session that serves the queue: what its events and answers lead to.
//!
//! It carries out what `session_state` decides. Its server is in `home_server`, a server that does not write in `write_pause`,
//! and what was reported about its errors in `report`.

use super::home_server::{self, Home};
use super::session_state::{SessionEffect, SessionEvent, SessionMachine};
use super::start_gate::{self, Admission, UNINSTALLED};
use super::write_pause::WritePause;
use crate::base::Base;
use crate::command::{Command, Opening, SessionName, query, query_on};
use crate::limits::MARKER_PERIOD;
use crate::table::make::{self, Owner, Past, QueueStatements, Readiness, Ready};
use shared::db::db_error::DbError;
use shared::db::link::Link;
use shared::db::reported_once::ReportedOnce;
use shared::db::server::HomeServer;
use shared::db::statement;
use shared::process::exit_code::ExitCode;
use shared::process::order::WaitFor;
use std::rc::Rc;
use std::time::Instant;

/// What this session, and the one that reads settings, answer.
#[derive(Debug)]
pub enum SessionAnswer {
    Admitted(Admission),
    Prepared(Readiness),
    /// The marker table as it is now.
    Marker(Option<u32>),
    /// The launcher that holds this number leads on our server.
    LeaderFound(i64),
    Settings(Vec<(String, String)>),
    Done,
}

#[derive(Debug)]
pub struct QueueSession {
    pub state: SessionMachine,
    /// It is known to have a backend of its own.
    proven: bool,
    pub statements: Option<Rc<QueueStatements>>,
    /// The server on which the queue is served.
    pub home: Home,
    /// Whether it writes.
    pub write_pause: WritePause,
    /// The error that was reported and is not over.
    pub said: ReportedOnce,
    /// The marker table of the catalog, as it was when the session began.
    marker: Option<u32>,
    next_marker: Instant,
    /// The table that this process served last.
    served: Option<u32>,
}

impl QueueSession {
    pub fn new(now: Instant) -> QueueSession {
        QueueSession {
            state: SessionMachine::new(now),
            proven: false,
            statements: None,
            home: Home::default(),
            write_pause: WritePause::default(),
            said: ReportedOnce::default(),
            marker: None,
            next_marker: now,
            served: None,
        }
    }

    /// Connected. What was learnt on the way is passed on to the workers.
    pub fn connected<A>(&mut self, link: &Link<A>, base: &mut Base) {
        self.proven |= link.is_proven();
        base.order.target.late_settings = link.target().late_settings;
        self.home.connected(link.place());
    }

    /// The connection is gone.
    pub fn lost(&mut self, base: &Base) {
        self.home.lost();
        base.slot_status().set_proof(0);
        base.slot_status().set_running(0, 0, 0);
        // Without a session a slot would be of no use.
        base.slot_status().set_wants_slot(false);
        self.statements = None;
    }

    pub fn event(&mut self, event: SessionEvent, base: &Base) -> Vec<Command<SessionAnswer>> {
        let mut commands = Vec::new();
        for effect in self.state.handle(event) {
            match effect {
                SessionEffect::Dial => {
                    let target = self.home.dial(&base.order.target, base.start.region.leader_server().as_ref());
                    let (session, doubtful) = (SessionName::Queue, !self.proven);
                    let target = Box::new(target);
                    commands.push(Command::Open(Opening { session, target, beside: false, doubtful }));
                }
                SessionEffect::Stand => commands.push(wait_for_admission(base)),
                SessionEffect::Prepare => commands.push(self.prepare(base)),
                SessionEffect::Say(db_error) => self.report(db_error, base),
                // A server that is up again may still not write.
                SessionEffect::SayWell if self.write_pause.is_told() => {}
                SessionEffect::SayWell => self.report_end(base),
                SessionEffect::GiveUp => {
                    shared::error!("scheduler exits: another scheduler serves the queue", queue = base.label);
                    commands.push(Command::Exit(ExitCode::Temporary));
                }
            }
        }
        commands
    }

    /// Table, lock, server and catalog: what is there, made where it is missing.
    pub fn prepare(&self, base: &Base) -> Command<SessionAnswer> {
        let (queue, defaults) = (base.queue.clone(), base.order.defaults.clone());
        let owner = Owner { launcher: base.order.name.clone(), term: base.start.region.term() };
        let standing = self.home.standing(&base.order.target, base.start.region.leader_server());
        let past = Past { served: self.served, found: base.order.found };
        query("preparing the queue", move |client| async move {
            Ok(SessionAnswer::Prepared(make::prepare(client, queue, defaults, owner, past, standing).await?))
        })
    }

    /// The start gate has opened: there is something to serve here, or there is not.
    pub fn admitted(&mut self, verdict: Admission, base: &mut Base) -> Vec<Command<SessionAnswer>> {
        match verdict {
            Admission::Go { marker } => {
                // The next session waits for whatever is then in the way, not for this again.
                base.order.wait = WaitFor::default();
                self.mark(marker, base);
                vec![Command::Session(SessionEvent::Admitted)]
            }
            Admission::Leave { code, why } => leave(base, code, &why),
        }
    }

    /// The queue is ours: what the session knows of it.
    pub fn serves(&mut self, ready: &Ready, base: &mut Base) {
        self.mark(ready.marker, base);
        self.served = Some(ready.statements.relid);
        if ready.superuser && !self.state.held_before {
            shared::warning!(
                "tasks of this queue run as a superuser; give it a user that is not a superuser",
                queue = base.label
            );
        }
        base.slot_status().set_running(0, 0, ready.backend);
        self.statements = Some(ready.statements.clone());
    }

    /// On this server. True: the data of the server where it was served before are not here.
    pub fn settle_in(&mut self, home: HomeServer, leader: Option<i64>, base: &Base) -> bool {
        let (proof, name) = (home.proof, home.name.to_string());
        let former = self.home.settle_in(home, leader);
        if let Some(former) = &former {
            shared::warning!("queue has moved to another server", queue = base.label, from = former, to = name);
        }
        base.slot_status().set_proof(proof);
        former.is_some()
    }

    /// Nothing is claimed before the leader's number is found on our server.
    pub fn leader_is_here(&self, base: &Base) -> bool {
        self.home.has_leader(&base.start.region)
    }

    pub fn find_leader(&mut self, base: &Base) -> Option<Command<SessionAnswer>> {
        if !self.state.working() || self.leader_is_here(base) {
            return None;
        }
        let leader = base.start.region.leader_server()?;
        let standing = self.home.search(&base.order.target, leader.clone())?;
        let (queue, relid) = (base.queue.clone(), self.statements.as_ref().map(|statements| statements.relid));
        Some(query("looking for the launcher's lock", move |client| async move {
            match home_server::stand(&client, &standing).await {
                Ok(_) => Ok(SessionAnswer::LeaderFound(leader.proof)),
                Err(db_error) => {
                    make::leave_note(&client, &queue, relid, Some(&db_error.text)).await;
                    Err(db_error)
                }
            }
        }))
    }

    /// Tells `mill.why` what keeps workers from beginning, or that nothing does any more.
    pub fn note(&self, db_error: Option<String>, base: &Base) -> Command<SessionAnswer> {
        let (queue, relid) = (base.queue.clone(), self.statements.as_ref().map(|statements| statements.relid));
        query("writing a reason", move |client| async move {
            make::leave_note(&client, &queue, relid, db_error.as_deref()).await;
            Ok(SessionAnswer::Done)
        })
    }

    fn mark(&mut self, marker: Option<u32>, base: &mut Base) {
        self.marker = marker;
        base.order.installed |= marker.is_some();
        base.slot_status().set_marker(marker.unwrap_or(0));
    }

    /// Once in a while: is the catalog still there?
    pub fn find_marker(&mut self, statements: &Rc<QueueStatements>, now: Instant) -> Option<Command<SessionAnswer>> {
        if now < self.next_marker {
            return None;
        }
        self.next_marker = now + MARKER_PERIOD;
        let statements = statements.clone();
        Some(query("checking the catalog", move |client| async move {
            let row = client.query_opt(&statements.find_marker, &[]).await.map_err(|error| DbError::of(&error))?;
            Ok(SessionAnswer::Marker(row.map(|row| row.get("marker"))))
        }))
    }

    /// A catalog may be dropped and made anew too quickly for anybody to see it: what was learnt of it does not hold any more.
    pub fn marker_found(&mut self, marker: Option<u32>, base: &mut Base) -> Option<Command<SessionAnswer>> {
        if marker == self.marker {
            return None;
        }
        match marker {
            // One that came later, by another row or by an operator.
            Some(_) if self.marker.is_none() => {
                self.mark(marker, base);
                None
            }
            Some(_) => {
                shared::info!("catalog was replaced; restarting the scheduler", queue = base.label);
                Some(Command::StopAs(ExitCode::Asked))
            }
            None => {
                base.slot_status().set_reason(UNINSTALLED);
                Some(Command::StopAs(ExitCode::NotInstalled))
            }
        }
    }
}

fn wait_for_admission(base: &Base) -> Command<SessionAnswer> {
    let (queue, wait) = (base.queue.clone(), base.order.wait);
    let catalog = (base.order.found, base.order.installed);
    if start_gate::waits(wait) {
        base.slot_status()
            .set_reason("waiting for the end of the transaction that called mill.restart() or mill.start()");
    }
    let what = "waiting for a transaction";
    query_on(SessionName::Queue, what, start_gate::TIMEOUT, move |client| async move {
        Ok(SessionAnswer::Admitted(start_gate::stand(client, queue, wait, catalog).await?))
    })
}

/// There is nothing to serve.
pub fn leave(base: &Base, code: ExitCode, why: &str) -> Vec<Command<SessionAnswer>> {
    base.slot_status().set_reason(why);
    shared::debug!("scheduler exits", queue = base.label, why = why);
    vec![Command::Exit(code)]
}

/// Another table has the name that was our table's. What this process knows of tasks is by their ids, and those of the other
/// table may be the same; so a new process takes it over.
pub fn leave_table(base: &Base, former: Option<String>) -> Vec<Command<SessionAnswer>> {
    let former = former.as_deref().unwrap_or("dropped");
    shared::info!("table of the queue was replaced; restarting the scheduler", queue = base.label, former = former);
    vec![Command::StopAs(ExitCode::Asked)]
}

/// Its application_name shows the settings in force.
pub fn rename(base: &Base) -> Command<SessionAnswer> {
    let (name, text) = (base.application_name(), statement::bare(statement::NAME_SESSION));
    query("naming the session", move |client| async move {
        client.query_one(&text, &[&name]).await.map_err(|error| DbError::of(&error))?;
        Ok(SessionAnswer::Done)
    })
}
