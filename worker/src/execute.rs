//! One task after the other, from its row to its result.
//!
//! Connect, mark WORK, dress the session, run the input under the watchdog, find out how it ended, write that down,
//! and, if the task's `live` or `count` allow it, go on with the next one of its group.
//! What can go wrong on the way is the infrastructure's (exit 111: the scheduler looks and plans again) or the
//! task's own (written into the row).

use crate::batch;
use crate::book::{self, BEGIN, Book, COMMIT, Consequences, Finished, Floor, Record, Reuse, TaskRow, Wish};
use crate::error_text::error_text;
use crate::format::{Output, Texts, Watch};
use crate::outcome::{
    CRASH_SHUTDOWN, Cancelled, Ending, FailText, INTERRUPTED, QUERY_CANCELED, Server, Verdict, verdict,
};
use crate::pace::Pace;
use crate::record_retry::Form;
use crate::recorder::{self, Attempt, END_PATIENCE, Recorder};
use crate::remote::{self, Workplace};
use crate::session;
use crate::watchdog::{Watchdog, Watched};
use crate::wire::{Heard, LinkError, QueryError, ServerError, Session, TransactionStatus};
use shared::conninfo::Target;
use shared::db::refusal::Refusal;
use shared::db::server::is_elsewhere;
use shared::db::statement::Queue;
use shared::db::trouble::advice;
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::process::order::WorkerOrder;
use shared::region::{HandedIn, Notes, Phase, Region, SlotHandle, Turns};
use shared::sys::title;
use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a worker may look past rows that were committed behind its back, if others of its group look for it.
const FLOOR_LIFE: Duration = Duration::from_secs(1);
/// So many tasks of its own a worker walks over.
const UNFLOORED: u32 = 100;
/// So much of an error is in the plainest form of a record.
const PLAINEST_BYTES: usize = 2000;

/// How long a task may run before a sleeping watchdog is woken.
const UNWATCHED: Duration = Duration::from_millis(3);

/// More cancels in a row than these, while the session is set up, are a time limit of the role's.
const DRESS_TRIES: usize = 3;

/// Notices of one task that reach the log.
const NOTICES: usize = 100;

/// What a task leads to.
pub(crate) enum Next {
    /// This worker is done.
    Leave(ExitCode),
    /// Further tasks of the group have been taken, on the same session.
    Run(Box<(Vec<TaskRow>, Session)>),
}

