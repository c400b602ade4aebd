//! The jobs of the queue: when something is due, and which runs of theirs are under way.
//!
//! The plan is in the catalog; every pass returns, in a query that it sends anyway, when the next job
//! is due and whether any was changed (`Pulse`). Only then is more asked (`job_queries`): due jobs are started by the next pass
//! that has slots, next starts that the server cannot compute are filled in, and the runs under way learn their time limit
//! and whether their job still exists. Policy for those is `job_state`; processes are `attempt_table`'s.

use crate::attempt::attempt_id::AttemptId;
use crate::attempt::attempt_table::AttemptTable;
use crate::base::Base;
use crate::command::Command;
use crate::jobs::job_queries::{self, Definition, JobAnswer, JobQuery, LOCKED_PAUSE, Queries};
use crate::jobs::job_state::{self, Effect, JobEvent, JobState, Why};
use crate::jobs::job_statements::{JobStatements, RUNS_AT_ONCE};
use crate::session::catalog::Access;
use crate::table::make::QueueStatements;
use shared::db::back_off::BackOff;
use shared::region::Cancel;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// Passes that follow each other at once ask about jobs only so often.
const STALE: Duration = Duration::from_millis(50);
/// How often the deltas of runs are added to the counters, at most.
const FOLD: Duration = Duration::from_secs(1);
/// How far apart the tries are to create triggers on a table that another session has locked.
const ATTACH_FIRST: Duration = Duration::from_secs(1);
const ATTACH_LAST: Duration = Duration::from_secs(60);

/// What a pass is to do about jobs.
#[derive(Clone, Debug)]
pub struct JobsAsk {
    pub statements: Rc<JobStatements>,
    /// Something is due: start it.
    pub start: bool,
    /// Until when waiting runs have been released.
    pub since: Option<SystemTime>,
    /// Nothing has been heard of them for a while: ask also when there is plenty to do.
    pub stale: bool,
    /// Deltas of runs are to be added to the counters.
    pub fold: bool,
}

/// What a pass has found out about jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pulse {
    pub version: i64,
    /// Until a job is due; zero: it is.
    pub due: Option<Duration>,
    /// Until the time of a run that waits for it.
    pub waiting: Option<Duration>,
    /// Next starts wait to be computed.
    pub fill: bool,
    /// Rows of runs are to be inserted.
    pub orders: bool,
    /// Rows of runs are to leave the queue, or to end.
    pub recalls: bool,
    /// A deleted job has numbers or runs left, which the next application of deltas deletes.
    pub leftover: bool,
    /// Deltas of runs were added.
    pub folded: bool,
    /// How many were started, if that was asked for.
    pub started: Option<i32>,
    pub until: Option<SystemTime>,
}

#[derive(Debug)]
struct JobRun {
    job: i32,
    task: i64,
    attempt: i32,
    state: JobState,
}

/// What a turn of the loop lets the jobs see.
pub struct JobsTurn<'a> {
    pub base: &'a Base,
    /// The processes of all attempts.
    pub table: &'a mut AttemptTable,
    /// Of the session, while it serves the queue.
    pub prepared: Option<&'a Rc<QueueStatements>>,
    pub stopping: bool,
}

#[derive(Debug)]
pub struct Jobs {
    statements: Option<Rc<JobStatements>>,
    /// When the triggers are tried again, if another session was in the way.
    attach_at: Option<Instant>,
    attach_pause: BackOff,
    version: Option<i64>,
    /// When a pass has last returned a pulse.
    heard: Option<Instant>,
    /// When deltas were last added to the counters.
    folded: Option<Instant>,
    /// When a pass has something to start or to release.
    due: Option<Instant>,
    since: Option<SystemTime>,
    queries: Queries,
    /// Our user may keep the graph.
    keeps: bool,
    /// It was told that due jobs find no slot.
    waits: bool,
    runs: BTreeMap<AttemptId, JobRun>,
    /// Jobs of which a run has ended since the catalog was asked about jobs: it may have paused them.
    ended: BTreeSet<i32>,
    /// Jobs whose pause by the catalog has been logged.
    paused: BTreeSet<i32>,
}

