//! What the database is asked about jobs, and which of these questions are due.

use super::job_statements::{self, JobStatements, insert_runs};
use super::next_start;
use crate::command::{Command, query};
use crate::table::make::QueueStatements;
use shared::db::db_error::{DbError, DbErrorKind};
use shared::db::statement::Queue;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// How often old runs are looked for, at most.
const RETENTION: Duration = Duration::from_secs(60);
/// How often runs and rows are compared: a TRUNCATE or a restored table calls no row trigger.
const COMPARE: Duration = Duration::from_secs(60);
/// While several runs are under way, orders are gathered for so long.
const GATHERING: Duration = Duration::from_millis(4);
/// How long rows that other transactions have locked are left alone.
pub(crate) const LOCKED_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum JobQuery {
    #[default]
    None,
    Wanted,
    InFlight,
}

/// A definition, as far as a run under way must know it.
#[derive(Clone, Debug)]
pub struct Definition {
    pub job: i32,
    pub name: Option<String>,
    pub limit: Option<Duration>,
    pub scheduled: bool,
    /// Why the catalog has paused it.
    pub paused: Option<String>,
}

/// What the database answers about jobs.
#[derive(Debug)]
pub enum JobAnswer {
    /// The statements are prepared, or why they have to wait.
    Prepared(Result<Rc<JobStatements>, String>),
    Failed(String),
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
    /// So many ordered runs have their rows in the queue.
    Put(i32),
    /// Rows were recalled from the queue; how many could not be reached yet.
    Recalled {
        left: i64,
    },
    /// Runs and rows were compared: how many disagreed.
    Compared(i64),
    /// The backend of a run was told to end.
    Terminated,
}

/// Which questions are due, wanted, or in flight.
#[derive(Debug, Default)]
pub(super) struct Queries {
    pub(super) watch: JobQuery,
    pub(super) fill: JobQuery,
    recall: JobQuery,
    put: JobQuery,
    /// When ordered runs are put into the queue beside the passes, and when that was done last.
    put_at: Option<Instant>,
    put_done: Option<Instant>,
    /// When rows that could not be recalled are tried again, and when runs and rows are compared.
    recall_at: Option<Instant>,
    compare_at: Option<Instant>,
    /// Behind which job old runs are looked for next, and when.
    behind: i32,
    retention: Option<Instant>,
}

impl Queries {
    /// Those of a new session: the place in the history is kept.
    pub(super) fn renewed(&self) -> Queries {
        Queries { behind: self.behind, ..Queries::default() }
    }

    pub(super) fn prepared(&mut self, now: Instant) {
        self.watch = JobQuery::Wanted;
        self.compare_at = Some(now);
    }

    /// The catalog refuses them.
    pub(super) fn failed(&mut self) {
        (self.watch, self.fill) = (JobQuery::None, JobQuery::None);
        (self.recall, self.put) = (JobQuery::None, JobQuery::None);
    }

    /// Rows of runs are to leave the queue.
    pub(super) fn want_recall(&mut self) {
        if self.recall == JobQuery::None && self.recall_at.is_none() {
            self.recall = JobQuery::Wanted;
        }
    }

    /// There may be runs to put into the queue. `several` are under way: then orders are gathered.
    pub(super) fn hurry(&mut self, several: bool, now: Instant) {
        let gathered = self.put_done.filter(|_| several).map_or(now, |done| now.max(done + GATHERING));
        self.put_at = Some(self.put_at.map_or(gathered, |at| at.min(gathered)));
    }

    pub(super) fn put(&mut self, now: Instant) {
        self.put = JobQuery::None;
        self.put_done = Some(now);
    }

    pub(super) fn recalled(&mut self, left: i64, now: Instant) {
        self.recall = JobQuery::None;
        self.recall_at = (left > 0).then(|| now + LOCKED_PAUSE);
    }

    /// Where the history was left, and when it is looked at again if there is more.
    pub(super) fn deleted(&mut self, last: Option<i32>, again: Instant) {
        self.behind = last.unwrap_or_default();
        if last.is_some() {
            self.retention = Some(again);
        }
    }

    /// `idle`: the catalog has no jobs. `stopping`: nothing new is put.
    pub(super) fn deadline(&self, idle: bool, stopping: bool) -> Option<Instant> {
        let compare = self.compare_at.filter(|_| !idle);
        let put = self.put_at.filter(|_| self.put == JobQuery::None && !stopping);
        [self.retention, compare, self.recall_at, put].into_iter().flatten().min()
    }