pub fn execute(order: &WorkerOrder, region: &Region, slot: SlotHandle, watchdog: &Watchdog) -> ExitCode {
    let mut session = match session::open(order) {
        Ok(session) => session,
        Err(error) => return stumble(region, slot, order.task, &error, error.server()),
    };
    let queue = Queue { schema: order.schema.clone(), table: order.table.clone() };
    let book = Book::new(queue, order.lazy_commit, order.home.as_ref().map(|home| home.proof));
    fault::point("worker.before_begin");
    let mut begun = book.begin(&mut session, order.task, order.attempt);
    if let (Err(QueryError::Link(_)), true) = (&begun, order.lent.is_some()) {
        // What was lent may have been cut meanwhile. The fence makes a second try harmless.
        if let Ok(own) = session::open(order) {
            session = own;
            begun = book.begin(&mut session, order.task, order.attempt);
            if matches!(begun, Ok(None)) {
                // Begun by the lost session, perhaps: the scheduler finds out.
                return ExitCode::Temporary;
            }
        }
    }
    let row = match begun {
        Ok(Some(row)) => row,
        Ok(None) => {
            shared::debug!("the task is no longer ours", task = order.task);
            session.close();
            return ExitCode::Asked;
        }
        Err(error) => return not_begun(region, slot, order, &mut session, error),
    };
    if row.remote.is_some() {
        return remote::execute(&Workplace { order, region, slot, watchdog, book: &book }, session, row);
    }
    let shift = Shift {
        order,
        target: &Arc::new(order.target.clone()),
        book: &book,
        watchdog,
        region,
        slot,
        max: row.max,
        started: row.start.clone(),
        executed: Cell::new(0),
        pace: Cell::new(Pace::new(
            order.batch && !order.target.late_settings && session::batch_dress(order, &row.group, false).is_some(),
        )),
    };
    let turns = region.slots().notes(slot).parent().map(|scheduler| Turns::of(scheduler, &row.group));
    // Runs of a job go by their own ids, and those of other jobs in the group stand between.
    let shared = turns.filter(|_| row.job.is_none());
    let mut floored = Instant::now();
    let (mut rows, mut own) = (vec![row], false);
    loop {
        let fresh = floored.elapsed() < FLOOR_LIFE && !turns.is_some_and(|turns| turns.take(region));
        if !fresh {
            floored = Instant::now();
        }
        let last = rows.last().map(TaskRow::floor);
        if let (Some(shared), Some(last), true) = (shared, last, own) {
            shared.reach(region, &last.kind(), last.task());
        }
        let farthest = |floor: Floor| shared.and_then(|shared| shared.reached(region, &floor.kind()));
        // The first one was taken by the scheduler, who looks at the groups in another way. And what a worker that is alone
        // in its group has taken itself is soon walked over; to plan another statement for it takes longer.
        let worth = own && (last.is_some_and(Floor::is_crowded) || shift.executed.get() >= UNFLOORED);
        let floor = last.filter(|_| fresh && worth).map(|floor| floor.raised(farthest(floor).unwrap_or_default()));
        own = true;
        let next = match &rows[..] {
            [row] => {
                // Before the input is sent: whoever finds this worker dead must know what it was at.
                region.slots().notes(slot).set_running(row.task, row.attempt, session.backend_pid());
                announce(order, row);
                fault::point("worker.after_begin");
                shift.count();
                shift.run(row, floor).run(session)
            }
            rows => batch::run(&shift, session, rows, floor),
        };
        match next {
            Next::Leave(code) => return code,
            Next::Run(next) => (rows, session) = *next,
        }
        let found = rows.first().zip(last).is_some_and(|(row, last)| row.floor().stands_before(last));
        if let (true, Some(turns)) = (found, turns) {
            turns.call(region);
        }
    }
}

/// What stays the same for all tasks of a worker, and what it has learnt of them.
pub(crate) struct Shift<'a> {
    pub(crate) order: &'a WorkerOrder,
    pub(crate) target: &'a Arc<Target>,
    pub(crate) book: &'a Book,
    pub(crate) watchdog: &'a Watchdog,
    pub(crate) region: &'a Region,
    pub(crate) slot: SlotHandle,
    max: i32,
    started: Vec<u8>,
    executed: Cell<u32>,
    pub(crate) pace: Cell<Pace>,
}

impl Shift<'_> {
    /// One more task has run, or is about to.
    pub(crate) fn count(&self) {
        self.executed.set(self.executed.get().saturating_add(1));
    }

    pub(crate) fn run<'r>(&'r self, row: &'r TaskRow, floor: Option<Floor>) -> Run<'r> {
        Run {
            order: self.order,
            target: self.target,
            book: self.book,
            row,
            watchdog: self.watchdog,
            reuse: Reuse {
                group: row.group.clone(),
                max: self.max,
                executed: self.executed.get(),
                started: self.started.clone(),
                far: None,
                job: row.job.clone(),
            },
            floor,
            notes: self.region.slots().notes(self.slot),
            desk: None,
            pace: Some(&self.pace),
        }
    }
}

/// What `ps` shows.
pub(crate) fn announce(order: &WorkerOrder, row: &TaskRow) {
    let group = String::from_utf8_lossy(&row.group);
    let queue = format!("{} {}.{}", order.target.database, order.schema, order.table);
    title::set(&format!("pgmill: worker {queue} {group} #{}", row.task));
}

/// The task has not begun. Many workers may fail for one reason, so it is left in the slot for the scheduler, who says
/// it once.
pub(crate) fn stumble(
    region: &Region,
    slot: SlotHandle,
    task: i64,
    error: &dyn std::fmt::Display,
    refusal: Option<&ServerError>,
) -> ExitCode {
    let code = refusal.and_then(ServerError::code).map(String::from_utf8_lossy);
    let known = code.map(|code| format!(" [{code}]{}", advice(&code))).unwrap_or_default();
    shared::debug!("worker cannot begin; its task is planned again", task = task, error = error);
    region.slots().notes(slot).set_reason(&format!("{error}{known}"));
    ExitCode::Temporary
}

