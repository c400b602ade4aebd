//! A batch: several short tasks that were claimed at once, run one after the other, and recorded together (`batch_record`).
//!
//! Each input is a request of its own, in a transaction of its own, behind a transaction of ours that resets the session and
//! sets it up; both go in one write, so a task costs one round trip, and where tasks are very short the next one
//! is on the wire too. Before an input is written, the word of the batch in the region says whether it is still ours:
//! the scheduler takes back unsent tasks as soon as one takes long. A task that has run and is not recorded when the
//! worker dies runs again, as it may after any crash; that is a matter of a few milliseconds, and an `atomic` task is
//! never in a batch.
//!
//! The reset leaves prepared statements: ours stay, because planning them anew would cost as much as the tasks do. An input
//! that speaks of prepared statements is the last of its batch; one that makes some by dynamic SQL in a function is found when
//! the batch is recorded, and its worker claims no other batch.
//!
//! Anything out of the ordinary (a lost session, a cancel of ours, a session that cannot be reset) ends the batch: the ended
//! tasks are recorded, unsent ones go back, and the task concerned ends as it would have alone.

use super::input::{is_quiet, leaves_statements};
use super::task_log::TaskLog;
use super::task_run::{Next, Outcome, TaskRun, printed};
use super::worker::{Worker, set_title};
use crate::limits::{KEPT_BYTES, RECORD_TIMEOUT, SLOW_TASK};
use crate::record::{Pace, ScanStart};
use crate::result::format::Output;
use crate::result::outcome::{Cancelled, QUERY_CANCELED, Verdict, verdict};
use crate::session::is_as_opened;
use crate::session::setup::PreparedSetup;
use crate::task_row::TaskRow;
use crate::wire::{Chain, ChainAnswer, QueryError, ServerError, Session, Sink, TransactionStatus};
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::region::{TaskKey, TaskResult, TaskTimes};
use shared::sys::sched_policy;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// SQLSTATE of a prepared statement that exists already.
const STATEMENT_EXISTS: &[u8] = b"42P05";

/// How it came to its end.
#[expect(clippy::large_enum_variant, reason = "one per batch, and passed on in a Box")]
enum Stop {
    /// All that was sent has run, and the session is reset.
    Clean,
    /// All that was sent has run, but the session is not to be trusted with another task.
    Spent,
    /// The session was lost between two tasks.
    Broken,
    /// The session was lost at the task in this place.
    Lost { place: usize, outcome: Outcome, began: Instant, unknown: bool },
}

pub(super) struct Batch<'a> {
    pub(super) worker: &'a Worker<'a>,
    pub(super) rows: &'a [TaskRow],
    /// Those that have run and are not recorded.
    pub(super) ended: Vec<TaskResult<'static>>,
    /// Sent, and to be planned again: interrupted, hit by the cancel of the one before it, or skipped because the session
    /// could not be reset for it.
    pub(super) spoilt: Vec<TaskKey>,
    /// How many ends are written already.
    pub(super) flushed: usize,
    /// When the rows were known to be ours: the server's clock may have been read a little earlier, never later.
    pub(super) claimed: Instant,
}

/// Runs the rows, which are ours and in WORK; the next batch follows.
pub(super) fn run(worker: &Worker<'_>, mut session: Session, rows: &[TaskRow], scan_start: Option<ScanStart>) -> Next {
    let tasks: Vec<(i64, i32)> = rows.iter().map(|row| (row.task, row.attempt)).collect();
    worker.region.open_batch(worker.slot, &tasks);
    if rows.len() > 1 {
        sched_policy::set_batch();
    }
    session.set_answer_timeout(RECORD_TIMEOUT);
    let mut batch = Batch {
        worker,
        rows,
        ended: Vec::with_capacity(rows.len()),
        spoilt: Vec::new(),
        flushed: 0,
        claimed: Instant::now(),
    };
    let stop = match PreparedSetup::new(&mut session, worker.order(), rows) {
        Ok(prepared) => batch.work(&mut session, &prepared),
        Err(QueryError::Server(error)) => {
            shared::warning!("cannot set up the session for a batch", task = rows[0].task, error = error);
            Stop::Spent
        }
        // Nothing has been sent: the scheduler finds the rows by their backend.
        Err(QueryError::Link(_)) => return Next::Exit(ExitCode::Temporary),
    };
    // Unsent tasks, unless the scheduler has them already.
    let unsent = worker.region.close_batch(worker.slot).into_iter();
    let mut back: Vec<TaskKey> = unsent.map(|(task, attempt)| TaskKey { task, attempt }).collect();
    back.append(&mut batch.spoilt);
    fault::point("worker.before_finish");
    match stop {
        Stop::Clean => batch.go_on(session, &back, scan_start),
        Stop::Spent => {
            session.taint();
            let mut session = Some(session);
            let left = batch.record(&mut session, &back, None).err().unwrap_or(ExitCode::Asked);
            if let Some(session) = session {
                session.close();
            }
            Next::Exit(left)
        }
        Stop::Broken => Next::Exit(batch.record_again(&back).err().unwrap_or(ExitCode::Asked)),
        Stop::Lost { place, outcome, began, unknown } => {
            drop(session);
            if let Err(code) = batch.record_again(&back) {
                return Next::Exit(code);
            }
            let left = TaskRun::new(worker, &rows[place], None).judge(outcome, began);
            if unknown { Next::Exit(ExitCode::Temporary) } else { left }
        }
    }
}

