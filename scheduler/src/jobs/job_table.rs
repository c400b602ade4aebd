//! The jobs of the queue: when something is due, which runs of theirs are under way, and what is asked about them.
//!
//! What is planned stands in the catalog; every look brings home, in a question that is asked anyway, when the next job
//! is due and whether any was changed (`Pulse`). Only then is more asked: due jobs are started by the next look that has
//! slots, next starts that the server cannot compute are filled in, and the runs under way learn how long they may take
//! and whether their job is still there. Policy for those is `job_state`; processes are `run_table`'s.

use crate::attempt::attempt_table::RunId;
use crate::claim::pass::Taken;
use crate::event_loop::{Answer, PATIENCE, Scheduler};
use crate::graph::graph_state::GraphEvent;
use crate::jobs::job_state::{self, Effect, JobEvent, JobState, Why};
use crate::jobs::job_statements::{self, JobStatements, RUNS_AT_ONCE, put_runs};
use crate::jobs::next_start;
use crate::session::catalog::Access;
use shared::db::back_off::BackOff;
use shared::db::trouble::{Trouble, TroubleKind};
use shared::region::Cancel;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio_postgres::Client;

/// How long a due job that somebody else is just changing is left alone.
pub(crate) const LOCKED_PAUSE: Duration = Duration::from_millis(50);
/// Looks that follow each other at once ask about jobs only so often.
const STALE: Duration = Duration::from_millis(50);
/// How often what runs have tallied is entered in the books, at most.
const FOLD: Duration = Duration::from_secs(1);
/// How often old runs are looked for, at most.
const RETENTION: Duration = Duration::from_secs(60);
/// While several runs are under way, orders are gathered for so long.
const GATHERING: Duration = Duration::from_millis(4);
/// How often runs and rows are compared: a TRUNCATE or a restored table calls no row trigger.
const COMPARE: Duration = Duration::from_secs(60);
/// How far apart the tries are to hang the triggers onto a table that somebody else has locked.
const ATTACH_FIRST: Duration = Duration::from_secs(1);
const ATTACH_LAST: Duration = Duration::from_secs(60);

/// What a look is to do about jobs.
#[derive(Clone, Debug)]
pub struct JobsAsk {
    pub statements: Rc<JobStatements>,
    /// Something is due: start it.
    pub start: bool,
    /// Until when waiting runs have been released.
    pub since: Option<SystemTime>,
    /// Nothing has been heard of them for a while: ask also when there is plenty to do.
    pub stale: bool,
    /// What runs have tallied is to be entered in the books.
    pub fold: bool,
}

/// What a look has found out about jobs.
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
    /// A deleted job has numbers or runs left, which the next entry of the tally deletes.
    pub leftover: bool,
    /// What runs had tallied was entered.
    pub folded: bool,
    /// How many were started, if that was asked for.
    pub started: Option<i32>,
    pub until: Option<SystemTime>,
}

/// A definition, as far as a run under way must know it.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub job: i32,
    pub limit: Option<Duration>,
    pub scheduled: bool,
}