/// The row says that the task has not begun.
pub(crate) fn not_begun(
    region: &Region,
    slot: SlotHandle,
    order: &WorkerOrder,
    session: &mut Session,
    error: QueryError,
) -> ExitCode {
    match &error {
        QueryError::Server(refusal) if is_elsewhere(refusal.code(), refusal.message()) => {
            let why = session::elsewhere(session, order);
            session.taint();
            stumble(region, slot, order.task, &why, None)
        }
        _ => stumble(region, slot, order.task, &error, error.server()),
    }
}

pub(crate) struct Run<'a> {
    pub(crate) order: &'a WorkerOrder,
    pub(crate) target: &'a Arc<Target>,
    pub(crate) book: &'a Book,
    pub(crate) row: &'a TaskRow,
    pub(crate) watchdog: &'a Watchdog,
    /// What this worker says of itself when it asks for more.
    pub(crate) reuse: Reuse,
    /// From where on it looks, while that is fresh.
    pub(crate) floor: Option<Floor>,
    pub(crate) notes: Notes<'a>,
    /// Where a short result is handed in, if its parent writes it down.
    pub(crate) desk: Option<(&'a Region, SlotHandle)>,
    /// How long its tasks take; None where each comes alone.
    pub(crate) pace: Option<&'a Cell<Pace>>,
}

/// What came of sending an input.
pub(crate) enum Sent {
    Ran(Box<Outcome>),
    /// The server has refused to set the session up, and has skipped the input.
    Refused(Box<Session>, ServerError),
    /// The server has left before it came to the input.
    Left(LinkError),
}

/// What came of the input.
pub(crate) struct Outcome {
    pub(crate) texts: Texts,
    pub(crate) ending: Ending,
    /// Gone when the link was lost.
    pub(crate) session: Option<Session>,
    pub(crate) last_word: Option<ServerError>,
    /// The server itself speaks of a statement timeout: the role's, or one that the task has set.
    pub(crate) said_timeout: bool,
    /// The connection was closed by the other side, and the server has said nothing.
    pub(crate) severed: bool,
}

impl Outcome {
    pub(crate) fn lost(texts: Texts, lost: LinkError) -> Outcome {
        let code = lost.fatal.as_ref().and_then(farewell);
        let severed = lost.closed && lost.fatal.is_none();
        let last_word = Some(lost.fatal.unwrap_or_else(|| {
            ServerError::local("FATAL", "08006", &format!("connection to server was lost: {}", lost.what))
        }));
        let ending = Ending::Lost { code, server: Server::Other };
        Outcome { texts, ending, session: None, last_word, said_timeout: false, severed }
    }
}

impl Next {
    /// Of a worker that is done in any case.
    pub(crate) fn code(self) -> ExitCode {
        match self {
            Next::Leave(code) => code,
            Next::Run(_) => ExitCode::Temporary,
        }
    }
}

