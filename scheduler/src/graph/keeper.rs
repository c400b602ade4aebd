//! The keeper of the graph in a scheduler: carries out what `graph_state` decides, and decides when the next pass is due.
//!
//! The passes themselves are in `pass`, on a session of their own. A wait ends at the next due timer, by a notification of the
//! catalog, or at the backstop. A refusal of the server is logged once per condition; a timer that was refused is left alone
//! for a while, and the others go on.

use super::graph_state::{self, GraphEffect, GraphEvent, GraphState};
use super::pass::{self, GraphAsk, GraphPassed, GraphStatements};
use crate::command::{Command, Opening, SessionName, query, query_on};
use crate::limits::ANSWER_TIMEOUT;
use crate::turn::Turn;
use shared::db::db_error::DbError;
use shared::db::statement;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The backstop behind the notifications.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The wake-up lock was refused: an inserter's transaction is open. Doubled up to the last.
const REFUSED_FIRST: Duration = Duration::from_millis(20);
const REFUSED_LAST: Duration = Duration::from_secs(1);
/// How long a timer that the server refuses is left alone: one that another transaction was in the way of, and any other.
const REFUSED_PAUSE_SHORT: Duration = Duration::from_millis(200);
const REFUSED_PAUSE_LONG: Duration = Duration::from_secs(30);
/// How long the session is kept while nothing is in use.
const KEEP_UNUSED: Duration = Duration::from_secs(60);
/// Between two sweeps: of what has become old meanwhile, and while there is more of it than one takes along.
const SWEEP_PAUSE: Duration = Duration::from_secs(60);
const SWEEP_ON: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub enum GraphAnswer {
    /// Whether the graph is ours to keep.
    Watched(GraphWatched),
    Prepared(Rc<GraphStatements>),
    Passed(Box<GraphPassed>),
}

/// What the queue's session has found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphWatched {
    pub keeps: bool,
    pub hears: bool,
    pub used: bool,
}

#[derive(Debug)]
pub struct Graph {
    state: GraphState,
    /// What the queue's session has: the lock, and the catalog's notifications.
    keeps: bool,
    hears: bool,
    statements: Option<Rc<GraphStatements>>,
    passing: bool,
    armed: bool,
    notified: bool,
    next_pass: Instant,
    refusals: u32,
    refused_timers: HashMap<i32, Instant>,
    used_at: Instant,
    next_sweep: Instant,
    /// The conditions that have been said and still last.
    said: Vec<String>,
}

