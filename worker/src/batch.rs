//! A batch: several short tasks that were taken at once, run one after the other, and recorded together.
//!
//! Each input is a request of its own, in a transaction of its own, behind a transaction of ours that makes the session as
//! new and dresses it; both go in one write, so a task costs one round trip, and where tasks are very short the next one
//! stands on the wire too. Before an input is written, the word of the batch in the region says whether it is still ours:
//! the scheduler takes back what was not sent as soon as a task takes long. What has run and is not recorded when the
//! worker dies runs again, as it may after any crash; that is a matter of a few milliseconds, and an `atomic` task is
//! never in a batch.
//!
//! As new, but for prepared statements: ours stay, because planning them anew would cost as much as the tasks do. An input
//! that speaks of prepared statements is the last of its batch; one that makes some behind our back (by dynamic SQL in a
//! function) is found out when the batch is recorded, and its worker takes no other batch.
//!
//! Whatever is out of the ordinary (a lost session, a cancel of ours, a session that cannot be made new) ends the batch:
//! what has run is recorded, what was not sent goes back, and the task concerned ends as it would have alone.

use crate::book::{End, Floor, Record, TaskRow, Wish};
use crate::execute::{Next, Outcome, Run, Shift, TaskLog, announce};
use crate::format::{Output, Texts};
use crate::outcome::{Cancelled, Ending, QUERY_CANCELED, Verdict, verdict};
use crate::pace::Pace;
use crate::pace::SLOW;
use crate::record_retry::Form;
use crate::recorder::{END_PATIENCE, Recorder};
use crate::session::{self, Renewals};
use crate::watchdog::Watched;
use crate::wire::{Chain, Heard, LinkError, QueryError, ServerError, Session, TransactionStatus};
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::sys::sched_policy;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As much output is kept before it is recorded.
const KEPT_BYTES: usize = 1 << 20;
/// How long the first ends of a batch may take while the next task runs.
const BESIDE_PATIENCE: Duration = Duration::from_secs(30);

/// SQLSTATE of a prepared statement that is there already.
const STATEMENT_EXISTS: &[u8] = b"42P05";

/// A task that has run.
struct Ended {
    /// Its place in the batch.
    place: usize,
    state: &'static str,
    output: Option<Vec<u8>>,
    error: Option<Vec<u8>>,
    reason: Option<&'static str>,
    began: Instant,
    ended: Instant,
    /// The encoding of its texts, if it has changed it.
    encoding: Option<Vec<u8>>,
}

impl Ended {
    fn record(&self) -> Record<'_> {
        let (output, error) = (self.output.as_deref(), self.error.as_deref());
        Record { state: self.state, output, error, reason: self.reason, code: None }
    }

    fn bytes(&self) -> usize {
        self.output.as_ref().map_or(0, Vec::len) + self.error.as_ref().map_or(0, Vec::len)
    }
}

/// How it came to its end.
enum Stop {
    /// All that was sent has run, and the session is as new.
    Clean,
    /// All that was sent has run, but the session is not to be trusted with another task.
    Spent,
    /// The session was lost between two tasks.
    Broken,
    /// The session was lost at the task in this place.
    Lost { place: usize, texts: Texts, lost: LinkError, began: Instant, unknown: bool },
}

struct Batch<'a> {
    shift: &'a Shift<'a>,
    rows: &'a [TaskRow],
    ended: Vec<Ended>,
    /// Sent, and to be planned again: interrupted, hit by the cancel of the one before it, or passed over because the session
    /// could not be made new for it.
    spoilt: Vec<(i64, i32)>,
    /// How many ends are written already.
    flushed: usize,
    /// When the rows were known to be ours: the server's clock may have been read a little earlier, never later.
    taken: Instant,
}

