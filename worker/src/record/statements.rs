//! What a worker writes to its queue: begins, ends, and the claim of the next tasks.
//!
//! Every statement is fenced by id, state and attempt: a worker that lost its task writes nothing. The ends of tasks and the
//! claim of the next ones are statements of one transaction, the ends first: the other way round two workers can wait for each
//! other's rows. Statements of a session that is reset stay prepared: they are planned once, for any number of rows.

use super::arrays;
use super::next::{ClaimNumbers, NextClaim};
use super::scan_start::ScanStart;
use super::transaction::{
    SessionReport, beside_the_task, once_beside_the_task, planning, settings_in_block, with_reset,
};
use crate::task_row::{BatchCommon, TaskRow, batch_row, task_row};
use crate::wire::{QueryError, Row, Session, Statement};
use shared::db::remote_session::RemoteSession;
use shared::db::server::proof_item;
use shared::db::statement::{self, ClaimForm, Queue, Rows, Scan};
use shared::region::{Code, EndState, TaskKey, TaskResult, TaskTimes};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A SQLSTATE as the server sent it.
pub(crate) fn code(text: Option<&[u8]>) -> Option<Code> {
    text.and_then(|text| text.try_into().ok())
}

/// The row trigger of a run reads the SQLSTATE of its end from this setting.
const SET_CODE: &str = "SELECT pg_catalog.set_config('mill.sqlstate', $1, true)";

/// What else happens at the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consequences {
    /// The row neither repeats nor pauses its group; if it does by now, nothing is written.
    NoneExpected,
    /// Repetition and pause, as the row says at this moment.
    Full,
    /// None, whatever the row says: they are what failed.
    Suppressed,
}

/// What one transaction records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedEnds<'a> {
    pub(crate) results: &'a [TaskResult<'a>],
    /// Claimed and never run: back to PLAN.
    pub(crate) back: &'a [TaskKey],
    pub(crate) consequences: Consequences,
    /// The one result is that of a job's run.
    pub(crate) of_job: bool,
    /// The next tasks are claimed in the same transaction.
    pub(crate) claim: Option<NextClaim<'a>>,
    /// The transaction resets the session first. A session that is to be kept, or discarded, is left alone.
    pub(crate) reset: bool,
}

impl<'a> RecordedEnds<'a> {
    /// These results and nothing else.
    pub(crate) fn of(results: &'a [TaskResult<'a>]) -> RecordedEnds<'a> {
        let (back, consequences) = (&[][..], Consequences::NoneExpected);
        RecordedEnds { results, back, consequences, of_job: false, claim: None, reset: false }
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Whose ends are written. A task that is not among them is no longer ours, or has consequences by now.
    pub(crate) written: Vec<i64>,
    /// In the order in which they are to run.
    pub(crate) next: Vec<TaskRow>,
    /// A task has left prepared statements behind.
    pub(crate) has_foreign_statements: bool,
}

type ClaimTexts = BTreeMap<(ClaimForm, Scan), Rc<str>>;

/// The statements of one queue.
#[derive(Debug)]
pub struct TaskStatements {
    queue: Queue,
    begin: String,
    end_one: String,
    end_many: String,
    delete: String,
    /// Those that were needed.
    claims: RefCell<ClaimTexts>,
    /// Its commits need not wait for the disk.
    lazy: bool,
    /// What the scheduler's session holds as a lock.
    proof: Option<i64>,
}

impl TaskStatements {
    /// `proof`: nothing is begun or claimed where nobody holds this number.
    pub fn new(queue: Queue, lazy: bool, proof: Option<i64>) -> TaskStatements {
        TaskStatements {
            begin: queue.fill_begin_one(),
            end_one: queue.fill_end(Rows::One),
            end_many: queue.fill_end(Rows::Many),
            delete: queue.fill(statement::DELETE_FINISHED),
            claims: RefCell::default(),
            lazy,
            proof,
            queue,
        }
    }

