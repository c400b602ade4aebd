//! One pass over the queue: releases what is due, claims what may start, and, when nothing is left, arms the wake-up lock.
//!
//! Inserters try to share that lock. Once it is held the queue is read once more, in a later statement with a new snapshot, and
//! only then may the scheduler sleep.

use super::claimer::Claimer;
use super::pass_request::{PassRequest, PassResult};
use super::round_trip::{PassSession, StatementValues, both};
use crate::jobs::job_statements::insert_runs;
use crate::jobs::job_table::{JobsAsk, Pulse};
use crate::table::make::QueueStatements;
use shared::db::db_error::DbError;
use shared::db::lock_key;
use std::rc::Rc;
use std::time::Duration;
use tokio_postgres::{Client, Row};

pub async fn run_pass(
    client: Rc<Client>,
    statements: Rc<QueueStatements>,
    request: PassRequest,
) -> Result<PassResult, DbError> {
    let mut claimer = Claimer::new(PassSession { client, statements }, &request);
    let mut result = PassResult { cursor: request.cursor, ..PassResult::default() };
    // All of them: the claim itself sees which have been stopped by now.
    let running: Vec<i64> = request.running.iter().map(|(task, _)| *task).collect();
    if request.claim_only {
        claimer.claim(request.count, &running, request.ends.as_deref(), &mut result).await?;
        return Ok(result);
    }
    prepare(&mut claimer, &request, &mut result).await?;
    let session = &claimer.session;
    let mut next_plan = None;
    if request.count > 0 {
        let claim = claimer.claim(request.count, &running, request.ends.as_deref(), &mut result);
        // Where the lock may be armed the next plan is read behind that.
        let planned = async || if request.arm { Ok(None) } else { session.next_plan().await };
        let (claimed, planned) = both(claim, planned()).await;
        claimed?;
        next_plan = planned?;
    }
    // Without a slot nothing can start, but a row can still be stopped: that must notify too.
    if request.arm && (request.count == 0 || result.claimed.len() < request.count) {
        arm(&claimer, &request, &running, &mut result).await?;
    }
    // A full pass is followed by another one at once; then the jobs can wait for a moment.
    let full = request.count > 0 && result.claimed.len() >= request.count;
    let listens = |jobs: &JobsAsk| jobs.start || jobs.stale || !full;
    if let (Some(jobs), None) = (request.jobs.as_ref().filter(|jobs| listens(jobs)), &result.jobs_failed) {
        match session.next_event(jobs, &mut result).await {
            Ok(()) => return Ok(result),
            Err(db_error) => result.jobs_failed = Some(contained(db_error)?),
        }
    }
    result.pulse = None;
    result.next_plan = if full && !request.arm { next_plan } else { session.next_plan().await? };
    Ok(result)
}

/// What a full pass does before it claims. All that does not wait for an answer goes in one write.
async fn prepare(claimer: &mut Claimer, request: &PassRequest, result: &mut PassResult) -> Result<(), DbError> {
    let session = &claimer.session;
    let disarmed = async || if request.disarm { session.sign(lock_key::WAKE_UP, false).await } else { Ok(false) };
    let defaults = async || if request.pooled { session.session_defaults().await.map(Some) } else { Ok(None) };
    let unwanted =
        async || if request.running.is_empty() { Ok(Vec::new()) } else { session.unwanted(&request.running).await };
    let released = both(disarmed(), session.execute(&session.statements.release));
    let released = both(session.name(), released);
    let ((named, (disarmed, released)), (defaults, unwanted)) = both(released, both(defaults(), unwanted())).await;
    // The other answers are about another table then, or there is none.
    named?;
    disarmed.and(released)?;
    result.unwanted = unwanted?;
    result.session_defaults = defaults?;
    for (kind, stand) in &request.signs {
        session.sign(*kind, *stand).await?;
    }
    if let Some(jobs) = &request.jobs
        && jobs.start
    {
        match session.start_jobs(jobs, request.count).await {
            Ok(started) => result.pulse = Some(started),
            Err(db_error) => result.jobs_failed = Some(contained(db_error)?),
        }
    }
    if result.session_defaults != request.session_defaults {
        // A task that starts now has to find the settings of a new session.
        claimer.close_reserved();
    }
    Ok(())
}