#[derive(Debug)]
struct JobRun {
    job: i32,
    task: i64,
    attempt: i32,
    state: JobState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Question {
    #[default]
    None,
    Wanted,
    InFlight,
}

#[derive(Debug)]
pub struct Jobs {
    statements: Option<Rc<JobStatements>>,
    /// When the triggers are tried again, if somebody stood in the way.
    attach_at: Option<Instant>,
    attach_pause: BackOff,
    version: Option<i64>,
    /// When a look has last brought a pulse home.
    heard: Option<Instant>,
    /// When the tally was last entered in the books.
    folded: Option<Instant>,
    /// When a look has something to start or to release.
    due: Option<Instant>,
    since: Option<SystemTime>,
    watch: Question,
    fill: Question,
    recall: Question,
    put: Question,
    /// When ordered runs are put into the queue beside the passes, and when that was done last.
    put_at: Option<Instant>,
    put_done: Option<Instant>,
    /// When rows that could not be recalled are tried again, and when runs and rows are compared.
    recall_at: Option<Instant>,
    compare_at: Option<Instant>,
    /// Our user may keep the graph.
    keeps: bool,
    /// It was said that due jobs find no slot.
    waits: bool,
    /// Behind which job old runs are looked for next, and when.
    behind: i32,
    retention: Option<Instant>,
    runs: BTreeMap<RunId, JobRun>,
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
            watch: Question::None,
            fill: Question::None,
            recall: Question::None,
            put: Question::None,
            put_at: None,
            put_done: None,
            recall_at: None,
            compare_at: None,
            keeps: false,
            waits: false,
            behind: 0,
            retention: None,
            runs: BTreeMap::new(),
        }
    }

    /// The session is gone; what runs, runs on.
    /// The queue is registered with a catalog.
    pub fn has_catalog(&self) -> bool {
        self.statements.is_some()
    }

    pub fn forget(&mut self) {
        let runs = std::mem::take(&mut self.runs);
        *self = Jobs { runs, waits: self.waits, behind: self.behind, ..Jobs::new() };
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
            let gathered = self.put_done.filter(|_| self.runs.len() > 1).map_or(now, |done| now.max(done + GATHERING));
            self.put_at = Some(self.put_at.map_or(gathered, |at| at.min(gathered)));
        }
    }

    /// When the next run has to be told something.
    pub fn deadline(&self) -> Option<Instant> {
        self.runs.values().filter_map(|run| run.state.deadline()).min()
    }
}

/// A refusal about jobs is theirs alone; only a lost link is everybody's.
fn contained(answer: Result<Answer, Trouble>) -> Result<Answer, Trouble> {
    match answer {
        Err(trouble) if trouble.kind != TroubleKind::Passing => Ok(Answer::JobsFailed(trouble.text)),
        answer => answer,
    }
}

async fn definitions(client: &Client, statements: &JobStatements, jobs: &[i32]) -> Result<Vec<Definition>, Trouble> {
    let rows = client.query(&statements.watch, &[&jobs]).await.map_err(|error| Trouble::of(&error))?;
    let found = rows.iter().map(|row| {
        let ms: f64 = row.get("ms");
        let limit = (ms > 0.0).then(|| Duration::from_millis(ms as u64));
        Definition { job: row.get("job"), limit, scheduled: row.get("scheduled") }
    });
    Ok(found.collect())
}

impl Scheduler {
    /// The queue is known to the catalog: from now on it runs jobs.
    pub(crate) fn ask_jobs(&mut self, access: Access) {
        self.jobs.keeps = access.keeps;
        self.prepare_jobs();
    }

    fn prepare_jobs(&mut self) {
        let (queue, statements) = (self.base.queue.clone(), self.session.statements.clone());
        if let (Some(link), Some(statements)) = (&mut self.links.queue, statements) {
            link.ask("preparing jobs", PATIENCE, move |client| async move {
                contained(
                    job_statements::prepare(&client, &queue, statements.relid)
                        .await
                        .map(|ready| Answer::Jobs(ready.map(Rc::new))),
                )
            });
        }
    }

    pub(crate) fn jobs_prepared(&mut self, answer: Result<Rc<JobStatements>, String>, now: Instant) {
        match answer {
            Ok(statements) => {
                self.jobs.statements = Some(statements);
                self.jobs.due = Some(now);
                self.jobs.watch = Question::Wanted;
                self.jobs.compare_at = Some(now);
                self.claims.timer.hurry(now);
                if self.jobs.keeps {
                    self.graph_event(GraphEvent::Ready);
                }
            }
            Err(why) => {
                if self.jobs.attach_pause.fresh() {
                    shared::warning!(
                        "jobs not started: cannot create triggers on the task table yet",
                        queue = self.base.label,
                        why = why
                    );
                }
                self.jobs.attach_at = Some(self.jobs.attach_pause.next(now));
            }
        }
    }

