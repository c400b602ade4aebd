//! The keeper of the graph in a scheduler: carries out what `graph_state` decides, and says when the next pass is due.
//!
//! The passes themselves are `graph_pass`, on a session of their own. A wait ends at the next due timer, by the catalog's
//! bell, or at the backstop. What the server refuses is said once per condition; a timer that gives trouble is left alone
//! for a while, and the others go on.

use crate::event_loop::{Answer, Scheduler};
use crate::graph::graph_state::{self, GraphEffect, GraphEvent, GraphState};
use crate::graph::pass::{self as graph_pass, GraphAsk, GraphPassed, GraphStatements};
use crate::limits::ANSWER_TIMEOUT;
use shared::db::link::{Link, LinkEvent};
use shared::db::statement;
use shared::db::trouble::Trouble;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The backstop behind the bell.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The bell was refused: somebody's transaction is open. Doubled up to the last.
const REFUSED_FIRST: Duration = Duration::from_millis(20);
const REFUSED_LAST: Duration = Duration::from_secs(1);
/// How long a timer that the server refuses is left alone: one that was only in somebody's way, and any other.
const SULK_SHORT: Duration = Duration::from_millis(200);
const SULK_LONG: Duration = Duration::from_secs(30);
/// How long the session is kept while nothing is in use.
const KEEP_UNUSED: Duration = Duration::from_secs(60);
/// Between two sweeps: of what has become old meanwhile, and while there is more of it than one takes along.
const SWEEP_PAUSE: Duration = Duration::from_secs(60);
const SWEEP_ON: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub enum GraphAnswer {
    Prepared(Rc<GraphStatements>),
    Passed(Box<GraphPassed>),
}

/// What the queue's session has found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    pub keeps: bool,
    pub hears: bool,
    pub used: bool,
}

#[derive(Debug)]
pub struct Graph {
    state: GraphState,
    /// What the queue's session holds: the lock, and the catalog's bell.
    keeps: bool,
    hears: bool,
    pub(crate) link: Option<Link<GraphAnswer>>,
    statements: Option<Rc<GraphStatements>>,
    passing: bool,
    armed: bool,
    rung: bool,
    next_pass: Instant,
    refusals: u32,
    sulking: HashMap<i32, Instant>,
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
            link: None,
            statements: None,
            passing: false,
            armed: false,
            rung: false,
            next_pass: now,
            refusals: 0,
            sulking: HashMap::new(),
            used_at: now,
            next_sweep: now,
            said: Vec::new(),
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let pass = (self.state == GraphState::Keeping && !self.passing).then_some(self.next_pass);
        [self.state.deadline(), pass, self.link.as_ref().and_then(Link::deadline)].into_iter().flatten().min()
    }

    /// A session of the graph is nobody's trouble but the graph's.
    fn hang_up(&mut self) {
        self.link = None;
        self.statements = None;
        (self.passing, self.armed) = (false, false);
    }

    fn passed(&mut self, passed: &GraphPassed, now: Instant) {
        self.passing = false;
        self.armed = passed.armed;
        self.sulking.retain(|_, until| *until > now);
        for (timer, _, trouble) in &passed.refused {
            let pause = if trouble.passes() { SULK_SHORT } else { SULK_LONG };
            self.sulking.extend(timer.map(|timer| (timer, now + pause)));
        }
        if passed.used || passed.more {
            self.used_at = now;
        }
        self.refusals = if passed.armed || passed.more { 0 } else { self.refusals.saturating_add(1) };
        let wait = if passed.more || std::mem::take(&mut self.rung) {
            Duration::ZERO
        } else if passed.armed {
            LONGEST_WAIT
        } else {
            REFUSED_FIRST.saturating_mul(1 << self.refusals.saturating_sub(1).min(16)).min(REFUSED_LAST)
        };
        let sweep = passed.sweep_on.then(|| now + SWEEP_ON);
        self.next_sweep = sweep.unwrap_or(self.next_sweep);
        let due = passed.next_due.map(|due| now + due.max(Duration::from_millis(1)));
        let sulked = self.sulking.values().min().copied();
        self.next_pass = [Some(now + wait), due, sulked, sweep].into_iter().flatten().min().unwrap_or(now);
    }
}

impl Scheduler {
    pub(crate) fn graph_event(&mut self, event: GraphEvent) {
        let step = graph_state::step(self.graph.state, event);
        if std::mem::discriminant(&step.next) != std::mem::discriminant(&self.graph.state) {
            shared::debug!(
                "graph",
                queue = self.base.label,
                was = format!("{:?}", self.graph.state),
                now = format!("{:?}", step.next)
            );
        }
        self.graph.state = step.next;
        if event == GraphEvent::Gone {
            (self.graph.keeps, self.graph.hears) = (false, false);
        }
        for effect in step.effects {
            match effect {
                GraphEffect::Ask => self.ask_watch(),
                GraphEffect::Dial => {
                    let region = Some(&self.base.start.region);
                    let target = self.session.home.target(&self.base.order.target);
                    let link = Link::dial(&target, &self.base.application_name(), region, false);
                    self.graph.link = Some(link.beside(self.session.home.proof()));
                }
                GraphEffect::Prepare => {
                    if let Some(link) = &mut self.graph.link {
                        link.ask("preparing the graph", ANSWER_TIMEOUT, |client| async move {
                            Ok(GraphAnswer::Prepared(Rc::new(graph_pass::prepare(&client).await?)))
                        });
                    }
                }
                GraphEffect::HangUp => self.graph.hang_up(),
            }
        }
    }