impl Jobs {
    pub fn new() -> Jobs {
        Jobs {
            statements: None,
            attach_at: None,
            attach_pause: BackOff::new(ATTACH_FIRST, ATTACH_LAST),
            version: None,
            heard: None,
            folded: None,
            due: None,
            since: None,
            queries: Queries::default(),
            keeps: false,
            waits: false,
            runs: BTreeMap::new(),
            ended: BTreeSet::new(),
            paused: BTreeSet::new(),
        }
    }

    /// The queue is registered with a catalog.
    pub fn has_catalog(&self) -> bool {
        self.statements.is_some()
    }

    /// The session is gone; running jobs run on.
    pub fn forget(&mut self) {
        let (runs, queries) = (std::mem::take(&mut self.runs), self.queries.renewed());
        *self = Jobs { runs, waits: self.waits, queries, ..Jobs::new() };
    }

    pub fn ask(&self, now: Instant, slots: usize) -> Option<JobsAsk> {
        let start = slots > 0 && self.due.is_some_and(|at| now >= at);
        let stale = self.heard.is_none_or(|at| now.saturating_duration_since(at) >= STALE);
        let fold = self.folded.is_none_or(|at| now.saturating_duration_since(at) >= FOLD);
        Some(JobsAsk { statements: self.statements.clone()?, start, since: self.since, stale, fold })
    }

    /// A notification, or the end of a run: there may be runs to put into the queue.
    pub fn hurry(&mut self, now: Instant) {
        if self.statements.is_some() && self.version.is_some_and(|version| version > 0) {
            self.queries.hurry(self.runs.len() > 1, now);
        }
    }

    /// When a turn is needed for the jobs' sake.
    pub fn deadline(&self, stopping: bool) -> Option<Instant> {
        let runs = self.runs.values().filter_map(|run| run.state.deadline()).min();
        let queries = self.statements.as_ref().and_then(|_| self.queries.deadline(self.version == Some(0), stopping));
        [runs, queries, self.attach_at].into_iter().flatten().min()
    }

    /// The queue is known to the catalog: from now on it runs jobs.
    pub fn admitted(
        &mut self,
        access: Access,
        base: &Base,
        prepared: Option<&Rc<QueueStatements>>,
    ) -> Vec<Command<JobAnswer>> {
        self.keeps = access.keeps;
        self.prepare(base, prepared)
    }

    fn prepare(&self, base: &Base, prepared: Option<&Rc<QueueStatements>>) -> Vec<Command<JobAnswer>> {
        prepared.map(|prepared| job_queries::prepare(base.queue.clone(), prepared)).into_iter().collect()
    }

    /// What an answer leads to.
    pub fn answered(&mut self, answer: JobAnswer, turn: &mut JobsTurn<'_>, now: Instant) -> Vec<Command<JobAnswer>> {
        let label = &turn.base.label;
        match answer {
            JobAnswer::Prepared(Ok(statements)) => return self.prepared(statements, now),
            JobAnswer::Prepared(Err(why)) => {
                if self.attach_pause.fresh() {
                    shared::warning!(
                        "jobs not started: cannot create triggers on the task table yet",
                        queue = label,
                        why = why
                    );
                }
                self.attach_at = Some(self.attach_pause.next(now));
                return Vec::new();
            }
            JobAnswer::Failed(why) => {
                self.failed(&why, label, now);
                return Vec::new();
            }
            JobAnswer::Watched { asked, found } => return self.watched(&asked, &found, turn, now),
            JobAnswer::RunsDeleted { deleted, last } => {
                if deleted > 0 {
                    shared::info!("old runs deleted", queue = label, runs = deleted);
                }
                self.queries.deleted(last, now + Duration::from_millis(turn.base.settings.sleep_ms));
                return Vec::new();
            }
            JobAnswer::Terminated => return Vec::new(),
            JobAnswer::Put(rows) => {
                self.queries.put(now);
                if rows >= RUNS_AT_ONCE {
                    self.hurry(now);
                }
                // Where a slot is free, their rows are claimed at once.
                if rows == 0 || turn.base.start.region.slots().for_workers() == 0 {
                    return Vec::new();
                }
            }
            JobAnswer::Recalled { left } => {
                // Rows that are left are locked by other transactions.
                self.queries.recalled(left, now);
                self.hurry(now);
            }
            JobAnswer::Compared(0) => return Vec::new(),
            JobAnswer::Compared(found) => {
                shared::warning!("runs and rows differed and were settled", queue = label, runs = found);
                self.hurry(now);
            }
            // `more`: there were more of them than are filled in at once.
            JobAnswer::Filled(more) => self.queries.fill = if more { JobQuery::Wanted } else { JobQuery::None },
        }
        vec![Command::PollAt(now)]
    }

