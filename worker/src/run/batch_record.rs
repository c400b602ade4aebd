//! How the ends of a batch are recorded: together with the claim of the next batch, early while a task takes long, over
//! another session when this one is lost, and one by one where the server refuses them together.

use super::pipeline::Batch;
use super::task_run::{Next, TaskRun};
use crate::limits::EARLY_RECORD_TIMEOUT;
use crate::record::{NextClaim, Pace, RecordForm, RecordedEnds, Recorder, ScanStart};
use crate::session::NotReopened;
use crate::task_row::TaskRow;
use crate::wire::{LinkError, QueryError, Session};
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::region::{TaskKey, TaskResult};

impl Batch<'_> {
    /// A task takes long: the ends before it must not wait for it, nor run again should we die meanwhile. Its session
    /// is at work, so they go over another one.
    pub(super) fn flush(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        match self.record_early() {
            Ok(written) => {
                let before = self.ended.len();
                for result in self.ended.iter().filter(|result| written.contains(&result.key.task)) {
                    self.worker.log_end(result, None);
                }
                self.ended.retain(|result| !written.contains(&result.key.task));
                self.flushed += before - self.ended.len();
            }
            Err(why) => {
                let task = self.ended[0].key.task;
                shared::info!("first tasks of a batch are recorded at its end", task = task, why = why);
            }
        }
    }

    /// The ends, and the next batch, in one transaction.
    pub(super) fn go_on(self, session: Session, back: &[TaskKey], scan_start: Option<ScanStart>) -> Next {
        let worker = self.worker;
        let last = self.ended.last().and_then(|result| self.row(result));
        let run = last.map(|row| TaskRun::new(worker, row, None)).filter(TaskRun::goes_on);
        let claimant = run.map(|run| run.claimant());
        // The tasks that go back are before the scan start.
        let whole = self.flushed + self.ended.len() == self.rows.len();
        let (size, scan_start) = (worker.pace.get().size(), scan_start.filter(|_| whole));
        let claim = claimant.as_ref().map(|claimant| NextClaim { claimant, size, scan_start });
        let mut session = Some(session);
        let next = match self.record(&mut session, back, claim) {
            Ok(next) => next,
            Err(code) => return Next::Exit(code),
        };
        let Some(session) = session else { return Next::Exit(ExitCode::Temporary) };
        // All of it is recorded: nobody need know what was in it.
        worker.region.open_batch(worker.slot, &[]);
        fault::point("worker.after_finish");
        if next.is_empty() {
            session.close();
            return Next::Exit(ExitCode::Asked);
        }
        Next::Continue(Box::new((next, session)))
    }

    fn row(&self, result: &TaskResult<'_>) -> Option<&TaskRow> {
        self.rows.iter().find(|row| row.task == result.key.task)
    }

    /// Those that go into one statement: a text in another encoding goes alone.
    fn together(&self) -> Vec<TaskResult<'_>> {
        self.ended.iter().filter(|result| result.encoding.is_none()).map(TaskResult::borrowed).collect()
    }

    /// Writes the ends and plans again what goes back; the tasks that were claimed with it. An error is how the worker exits.
    pub(super) fn record(
        &self,
        session: &mut Option<Session>,
        back: &[TaskKey],
        claim: Option<NextClaim<'_>>,
    ) -> Result<Vec<TaskRow>, ExitCode> {
        if self.ended.is_empty() && back.is_empty() && claim.is_none() {
            return Ok(Vec::new());
        }
        let statements = &self.worker.context.statements;
        let (results, task) = (self.together(), self.rows[0].task);
        let own = session.as_ref().map(Session::backend_pid);
        let mut claimed = false;
        let recorder = self.recorder();
        let done = recorder.record(session, self.bytes(), |session, attempt| {
            if attempt.form != RecordForm::Whole {
                shared::warning!("record of a batch refused; recording its tasks one by one", task = task);
                return Ok(None);
            }
            let ends = RecordedEnds { back, ..RecordedEnds::of(&results) };
            if own != Some(session.backend_pid()) {
                return statements.record(session, ends).map(Some);
            }
            let answer = statements.record(session, RecordedEnds { claim, reset: true, ..ends });
            // The next ones may have been claimed all the same.
            claimed |= claim.is_some() && matches!(answer, Err(QueryError::Link(_)));
            let recorded = answer?;
            if recorded.has_foreign_statements {
                self.worker.pace.set(Pace::new(false));
            }
            Ok(Some(recorded))
        })?;
        let next = match done {
            Some(done) => {
                for result in self.ended.iter().filter(|result| !done.written.contains(&result.key.task)) {
                    self.record_alone(session, result)?;
                }
                done.next
            }
            None => {
                for result in &self.ended {
                    self.record_alone(session, result)?;
                }
                let ends = RecordedEnds { back, ..RecordedEnds::of(&[]) };
                recorder.record(session, 0, |session, _| statements.record(session, ends))?.next
            }
        };
        for result in &self.ended {
            self.worker.log_end(result, None);
        }
        // The scheduler looks.
        if claimed { Err(ExitCode::Temporary) } else { Ok(next) }
    }

    /// On another session: this one is lost. The fence makes a second record harmless.
    pub(super) fn record_again(&self, back: &[TaskKey]) -> Result<(), ExitCode> {
        let mut other = None;
        self.record(&mut other, back, None)?;
        if let Some(other) = other {
            other.close();
        }
        Ok(())
    }

    /// The same while a task runs: one try. Which of them are written; a row that is locked, or repeats by now, waits.
    fn record_early(&self) -> Result<Vec<i64>, QueryError> {
        let lost =
            |why: NotReopened| QueryError::Link(LinkError { fatal: None, closed: false, what: format!("{why:?}") });
        let mut other = self.worker.connector.reopen(true).map_err(lost)?;
        other.set_answer_timeout(EARLY_RECORD_TIMEOUT);
        let done = self.worker.context.statements.record(&mut other, RecordedEnds::of(&self.together()))?;
        other.close();
        Ok(done.written)
    }

    fn bytes(&self) -> usize {
        self.ended.iter().map(TaskResult::bytes).sum()
    }

    fn recorder(&self) -> Recorder<'_> {
        self.worker.recorder(self.rows[0].task, true)
    }

    /// As a task that came alone is recorded: with the consequences that it has by now, and as a failure if the data refuse it.
    fn record_alone(&self, session: &mut Option<Session>, result: &TaskResult<'_>) -> Result<(), ExitCode> {
        let Some(row) = self.row(result) else { return Ok(()) };
        let run = TaskRun::new(self.worker, row, None);
        let result = TaskResult { times: None, ..result.borrowed() };
        let (recorded, _) = run.recorder().record(session, result.bytes(), |session, attempt| {
            if let Some(encoding) = &result.encoding {
                let text = "SELECT pg_catalog.set_config('client_encoding', $1, false)";
                session.execute(text, &[Some(encoding)])?;
            }
            let answer = run.record_as(session, &result, attempt, None);
            if result.encoding.is_some() && !matches!(answer, Err(QueryError::Link(_))) {
                session.execute("RESET client_encoding", &[])?;
            }
            answer
        })?;
        if recorded.written.is_empty() {
            shared::info!("result not recorded: the task was deleted or stopped", task = row.task);
        }
        Ok(())
    }
}