    /// The questions that are due. `running`: the jobs with a run under way, or that has just ended.
    pub(super) fn due(
        &mut self,
        statements: &Rc<JobStatements>,
        (label, running): (&str, Vec<i32>),
        (idle, stopping): (bool, bool),
        now: Instant,
    ) -> Vec<Command<JobAnswer>> {
        let mut due = Vec::new();
        if self.fill == JobQuery::Wanted {
            self.fill = JobQuery::InFlight;
            due.push(fill(statements.clone(), label.to_owned()));
        }
        if self.put_at.is_some_and(|at| now >= at) && self.put == JobQuery::None && !stopping {
            (self.put_at, self.put) = (None, JobQuery::InFlight);
            due.push(put(statements.clone()));
        }
        if self.recall_at.is_some_and(|at| now >= at) {
            self.recall_at = None;
            self.recall = JobQuery::Wanted;
        }
        if self.recall == JobQuery::Wanted {
            self.recall = JobQuery::InFlight;
            due.push(recall(statements.clone()));
        }
        // Something to compare came with the first job.
        if self.compare_at.is_some_and(|at| now >= at) && !idle {
            self.compare_at = Some(now + COMPARE);
            due.push(compare(statements.clone()));
        }
        if self.watch == JobQuery::Wanted {
            self.watch = if running.is_empty() { JobQuery::None } else { JobQuery::InFlight };
            if !running.is_empty() {
                due.push(watch(statements.clone(), running));
            }
        }
        if self.retention.is_none_or(|at| now >= at) && !stopping {
            self.retention = Some(now + RETENTION);
            due.push(delete_old(statements.clone(), self.behind));
        }
        due
    }
}

/// Triggers and statements.
pub(super) fn prepare(queue: Queue, prepared: &QueueStatements) -> Command<JobAnswer> {
    let relid = prepared.relid;
    query("preparing jobs", move |client| async move {
        let ready = job_statements::prepare(&client, &queue, relid).await;
        contained(ready.map(|ready| JobAnswer::Prepared(ready.map(Rc::new))))
    })
}

/// Ends the backend of a run that does not end by itself.
pub(super) fn terminate(prepared: Rc<QueueStatements>, task: i64, attempt: i32) -> Command<JobAnswer> {
    query("terminating a backend", move |client| async move {
        let ended = client.query(&prepared.settle.end_backend, &[&task, &attempt, &true, &Vec::<i32>::new()]).await;
        ended.map_err(|error| DbError::of(&error))?;
        Ok(JobAnswer::Terminated)
    })
}

fn fill(statements: Rc<JobStatements>, label: String) -> Command<JobAnswer> {
    query("computing next starts", move |client| async move {
        contained(next_start::fill(&client, &statements, &label).await.map(JobAnswer::Filled))
    })
}

fn put(statements: Rc<JobStatements>) -> Command<JobAnswer> {
    query("inserting runs into the queue", move |client| async move {
        contained(insert_runs(&client, &statements).await.map(JobAnswer::Put))
    })
}

fn recall(statements: Rc<JobStatements>) -> Command<JobAnswer> {
    query("withdrawing runs", move |client| async move {
        let row = client.query_one(&statements.recall, &[]).await.map_err(|error| DbError::of(&error));
        contained(row.map(|row| JobAnswer::Recalled { left: row.get::<_, i64>("wanted") - row.get::<_, i64>("done") }))
    })
}

fn compare(statements: Rc<JobStatements>) -> Command<JobAnswer> {
    query("comparing runs and rows", move |client| async move {
        let row = client.query_one(&statements.compare, &[]).await.map_err(|error| DbError::of(&error));
        contained(
            row.map(|row| JobAnswer::Compared(row.get::<_, i64>("closed") + i64::from(row.get::<_, i32>("settled")))),
        )
    })
}

fn watch(statements: Rc<JobStatements>, jobs: Vec<i32>) -> Command<JobAnswer> {
    query("watching jobs", move |client| async move {
        let found = definitions(&client, &statements, &jobs).await;
        contained(found.map(|found| JobAnswer::Watched { asked: jobs, found }))
    })
}

fn delete_old(statements: Rc<JobStatements>, behind: i32) -> Command<JobAnswer> {
    query("deleting old runs", move |client| async move {
        let row = client.query_one(&statements.delete_old, &[&behind]).await;
        let deleted = row.map_err(|error| DbError::of(&error));
        contained(deleted.map(|row| JobAnswer::RunsDeleted { deleted: row.get("deleted"), last: row.get("last") }))
    })
}

/// A refusal about jobs is theirs alone; only a lost link is everybody's.
fn contained(answer: Result<JobAnswer, DbError>) -> Result<JobAnswer, DbError> {
    match answer {
        Err(db_error) if db_error.kind != DbErrorKind::Passing => Ok(JobAnswer::Failed(db_error.text)),
        answer => answer,
    }
}

async fn definitions(client: &Client, statements: &JobStatements, jobs: &[i32]) -> Result<Vec<Definition>, DbError> {
    let rows = client.query(&statements.watch, &[&jobs]).await.map_err(|error| DbError::of(&error))?;
    let found = rows.iter().map(|row| {
        let ms: f64 = row.get("ms");
        let limit = (ms > 0.0).then(|| Duration::from_millis(ms as u64));
        let (name, paused) = (row.get("name"), row.get("why"));
        Definition { job: row.get("job"), name, limit, scheduled: row.get("scheduled"), paused }
    });
    Ok(found.collect())
}