/// Runs the rows, which are ours and in WORK; what follows is the next batch.
pub(crate) fn run(shift: &Shift<'_>, mut session: Session, rows: &[TaskRow], floor: Option<Floor>) -> Next {
    let tasks: Vec<(i64, i32)> = rows.iter().map(|row| (row.task, row.attempt)).collect();
    shift.region.slots().notes(shift.slot).set_running(rows[0].task, rows[0].attempt, session.backend_pid());
    shift.region.open_batch(shift.slot, &tasks);
    announce(shift.order, &rows[0]);
    if rows.len() > 1 {
        sched_policy::set_batch();
    }
    session.set_patience(END_PATIENCE);
    let mut batch = Batch {
        shift,
        rows,
        ended: Vec::with_capacity(rows.len()),
        spoilt: Vec::new(),
        flushed: 0,
        taken: Instant::now(),
    };
    let stop = match Renewals::prepare(&mut session, shift.order, rows) {
        Ok(renewals) => batch.work(&mut session, &renewals),
        Err(QueryError::Server(error)) => {
            shared::warning!("the session cannot be set up for a batch", task = rows[0].task, error = error);
            Stop::Spent
        }
        // Nothing has been sent: the scheduler finds the rows by their backend.
        Err(QueryError::Link(_)) => return Next::Leave(ExitCode::Temporary),
    };
    // What was not sent, unless the scheduler has it already.
    let mut back = shift.region.close_batch(shift.slot);
    back.append(&mut batch.spoilt);
    fault::point("worker.before_finish");
    match stop {
        Stop::Clean => batch.go_on(session, &back, floor),
        Stop::Spent => {
            session.taint();
            let mut session = Some(session);
            let left = batch.record(&mut session, &back, None).err().unwrap_or(ExitCode::Asked);
            if let Some(session) = session {
                session.close();
            }
            Next::Leave(left)
        }
        Stop::Broken => Next::Leave(batch.record_anew(&back).err().unwrap_or(ExitCode::Asked)),
        Stop::Lost { place, texts, lost, began, unknown } => {
            drop(session);
            if let Err(code) = batch.record_anew(&back) {
                return Next::Leave(code);
            }
            let left = shift.run(&rows[place], None).judge(Outcome::lost(texts, lost), began);
            if unknown { Next::Leave(ExitCode::Temporary) } else { left }
        }
    }
}