    /// TAKE → WORK. None: the task is no longer ours.
    pub(crate) fn begin(&self, session: &mut Session, key: TaskKey) -> Result<Option<TaskRow>, QueryError> {
        let texts = KeyTexts::new(key);
        let params = texts.params();
        let proof = self.proof.map(|proof| format!("SELECT {}", proof_item(proof)));
        let mut statements: Vec<Statement<'_>> = proof.iter().map(|text| Statement::once(text, &[])).collect();
        statements.push(Statement::once(&self.begin, &params));
        let mut rows = once_beside_the_task(session, self.lazy, &statements)?;
        Ok(rows.pop().and_then(|mut rows| rows.pop()).map(task_row))
    }

    /// The row names the session on its remote. False: the task is no longer ours.
    pub(crate) fn begin_remote(
        &self,
        session: &mut Session,
        key: TaskKey,
        pid: i32,
        name: &RemoteSession,
    ) -> Result<bool, QueryError> {
        let text = self.queue.fill(statement::BEGIN_REMOTE);
        let texts = KeyTexts::new(key);
        let [task, attempt] = texts.params();
        let (pid, name) = (pid.to_string(), name.to_string());
        let params = [task, attempt, Some(pid.as_bytes()), Some(name.as_bytes())];
        let rows = beside_the_task(session, self.lazy, &[Statement::once(&text, &params)])?;
        Ok(rows.first().is_some_and(|rows| !rows.is_empty()))
    }

    /// WORK → DONE or FAIL of one task or many, WORK → PLAN of those that were never run, and the claim of the next ones.
    pub(crate) fn record(&self, session: &mut Session, ends: RecordedEnds<'_>) -> Result<Recorded, QueryError> {
        let repeat = match (ends.consequences, ends.results) {
            (Consequences::Full, [_]) => Some(self.repeat_text(session)?),
            _ => None,
        };
        let (texts, values) = (TransactionTexts::new(self, ends, repeat), TransactionValues::new(ends));
        let all = values.statements(&texts, ends);
        let make = if ends.reset { Statement::prepared } else { Statement::once };
        let statements: Vec<Statement<'_>> = all.iter().map(|(text, values)| make(text, values)).collect();
        let (mut rows, report) = if ends.reset {
            with_reset(session, self.lazy, &statements)?
        } else {
            (beside_the_task(session, self.lazy, &statements)?, SessionReport::default())
        };
        let next = if ends.claim.is_some() { rows.pop().unwrap_or_default() } else { Vec::new() };
        let end = all.iter().position(|(text, _)| *text == texts.end).filter(|_| !ends.results.is_empty());
        let written = end.filter(|at| *at < rows.len()).map(|at| names(rows.swap_remove(at))).unwrap_or_default();
        Ok(Recorded {
            written: written.iter().filter_map(|id| id.parse().ok()).collect(),
            next: claimed(next, ends, &report),
            has_foreign_statements: report.has_foreign_statements,
        })
    }

    fn claim_text(&self, request: NextClaim<'_>, reset: bool) -> Rc<str> {
        let many = request.size > 1;
        let scan = match request.scan_start.map(ScanStart::is_contended) {
            None => Scan::FromStart,
            Some(contended) if contended && many => Scan::Contended,
            Some(_) => Scan::BehindLast,
        };
        let claim = match &request.claimant.job {
            _ if many => ClaimForm::Batch,
            _ if !reset => ClaimForm::One,
            Some(_) => ClaimForm::RunSetUp,
            None => ClaimForm::OneSetUp,
        };
        let fill = || self.queue.fill_claim_next(claim, scan, self.proof).into();
        self.claims.borrow_mut().entry((claim, scan)).or_insert_with(fill).clone()
    }

    /// WORK → PLAN, or, for the run of a job, its end; by the session that ran it and runs nothing any more.
    /// `severed`: it was lost without a word, and the server that it was on began then.
    pub(crate) fn plan_again(
        &self,
        session: &mut Session,
        key: TaskKey,
        reason: &str,
        severed: Option<i64>,
    ) -> Result<bool, QueryError> {
        let text = self.queue.fill(statement::PLAN_AGAIN);
        let texts = KeyTexts::new(key);
        let [task, attempt] = texts.params();
        let (dead, server) = (if severed.is_some() { b"t" } else { b"f" }, severed.map(|began| began.to_string()));
        let server = server.as_ref().map(String::as_bytes);
        let params = [task, attempt, Some(reason.as_bytes()), Some(&b"{}"[..]), Some(&dead[..]), server];
        let rows = beside_the_task(session, self.lazy, &[Statement::once(&text, &params)])?;
        let spent = |row: &Row| row.get(2).and_then(Option::as_deref) == Some(b"t");
        Ok(rows.first().and_then(|rows| rows.first()).is_some_and(|row| !spent(row)))
    }