impl Run<'_> {
    /// What fails before anything is sent.
    fn refused(&self, session: &Session) -> Option<Vec<u8>> {
        if self.row.atomic { self.refused_before_sending(session) } else { None }
    }

    pub(crate) fn run(self, mut session: Session) -> Next {
        if let Some(text) = self.refused(&session) {
            let code = book::code(Some(b"0A000"));
            let record = Record { state: "FAIL", output: Some(b""), error: Some(&text), reason: None, code };
            return self.write(Some(session), record, true);
        }
        if let Err(error) = self.dress(&mut session) {
            return self.undressed(session, error);
        }
        self.watchdog.started(Watched {
            task: self.row.task,
            attempt: self.row.attempt,
            canceller: session.canceller(),
            hang_up: session.as_fd().try_clone_to_owned().ok().map(Arc::new),
            timeout: self.timeout(),
            target: self.target.clone(),
            far: false,
            batch: false,
        });
        session.set_patience(END_PATIENCE);
        let began = Instant::now();
        if self.watchdog.is_dormant() {
            let watchdog = self.watchdog.clone();
            session.set_alarm(began + UNWATCHED, move || watchdog.wake());
        }
        let mut outcome = match self.send(session) {
            Sent::Ran(outcome) => *outcome,
            Sent::Refused(session, refusal) => return self.not_sent(*session, refusal),
            Sent::Left(lost) => {
                self.watchdog.finished();
                shared::debug!("the session was lost before the input began", task = self.row.task, error = lost);
                return Next::Leave(ExitCode::Temporary);
            }
        };
        if let Some(session) = &mut outcome.session {
            session.clear_alarm();
        }
        if let Some(pace) = self.pace {
            // Whoever has to do with prepared statements sees none of ours.
            let alone = batch::leaves_statements(&self.row.input);
            pace.set(if alone { Pace::new(false) } else { pace.get().counted(began.elapsed()) });
        }
        self.judge(outcome, began)
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        u64::try_from(self.row.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// The input has run, or its session was lost meanwhile.
    pub(crate) fn judge(&self, mut outcome: Outcome, began: Instant) -> Next {
        let timed_out = outcome.said_timeout || self.timeout().is_some_and(|timeout| began.elapsed() >= timeout);
        let cancelled = self.cancelled(&outcome);
        if let (Some(_), Some(session)) = (cancelled, &mut outcome.session) {
            session.taint();
        }
        if let Ending::Lost { server, .. } = &mut outcome.ending {
            (*server, outcome.session) = self.look_again();
        }
        fault::point("worker.before_finish");
        if self.row.atomic {
            self.conclude_atomic(outcome, cancelled, timed_out)
        } else {
            self.conclude(outcome, cancelled, timed_out)
        }
    }

    /// This worker may take another task after this one. If its launcher may not lead any more, that is for whoever does.
    pub(crate) fn goes_on(&self) -> bool {
        self.row.reuse && !self.watchdog.last_task() && session::is_led()
    }

    /// The statement has ended; why we have cancelled it, if we have. An output over its limit counts from the moment it was
    /// seen: the end may come before the watchdog has got round to the cancel.
    /// Where our launcher may not lead any more, whoever leads now ends what we run, and runs it again: that is no failure.
    pub(crate) fn cancelled(&self, outcome: &Outcome) -> Option<Cancelled> {
        let ours = self.watchdog.finished().or(outcome.texts.overflowed.then_some(Cancelled::Overflow));
        ours.or((!outcome.said_timeout && !session::is_led()).then_some(Cancelled::Interrupt))
    }

    /// Sets up the session. A cancel that somebody sends meanwhile hits nothing of the task's: once more.
    fn dress(&self, session: &mut Session) -> Result<(), QueryError> {
        let mut tries = 1;
        loop {
            let dressed = if self.dresses_late() {
                Ok(())
            } else if self.row.dressed {
                session::limit(session, self.row)
            } else {
                session::dress(session, self.order, self.row)
            };
            match dressed {
                Err(QueryError::Server(error)) if error.code() == Some(QUERY_CANCELED) && tries < DRESS_TRIES => {
                    tries += 1
                }
                answer => return answer,
            }
        }
    }

    /// The session refused to be set up: a time-out in the role's settings, another server than the scheduler's, or the link.
    /// The task has begun on this very session, which can take it back.
    fn undressed(&self, mut session: Session, error: QueryError) -> Next {
        match error {
            QueryError::Server(refusal) => match self.unfit(&mut session, &refusal) {
                Some(why) => {
                    self.notes.set_reason(&why);
                    Next::Leave(self.give_back(Some(session), INTERRUPTED, None))
                }
                None => self.fail_refused(session, &refusal),
            },
            QueryError::Link(_) => Next::Leave(ExitCode::Temporary),
        }
    }

    /// The same of a session whose set-up went together with the input, which the server has skipped. Its task was begun by
    /// the scheduler, which finds out what became of it.
    fn not_sent(&self, mut session: Session, refusal: ServerError) -> Next {
        session.clear_alarm();
        let cancelled = self.watchdog.finished();
        match self.unfit(&mut session, &refusal) {
            Some(why) => {
                shared::debug!("the input was not sent", task = self.row.task, why = why);
                self.notes.set_reason(&why);
                session.taint();
                session.close();
                Next::Leave(ExitCode::Temporary)
            }
            None if cancelled.is_some() => {
                session.taint();
                let error = Some(error_text(&refusal, Some(&self.row.input), self.row.verbosity));
                let ending = Ending::Ran { code: refusal.code().map(<[u8]>::to_vec) };
                let texts = Texts { error, ..Texts::default() };
                let session = Some(session);
                let outcome = Outcome { texts, ending, session, last_word: None, said_timeout: false, severed: false };
                self.conclude(outcome, cancelled, false)
            }
            None => self.fail_refused(session, &refusal),
        }
    }

    /// Why the task cannot run on this session now, though nothing is wrong with the task.
    fn unfit(&self, session: &mut Session, refusal: &ServerError) -> Option<String> {
        if is_elsewhere(refusal.code(), refusal.message()) {
            return Some(session::elsewhere(session, self.order));
        }
        let machine = refusal_of(refusal) == Refusal::Machine;
        machine.then(|| format!("the session cannot be set up: {refusal}"))
    }

    fn fail_refused(&self, session: Session, refusal: &ServerError) -> Next {
        let text = error_text(refusal, None, self.row.verbosity);
        let timed_out = is_statement_timeout(refusal);
        let reason = match refusal.code() {
            Some(QUERY_CANCELED) if timed_out => Some("timeout"),
            Some(QUERY_CANCELED) => Some("cancelled"),
            _ => None,
        };
        let record =
            Record { state: "FAIL", output: Some(b""), error: Some(&text), reason, code: book::code(refusal.code()) };
        self.write(Some(session), record, false)
    }

    /// Runs the input, and commits what it left open; an atomic one runs in a block of ours, which stays open.
    pub(crate) fn send(&self, mut session: Session) -> Sent {
        let limit = usize::try_from(self.order.output_limit).unwrap_or(usize::MAX);
        let mut log = TaskLog::new(self.row.task, self.watchdog);
        let mut output = Output::new(&self.row.format, self.row.verbosity, &self.row.input, limit, &mut log);
        let mut ran = if self.row.atomic {
            // Behind a BEGIN that is refused the input would run outside of any block.
            session.run_behind(&[BEGIN], &self.row.input, &mut output)
        } else if self.dresses_late() {
            let dress = session::quick_dress(self.order, self.row);
            session.run_behind(&[BEGIN, &dress, COMMIT], &self.row.input, &mut output)
        } else {
            session.run(&self.row.input, &mut output).map(|()| Heard::Ran)
        };
        if matches!(ran, Ok(Heard::Ran)) && !self.row.atomic && session.status() != TransactionStatus::Idle {
            output.own_statement();
            ran = session.run(b"COMMIT", &mut output).map(|()| Heard::Ran);
        }
        let texts = output.into_texts();
        match ran {
            Ok(Heard::Ran) => {
                let ending = Ending::Ran { code: log.code };
                let (session, said_timeout) = (Some(session), log.said_timeout);
                let outcome = Outcome { texts, ending, session, last_word: None, said_timeout, severed: false };
                Sent::Ran(Box::new(outcome))
            }
            Ok(Heard::Refused(refusal)) => Sent::Refused(Box::new(session), refusal),
            Ok(Heard::Left(lost)) => Sent::Left(lost),
            Err(lost) => Sent::Ran(Box::new(Outcome::lost(texts, lost))),
        }
    }

    /// A session that was lent is as new, and its server known: dress and input go in one write.
    fn dresses_late(&self) -> bool {
        self.desk.is_some() && !self.row.atomic && self.row.job.is_none()
    }

    /// After a lost session: is it the same server still? A server that does not answer is not.
    fn look_again(&self) -> (Server, Option<Session>) {
        let Ok(mut session) = session::reopen(self.order, true) else { return (Server::Other, None) };
        match book::postmaster(&mut session) {
            Ok(start) if start == self.row.postmaster => (Server::Same, Some(session)),
            _ => (Server::Other, Some(session)),
        }
    }

    pub(crate) fn conclude(&self, outcome: Outcome, cancelled: Option<Cancelled>, timed_out: bool) -> Next {
        let Outcome { texts, ending, session, last_word, severed, .. } = outcome;
        // After any cancel of ours that connection runs no further task: it might still be on its way.
        let again = cancelled.is_none() && matches!(ending, Ending::Ran { .. });
        match verdict(&ending, cancelled, timed_out) {
            Verdict::Done => {
                let output = texts.output.as_deref();
                self.write(session, Record { state: "DONE", output, error: None, reason: None, code: None }, again)
            }
            Verdict::Fail { reason, text } => {
                let error = self.fail_text(text, texts.error, last_word);
                let output = Some(texts.output.as_deref().unwrap_or_default());
                let code = match (text, &ending) {
                    (FailText::Timeout | FailText::Overrun, _) => book::code(Some(QUERY_CANCELED)),
                    (FailText::Overflow, _) => book::code(Some(b"54000")),
                    (FailText::Collected | FailText::LastWord, Ending::Ran { code } | Ending::Lost { code, .. }) => {
                        book::code(code.as_deref())
                    }
                };
                self.write(session, Record { state: "FAIL", output, error: Some(&error), reason, code }, again)
            }
            Verdict::PlanAgain { reason } => {
                let severed = severed && cancelled.is_none();
                Next::Leave(self.give_back(session, reason, severed.then(|| self.row.postmaster_us()).flatten()))
            }
            Verdict::Nothing => {
                shared::info!("task ended: its owner took it back", task = self.row.task);
                if let Some(session) = session {
                    session.close();
                }
                Next::Leave(ExitCode::Asked)
            }
        }
    }

    pub(crate) fn fail_text(
        &self,
        text: FailText,
        collected: Option<Vec<u8>>,
        last_word: Option<ServerError>,
    ) -> Vec<u8> {
        let own = |code: &str, message: &str| {
            error_text(&ServerError::local("ERROR", code, message), Some(&self.row.input), self.row.verbosity)
        };
        match text {
            FailText::Collected => collected.unwrap_or_default(),
            FailText::Timeout => own("57014", "canceling statement due to statement timeout"),
            FailText::Overrun => own("57014", "canceling statement due to max_runtime of the job"),
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

    /// Whoever settles the row in our place must know if it was no crash.
    pub(crate) fn leave_word(&self, reason: &str) {
        if reason == INTERRUPTED {
            self.notes.set_phase(Phase::Stopping);
        }
    }

    /// Back to PLAN by ourselves where the session still stands; otherwise the scheduler does it, once the backend
    /// is gone.
    /// `severed`: the start of the server that has closed the connection without a word.
    fn give_back(&self, session: Option<Session>, reason: &'static str, severed: Option<i64>) -> ExitCode {
        self.leave_word(reason);
        if let Some(server_began_us) = severed {
            self.notes.set_severed(server_began_us);
        }
        let Some(mut session) = session else { return ExitCode::Temporary };
        match self.book.plan_again(&mut session, self.row, reason, severed) {
            Ok(planned) => {
                shared::info!("task interrupted", task = self.row.task, planned_again = planned);
                session.close();
                // Not planned: finished by another session, locked, or tried too often. The scheduler finds out which.
                if planned { ExitCode::Asked } else { ExitCode::Temporary }
            }
            Err(_) => ExitCode::Temporary,
        }
    }

    /// Writes the end, and takes the next task in the same transaction where this worker may go on. What the server refuses
    /// is sent again (`recorder`); the fence makes a second writing harmless.
    pub(crate) fn write(&self, session: Option<Session>, record: Record<'_>, again: bool) -> Next {
        let Some(mut session) = self.hand_in(session, record, again) else { return Next::Leave(ExitCode::Asked) };
        let reuse = (again && self.goes_on()).then_some(&self.reuse);
        let mut claimed = false;
        let answer = self.recorder().record(&mut session, recorder::size_of(&record), |session, attempt| {
            let reuse = reuse.filter(|_| attempt.first);
            let answer = self.finish_as(session, record, attempt, reuse);
            // The next task may have been taken all the same.
            claimed |= reuse.is_some() && matches!(answer, Err(QueryError::Link(_)));
            answer
        });
        match (answer, session) {
            (Ok(Finished { written, next, renewed }), Some(session)) => {
                fault::point("worker.after_finish");
                if written {
                    shared::debug!("task finished", task = self.row.task, state = record.state);
                } else {
                    shared::info!("result not written: the task was deleted or stopped", task = self.row.task);
                }
                if claimed {
                    // The scheduler looks.
                    session.close();
                    return Next::Leave(ExitCode::Temporary);
                }
                self.go_on(session, next, renewed)
            }
            (Err(code), _) => Next::Leave(code),
            (Ok(_), None) => Next::Leave(ExitCode::Temporary),
        }
    }

    pub(crate) fn recorder(&self) -> Recorder<'_> {
        // What a task has done on a remote is there, wherever its end is recorded.
        let effects = self.row.remote.is_none();
        Recorder::new(self.order, self.watchdog, self.notes, self.row.task, effects)
    }

    /// Leaves a short and plain result to the parent, and the session too; None: so it was done. What may be deleted, is
    /// in another encoding, or stems from a session in disorder is written by this worker.
    fn hand_in(&self, session: Option<Session>, record: Record<'_>, again: bool) -> Option<Option<Session>> {
        let (Some((region, slot)), Some(open)) = (self.desk, &session) else { return Some(session) };
        let plain = again
            && (record.output.is_some() || record.error.is_some())
            && record.reason.is_none()
            && open.status() == TransactionStatus::Idle
            && session::speaks_as_opened(open);
        let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8(bytes.to_vec())).transpose();
        let (Ok(output), Ok(error), true) = (text(record.output), text(record.error), plain) else {
            return Some(session);
        };
        let failed = record.state == "FAIL";
        let result = HandedIn { task: self.row.task, attempt: self.row.attempt, failed, output, error };
        if !region.hand_in(slot, &result) {
            return Some(session);
        }
        fault::point("worker.after_hand_in");
        if let Some(session) = session {
            session.close();
        }
        None
    }

    /// A row that began to repeat while it ran is only finished together with its repetition.
    pub(crate) fn finish(
        &self,
        session: &mut Session,
        record: Record<'_>,
        reuse: Option<&Reuse>,
    ) -> Result<Finished, QueryError> {
        // runs of jobs are never in a batch
        let size = self.pace.filter(|_| self.row.job.is_none()).map_or(1, |pace| pace.get().size());
        if let (Some(reuse), true) = (reuse, self.short_way(session)) {
            // Nothing above the floor, which is only a hint: the worker leaves, and the scheduler finds the rest. Taken by
            // another transaction, it might run beside what the scheduler has taken for the group meanwhile.
            let first = if size > 1 {
                let wish = Wish { reuse, size, floor: self.floor };
                let (done, strange) = self.book.next_batch(session, self.row, record, wish)?;
                if let (true, Some(pace)) = (strange, self.pace) {
                    pace.set(Pace::new(false));
                }
                done
            } else {
                self.book.finish_renewed(session, self.row, record, reuse, self.floor)?
            };
            if first.written {
                return Ok(first);
            }
            let second = self.book.finish(session, self.row, record, Consequences::Full, None)?;
            return Ok(Finished { written: second.written, ..first });
        }
        let expected = if self.row.consequences { Consequences::Full } else { Consequences::NoneExpected };
        let first = self.book.finish(session, self.row, record, expected, reuse)?;
        if first.written || expected == Consequences::Full {
            return Ok(first);
        }
        let second = self.book.finish(session, self.row, record, Consequences::Full, None)?;
        Ok(Finished { written: second.written, ..first })
    }

    /// Nothing of the session is to be kept for the next task, and nothing else happens at the end of this one.
    fn short_way(&self, session: &Session) -> bool {
        !self.row.save
            && self.row.remote.is_none()
            && !self.row.atomic
            && !self.row.consequences
            && session.status() == TransactionStatus::Idle
            && session::speaks_as_opened(session)
    }

    /// With what was taken for it, on a session that is `renewed`, or is made as new now.
    pub(crate) fn go_on(&self, mut session: Session, next: Vec<TaskRow>, renewed: bool) -> Next {
        let Some(first) = next.first() else {
            session.close();
            return Next::Leave(ExitCode::Asked);
        };
        if renewed {
            return Next::Run(Box::new((next, session)));
        }
        match session::undress(&mut session, self.order, self.row) {
            Ok(()) => Next::Run(Box::new((next, session))),
            // The next task is ours and not begun: the scheduler finds it by this session's backend.
            Err(error) => {
                shared::warning!("the session cannot be used again", task = first.task, error = error);
                Next::Leave(ExitCode::Temporary)
            }
        }
    }

    /// In the form that the server may accept.
    pub(crate) fn finish_as(
        &self,
        session: &mut Session,
        record: Record<'_>,
        attempt: &Attempt<'_>,
        reuse: Option<&Reuse>,
    ) -> Result<Finished, QueryError> {
        let complaint = attempt.complaint;
        let own = record.error.unwrap_or_default();
        let (output, error) = match attempt.form {
            Form::Whole => return self.finish(session, record, reuse),
            Form::Failed => (record.output, joined(own, complaint.as_bytes())),
            Form::Plainest => {
                let plain = |text: &[u8]| -> Vec<u8> {
                    let text = String::from_utf8_lossy(&text[..text.len().min(PLAINEST_BYTES)]).into_owned();
                    text.chars().map(|c| if c.is_ascii() && c != '\0' { c as u8 } else { b'?' }).collect()
                };
                (None, joined(&plain(own), &plain(complaint.as_bytes())))
            }
        };
        let failed = Record { state: "FAIL", output, error: Some(&error), reason: Some("completion"), ..record };
        self.book.finish(session, self.row, failed, Consequences::Suppressed, None)
    }
}

/// Two errors, one below the other.
fn joined(first: &[u8], second: &[u8]) -> Vec<u8> {
    let between: &[u8] = if first.is_empty() || second.is_empty() { b"" } else { b"\n" };
    [first, between, second].concat()
}

/// The SQLSTATE of the server's last word. An immediate shutdown says goodbye with the code of an orderly one, but as a
/// mere warning.
fn farewell(word: &ServerError) -> Option<Vec<u8>> {
    match word.code() {
        Some(code) if word.is_fatal() => Some(code.to_vec()),
        Some(_) => Some(CRASH_SHUTDOWN.to_vec()),
        None => None,
    }
}

/// The server's own limit has ended a statement.
fn is_statement_timeout(error: &ServerError) -> bool {
    let words = b"statement timeout";
    error.message().is_some_and(|text| text.windows(words.len()).any(|part| part == words))
}

/// What a refusal of the server means.
pub(crate) fn refusal_of(error: &ServerError) -> Refusal {
    let code = error.code().map(String::from_utf8_lossy).unwrap_or_default();
    Refusal::of(&code, error.message().is_some_and(|text| text.starts_with(b"cached plan")))
}

/// What of a task's answers goes elsewhere than into its row.
pub(crate) struct TaskLog<'a> {
    task: i64,
    notices: usize,
    pub(crate) code: Option<Vec<u8>>,
    pub(crate) said_timeout: bool,
    watchdog: &'a Watchdog,
}

impl TaskLog<'_> {
    pub(crate) fn new(task: i64, watchdog: &Watchdog) -> TaskLog<'_> {
        TaskLog { task, notices: 0, code: None, said_timeout: false, watchdog }
    }
}

impl Watch for TaskLog<'_> {
    fn overflowed(&mut self) {
        self.watchdog.overflowed();
    }

    fn failed(&mut self, error: &ServerError) {
        self.code = Some(error.code().unwrap_or_default().to_vec());
        self.said_timeout |= is_statement_timeout(error);
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