/// Arms the wake-up lock, and claims what came before it was held.
async fn arm(
    claimer: &Claimer,
    request: &PassRequest,
    running: &[i64],
    result: &mut PassResult,
) -> Result<(), DbError> {
    let session = &claimer.session;
    // Rows committed before the lock was ours notified nobody; later ones will. The server does one after the other, so a
    // statement behind the lock has a later snapshot.
    let armed = session.sign(lock_key::WAKE_UP, true);
    let (armed, released) = both(armed, session.execute(&session.statements.release)).await;
    released?;
    result.armed = armed?;
    result.refused = !result.armed;
    // Stopped after it was read or claimed, and before an inserter would have notified.
    let claimed = result.claimed.iter().map(|row| (row.task, row.attempt));
    let at_work: Vec<(i64, i32)> = claimed.chain(request.running.iter().copied()).collect();
    if result.armed && !at_work.is_empty() {
        result.unwanted = session.unwanted(&at_work).await?;
    }
    if result.armed && request.count > 0 {
        let before = result.claimed.len();
        claimer.claim(request.count - before, running, None, result).await?;
        if result.claimed.len() == request.count {
            session.sign(lock_key::WAKE_UP, false).await?;
            result.armed = false;
        }
    }
    Ok(())
}

impl PassSession {
    async fn unwanted(&self, running: &[(i64, i32)]) -> Result<Vec<(i64, i32)>, DbError> {
        let (tasks, attempts): (Vec<i64>, Vec<i32>) = running.iter().copied().unzip();
        let rows = self.many(&self.statements.read_runs, &[&tasks, &attempts]).await?;
        Ok(rows.iter().map(|row| (row.get("id"), row.get("attempt"))).collect())
    }

    /// Whether the table under the queue's name is the one whose lock we hold. Otherwise the session ends, and the next one
    /// looks for what is there.
    async fn name(&self) -> Result<(), DbError> {
        let relid: Option<u32> = self.one(&self.statements.read_name, &[]).await?.get("relid");
        if relid == Some(self.statements.relid) {
            return Ok(());
        }
        let name = self.statements.queue.fill("{queue}");
        Err(DbError::passing(format!("{name} is not the served table any more: it was renamed, replaced or dropped")))
    }

    async fn session_defaults(&self) -> Result<i64, DbError> {
        Ok(self.one(&self.statements.session_defaults, &[]).await?.get("defaults"))
    }

    async fn next_plan(&self) -> Result<Option<Duration>, DbError> {
        let rows = self.many(&self.statements.next_plan, &[]).await?;
        Ok(rows.first().and_then(|row| wait(row, "ms")))
    }

    /// The same where the queue runs jobs: one query for both.
    async fn next_event(&self, jobs: &JobsAsk, result: &mut PassResult) -> Result<(), DbError> {
        let since = result.pulse.and_then(|pulse| pulse.until).or(jobs.since);
        let row = self.one(&jobs.statements.next_event, &[&since, &jobs.fold]).await?;
        result.next_plan = wait(&row, "ms");
        result.pulse = Some(Pulse {
            version: row.get("version"),
            due: wait(&row, "due_ms"),
            waiting: wait(&row, "waiting_ms"),
            fill: row.get("fill"),
            orders: row.get("orders"),
            recalls: row.get("recalls"),
            leftover: row.get("leftover"),
            folded: jobs.fold,
            ..result.pulse.unwrap_or_default()
        });
        Ok(())
    }

    async fn start_jobs(&self, jobs: &JobsAsk, slots: usize) -> Result<Pulse, DbError> {
        let slots = i32::try_from(slots).unwrap_or(i32::MAX);
        let slots: StatementValues<'_> = &[&slots];
        let put = insert_runs(&self.client, &jobs.statements);
        let (row, put) = both(self.one(&jobs.statements.start, slots), put).await;
        let (row, put) = (row?, put?);
        Ok(Pulse { started: Some(row.get::<_, i32>("started") + put), until: row.get("until"), ..Pulse::default() })
    }

    /// Takes or gives back one of our session locks on the queue. True: it was done.
    async fn sign(&self, kind: i32, stand: bool) -> Result<bool, DbError> {
        let statement = if stand { &self.statements.lock } else { &self.statements.unlock };
        Ok(self.one(statement, &[&kind, &self.statements.relid]).await?.get("done"))
    }
}

/// What the catalog refuses about jobs is no reason not to serve tasks.
fn contained(db_error: DbError) -> Result<String, DbError> {
    if db_error.passes() { Err(db_error) } else { Ok(db_error.text) }
}

/// A column of milliseconds as a wait.
fn wait(row: &Row, column: &str) -> Option<Duration> {
    row.get::<_, Option<f64>>(column).map(|ms| Duration::from_millis(ms.max(0.0) as u64))
}