    /// The end of an atomic task, inside the block that its input ran in; the caller commits. False: the task is no
    /// longer ours, and nothing of it may become true.
    pub(crate) fn record_in_block(&self, session: &mut Session, result: &TaskResult<'_>) -> Result<bool, QueryError> {
        // The settings first: until then the path is the task's own, and its functions would be found on it.
        let settings = settings_in_block(session);
        let list = self.queue.fill(statement::LIST_COLUMNS);
        let mut first: Vec<Statement<'_>> = settings.iter().map(|sql| Statement::once(sql, &[])).collect();
        first.push(Statement::once(&list, &[]));
        let columns = session.transaction(&first)?.pop().unwrap_or_default();
        let repeat = self.queue.fill_repeating(statement::REPEAT_TASK, &names(columns));
        let results = [result.borrowed()];
        let ends = RecordedEnds { consequences: Consequences::Full, ..RecordedEnds::of(&results) };
        let (texts, values) = (TransactionTexts::new(self, ends, Some(repeat)), TransactionValues::new(ends));
        let all = values.statements(&texts, ends);
        let statements: Vec<_> = all.iter().map(|(text, values)| Statement::once(text, values)).collect();
        let rows = session.transaction(&statements)?;
        Ok(rows.first().is_some_and(|rows| !rows.is_empty()))
    }

    /// The repetition copies the columns that the table has at this moment.
    fn repeat_text(&self, session: &mut Session) -> Result<String, QueryError> {
        let text = self.queue.fill(statement::LIST_COLUMNS);
        let rows = beside_the_task(session, self.lazy, &[Statement::once(&text, &[])])?;
        let columns = rows.into_iter().next().unwrap_or_default();
        Ok(self.queue.fill_repeating(statement::REPEAT_TASK, &names(columns)))
    }
}

/// The texts that one transaction needs.
struct TransactionTexts<'t> {
    end: &'t str,
    delete: &'t str,
    /// The next run of a repeating task, and the pause of its group.
    repeat: Option<[String; 2]>,
    back: String,
    planning: String,
    claim: Option<Rc<str>>,
}

impl<'t> TransactionTexts<'t> {
    fn new(own: &'t TaskStatements, ends: RecordedEnds<'_>, repeat: Option<String>) -> TransactionTexts<'t> {
        let plans = ends.claim.is_some_and(|request| !ends.reset && request.claimant.job.is_none());
        TransactionTexts {
            end: if ends.results.len() == 1 { &own.end_one } else { &own.end_many },
            delete: &own.delete,
            repeat: repeat.map(|repeat| [repeat, own.queue.fill(statement::PAUSE_GROUP)]),
            back: if ends.back.is_empty() { String::new() } else { own.queue.fill(statement::RETURN_BATCH) },
            planning: if plans { planning() } else { String::new() },
            claim: ends.claim.map(|request| own.claim_text(request, ends.reset)),
        }
    }
}

/// What the parameters of one transaction are made of.
struct TransactionValues {
    results: EndValues,
    keys: [Vec<u8>; 2],
    back: [Vec<u8>; 2],
    claim: Option<ClaimNumbers>,
}

enum EndValues {
    /// Its texts are sent from where they are: they may be long.
    One(KeyTexts, Option<[String; 2]>),
    Many([Vec<u8>; 8]),
}

impl TransactionValues {
    fn new(ends: RecordedEnds<'_>) -> TransactionValues {
        let micros = |times: TaskTimes| [times.began, times.ended].map(|span| span.as_micros().to_string());
        TransactionValues {
            results: match ends.results {
                [result] => EndValues::One(KeyTexts::new(result.key), result.times.map(micros)),
                results => EndValues::Many(arrays::results(results)),
            },
            keys: arrays::keys(ends.results.iter().map(|result| &result.key)),
            back: arrays::keys(ends.back.iter()),
            claim: ends.claim.map(ClaimNumbers::new),
        }
    }