impl Graph {
    pub fn new(now: Instant) -> Graph {
        Graph {
            state: GraphState::Absent,
            keeps: false,
            hears: false,
            statements: None,
            passing: false,
            armed: false,
            notified: false,
            next_pass: now,
            refusals: 0,
            refused_timers: HashMap::new(),
            used_at: now,
            next_sweep: now,
            said: Vec::new(),
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let pass = (self.state == GraphState::Keeping && !self.passing).then_some(self.next_pass);
        [self.state.deadline(), pass].into_iter().flatten().min()
    }

    fn passed(&mut self, passed: &GraphPassed, now: Instant) {
        self.passing = false;
        self.armed = passed.armed;
        self.refused_timers.retain(|_, until| *until > now);
        for (timer, _, db_error) in &passed.refused {
            let pause = if db_error.passes() { REFUSED_PAUSE_SHORT } else { REFUSED_PAUSE_LONG };
            self.refused_timers.extend(timer.map(|timer| (timer, now + pause)));
        }
        if passed.used || passed.more {
            self.used_at = now;
        }
        self.refusals = if passed.armed || passed.more { 0 } else { self.refusals.saturating_add(1) };
        let wait = if passed.more || std::mem::take(&mut self.notified) {
            Duration::ZERO
        } else if passed.armed {
            LONGEST_WAIT
        } else {
            REFUSED_FIRST.saturating_mul(1 << self.refusals.saturating_sub(1).min(16)).min(REFUSED_LAST)
        };
        let sweep = passed.sweep_on.then(|| now + SWEEP_ON);
        self.next_sweep = sweep.unwrap_or(self.next_sweep);
        let due = passed.next_due.map(|due| now + due.max(Duration::from_millis(1)));
        let retried = self.refused_timers.values().min().copied();
        self.next_pass = [Some(now + wait), due, retried, sweep].into_iter().flatten().min().unwrap_or(now);
    }

    pub fn event(&mut self, event: GraphEvent, turn: &Turn<'_>) -> Vec<Command<GraphAnswer>> {
        let step = graph_state::step(self.state, event);
        if std::mem::discriminant(&step.next) != std::mem::discriminant(&self.state) {
            let (was, now) = (format!("{:?}", self.state), format!("{:?}", step.next));
            shared::debug!("graph", queue = turn.label(), was = was, now = now);
        }
        self.state = step.next;
        if event == GraphEvent::Gone {
            (self.keeps, self.hears) = (false, false);
        }
        let mut commands = Vec::new();
        for effect in step.effects {
            commands.push(match effect {
                GraphEffect::Ask => self.watch(),
                GraphEffect::Dial => {
                    let target = turn.session.home.target(&turn.base.order.target);
                    Opening::beside(SessionName::Graph, target)
                }
                GraphEffect::Prepare => {
                    query_on(SessionName::Graph, "preparing the graph", ANSWER_TIMEOUT, |client| async move {
                        Ok(GraphAnswer::Prepared(Rc::new(pass::prepare(&client).await?)))
                    })
                }
                GraphEffect::HangUp => {
                    self.statements = None;
                    (self.passing, self.armed) = (false, false);
                    Command::Close(SessionName::Graph)
                }
            });
        }
        commands
    }

    fn watch(&self) -> Command<GraphAnswer> {
        let (keeps, hears) = (self.keeps, self.hears);
        query("watching the graph", move |client| async move {
            let text = statement::bare(statement::WATCH_GRAPH);
            match client.query_one(&text, &[&keeps, &hears]).await {
                Ok(row) => {
                    let (keeps, hears, used) = (row.get("keeps"), row.get("hears"), row.get("used"));
                    Ok(GraphAnswer::Watched(GraphWatched { keeps, hears, used }))
                }
                Err(error) if client.is_closed() => Err(DbError::of(&error)),
                // Tasks are served all the same.
                Err(error) => {
                    shared::debug!("cannot check the graph", why = DbError::of(&error));
                    Ok(GraphAnswer::Watched(GraphWatched { keeps: false, hears, used: false }))
                }
            }
        })
    }

    pub fn answered(&mut self, answer: GraphAnswer, turn: &Turn<'_>) -> Vec<Command<GraphAnswer>> {
        let now = turn.now;
        match answer {
            GraphAnswer::Watched(GraphWatched { keeps, hears, used }) => {
                if keeps && !self.keeps {
                    let queue = turn.label();
                    shared::debug!("this scheduler keeps the timers and tokens of its database", queue = queue);
                }
                (self.keeps, self.hears) = (keeps, hears);
                self.used_at = now;
                self.event(GraphEvent::Watched { now, keeps, hears, used }, turn)
            }
            GraphAnswer::Prepared(statements) => {
                self.statements = Some(statements);
                self.next_pass = now;
                self.event(GraphEvent::Prepared, turn)
            }
            GraphAnswer::Passed(passed) => {
                self.passed(&passed, now);
                self.report(*passed, turn);
                if now.saturating_duration_since(self.used_at) > KEEP_UNUSED {
                    return self.event(GraphEvent::Unused, turn);
                }
                Vec::new()
            }
        }
    }

    /// The catalog has notified the graph's own session.
    pub fn notified(&mut self, now: Instant) {
        self.notified = self.passing;
        self.next_pass = now;
    }

    /// The graph's own session is lost. Tasks are served all the same.
    pub fn lost(&mut self, db_error: DbError, turn: &Turn<'_>) -> Vec<Command<GraphAnswer>> {
        let text = format!("session of the graph lost: {db_error}");
        if !self.said.contains(&text) {
            shared::warning!("timers and tokens wait", queue = turn.label(), reason = text);
            self.said.push(text);
        }
        self.event(GraphEvent::Lost { now: turn.now }, turn)
    }

    /// On every turn: is a pass due?
    pub fn turn(&mut self, turn: &Turn<'_>) -> Vec<Command<GraphAnswer>> {
        let now = turn.now;
        let mut commands = self.event(GraphEvent::Passed { now }, turn);
        let due = self.state == GraphState::Keeping && !self.passing && now >= self.next_pass;
        if !due || turn.stop.asked() || !turn.leads() {
            return commands;
        }
        let Some(statements) = self.statements.clone() else { return commands };
        let sweep = now >= self.next_sweep;
        if sweep {
            self.next_sweep = now + SWEEP_PAUSE;
        }
        self.refused_timers.retain(|_, until| *until > now);
        let except_for = self.refused_timers.keys().copied().collect();
        let ask = GraphAsk { armed: self.armed, sweep, except_for };
        (self.passing, self.notified) = (true, false);
        commands.push(query_on(SessionName::Graph, "passing over the graph", ANSWER_TIMEOUT, |client| async move {
            Ok(GraphAnswer::Passed(Box::new(pass::pass(client, statements, ask).await?)))
        }));
        commands
    }

    fn report(&mut self, passed: GraphPassed, turn: &Turn<'_>) {
        if passed.activated > 0 {
            shared::debug!("timers fired", queue = turn.label(), activated = passed.activated);
        }
        for (timer, skipped) in passed.skipped {
            shared::info!("missed times skipped", queue = turn.label(), timer = timer, times = skipped);
        }
        let mut lasting = Vec::new();
        for (_, what, db_error) in passed.refused {
            let text = format!("{what}: {db_error}");
            if !self.said.contains(&text) && !db_error.passes() {
                let queue = turn.label();
                shared::warning!(
                    "part of the graph is skipped; retrying it later",
                    queue = queue,
                    what = what,
                    why = db_error
                );
            }
            lasting.push(text);
        }
        if self.refused_timers.is_empty() {
            self.said = lasting;
        } else {
            self.said.extend(lasting);
            self.said.dedup();
        }
    }
}