    fn ask_watch(&mut self) {
        let (keeps, hears) = (self.graph.keeps, self.graph.hears);
        if let Some(link) = &mut self.links.queue {
            link.ask("watching the graph", ANSWER_TIMEOUT, move |client| async move {
                let text = statement::bare(statement::WATCH_GRAPH);
                match client.query_one(&text, &[&keeps, &hears]).await {
                    Ok(row) => {
                        let (keeps, hears, used) = (row.get("keeps"), row.get("hears"), row.get("used"));
                        Ok(Answer::Graph(Watched { keeps, hears, used }))
                    }
                    Err(error) if client.is_closed() => Err(Trouble::of(&error)),
                    // Tasks are served all the same.
                    Err(error) => {
                        shared::debug!("the graph cannot be looked at", why = Trouble::of(&error));
                        Ok(Answer::Graph(Watched { keeps: false, hears, used: false }))
                    }
                }
            });
        }
    }

    pub(crate) fn graph_watched(&mut self, watched: Watched, now: Instant) {
        let Watched { keeps, hears, used } = watched;
        if keeps && !self.graph.keeps {
            shared::debug!("this scheduler keeps the timers and tokens of its database", queue = self.base.label);
        }
        (self.graph.keeps, self.graph.hears) = (keeps, hears);
        self.graph.used_at = now;
        self.graph_event(GraphEvent::Watched { now, keeps, hears, used });
    }

    /// What the graph's own session says.
    pub(crate) fn graph_spoke(&mut self, event: LinkEvent<GraphAnswer>, now: Instant) {
        match event {
            LinkEvent::Up => self.graph_event(GraphEvent::Up),
            LinkEvent::Answered(GraphAnswer::Prepared(statements)) => {
                self.graph.statements = Some(statements);
                self.graph.next_pass = now;
                self.graph_event(GraphEvent::Prepared);
            }
            LinkEvent::Answered(GraphAnswer::Passed(passed)) => {
                self.graph.passed(&passed, now);
                self.say_graph(*passed);
                if now.saturating_duration_since(self.graph.used_at) > KEEP_UNUSED {
                    self.graph_event(GraphEvent::Unused);
                }
            }
            LinkEvent::Notified => {}
            LinkEvent::CatalogRang => {
                self.graph.rung = self.graph.passing;
                self.graph.next_pass = now;
            }
            LinkEvent::Lost(trouble) => {
                let text = format!("the session that keeps the graph: {trouble}");
                if !self.graph.said.contains(&text) {
                    shared::warning!("timers wait", queue = self.base.label, reason = text);
                    self.graph.said.push(text);
                }
                self.graph_event(GraphEvent::Lost { now });
            }
        }
    }

    /// On every turn: is a pass due?
    pub(crate) fn pass_graph(&mut self, now: Instant) {
        self.graph_event(GraphEvent::Passed { now });
        let graph = &mut self.graph;
        if graph.state != GraphState::Keeping
            || graph.passing
            || now < graph.next_pass
            || self.stop.state.asked()
            || !self.base.start.region.leads()
        {
            return;
        }
        let (Some(link), Some(statements)) = (&mut graph.link, graph.statements.clone()) else { return };
        let sweep = now >= graph.next_sweep;
        if sweep {
            graph.next_sweep = now + SWEEP_PAUSE;
        }
        graph.sulking.retain(|_, until| *until > now);
        let except_for = graph.sulking.keys().copied().collect();
        let ask = GraphAsk { armed: graph.armed, sweep, except_for };
        (graph.passing, graph.rung) = (true, false);
        link.ask("a pass over the graph", ANSWER_TIMEOUT, move |client| async move {
            Ok(GraphAnswer::Passed(Box::new(graph_pass::pass(client, statements, ask).await?)))
        });
    }

    fn say_graph(&mut self, passed: GraphPassed) {
        if passed.activated > 0 {
            shared::debug!("timers fired", queue = self.base.label, activated = passed.activated);
        }
        for (timer, skipped) in passed.skipped {
            shared::info!("missed times skipped", queue = self.base.label, timer = timer, times = skipped);
        }
        let mut lasting = Vec::new();
        for (_, what, trouble) in passed.refused {
            let text = format!("{what}: {trouble}");
            if !self.graph.said.contains(&text) && !trouble.passes() {
                shared::warning!(
                    "the graph goes on without it for a while",
                    queue = self.base.label,
                    what = what,
                    why = trouble
                );
            }
            lasting.push(text);
        }
        if self.graph.sulking.is_empty() {
            self.graph.said = lasting;
        } else {
            self.graph.said.extend(lasting);
            self.graph.said.dedup();
        }
    }
}