    /// The statements in their order: ends first, the claim last.
    fn statements<'a>(
        &'a self,
        texts: &'a TransactionTexts<'_>,
        ends: RecordedEnds<'a>,
    ) -> Vec<(&'a str, Vec<Option<&'a [u8]>>)> {
        fn given(values: &[Vec<u8>]) -> Vec<Option<&[u8]>> {
            values.iter().map(|value| Some(&value[..])).collect()
        }
        let mut all = Vec::with_capacity(6);
        let code = ends.results.first().and_then(|result| result.code.as_ref()).filter(|_| ends.of_job);
        all.extend(code.map(|code| (SET_CODE, vec![Some(&code[..])])));
        let with: &[u8] = if ends.consequences == Consequences::NoneExpected { b"f" } else { b"t" };
        match (&self.results, ends.results) {
            (EndValues::One(key, times), [result]) => {
                let failed: &[u8] = if result.state == EndState::Fail { b"t" } else { b"f" };
                let [task, attempt] = key.params();
                let time = |at: usize| times.as_ref().map(|times| times[at].as_bytes());
                let (output, error) = (result.output.as_deref(), result.error.as_deref());
                let reason = result.reason.map(str::as_bytes);
                all.push((
                    texts.end,
                    vec![task, attempt, Some(failed), output, error, reason, time(0), time(1), Some(with)],
                ));
                if let Some([repeat, pause]) = &texts.repeat {
                    all.extend([repeat, pause].map(|text| (text.as_str(), vec![task, attempt])));
                }
            }
            (EndValues::Many(arrays), [_, ..]) => {
                let mut values = given(arrays);
                values.push(Some(with));
                all.push((texts.end, values));
            }
            _ => {}
        }
        if ends.results.iter().any(TaskResult::is_silent) {
            all.push((texts.delete, given(&self.keys)));
        }
        if !ends.back.is_empty() {
            all.push((&texts.back, given(&self.back)));
        }
        if !texts.planning.is_empty() {
            all.push((&texts.planning, Vec::new()));
        }
        if let (Some(text), Some(numbers), Some(request)) = (&texts.claim, &self.claim, ends.claim) {
            all.push((text, numbers.params(request)));
        }
        all
    }
}

/// The claimed rows, in the order in which they are to run.
fn claimed(rows: Vec<Row>, ends: RecordedEnds<'_>, report: &SessionReport) -> Vec<TaskRow> {
    let Some(request) = ends.claim else { return Vec::new() };
    if request.size <= 1 {
        let one = rows.into_iter().map(|row| TaskRow { is_set_up: ends.reset, ..task_row(row) });
        return one.collect();
    }
    let common = BatchCommon {
        group: &request.claimant.group,
        start: &request.claimant.started,
        verbosity: report.verbosity,
        postmaster: &report.postmaster,
    };
    let mut next: Vec<TaskRow> = rows.into_iter().map(|row| batch_row(row, common)).collect();
    next.sort_by_key(|row| (Reverse((row.max, row.priority)), row.task));
    next
}

/// The first value of each row, as text.
fn names(rows: Vec<Row>) -> Vec<String> {
    rows.into_iter().filter_map(|row| String::from_utf8(row.into_iter().next()??).ok()).collect()
}

/// Id and attempt as parameters.
struct KeyTexts {
    task: String,
    attempt: String,
}

impl KeyTexts {
    fn new(key: TaskKey) -> KeyTexts {
        KeyTexts { task: key.task.to_string(), attempt: key.attempt.to_string() }
    }

    fn params(&self) -> [Option<&[u8]>; 2] {
        [Some(self.task.as_bytes()), Some(self.attempt.as_bytes())]
    }
}

/// When the server started: a session lost to a restart is told from one that somebody ended.
pub(crate) fn server_start(session: &mut Session) -> Result<Vec<u8>, QueryError> {
    let rows = session.execute("SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())", &[])?;
    Ok(rows.into_iter().flatten().flatten().next().unwrap_or_default())
}