    fn prepared(&mut self, statements: Rc<JobStatements>, now: Instant) -> Vec<Command<JobAnswer>> {
        self.statements = Some(statements);
        self.due = Some(now);
        self.queries.prepared(now);
        let graph = self.keeps.then_some(Command::KeepGraph);
        std::iter::once(Command::PollAt(now)).chain(graph).collect()
    }

    /// What a pass has found out. How soon the next pass is worth while, if not at once.
    pub fn pulsed(&mut self, pulse: Pulse, slots: usize, label: &str, now: Instant) -> Option<Duration> {
        let jobs = &mut *self;
        jobs.heard = Some(now);
        jobs.folded = if pulse.folded { Some(now) } else { jobs.folded };
        jobs.since = pulse.until.or(jobs.since);
        let mut next = [pulse.due, pulse.waiting].into_iter().flatten().min();
        if jobs.version.replace(pulse.version) != Some(pulse.version) {
            jobs.queries.watch = JobQuery::Wanted;
            // A waiting run may have been made later than its time has come.
            if jobs.since.take().is_some() {
                next = Some(Duration::ZERO);
            }
        }
        if pulse.fill && jobs.queries.fill == JobQuery::None {
            jobs.queries.fill = JobQuery::Wanted;
        }
        if pulse.orders && slots == 0 {
            // No pass starts anything before a slot is free; but workers that go on find the rows.
            jobs.hurry(now);
        }
        if pulse.recalls {
            jobs.queries.want_recall();
        }
        jobs.due = next.map(|wait| now + wait);
        jobs.waits &= pulse.due == Some(Duration::ZERO);
        let later = [pulse.due, pulse.waiting].into_iter().flatten().filter(|wait| !wait.is_zero()).min();
        let soon = match next {
            Some(Duration::ZERO) if slots == 0 => {
                if pulse.due == Some(Duration::ZERO) && !std::mem::replace(&mut jobs.waits, true) {
                    shared::info!("due jobs wait for a free slot", queue = label);
                }
                later
            }
            // Started, and still due: its row is locked by whoever is changing it.
            Some(Duration::ZERO) if pulse.started == Some(0) && pulse.due == Some(Duration::ZERO) => Some(LOCKED_PAUSE),
            Some(_) | None => next,
        };
        // The transaction that has kept them ends without a notification.
        let fold = pulse.leftover.then_some(FOLD);
        [soon, fold].into_iter().flatten().min()
    }

    /// The catalog refuses the queries about jobs. Tasks are served on; jobs are tried again ever more seldom.
    pub fn failed(&mut self, why: &str, label: &str, now: Instant) {
        if self.attach_pause.fresh() {
            shared::warning!("jobs wait: the catalog refused a query", queue = label, why = why);
        }
        self.statements = None;
        self.queries.failed();
        self.attach_at = Some(self.attach_pause.next(now));
    }

    /// A worker was started for the run of a job.
    pub fn claimed(&mut self, id: AttemptId, job: i32, (task, attempt): (i64, i32), label: &str, now: Instant) {
        let state = job_state::step(JobState::Scheduled, JobEvent::Claimed { now }).next;
        shared::debug!("job started", queue = label, job = job, task = task);
        self.runs.insert(id, JobRun { job, task, attempt, state });
        self.queries.watch = JobQuery::Wanted;
    }

