//! One task, from its row to its result.
//!
//! Connect, mark WORK, dress the session, run the input under the watchdog, find out how it ended, write that down.
//! What can go wrong on the way is the infrastructure's (exit 111: the scheduler looks and plans again) or the
//! task's own (written into the row).

use crate::book::{self, Book, Record, TaskRow};
use crate::error_text::error_text;
use crate::format::{Output, Texts, Watch};
use crate::outcome::{Cancelled, Ending, FailText, Server, Verdict, verdict};
use crate::session;
use crate::watchdog::{Watchdog, Watched};
use crate::wire::{QueryError, ServerError, Session, TransactionStatus};
use shared::db::statement::Queue;
use shared::exit_code::ExitCode;
use shared::fault;
use shared::hand_over::WorkerOrder;
use shared::region::{Region, SlotHandle};
use shared::sys::title;
use std::time::{Duration, Instant};

/// Notices of one task that reach the log.
const NOTICES: usize = 100;

pub fn execute(order: &WorkerOrder, region: &Region, slot: SlotHandle, watchdog: &Watchdog) -> ExitCode {
    let mut session = match session::open(order) {
        Ok(session) => session,
        Err(error) => {
            shared::warning!("worker cannot connect; its task is planned again", task = order.task, error = error);
            return ExitCode::Temporary;
        }
    };
    let queue = Queue { schema: order.schema.clone(), table: order.table.clone() };
    let book = Book::new(queue, order.task, order.attempt);
    let row = match book.begin(&mut session) {
        Ok(Some(row)) => row,
        Ok(None) => {
            shared::debug!("the task is no longer ours", task = order.task);
            return ExitCode::Asked;
        }
        Err(error) => {
            shared::warning!("worker cannot begin; its task is planned again", task = order.task, error = error);
            return ExitCode::Temporary;
        }
    };
    region.slots().notes(slot).set_running(order.task, order.attempt, session.backend_pid());
    let group = String::from_utf8_lossy(&row.group);
    title::set(&format!(
        "pgmill: worker {} {}.{} {group} #{}",
        order.target.database, order.schema, order.table, order.task
    ));
    fault::point("worker.after_begin");
    let mut run = Run { order, book, row, watchdog };
    match run.not_yet_supported() {
        Some(text) => {
            let record = Record { state: "FAIL", output: Some(b""), error: Some(text), reason: None };
            run.write(Some(session), record)
        }
        None => run.run(session),
    }
}

struct Run<'a> {
    order: &'a WorkerOrder,
    book: Book,
    row: TaskRow,
    watchdog: &'a Watchdog,
}

/// What came of the input.
struct Outcome {
    texts: Texts,
    ending: Ending,
    /// Gone when the link was lost.
    session: Option<Session>,
    last_word: Option<ServerError>,
}