impl Batch<'_> {
    fn work(&mut self, session: &mut Session, renewals: &Renewals) -> Stop {
        let (shift, rows) = (self.shift, self.rows);
        let socket = session.as_fd().try_clone_to_owned().ok().map(Arc::new);
        let depth = shift.pace.get().depth();
        let quiet: Vec<bool> = rows.iter().map(|row| quiet(&row.input)).collect();
        let mut chain = Chain::default();
        let (mut sent, mut heard, mut kept) = (0, 0, 0);
        // Nothing more is sent; and no other task on this session.
        let (mut over, mut spent) = (false, false);
        // Why the task in front of the others could not be sent.
        let mut unsent: Option<ServerError> = None;
        loop {
            while !over && sent < rows.len() && sent - heard < depth && (sent == heard || quiet[sent - 1]) {
                let last = shift.watchdog.last_task() || !session::is_led();
                over = kept >= KEPT_BYTES || last || !shift.region.send_next(shift.slot);
                if over {
                    break;
                }
                match chain.task(renewals.before(sent), &rows[sent].input) {
                    Ok(()) => {}
                    Err(refusal) if sent == heard => unsent = Some(refusal),
                    Err(_) => {
                        // Too long for any server, and not in front: it goes back, and comes in front.
                        over = true;
                        self.spoilt.push((rows[sent].task, rows[sent].attempt));
                        break;
                    }
                }
                sent += 1;
            }
            if heard == sent {
                return if spent { Stop::Spent } else { Stop::Clean };
            }
            let (place, row) = (heard, &rows[heard]);
            self.watch(session, row, &socket);
            let began = Instant::now();
            let mut log = TaskLog::new(row.task, shift.watchdog);
            let limit = usize::try_from(shift.order.output_limit).unwrap_or(usize::MAX);
            let mut output = Output::new(&row.format, row.verbosity, &row.input, limit, &mut log);
            let mut ran = match unsent.take() {
                Some(refusal) => {
                    crate::wire::Sink::error(&mut output, refusal);
                    Ok(Heard::Ran)
                }
                None => session.hear_input(&mut chain, &mut output, Some(began + SLOW), &mut || {
                    announce(shift.order, row);
                    self.flush();
                }),
            };
            if matches!(ran, Ok(Heard::Ran)) && session.status() != TransactionStatus::Idle {
                output.own_statement();
                ran = session.run(b"COMMIT", &mut output).map(|()| Heard::Ran);
            }
            let (texts, ended) = (output.into_texts(), Instant::now());
            let never_ran = match ran {
                Ok(Heard::Ran) => None,
                Ok(Heard::Refused(refusal)) => Some((Stop::Spent, refusal.to_string())),
                Ok(Heard::Left(lost)) => Some((Stop::Broken, lost.to_string())),
                Err(lost) => return Stop::Lost { place, texts, lost, began, unknown: sent > heard + 1 },
            };
            if let Some((stop, error)) = never_ran {
                shared::warning!("the session cannot be made new; its batch ends", task = row.task, error = error);
                shift.watchdog.finished();
                shift.pace.set(Pace::new(false));
                self.spoilt.extend(rows[heard..sent].iter().map(|row| (row.task, row.attempt)));
                return stop;
            }
            shift.pace.set(shift.pace.get().counted(ended - began));
            heard += 1;
            let cancelled = shift.watchdog.finished().or(texts.overflowed.then_some(Cancelled::Overflow));
            // Whoever leads by now ends what we run, and runs it again.
            let cancelled = cancelled.or((!log.said_timeout && !session::is_led()).then_some(Cancelled::Interrupt));
            let timeout = shift.run(row, None).timeout();
            let timed_out = log.said_timeout || timeout.is_some_and(|timeout| ended - began >= timeout);
            let hit = spent && cancelled.is_none() && log.code.as_deref() == Some(QUERY_CANCELED);
            let clash = place > 0 && log.code.as_deref() == Some(STATEMENT_EXISTS);
            let encoding = (!session::speaks_as_opened(session))
                .then(|| session.parameter("client_encoding").unwrap_or_default().to_vec());
            kept += self.end(place, texts, log.code, (cancelled, timed_out, hit || clash), (began, ended), encoding);
            if cancelled.is_some() {
                (over, spent) = (true, true);
            }
            if clash || leaves_statements(&row.input) {
                // Whatever was done to prepared statements, ours among them, is seen to with the record.
                shift.pace.set(Pace::new(false));
                over = true;
            }
        }
    }

    /// Before its answers are heard: whoever finds this worker dead must know what it was at, and the watchdog too.
    fn watch(&self, session: &Session, row: &TaskRow, socket: &Option<Arc<OwnedFd>>) {
        let shift = self.shift;
        shift.region.slots().notes(shift.slot).set_running(row.task, row.attempt, session.backend_pid());
        shift.watchdog.started(Watched {
            task: row.task,
            attempt: row.attempt,
            canceller: session.canceller(),
            hang_up: socket.clone(),
            timeout: shift.run(row, None).timeout(),
            target: shift.target.clone(),
            far: false,
            batch: true,
        });
        fault::point("worker.after_begin");
    }

    /// What is to be written about a task; how many bytes of it are kept meanwhile.
    fn end(
        &mut self,
        place: usize,
        texts: Texts,
        code: Option<Vec<u8>>,
        (cancelled, timed_out, hit): (Option<Cancelled>, bool, bool),
        (began, ended): (Instant, Instant),
        encoding: Option<Vec<u8>>,
    ) -> usize {
        let row = &self.rows[place];
        let run = self.shift.run(row, None);
        self.shift.count();
        let end = |state, output, error, reason| Ended { place, state, output, error, reason, began, ended, encoding };
        let end = match verdict(&Ending::Ran { code }, cancelled, timed_out) {
            // What it ran into was meant for, or left by, one before it.
            _ if hit => {
                self.spoilt.push((row.task, row.attempt));
                return 0;
            }
            Verdict::Done => end("DONE", texts.output, None, None),
            Verdict::Fail { reason, text } => {
                let error = run.fail_text(text, texts.error, None);
                end("FAIL", Some(texts.output.unwrap_or_default()), Some(error), reason)
            }
            Verdict::PlanAgain { .. } => {
                shared::info!("task interrupted", task = row.task);
                self.spoilt.push((row.task, row.attempt));
                return 0;
            }
            Verdict::Nothing => {
                shared::info!("task ended: its owner took it back", task = row.task);
                // Should it be ours all the same, it is planned again: nobody else would.
                self.spoilt.push((row.task, row.attempt));
                return 0;
            }
        };
        let bytes = end.bytes();
        self.ended.push(end);
        bytes
    }

    /// A task takes long: what ended before it is not to wait for it, nor to run again should we die meanwhile. Its session
    /// is at work, so that goes over another one.
    fn flush(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        match self.record_beside() {
            Ok(written) => {
                let (rows, before) = (self.rows, self.ended.len());
                self.ended.retain(|ended| !written.contains(&rows[ended.place].task));
                self.flushed += before - self.ended.len();
            }
            Err(why) => {
                let task = self.rows[self.ended[0].place].task;
                shared::info!("the first tasks of a batch are recorded at its end", task = task, why = why);
            }
        }
    }

    /// The ends, and the next batch, in one transaction.
    fn go_on(self, session: Session, back: &[(i64, i32)], floor: Option<Floor>) -> Next {
        let shift = self.shift;
        let last = self.ended.last().map(|ended| &self.rows[ended.place]);
        let reuse = last.map(|row| shift.run(row, None)).filter(Run::goes_on).map(|run| run.reuse);
        // What goes back stands before the floor.
        let whole = self.flushed + self.ended.len() == self.rows.len();
        let size = shift.pace.get().size();
        let wish = reuse.as_ref().map(|reuse| Wish { reuse, size, floor: floor.filter(|_| whole) });
        let mut session = Some(session);
        let next = match self.record(&mut session, back, wish) {
            Ok(next) => next,
            Err(code) => return Next::Leave(code),
        };
        let Some(session) = session else { return Next::Leave(ExitCode::Temporary) };
        // All of it is recorded: nobody need know what was in it.
        shift.region.open_batch(shift.slot, &[]);
        fault::point("worker.after_finish");
        if next.is_empty() {
            session.close();
            return Next::Leave(ExitCode::Asked);
        }
        Next::Run(Box::new((next, session)))
    }

    fn ends(&self) -> Vec<End<'_>> {
        let plain = self.ended.iter().filter(|ended| ended.encoding.is_none());
        plain
            .map(|ended| {
                let row = &self.rows[ended.place];
                let since = |at: Instant| at.saturating_duration_since(self.taken);
                let (began, at) = (since(ended.began), Some(since(ended.ended)));
                End { task: row.task, attempt: row.attempt, record: ended.record(), began, ended: at }
            })
            .collect()
    }

    /// Writes what has run and plans again what goes back; the tasks that were taken beside. An error is how the worker
    /// leaves.
    fn record(
        &self,
        session: &mut Option<Session>,
        back: &[(i64, i32)],
        wish: Option<Wish<'_>>,
    ) -> Result<Vec<TaskRow>, ExitCode> {
        if self.ended.is_empty() && back.is_empty() && wish.is_none() {
            return Ok(Vec::new());
        }
        let (ends, task) = (self.ends(), self.rows[0].task);
        let own = session.as_ref().map(Session::backend_pid);
        let mut claimed = false;
        let recorder = self.recorder();
        let done = recorder.record(session, self.bytes(), |session, attempt| {
            if attempt.form != Form::Whole {
                shared::warning!("a batch was refused; its tasks are written one by one", task = task);
                return Ok(None);
            }
            if own != Some(session.backend_pid()) {
                return self.shift.book.finish_batch(session, &ends, back).map(Some);
            }
            let answer = self.shift.book.finish_batch_renewed(session, &ends, back, wish);
            // The next ones may have been taken all the same.
            claimed |= wish.is_some() && matches!(answer, Err(QueryError::Link(_)));
            let (done, strange) = answer?;
            if strange {
                self.shift.pace.set(Pace::new(false));
            }
            Ok(Some(done))
        })?;
        let next = match done {
            Some(done) => {
                for ended in self.ended.iter().filter(|ended| !done.written.contains(&self.rows[ended.place].task)) {
                    self.record_alone(session, ended)?;
                }
                done.next
            }
            None => {
                for ended in &self.ended {
                    self.record_alone(session, ended)?;
                }
                let returned =
                    recorder.record(session, 0, |session, _| self.shift.book.finish_batch(session, &[], back));
                returned?.next
            }
        };
        for ended in &self.ended {
            shared::debug!("task finished", task = self.rows[ended.place].task, state = ended.state);
        }
        // The scheduler looks.
        if claimed { Err(ExitCode::Temporary) } else { Ok(next) }
    }

    /// On another session: this one is lost. The fence makes a second writing harmless.
    fn record_anew(&self, back: &[(i64, i32)]) -> Result<(), ExitCode> {
        let mut other = None;
        self.record(&mut other, back, None)?;
        if let Some(other) = other {
            other.close();
        }
        Ok(())
    }

    /// The same while a task runs: one try. Which of them are written; a row that is locked, or repeats by now, waits.
    fn record_beside(&self) -> Result<Vec<i64>, QueryError> {
        let lost = |what: String| QueryError::Link(LinkError { fatal: None, closed: false, what });
        let mut other = session::reopen(self.shift.order, true).map_err(|why| lost(format!("{why:?}")))?;
        other.set_patience(BESIDE_PATIENCE);
        let done = self.shift.book.finish_batch(&mut other, &self.ends(), &[])?;
        other.close();
        Ok(done.written)
    }

    fn bytes(&self) -> usize {
        self.ended.iter().map(Ended::bytes).sum()
    }

    fn recorder(&self) -> Recorder<'_> {
        let shift = self.shift;
        Recorder::new(shift.order, shift.watchdog, shift.region.slots().notes(shift.slot), self.rows[0].task, true)
    }

    /// As a task that came alone is written: with what it has begun to lead to, and as a failure if the data refuse it.
    fn record_alone(&self, session: &mut Option<Session>, ended: &Ended) -> Result<(), ExitCode> {
        let run = self.shift.run(&self.rows[ended.place], None);
        let record = ended.record();
        let done = run.recorder().record(session, ended.bytes(), |session, attempt| {
            if let Some(encoding) = &ended.encoding {
                let text = "SELECT pg_catalog.set_config('client_encoding', $1, false)";
                session.execute(text, &[Some(encoding)])?;
            }
            let answer = run.finish_as(session, record, attempt, None);
            if ended.encoding.is_some() && !matches!(answer, Err(QueryError::Link(_))) {
                session.execute("RESET client_encoding", &[])?;
            }
            answer
        })?;
        if !done.written {
            shared::info!("result not written: the task was deleted or stopped", task = run.row.task);
        }
        Ok(())
    }
}