    /// On every turn: what time, new tasks and ended workers mean for the runs under way; and the queries that are due.
    pub fn turn(&mut self, turn: &mut JobsTurn<'_>, now: Instant) -> Vec<Command<JobAnswer>> {
        let mut commands = Vec::new();
        let ids: Vec<AttemptId> = self.runs.keys().copied().collect();
        for id in ids {
            if !turn.table.has_worker(id) {
                self.hurry(now);
                commands.extend(self.event(id, JobEvent::Ended, turn));
                continue;
            }
            let current = turn.table.current_of(id);
            if let (Some(run), Some((task, attempt, _))) = (self.runs.get_mut(&id), current)
                && run.task != task
            {
                (run.task, run.attempt) = (task, attempt);
                self.hurry(now);
                commands.extend(self.event(id, JobEvent::Claimed { now }, turn));
            }
            commands.extend(self.event(id, JobEvent::Passed { now }, turn));
        }
        if turn.prepared.is_some() && self.attach_at.is_some_and(|at| now >= at) {
            self.attach_at = None;
            commands.extend(self.prepare(turn.base, turn.prepared));
        }
        if let (Some(statements), Some(_)) = (self.statements.clone(), turn.prepared) {
            let jobs: BTreeSet<i32> = self.runs.values().map(|run| run.job).chain(self.ended.iter().copied()).collect();
            let jobs: Vec<i32> = jobs.into_iter().collect();
            if self.queries.watch == JobQuery::Wanted {
                self.ended.clear();
            }
            let when = (self.version == Some(0), turn.stopping);
            commands.extend(self.queries.due(&statements, (&turn.base.label, jobs), when, now));
        }
        commands
    }

    fn event(&mut self, id: AttemptId, event: JobEvent, turn: &mut JobsTurn<'_>) -> Option<Command<JobAnswer>> {
        let run = self.runs.get_mut(&id)?;
        let step = job_state::step(run.state, event);
        run.state = step.next;
        let (job, task, attempt, label) = (run.job, run.task, run.attempt, &turn.base.label);
        if step.next.over() {
            self.runs.remove(&id);
            self.ended.insert(job);
        }
        match step.effect? {
            Effect::Cancel(why) => {
                let (cancel, reason) = match why {
                    Why::Overrun => (Cancel::Overrun, "timeout"),
                    Why::Deleted => (Cancel::Deleted, "cancelled"),
                };
                let said = format!("{why:?}").to_lowercase();
                shared::info!("cancelling a run of a job", queue = label, job = job, task = task, why = said);
                turn.table.end_run(id, cancel, reason);
            }
            Effect::Terminate => {
                shared::info!(
                    "run of a job does not end; terminating its backend",
                    queue = label,
                    job = job,
                    task = task
                );
                return turn.prepared.map(|prepared| job_queries::terminate(prepared.clone(), task, attempt));
            }
            Effect::Kill => {
                shared::warning!(
                    "run of a job does not end; killing its worker",
                    queue = label,
                    job = job,
                    task = task
                );
                turn.table.kill(id);
            }
        }
        None
    }

    /// Once, until it is scheduled again.
    fn log_pause(&mut self, definition: &Definition, label: &str) {
        let Definition { job, name, paused, .. } = definition;
        match paused {
            Some(why) if self.paused.insert(*job) => {
                let name = name.as_deref().unwrap_or_default();
                shared::warning!("job paused", queue = label, job = *job, name = name, why = why);
            }
            Some(_) => {}
            None => {
                self.paused.remove(job);
            }
        }
    }

    fn watched(
        &mut self,
        asked: &[i32],
        found: &[Definition],
        turn: &mut JobsTurn<'_>,
        now: Instant,
    ) -> Vec<Command<JobAnswer>> {
        if self.queries.watch == JobQuery::InFlight {
            self.queries.watch = JobQuery::None;
        }
        for definition in found {
            self.log_pause(definition, &turn.base.label);
        }
        let runs: Vec<(AttemptId, i32)> = self.runs.iter().map(|(id, run)| (*id, run.job)).collect();
        let events = runs.into_iter().filter_map(|(id, job)| {
            match found.iter().find(|definition| definition.job == job) {
                Some(Definition { limit, scheduled, .. }) => {
                    Some((id, JobEvent::Defined { limit: *limit, scheduled: *scheduled }))
                }
                None if asked.contains(&job) => Some((id, JobEvent::Deleted { now })),
                // Claimed since.
                None => None,
            }
        });
        let events: Vec<(AttemptId, JobEvent)> = events.collect();
        events.into_iter().filter_map(|(id, event)| self.event(id, event, turn)).collect()
    }
}