impl Run<'_> {
    fn not_yet_supported(&self) -> Option<&'static [u8]> {
        if self.row.remote {
            Some(b"ERROR:  remote tasks are not supported by this version\nHINT:  Insert the task without \"remote\".")
        } else if self.row.atomic {
            Some(b"ERROR:  atomic tasks are not supported by this version\nHINT:  Insert the task with atomic = false.")
        } else {
            None
        }
    }

    fn run(&mut self, mut session: Session) -> ExitCode {
        if let Err(error) = session::dress(&mut session, self.order, &self.row.group, self.row.timeout_ms) {
            return self.undressed(session, error);
        }
        let timeout = u64::try_from(self.row.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        self.watchdog.started(Watched {
            task: self.order.task,
            attempt: self.order.attempt,
            canceller: session.canceller(),
            timeout,
            target: self.order.target.clone(),
        });
        let began = Instant::now();
        let mut outcome = self.send(session);
        let timed_out = timeout.is_some_and(|timeout| began.elapsed() >= timeout);
        let cancelled = self.watchdog.finished();
        if let Ending::Lost { server, .. } = &mut outcome.ending {
            (*server, outcome.session) = self.look_again();
        }
        fault::point("worker.before_finish");
        self.conclude(outcome, cancelled, timed_out)
    }

    /// The session refused to be set up: a time-out in the role's settings, or the link.
    fn undressed(&self, session: Session, error: QueryError) -> ExitCode {
        match error {
            QueryError::Server(refusal) => {
                let text = error_text(&refusal, None, self.row.verbosity);
                let record = Record { state: "FAIL", output: Some(b""), error: Some(&text), reason: None };
                self.write(Some(session), record)
            }
            QueryError::Link(_) => ExitCode::Temporary,
        }
    }

    /// Runs the input, and commits what it left open.
    fn send(&self, mut session: Session) -> Outcome {
        let limit = usize::try_from(self.order.output_limit).unwrap_or(usize::MAX);
        let mut log = TaskLog { task: self.order.task, notices: 0, code: None, watchdog: self.watchdog };
        let mut output = Output::new(&self.row.format, self.row.verbosity, &self.row.input, limit, &mut log);
        let mut ran = session.run(&self.row.input, &mut output);
        if ran.is_ok() && session.status() != TransactionStatus::Idle {
            output.commits();
            ran = session.run(b"COMMIT", &mut output);
        }
        let texts = output.into_texts();
        match ran {
            Ok(()) => {
                Outcome { texts, ending: Ending::Ran { code: log.code }, session: Some(session), last_word: None }
            }
            Err(lost) => {
                let code = lost.fatal.as_ref().and_then(|fatal| fatal.code()).map(<[u8]>::to_vec);
                let last_word = Some(lost.fatal.unwrap_or_else(|| {
                    ServerError::local("FATAL", "08006", &format!("connection to server was lost: {}", lost.what))
                }));
                Outcome { texts, ending: Ending::Lost { code, server: Server::Other }, session: None, last_word }
            }
        }
    }

    /// After a lost session: is it the same server still? A server that does not answer is not.
    fn look_again(&self) -> (Server, Option<Session>) {
        let Ok(mut session) = session::open(self.order) else { return (Server::Other, None) };
        match book::postmaster(&mut session) {
            Ok(start) if start == self.row.postmaster => (Server::Same, Some(session)),
            _ => (Server::Other, Some(session)),
        }
    }

    fn conclude(&self, outcome: Outcome, cancelled: Option<Cancelled>, timed_out: bool) -> ExitCode {
        let Outcome { texts, ending, session, last_word } = outcome;
        match verdict(&ending, cancelled, timed_out) {
            Verdict::Done => {
                let output = texts.output.as_deref();
                self.write(session, Record { state: "DONE", output, error: None, reason: None })
            }
            Verdict::Fail { reason, text } => {
                let error = self.fail_text(text, texts.error, last_word);
                let output = Some(texts.output.as_deref().unwrap_or_default());
                self.write(session, Record { state: "FAIL", output, error: Some(&error), reason })
            }
            Verdict::PlanAgain => self.give_back(session),
        }
    }

    fn fail_text(&self, text: FailText, collected: Option<Vec<u8>>, last_word: Option<ServerError>) -> Vec<u8> {
        let own = |code: &str, message: &str| {
            error_text(&ServerError::local("ERROR", code, message), Some(&self.row.input), self.row.verbosity)
        };
        match text {
            FailText::Collected => collected.unwrap_or_default(),
            FailText::Timeout => own("57014", "canceling statement due to statement timeout"),
            FailText::Overflow => {
                own("54000", &format!("output exceeds output_limit of {} bytes", self.order.output_limit))
            }
            FailText::LastWord => {
                let mut all = collected.unwrap_or_default();
                if let Some(word) = last_word {
                    if !all.is_empty() {
                        all.push(b'\n');
                    }
                    all.extend(error_text(&word, Some(&self.row.input), self.row.verbosity));
                }
                all
            }
        }
    }

    /// Back to PLAN by ourselves where the session still stands; otherwise the scheduler does it, once the backend
    /// is gone.
    fn give_back(&self, session: Option<Session>) -> ExitCode {
        let Some(mut session) = session else { return ExitCode::Temporary };
        match self.book.plan_again(&mut session) {
            Ok(planned) => {
                shared::info!("task interrupted", task = self.order.task, planned_again = planned);
                session.close();
                ExitCode::Asked
            }
            Err(_) => ExitCode::Temporary,
        }
    }

    /// Writes the end. If the data refuse it, it is written as a failure with that error; if the link breaks, on a
    /// new session: the fence makes a second writing harmless.
    fn write(&self, session: Option<Session>, record: Record<'_>) -> ExitCode {
        let Some(mut session) = session.or_else(|| session::open(self.order).ok()) else { return ExitCode::Temporary };
        let mut answer = self.book.finish(&mut session, record);
        if let Err(QueryError::Link(lost)) = &answer {
            shared::warning!(
                "link lost while the result was written; trying once more",
                task = self.order.task,
                error = lost
            );
            match session::open(self.order) {
                Ok(fresh) => session = fresh,
                Err(_) => return ExitCode::Temporary,
            }
            answer = self.book.finish(&mut session, record);
        }
        if let Err(QueryError::Server(refusal)) = &answer {
            answer = self.write_refused(&mut session, record, &refusal.to_string());
        }
        match answer {
            Ok(true) => {
                session.close();
                shared::debug!("task finished", task = self.order.task, state = record.state);
                ExitCode::Asked
            }
            Ok(false) => {
                shared::info!(
                    "result not written: the task was deleted, stopped or taken anew",
                    task = self.order.task
                );
                ExitCode::Asked
            }
            Err(QueryError::Link(_)) => ExitCode::Temporary,
            Err(QueryError::Server(refusal)) => {
                // Running the input again would be worse than a row that stays WORK until somebody looks.
                shared::error!(
                    "the result cannot be written; the row stays WORK until the next reset",
                    task = self.order.task,
                    error = refusal
                );
                ExitCode::Asked
            }
        }
    }

    /// First with the texts as they are, then without what the database may have choked on.
    fn write_refused(&self, session: &mut Session, record: Record<'_>, refusal: &str) -> Result<bool, QueryError> {
        shared::warning!("the result was refused; written as a failure", task = self.order.task, error = refusal);
        let mut error = record.error.map(<[u8]>::to_vec).unwrap_or_default();
        if !error.is_empty() {
            error.push(b'\n');
        }
        error.extend_from_slice(refusal.as_bytes());
        let failed = Record { state: "FAIL", error: Some(&error), reason: Some("completion"), ..record };
        match self.book.finish(session, failed) {
            Err(QueryError::Server(_)) => {
                let plain: String = refusal.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
                let bare = Record { output: None, error: Some(plain.as_bytes()), ..failed };
                self.book.finish(session, bare)
            }
            answer => answer,
        }
    }
}

/// What of a task's answers goes elsewhere than into its row.
struct TaskLog<'a> {
    task: i64,
    notices: usize,
    code: Option<Vec<u8>>,
    watchdog: &'a Watchdog,
}

impl Watch for TaskLog<'_> {
    fn overflowed(&mut self) {
        self.watchdog.overflowed();
    }

    fn failed(&mut self, error: &ServerError) {
        self.code = Some(error.code().unwrap_or_default().to_vec());
    }

    fn noticed(&mut self, notice: ServerError) {
        self.notices += 1;
        match self.notices {
            1..NOTICES => shared::info!("notice", task = self.task, text = notice),
            NOTICES => {
                shared::info!("notice; further ones of this task are not logged", task = self.task, text = notice)
            }
            _ => {}
        }
    }
}