    /// What a look has found out. How soon the next look is worth while, if not at once.
    pub(crate) fn pulsed(&mut self, pulse: Pulse, slots: usize, now: Instant) -> Option<Duration> {
        let jobs = &mut self.jobs;
        jobs.heard = Some(now);
        jobs.folded = if pulse.folded { Some(now) } else { jobs.folded };
        jobs.since = pulse.until.or(jobs.since);
        let mut next = [pulse.due, pulse.waiting].into_iter().flatten().min();
        if jobs.version.replace(pulse.version) != Some(pulse.version) {
            jobs.watch = Question::Wanted;
            // A waiting run may have been made later than its time has come.
            if jobs.since.take().is_some() {
                next = Some(Duration::ZERO);
            }
        }
        if pulse.fill && jobs.fill == Question::None {
            jobs.fill = Question::Wanted;
        }
        if pulse.orders && slots == 0 {
            // No pass starts anything before a slot is free; but workers that go on find the rows.
            jobs.hurry(now);
        }
        if pulse.recalls && jobs.recall == Question::None && jobs.recall_at.is_none() {
            jobs.recall = Question::Wanted;
        }
        jobs.due = next.map(|wait| now + wait);
        jobs.waits &= pulse.due == Some(Duration::ZERO);
        let later = [pulse.due, pulse.waiting].into_iter().flatten().filter(|wait| !wait.is_zero()).min();
        let soon = match next {
            Some(Duration::ZERO) if slots == 0 => {
                if pulse.due == Some(Duration::ZERO) && !std::mem::replace(&mut jobs.waits, true) {
                    shared::info!("due jobs wait for a free slot", queue = self.base.label);
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

    /// The catalog refuses what is asked about jobs. Tasks are served on; jobs are tried again ever more seldom.
    pub(crate) fn jobs_failed(&mut self, why: &str, now: Instant) {
        if self.jobs.attach_pause.fresh() {
            shared::warning!("jobs wait: the catalog does not answer as it should", queue = self.base.label, why = why);
        }
        self.jobs.statements = None;
        (self.jobs.watch, self.jobs.fill) = (Question::None, Question::None);
        (self.jobs.recall, self.jobs.put) = (Question::None, Question::None);
        self.jobs.attach_at = Some(self.jobs.attach_pause.next(now));
    }

    /// A worker was started for the run of a job.
    pub(crate) fn job_claimed(&mut self, id: RunId, row: Taken, now: Instant) {
        let Some(job) = row.job else { return };
        let state = job_state::step(JobState::Scheduled, JobEvent::Claimed { now }).next;
        shared::debug!("job started", queue = self.base.label, job = job, task = row.task);
        self.jobs.runs.insert(id, JobRun { job, task: row.task, attempt: row.attempt, state });
        self.jobs.watch = Question::Wanted;
    }

    /// On every turn: what time, new tasks and ended workers mean for the runs under way.
    pub(crate) fn pass_jobs(&mut self, now: Instant) {
        let ids: Vec<RunId> = self.jobs.runs.keys().copied().collect();
        for id in ids {
            if !self.attempts.table.has_worker(id) {
                self.jobs.hurry(now);
                self.job_event(id, JobEvent::Ended);
                continue;
            }
            let current = self.attempts.table.current_of(id);
            if let (Some(run), Some((task, attempt, _))) = (self.jobs.runs.get_mut(&id), current)
                && run.task != task
            {
                (run.task, run.attempt) = (task, attempt);
                self.jobs.hurry(now);
                self.job_event(id, JobEvent::Claimed { now });
            }
            self.job_event(id, JobEvent::Passed { now });
        }
        self.put_job_questions(now);
    }

    fn job_event(&mut self, id: RunId, event: JobEvent) {
        let Some(run) = self.jobs.runs.get_mut(&id) else { return };
        let step = job_state::step(run.state, event);
        run.state = step.next;
        let (job, task, attempt) = (run.job, run.task, run.attempt);
        if step.next.over() {
            self.jobs.runs.remove(&id);
        }
        match step.effect {
            Some(Effect::Cancel(why)) => {
                let (cancel, reason) = match why {
                    Why::Overrun => (Cancel::Overrun, "timeout"),
                    Why::Deleted => (Cancel::Deleted, "cancelled"),
                };
                let said = format!("{why:?}").to_lowercase();
                shared::info!("run of a job is ended", queue = self.base.label, job = job, task = task, why = said);
                self.attempts.table.end_run(id, cancel, reason);
            }
            Some(Effect::Terminate) => {
                shared::info!("its backend is terminated", queue = self.base.label, job = job, task = task);
                if let (Some(link), Some(statements)) = (&mut self.links.queue, self.session.statements.clone()) {
                    link.ask("terminating a backend", PATIENCE, move |client| async move {
                        let ended = client.query(&statements.settle.end_backend, &[&task, &attempt, &true]).await;
                        ended.map_err(|error| Trouble::of(&error))?;
                        Ok(Answer::Named)
                    });
                }
            }
            Some(Effect::Kill) => {
                shared::warning!("its process is killed", queue = self.base.label, job = job, task = task);
                self.attempts.table.kill(id);
            }
            None => {}
        }
    }

    fn put_job_questions(&mut self, now: Instant) {
        if self.session.state.working() && self.jobs.attach_at.is_some_and(|at| now >= at) {
            self.jobs.attach_at = None;
            self.prepare_jobs();
        }
        let (Some(link), Some(statements), true) =
            (&mut self.links.queue, self.jobs.statements.clone(), self.session.state.working())
        else {
            return;
        };
        if self.jobs.fill == Question::Wanted {
            self.jobs.fill = Question::InFlight;
            let (statements, label) = (statements.clone(), self.base.label.clone());
            link.ask("computing next starts", PATIENCE, move |client| async move {
                contained(next_start::fill(&client, &statements, &label).await.map(Answer::Filled))
            });
        }
        if self.jobs.put_at.is_some_and(|at| now >= at) && self.jobs.put == Question::None && !self.stop.state.asked() {
            (self.jobs.put_at, self.jobs.put) = (None, Question::InFlight);
            let statements = statements.clone();
            link.ask("putting runs into the queue", PATIENCE, move |client| async move {
                contained(put_runs(&client, &statements).await.map(Answer::Put))
            });
        }
        if self.jobs.recall_at.is_some_and(|at| now >= at) {
            self.jobs.recall_at = None;
            self.jobs.recall = Question::Wanted;
        }
        if self.jobs.recall == Question::Wanted {
            self.jobs.recall = Question::InFlight;
            let statements = statements.clone();
            link.ask("recalling runs", PATIENCE, move |client| async move {
                let row = client.query_one(&statements.recall, &[]).await.map_err(|error| Trouble::of(&error));
                contained(
                    row.map(|row| Answer::Recalled { left: row.get::<_, i64>("wanted") - row.get::<_, i64>("done") }),
                )
            });
        }
        // What there is to compare came with the first job.
        if self.jobs.compare_at.is_some_and(|at| now >= at) && self.jobs.version != Some(0) {
            self.jobs.compare_at = Some(now + COMPARE);
            let statements = statements.clone();
            link.ask("comparing runs and rows", PATIENCE, move |client| async move {
                let row = client.query_one(&statements.compare, &[]).await.map_err(|error| Trouble::of(&error));
                contained(
                    row.map(|row| {
                        Answer::Compared(row.get::<_, i64>("closed") + i64::from(row.get::<_, i32>("settled")))
                    }),
                )
            });
        }
        if self.jobs.watch == Question::Wanted {
            let mut jobs: Vec<i32> = self.jobs.runs.values().map(|run| run.job).collect();
            jobs.sort_unstable();
            jobs.dedup();
            self.jobs.watch = if jobs.is_empty() { Question::None } else { Question::InFlight };
            if !jobs.is_empty() {
                let statements = statements.clone();
                link.ask("watching jobs", PATIENCE, move |client| async move {
                    let found = definitions(&client, &statements, &jobs).await;
                    contained(found.map(|found| Answer::Watched { asked: jobs, found }))
                });
            }
        }
        if self.jobs.retention.is_none_or(|at| now >= at) && !self.stop.state.asked() {
            self.jobs.retention = Some(now + RETENTION);
            let behind = self.jobs.behind;
            link.ask("deleting old runs", PATIENCE, move |client| async move {
                let row = client.query_one(&statements.delete_old, &[&behind]).await;
                let deleted = row.map_err(|error| Trouble::of(&error));
                contained(deleted.map(|row| Answer::RunsDeleted { deleted: row.get("deleted"), last: row.get("last") }))
            });
        }
    }

    pub(crate) fn jobs_watched(&mut self, asked: &[i32], found: &[Definition], now: Instant) {
        if self.jobs.watch == Question::InFlight {
            self.jobs.watch = Question::None;
        }
        let runs: Vec<(RunId, i32)> = self.jobs.runs.iter().map(|(id, run)| (*id, run.job)).collect();
        for (id, job) in runs {
            match found.iter().find(|definition| definition.job == job) {
                Some(Definition { limit, scheduled, .. }) => {
                    self.job_event(id, JobEvent::Defined { limit: *limit, scheduled: *scheduled });
                }
                None if asked.contains(&job) => self.job_event(id, JobEvent::Deleted { now }),
                // Claimed since.
                None => {}
            }
        }
    }

    /// Where a slot is free, their rows are claimed at once.
    pub(crate) fn runs_put(&mut self, rows: i32, now: Instant) {
        self.jobs.put = Question::None;
        self.jobs.put_done = Some(now);
        if rows > 0 && self.base.start.region.slots().for_workers() > 0 {
            self.claims.timer.hurry(now);
        }
        if rows >= RUNS_AT_ONCE {
            self.jobs.hurry(now);
        }
    }

    /// What is left is locked by other transactions.
    pub(crate) fn runs_recalled(&mut self, left: i64, now: Instant) {
        self.jobs.recall = Question::None;
        self.jobs.recall_at = (left > 0).then(|| now + LOCKED_PAUSE);
        self.jobs.hurry(now);
        self.claims.timer.hurry(now);
    }

    pub(crate) fn runs_compared(&mut self, found: i64, now: Instant) {
        if found > 0 {
            shared::warning!("runs and rows disagreed and were settled", queue = self.base.label, runs = found);
            self.jobs.hurry(now);
            self.claims.timer.hurry(now);
        }
    }

    /// `more`: there were more of them than are filled in at once.
    pub(crate) fn jobs_filled(&mut self, more: bool, now: Instant) {
        self.jobs.fill = if more { Question::Wanted } else { Question::None };
        self.claims.timer.hurry(now);
    }

    pub(crate) fn runs_deleted(&mut self, deleted: i64, last: Option<i32>, now: Instant) {
        self.jobs.behind = last.unwrap_or_default();
        if deleted > 0 {
            shared::info!("old runs deleted", queue = self.base.label, runs = deleted);
        }
        if last.is_some() {
            self.jobs.retention = Some(now + Duration::from_millis(self.base.settings.sleep_ms));
        }
    }

    /// When a turn is needed for the jobs' sake.
    pub(crate) fn jobs_deadline(&self) -> Option<Instant> {
        let ready = self.jobs.statements.as_ref();
        let retention = ready.and(self.jobs.retention);
        let compare = ready.and(self.jobs.compare_at).filter(|_| self.jobs.version != Some(0));
        let recall = ready.and(self.jobs.recall_at);
        let put = ready.and(self.jobs.put_at).filter(|_| self.jobs.put == Question::None && !self.stop.state.asked());
        [self.jobs.deadline(), retention, compare, recall, put, self.jobs.attach_at].into_iter().flatten().min()
    }
}