/// Nothing it may do keeps what stands behind it from being read as it is meant: it opens no transaction, asks for no
/// COPY data, and leaves prepared statements alone. Read coarsely: a word that only looks like it costs no more than a
/// round trip.
fn quiet(input: &[u8]) -> bool {
    !speaks(input, &[b"begin", b"start", b"copy"]) && !leaves_statements(input)
}

/// It may make prepared statements, or deallocate ours.
pub(crate) fn leaves_statements(input: &[u8]) -> bool {
    speaks(input, &[b"prepare", b"deallocate", b"discard"])
}

fn speaks(input: &[u8], words: &[&[u8]]) -> bool {
    let at =
        |at: usize, word: &[u8]| input.get(at..at + word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
    (0..input.len()).any(|i| words.iter().any(|word| word[0] == input[i] | 0x20 && at(i, word)))
}

#[cfg(test)]
mod tests {
    use super::quiet;

    #[test]
    fn what_may_leave_a_transaction_open_or_ask_for_data_is_not_quiet() {
        for input in ["SELECT 1", "CALL p()", "UPDATE t SET a = 1; SELECT 2", "COMMIT", ""] {
            assert!(quiet(input.as_bytes()), "{input}");
        }
        for input in [
            "BEGIN",
            "begin; SELECT 1",
            "SELECT 1;Start transaction",
            "COPY t FROM STDIN",
            "copy t from stdin",
            "DISCARD ALL",
        ] {
            assert!(!quiet(input.as_bytes()), "{input}");
        }
    }
}