/// How far a batch has got.
#[derive(Default)]
struct Progress {
    sent: usize,
    heard: usize,
    /// Bytes of results that are kept.
    kept: usize,
    /// Nothing more is sent.
    over: bool,
    /// And no other task runs on this session.
    spent: bool,
    /// Why the task in front of the others could not be sent.
    unsent: Option<ServerError>,
}

/// One input has run on the session of the batch.
struct InputEnd {
    outcome: Outcome,
    began: Instant,
    ended: Instant,
}

impl<'a> Batch<'a> {
    fn work(&mut self, session: &mut Session, prepared: &PreparedSetup) -> Stop {
        let (worker, rows) = (self.worker, self.rows);
        let socket = session.as_fd().try_clone_to_owned().ok().map(Arc::new);
        let quiet: Vec<bool> = rows.iter().map(|row| is_quiet(&row.input)).collect();
        let mut chain = Chain::default();
        let mut at = Progress::default();
        loop {
            self.send(&mut chain, prepared, &quiet, &mut at);
            if at.heard == at.sent {
                return if at.spent { Stop::Spent } else { Stop::Clean };
            }
            let row = &rows[at.heard];
            // Before its answers are heard: the process that finds this worker dead must know its task, and the watchdog too.
            worker.slot_status().set_running(row.task, row.attempt, session.backend_pid());
            worker.watchdog.started(TaskRun::new(worker, row, None).watched(session, socket.clone(), true));
            fault::point("worker.after_begin");
            match self.hear(session, &mut chain, &mut at) {
                Ok(heard) => self.heed(session, heard, &mut at),
                Err(stop) => return *stop,
            }
        }
    }

    /// Writes as many inputs as may be on the wire.
    fn send<'p>(&mut self, chain: &mut Chain<'p>, prepared: &'p PreparedSetup, quiet: &[bool], at: &mut Progress)
    where
        'a: 'p,
    {
        let (worker, rows) = (self.worker, self.rows);
        let depth = worker.pace.get().depth();
        while !at.over
            && at.sent < rows.len()
            && at.sent - at.heard < depth
            && (at.sent == at.heard || quiet[at.sent - 1])
        {
            let last = worker.watchdog.last_task() || !worker.connector.is_led();
            at.over = at.kept >= KEPT_BYTES || last || !worker.region.send_next(worker.slot);
            if at.over {
                return;
            }
            match chain.task(prepared.before(at.sent), &rows[at.sent].input) {
                Ok(()) => {}
                Err(refusal) if at.sent == at.heard => at.unsent = Some(refusal),
                Err(_) => {
                    // Too long for any server, and not in front: it goes back, and comes in front.
                    at.over = true;
                    self.spoilt.push(rows[at.sent].key());
                    return;
                }
            }
            at.sent += 1;
        }
    }

    /// Hears the answers to the next input.
    fn hear(&mut self, session: &mut Session, chain: &mut Chain<'_>, at: &mut Progress) -> Result<InputEnd, Box<Stop>> {
        let (worker, place) = (self.worker, at.heard);
        let row = &self.rows[place];
        let began = Instant::now();
        let mut log = TaskLog::new(row.task, worker.watchdog);
        let limit = usize::try_from(worker.order().output_limit).unwrap_or(usize::MAX);
        let mut output = Output::new(&row.format, row.verbosity, &row.input, limit, &mut log);
        let mut ran = match at.unsent.take() {
            Some(refusal) => {
                output.error(refusal);
                Ok(ChainAnswer::Ran)
            }
            None => session.hear_input(chain, &mut output, Some(began + SLOW_TASK), &mut || {
                set_title(worker.order(), row);
                self.flush();
            }),
        };
        if matches!(ran, Ok(ChainAnswer::Ran)) && session.status() != TransactionStatus::Idle {
            output.own_statement();
            ran = session.run(b"COMMIT", &mut output).map(|()| ChainAnswer::Ran);
        }
        let (printed, ended) = (printed(output, row.key()), Instant::now());
        let (stop, error) = match ran {
            Ok(ChainAnswer::Ran) => {
                let outcome = Outcome::ran(printed, log.code, None, log.said_timeout);
                return Ok(InputEnd { outcome, began, ended });
            }
            Ok(ChainAnswer::Refused(refusal)) => (Stop::Spent, refusal.to_string()),
            Ok(ChainAnswer::Left(lost)) => (Stop::Broken, lost.to_string()),
            Err(lost) => {
                let unknown = at.sent > at.heard + 1;
                let outcome = Outcome::lost(printed, lost);
                return Err(Box::new(Stop::Lost { place, outcome, began, unknown }));
            }
        };
        shared::warning!("cannot reset the session; its batch ends", task = row.task, error = error);
        worker.watchdog.finished();
        worker.pace.set(Pace::new(false));
        self.spoilt.extend(self.rows[at.heard..at.sent].iter().map(TaskRow::key));
        Err(Box::new(stop))
    }

    /// The input has run: its result is kept, unless its end was caused by another task.
    fn heed(&mut self, session: &Session, heard: InputEnd, at: &mut Progress) {
        let (worker, place) = (self.worker, at.heard);
        let row = &self.rows[place];
        let took = heard.ended - heard.began;
        worker.pace.set(worker.pace.get().counted(took));
        at.heard += 1;
        let cancelled = worker.watchdog.finished().or(heard.outcome.overflowed.then_some(Cancelled::Overflow));
        // The launcher that leads by now ends what we run, and runs it again.
        let led = heard.outcome.said_timeout || worker.connector.is_led();
        let cancelled = cancelled.or((!led).then_some(Cancelled::Interrupt));
        let timed_out = heard.outcome.said_timeout || row.timeout().is_some_and(|timeout| took >= timeout);
        let hit = at.spent && cancelled.is_none() && heard.outcome.ending.code() == Some(QUERY_CANCELED);
        let clash = place > 0 && heard.outcome.ending.code() == Some(STATEMENT_EXISTS);
        let encoding =
            (!is_as_opened(session)).then(|| session.parameter("client_encoding").unwrap_or_default().to_vec());
        worker.count();
        let since = |moment: Instant| moment.saturating_duration_since(self.claimed);
        let times = Some(TaskTimes { began: since(heard.began), ended: since(heard.ended) });
        match self.result(row, heard, (cancelled, timed_out, hit || clash)) {
            Some(result) => {
                at.kept += result.bytes();
                self.ended.push(TaskResult { times, encoding, ..result });
            }
            // Should it be ours all the same, it is planned again: nobody else would.
            None => self.spoilt.push(row.key()),
        }
        if cancelled.is_some() {
            (at.over, at.spent) = (true, true);
        }
        if clash || leaves_statements(&row.input) {
            // The record deals with prepared statements that the task made or removed.
            worker.pace.set(Pace::new(false));
            at.over = true;
        }
    }

    /// None: the task is to be planned again, or is its owner's.
    fn result(
        &self,
        row: &TaskRow,
        heard: InputEnd,
        (cancelled, timed_out, hit): (Option<Cancelled>, bool, bool),
    ) -> Option<TaskResult<'static>> {
        let Outcome { result, ending, .. } = heard.outcome;
        match verdict(&ending, cancelled, timed_out) {
            // The cancel that hit it was meant for, or the statement that it met was left by, a task before it.
            _ if hit => None,
            Verdict::Done => Some(result.into_done()),
            Verdict::Fail { reason, text } => {
                let error = TaskRun::new(self.worker, row, None).fail_text(text, result.error.as_deref(), None);
                Some(result.into_failed(error, reason, None))
            }
            Verdict::PlanAgain { .. } => {
                shared::info!("task interrupted", task = row.task);
                None
            }
            Verdict::Nothing => {
                shared::info!("task ended: a user stopped or deleted it", task = row.task);
                None
            }
        }
    }
}
