//! Bookkeeping on the user's session: taking up a task, writing its end, taking the next.
//!
//! The task may have done anything to its session: another role, another search_path, read-only, a time limit. So
//! each booking is one transaction that first sets what it relies on, for itself alone, and leaves the rest as the
//! task left it. Every statement is fenced by id, state and attempt: a worker that lost its task writes nothing.
//! The end of a task and the take of the next one are two statements of one transaction, the end first: the other
//! way round two workers can wait for each other's rows.
//!
//! A worker that goes on has the short way: its session is made as new at the beginning of the booking, in its transaction, so
//! that nothing the task did can be in the way; the statements stand prepared; and the take dresses the session for the
//! task it has found.

use crate::error_text::Verbosity;
use crate::format::Format;
use crate::wire::{QueryError, Row, ServerError, Session, Statement};
use shared::db::identifier::literal;
use shared::db::statement::{self, Crowd, Dress, Queue};
use shared::remote_session::RemoteSession;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A deadlock or a late cancel is worth another try; more of them in a row are not bad luck.
const TRIES: usize = 5;

/// A task's row, as far as the worker needs it.
#[derive(Clone, Debug)]
pub struct TaskRow {
    pub task: i64,
    pub attempt: i32,
    pub input: Vec<u8>,
    pub group: Vec<u8>,
    /// Runs on another server: its conninfo, or the name of one.
    pub remote: Option<Vec<u8>>,
    pub atomic: bool,
    pub format: Format,
    pub timeout_ms: i64,
    pub verbosity: Verbosity,
    pub postmaster: Vec<u8>,
    /// Seconds, as the server writes them, to be given back to the server.
    pub start: Vec<u8>,
    pub max: i32,
    /// Its own count or live let the worker take another one after it.
    pub reuse: bool,
    pub save: bool,
    /// It repeats or pauses its group: more happens at its end than a change of its row.
    pub consequences: bool,
    /// The job whose run it is, and the logical time that it runs for, as the server writes them.
    pub job: Option<Vec<u8>>,
    pub at: Option<Vec<u8>>,
    pub priority: i32,
    /// The take, or the login, has set up the session for it.
    pub dressed: bool,
    /// The second key of its lock, if the take has told it.
    pub sign: Option<i32>,
}

/// From where on a worker looks for its next task: what it took last. Only a hint, since a row that counts for more,
/// or one with a smaller id, may be committed later; so it is soon forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    max: i32,
    priority: i32,
    task: i64,
}

impl Floor {
    /// What is taken in the order of its ids.
    pub fn kind(self) -> [u8; 8] {
        let ([a, b, c, d], [e, f, g, h]) = (self.max.to_be_bytes(), self.priority.to_be_bytes());
        [a, b, c, d, e, f, g, h]
    }

    /// Behind this task, if it stands behind.
    pub fn raised(self, task: i64) -> Floor {
        Floor { task: self.task.max(task), ..self }
    }

    pub fn task(self) -> i64 {
        self.task
    }

    /// Others of the group take at the same time.
    pub fn is_crowded(self) -> bool {
        self.max > 0
    }

    /// What it was made from would have been taken first.
    pub fn stands_before(self, other: Floor) -> bool {
        let order = |floor: Floor| (std::cmp::Reverse((floor.max, floor.priority)), floor.task);
        order(self) < order(other)
    }
}

impl TaskRow {
    pub fn floor(&self) -> Floor {
        Floor { max: self.max, priority: self.priority, task: self.task }
    }
}

/// What is written at the end.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub state: &'static str,
    pub output: Option<&'a [u8]>,
    pub error: Option<&'a [u8]>,
    pub reason: Option<&'static str>,
}

/// What else happens at the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequences {
    /// The row neither repeats nor pauses its group; if it does by now, nothing is written.
    NoneExpected,
    /// Repetition and pause, as the row says at this moment.
    Full,
    /// None, whatever the row says: they are what failed.
    Suppressed,
}

/// What a worker that asks for another task must say of itself.
#[derive(Clone, Debug)]
pub struct Reuse {
    pub group: Vec<u8>,
    pub max: i32,
    pub executed: u32,
    pub started: Vec<u8>,
    pub far: Option<FarReuse>,
    /// Runs of one job, or plain tasks: never mixed.
    pub job: Option<Vec<u8>>,
}

/// The same of a worker with a session on a remote: its next task runs there too.
#[derive(Clone, Debug)]
pub struct FarReuse {
    pub remote: Vec<u8>,
    pub pid: String,
    pub name: String,
}

/// What came of an end.
#[derive(Debug)]
pub struct Finished {
    /// False: the task was no longer ours.
    pub written: bool,
    /// In the order in which they are to run.
    pub next: Vec<TaskRow>,
    /// The session is as new, or dressed for the next one already.
    pub renewed: bool,
}

/// One of several ends that are written together.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    pub task: i64,
    pub attempt: i32,
    pub record: Record<'a>,
    /// Since it was taken; None: it has ended just now.
    pub began: Duration,
    pub ended: Option<Duration>,
}

/// How many tasks a worker asks for at once, and from where on it looks.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    pub reuse: &'a Reuse,
    pub size: usize,
    pub floor: Option<Floor>,
}

/// What came of several ends.
#[derive(Debug)]
pub struct BatchFinished {
    /// Whose ends are written.
    pub written: Vec<i64>,
    /// In the order in which they are to run.
    pub next: Vec<TaskRow>,
}

/// The take that dresses the session for what it has found.
#[derive(Debug)]
struct NextDressed {
    anywhere: String,
    floored: String,
}

impl NextDressed {
    fn new(queue: &Queue, dress: Dress) -> NextDressed {
        let [anywhere, floored] = [false, true].map(|floor| queue.fill_take_next(Some(dress), floor));
        NextDressed { anywhere, floored }
    }
}

type Takes = BTreeMap<Option<Crowd>, Rc<str>>;

/// The books of one queue.
#[derive(Debug)]
pub struct Book {
    queue: Queue,
    finish: String,
    delete: String,
    next: String,
    next_task: NextDressed,
    next_run: NextDressed,
    /// By the state that they write.
    finish_batch: [(&'static str, String); 2],
    delete_batch: String,
    return_batch: String,
    /// Takes of a batch, by where it begins; those that were asked for.
    takes: RefCell<Takes>,
    /// The queue's name as SQL.
    name: String,
    /// Its commits need not wait for the disk.
    lazy: bool,
}

impl Book {
    pub fn new(queue: Queue, lazy: bool) -> Book {
        Book {
            lazy,
            finish_batch: ["DONE", "FAIL"].map(|state| (state, queue.fill_finish_batch(state))),
            delete_batch: queue.fill(statement::DELETE_BATCH),
            return_batch: queue.fill(statement::RETURN_BATCH),
            takes: RefCell::default(),
            finish: queue.fill(statement::FINISH_TASK),
            delete: queue.fill(statement::DELETE_FINISHED),
            next: queue.fill_take_next(None, false),
            next_task: NextDressed::new(&queue, Dress::Task),
            next_run: NextDressed::new(&queue, Dress::Run),
            name: queue.fill("{queue}"),
            queue,
        }
    }

    /// WORK → DONE or FAIL and the take of the next task, by the short way. For a task without consequences whose
    /// session need not be kept; afterwards the session is as new, or dressed for the next task.
    pub fn finish_renewed(
        &self,
        session: &mut Session,
        row: &TaskRow,
        record: Record<'_>,
        reuse: &Reuse,
        floor: Option<Floor>,
    ) -> Result<Finished, QueryError> {
        let key = Key::new(row.task, row.attempt);
        let own = key.params();
        let [task, attempt] = own;
        let reason = record.reason.map(str::as_bytes);
        let end = [task, attempt, Some(record.state.as_bytes()), record.output, record.error, reason, Some(&b"f"[..])];
        let (max, executed) = (reuse.max.to_string(), reuse.executed.to_string());
        let mut name = format!("pg_task {} {} ", self.queue.schema, self.queue.table).into_bytes();
        name.extend_from_slice(&reuse.group);
        let asked = [&reuse.group[..], max.as_bytes(), executed.as_bytes(), &reuse.started[..]].map(Some);
        let dressing = [self.queue.schema.as_bytes(), self.queue.table.as_bytes(), &name, self.name.as_bytes()];
        let floor = floor.map(|floor| [floor.max.to_string(), floor.priority.to_string(), floor.task.to_string()]);
        // No remote, and so no pid and session of it.
        let mut asked = [&asked[..], &[None, None, None, reuse.job.as_deref()], &dressing.map(Some)].concat();
        asked.extend(floor.iter().flatten().map(|number| Some(number.as_bytes())));
        let take = if reuse.job.is_some() { &self.next_run } else { &self.next_task };
        let take = if floor.is_some() { &take.floored } else { &take.anywhere };
        let frame = short_frame(session);
        let mut statements = self.short_way(&frame);
        let head = statements.len();
        statements.push(Statement::standing(&self.finish, &end));
        if record.output.is_none() && record.error.is_none() {
            statements.push(Statement::standing(&self.delete, &own));
        }
        statements.push(Statement::standing(take, &asked));
        statements.push(Statement::standing(COMMIT, &[]));
        let mut rows = tried(|| session.transaction(&statements))?;
        let next = rows.len().checked_sub(2).and_then(|at| rows[at].pop()).map(task_row);
        let next = next.map(|next| TaskRow { dressed: true, ..next }).into_iter().collect();
        tidy(session, &Framed::read(std::mem::take(&mut rows[head - 1])))?;
        Ok(Finished { written: !rows[head].is_empty(), next, renewed: true })
    }

    /// WORK → DONE or FAIL of several tasks without consequences, WORK → PLAN of those that were never sent, and the
    /// take of the next ones, if there are to be any. A task that is not among the written ones is no longer ours, or
    /// has consequences by now.
    pub fn finish_batch(
        &self,
        session: &mut Session,
        ends: &[End<'_>],
        back: &[(i64, i32)],
        wish: Option<Wish<'_>>,
    ) -> Result<BatchFinished, QueryError> {
        let entries = BatchEntries::new(self, ends, back, wish);
        let params = entries.params();
        let statements: Vec<_> = params.iter().map(|(text, values)| Statement::once(text, values)).collect();
        let rows = self.retried(session, &statements)?;
        Ok(entries.finished(rows, &Framed::default()))
    }

    /// The same by the short way, on the session that the batch ran on: it is made as new, in the same write, and the
    /// statements stand. True: a task has left prepared statements behind.
    pub fn finish_batch_renewed(
        &self,
        session: &mut Session,
        ends: &[End<'_>],
        back: &[(i64, i32)],
        wish: Option<Wish<'_>>,
    ) -> Result<(BatchFinished, bool), QueryError> {
        let entries = BatchEntries::new(self, ends, back, wish);
        let params = entries.params();
        let frame = short_frame(session);
        let mut statements = self.short_way(&frame);
        let head = statements.len();
        statements.extend(params.iter().map(|(text, values)| Statement::standing(text, values)));
        statements.push(Statement::standing(COMMIT, &[]));
        let mut rows = tried(|| session.transaction(&statements))?;
        rows.pop();
        let booked = rows.split_off(head);
        let framed = Framed::read(rows.pop().unwrap_or_default());
        let strange = tidy(session, &framed)?;
        Ok((entries.finished(booked, &framed), strange))
    }

    /// What makes the session as new, and what a booking on such a session begins with, in its own transaction. The last
    /// answer says whether the session is tidy.
    fn short_way<'a>(&self, frame: &'a str) -> Vec<Statement<'a>> {
        let mut statements = vec![Statement::standing(BEGIN, &[])];
        statements.extend(RENEWAL.map(|text| Statement::standing(text, &[])));
        if self.lazy {
            statements.push(Statement::standing(LAZY, &[]));
        }
        statements.push(Statement::standing(frame, &[]));
        statements
    }

    /// The same for one task that came alone and may be followed by several.
    pub fn next_batch(
        &self,
        session: &mut Session,
        row: &TaskRow,
        record: Record<'_>,
        wish: Wish<'_>,
    ) -> Result<(Finished, bool), QueryError> {
        let end = End { task: row.task, attempt: row.attempt, record, began: Duration::ZERO, ended: None };
        let (done, strange) = self.finish_batch_renewed(session, &[end], &[], Some(wish))?;
        Ok((Finished { written: !done.written.is_empty(), next: done.next, renewed: true }, strange))
    }

    fn take_text(&self, wish: Wish<'_>) -> Rc<str> {
        let crowd = |floor: Floor| if floor.is_crowded() { Crowd::Others } else { Crowd::Alone };
        let crowd = wish.floor.map(crowd);
        self.takes.borrow_mut().entry(crowd).or_insert_with(|| self.queue.fill_take_batch(crowd).into()).clone()
    }

    /// TAKE → WORK. None: the task is no longer ours.
    pub fn begin(&self, session: &mut Session, task: i64, attempt: i32) -> Result<Option<TaskRow>, QueryError> {
        let text = self.queue.fill(statement::BEGIN_TASK);
        let key = Key::new(task, attempt);
        let mut rows = self.transaction(session, &[Statement::once(&text, &key.params())])?;
        Ok(rows.pop().and_then(|mut rows| rows.pop()).map(task_row))
    }

    /// The row names the session on its remote. False: the task is no longer ours.
    pub fn begin_remote(
        &self,
        session: &mut Session,
        row: &TaskRow,
        pid: i32,
        name: &RemoteSession,
    ) -> Result<bool, QueryError> {
        let text = self.queue.fill(statement::BEGIN_REMOTE);
        let key = Key::new(row.task, row.attempt);
        let [task, attempt] = key.params();
        let (pid, name) = (pid.to_string(), name.to_string());
        let params = [task, attempt, Some(pid.as_bytes()), Some(name.as_bytes())];
        let rows = self.retried(session, &[Statement::once(&text, &params)])?;
        Ok(rows.first().is_some_and(|rows| !rows.is_empty()))
    }

    /// WORK → DONE or FAIL with its consequences, and the take of the next task, if there is to be one.
    pub fn finish(
        &self,
        session: &mut Session,
        row: &TaskRow,
        record: Record<'_>,
        consequences: Consequences,
        reuse: Option<&Reuse>,
    ) -> Result<Finished, QueryError> {
        let key = Key::new(row.task, row.attempt);
        let [task, attempt] = key.params();
        let reason = record.reason.map(str::as_bytes);
        let with: &[u8] = if consequences == Consequences::NoneExpected { b"f" } else { b"t" };
        let end = [task, attempt, Some(record.state.as_bytes()), record.output, record.error, reason, Some(with)];
        let pause = self.queue.fill(statement::PAUSE_GROUP);
        let repeat = if consequences == Consequences::Full { Some(self.repeat_text(session)?) } else { None };
        let own = [task, attempt];
        let mut statements = vec![Statement::once(&self.finish, &end)];
        if let Some(repeat) = &repeat {
            statements.push(Statement::once(repeat, &own));
            statements.push(Statement::once(&pause, &own));
        }
        if record.output.is_none() && record.error.is_none() {
            statements.push(Statement::once(&self.delete, &own));
        }
        let numbers = reuse.map(Numbers::new);
        let asked = reuse.zip(numbers.as_ref()).map(|(reuse, numbers)| numbers.params(reuse));
        let planning = format!("SELECT {}", set_locally(PLANNING.into_iter()));
        if let Some(asked) = &asked {
            if row.job.is_none() {
                statements.push(Statement::once(&planning, &[]));
            }
            statements.push(Statement::once(&self.next, asked));
        }
        let mut rows = self.retried(session, &statements)?;
        let next = if asked.is_some() { rows.pop().unwrap_or_default() } else { Vec::new() };
        let next = next.into_iter().map(task_row).collect();
        Ok(Finished { written: rows.first().is_some_and(|rows| !rows.is_empty()), next, renewed: false })
    }

    /// WORK → PLAN, or, for the run of a job, its end; by the session that ran it and runs nothing any more.
    pub fn plan_again(&self, session: &mut Session, row: &TaskRow, reason: &str) -> Result<bool, QueryError> {
        let text = self.queue.fill(statement::PLAN_AGAIN);
        let key = Key::new(row.task, row.attempt);
        let [task, attempt] = key.params();
        let params = [task, attempt, Some(reason.as_bytes()), Some(&b"{}"[..])];
        let rows = self.retried(session, &[Statement::once(&text, &params)])?;
        Ok(rows.first().is_some_and(|rows| !rows.is_empty()))
    }

    /// The end of an atomic task, inside the block that its input ran in; the caller commits. False: the task is no
    /// longer ours, and nothing of it may become true.
    pub fn record_in_block(
        &self,
        session: &mut Session,
        row: &TaskRow,
        record: Record<'_>,
    ) -> Result<bool, QueryError> {
        // The frame first: until then the path is the task's own, and whatever stands on it would be picked up.
        let frame = frame(server_major(session));
        let list = self.queue.fill(statement::LIST_COLUMNS);
        let mut first: Vec<Statement<'_>> = frame.iter().skip(1).map(|sql| Statement::once(sql, &[])).collect();
        first.push(Statement::once(&list, &[]));
        let columns = session.transaction(&first)?.pop().unwrap_or_default();
        let repeat = self.queue.fill_repeating(statement::REPEAT_TASK, &names(columns));
        let pause = self.queue.fill(statement::PAUSE_GROUP);
        let key = Key::new(row.task, row.attempt);
        let own = key.params();
        let [task, attempt] = own;
        let end = [task, attempt, Some(record.state.as_bytes()), record.output, record.error, None, Some(&b"t"[..])];
        let mut statements = vec![Statement::once(&self.finish, &end)];
        statements.extend([&repeat, &pause, &self.delete].map(|sql| Statement::once(sql, &own)));
        let rows = session.transaction(&statements)?;
        Ok(rows.first().is_some_and(|rows| !rows.is_empty()))
    }

    fn retried(&self, session: &mut Session, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, QueryError> {
        tried(|| self.transaction(session, statements))
    }

    /// The statements' rows, without those of the frame around them.
    fn transaction(&self, session: &mut Session, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, QueryError> {
        let mut own = frame(server_major(session));
        if self.lazy {
            own.push(LAZY.to_owned());
        }
        let mut all: Vec<Statement<'_>> = own.iter().map(|sql| Statement::once(sql, &[])).collect();
        all.extend_from_slice(statements);
        all.push(Statement::once("COMMIT", &[]));
        let mut rows = session.transaction(&all)?;
        rows.truncate(own.len() + statements.len());
        Ok(rows.split_off(own.len()))
    }

    /// The repetition copies the columns that the table has at this moment.
    fn repeat_text(&self, session: &mut Session) -> Result<String, QueryError> {
        let text = self.queue.fill(statement::LIST_COLUMNS);
        let rows = self.retried(session, &[Statement::once(&text, &[])])?;
        let columns = rows.into_iter().next().unwrap_or_default();
        Ok(self.queue.fill_repeating(statement::REPEAT_TASK, &names(columns)))
    }
}

/// Prepared statements that a task has left behind go, and ours with them. True: there were some.
fn tidy(session: &mut Session, framed: &Framed) -> Result<bool, QueryError> {
    if framed.strange {
        session.deallocate_all()?;
    }
    Ok(framed.strange)
}

/// What the frame of a booking has told of the session and its server.
#[derive(Default)]
struct Framed {
    /// There are prepared statements that are not ours.
    strange: bool,
    verbosity: Verbosity,
    postmaster: Vec<u8>,
}

impl Framed {
    fn read(mut rows: Vec<Row>) -> Framed {
        let mut values = rows.pop().unwrap_or_default().into_iter();
        let mut next = || values.next().flatten().unwrap_or_default();
        let (count, verbosity, postmaster) = (next(), next(), next());
        let verbosity = Verbosity::from_setting(&String::from_utf8_lossy(&verbosity)).unwrap_or_default();
        Framed { strange: count != b"0", verbosity, postmaster }
    }
}

/// The first value of each row, as text.
fn names(rows: Vec<Row>) -> Vec<String> {
    rows.into_iter().filter_map(|row| String::from_utf8(row.into_iter().next()??).ok()).collect()
}

/// Values as the text of an array.
fn array<'v>(values: impl Iterator<Item = Option<&'v [u8]>>) -> Vec<u8> {
    let mut text = vec![b'{'];
    for (i, value) in values.enumerate() {
        if i > 0 {
            text.push(b',');
        }
        match value {
            None => text.extend_from_slice(b"NULL"),
            Some(value) => {
                text.push(b'"');
                for byte in value {
                    if matches!(byte, b'"' | b'\\') {
                        text.push(b'\\');
                    }
                    text.push(*byte);
                }
                text.push(b'"');
            }
        }
    }
    text.push(b'}');
    text
}

/// Several ends as parameters of one statement.
struct Ends {
    count: usize,
    values: [Vec<u8>; 7],
}

impl Ends {
    fn of<'e>(ends: impl Iterator<Item = &'e End<'e>>) -> Ends {
        let ends: Vec<&End<'_>> = ends.collect();
        let numbers = |number: &dyn Fn(&End<'_>) -> String| {
            let texts: Vec<String> = ends.iter().map(|end| number(end)).collect();
            array(texts.iter().map(|text| Some(text.as_bytes())))
        };
        let micros = |span: Duration| span.as_micros().to_string();
        let ended: Vec<Option<String>> = ends.iter().map(|end| end.ended.map(micros)).collect();
        let values = [
            numbers(&|end| end.task.to_string()),
            numbers(&|end| end.attempt.to_string()),
            array(ends.iter().map(|end| end.record.output)),
            array(ends.iter().map(|end| end.record.error)),
            array(ends.iter().map(|end| end.record.reason.map(str::as_bytes))),
            numbers(&|end| micros(end.began)),
            array(ended.iter().map(|micros| micros.as_ref().map(String::as_bytes))),
        ];
        Ends { count: ends.len(), values }
    }
}

/// What is written about a batch: the statements' texts, and what their parameters are made of.
struct BatchEntries<'b> {
    /// By the state that they write.
    ended: Vec<(&'b str, Ends)>,
    /// Deletes those without a result, if there may be any.
    delete: Option<&'b str>,
    /// Plans again what was never sent.
    back: Option<(&'b str, [Vec<u8>; 2])>,
    take: Option<(Rc<str>, Asking, Wish<'b>)>,
}

impl<'b> BatchEntries<'b> {
    fn new(book: &'b Book, ends: &[End<'_>], back: &[(i64, i32)], wish: Option<Wish<'b>>) -> BatchEntries<'b> {
        let ended = book
            .finish_batch
            .iter()
            .map(|(state, text)| (text.as_str(), Ends::of(ends.iter().filter(|end| end.record.state == *state))));
        let silent = ends.iter().any(|end| end.record.output.is_none() && end.record.error.is_none());
        let numbers = |number: &dyn Fn(&(i64, i32)) -> String| {
            let texts: Vec<String> = back.iter().map(number).collect();
            array(texts.iter().map(|text| Some(text.as_bytes())))
        };
        let returned = [numbers(&|(task, _)| task.to_string()), numbers(&|(_, attempt)| attempt.to_string())];
        BatchEntries {
            ended: ended.filter(|(_, ends)| ends.count > 0).collect(),
            delete: silent.then_some(&book.delete_batch),
            back: (!back.is_empty()).then_some((&book.return_batch, returned)),
            take: wish.map(|wish| (book.take_text(wish), Asking::new(wish), wish)),
        }
    }

    /// The statements in their order: ends first, the take last.
    fn params(&self) -> Vec<(&str, Vec<Option<&[u8]>>)> {
        fn given(values: &[Vec<u8>]) -> Vec<Option<&[u8]>> {
            values.iter().map(|value| Some(&value[..])).collect()
        }
        let mut all: Vec<(&str, Vec<Option<&[u8]>>)> =
            self.ended.iter().map(|(text, ends)| (*text, given(&ends.values))).collect();
        if let Some(delete) = self.delete {
            all.extend(self.ended.iter().map(|(_, ends)| (delete, given(&ends.values[..2]))));
        }
        all.extend(self.back.iter().map(|(text, values)| (*text, given(values))));
        all.extend(self.take.iter().map(|(text, asking, wish)| (&**text, asking.params(*wish))));
        all
    }

    /// What the statements have answered.
    fn finished(&self, mut rows: Vec<Vec<Row>>, framed: &Framed) -> BatchFinished {
        let mut next = Vec::new();
        if let Some((_, _, wish)) = &self.take {
            let taken = rows.pop().unwrap_or_default().into_iter();
            next.extend(taken.map(|row| batch_row(row, wish.reuse, framed)));
        }
        next.sort_by_key(|row| (std::cmp::Reverse((row.max, row.priority)), row.task));
        let written = rows.into_iter().take(self.ended.len()).flatten().collect();
        let written = names(written).iter().filter_map(|id| id.parse().ok()).collect();
        BatchFinished { written, next }
    }
}

/// Id and attempt as parameters.
struct Key {
    task: String,
    attempt: String,
}

impl Key {
    fn new(task: i64, attempt: i32) -> Key {
        Key { task: task.to_string(), attempt: attempt.to_string() }
    }

    fn params(&self) -> [Option<&[u8]>; 2] {
        [Some(self.task.as_bytes()), Some(self.attempt.as_bytes())]
    }
}

/// The numbers of `Reuse` as parameters.
struct Numbers {
    max: String,
    executed: String,
}

impl Numbers {
    fn new(reuse: &Reuse) -> Numbers {
        Numbers { max: reuse.max.to_string(), executed: reuse.executed.to_string() }
    }

    fn params<'a>(&'a self, reuse: &'a Reuse) -> [Option<&'a [u8]>; 8] {
        let far = reuse.far.as_ref();
        [
            Some(&reuse.group[..]),
            Some(self.max.as_bytes()),
            Some(self.executed.as_bytes()),
            Some(&reuse.started[..]),
            far.map(|far| &far.remote[..]),
            far.map(|far| far.pid.as_bytes()),
            far.map(|far| far.name.as_bytes()),
            reuse.job.as_deref(),
        ]
    }
}

/// The numbers of a `Wish` as parameters.
struct Asking {
    numbers: Numbers,
    size: String,
    floor: Option<[String; 3]>,
}

impl Asking {
    fn new(wish: Wish<'_>) -> Asking {
        let floor = wish.floor.map(|floor| [floor.max.to_string(), floor.priority.to_string(), floor.task.to_string()]);
        Asking { numbers: Numbers::new(wish.reuse), size: wish.size.to_string(), floor }
    }

    fn params<'a>(&'a self, wish: Wish<'a>) -> Vec<Option<&'a [u8]>> {
        let mut asked = self.numbers.params(wish.reuse)[..4].to_vec();
        asked.push(Some(self.size.as_bytes()));
        asked.extend(self.floor.iter().flatten().map(|number| Some(number.as_bytes())));
        asked
    }
}

/// When the server started: a session lost to a restart is told from one that somebody ended.
pub fn postmaster(session: &mut Session) -> Result<Vec<u8>, QueryError> {
    let rows = session.execute("SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())", &[])?;
    Ok(rows.into_iter().flatten().flatten().next().unwrap_or_default())
}

fn tried(mut once: impl FnMut() -> Result<Vec<Vec<Row>>, QueryError>) -> Result<Vec<Vec<Row>>, QueryError> {
    let mut tries = 1;
    loop {
        match once() {
            Err(QueryError::Server(error)) if passes(&error) && tries < TRIES => tries += 1,
            answer => return answer,
        }
    }
}

/// Serialization failure, deadlock, a cancel that came late; a statement that stands no more, or whose table changed.
fn passes(error: &ServerError) -> bool {
    matches!(error.code(), Some(b"40001" | b"40P01" | b"57014" | b"26000" | b"42P05"))
        || (error.code() == Some(b"0A000") && error.message().is_some_and(|text| text.starts_with(b"cached plan")))
}

/// The books of a queue whose owner wants it so: its last commits may be lost with the server.
const LAZY: &str = "SET LOCAL synchronous_commit = off";

pub const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
pub const COMMIT: &str = "COMMIT";

/// As new, but for prepared statements and locks, which the frame sees to: all that DISCARD ALL does, but our plans stay.
pub const RENEWAL: [&str; 6] =
    ["SET SESSION AUTHORIZATION DEFAULT", "RESET ALL", "CLOSE ALL", "UNLISTEN *", "DISCARD TEMP", "DISCARD SEQUENCES"];

/// What a booking relies on, for itself alone: that nothing stops it, and that all rows are seen.
const SETTINGS: [(&str, &str); 5] = [
    ("search_path", "pg_catalog, pg_temp"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("row_security", "off"),
];
/// And where tasks follow each other, that the rows that wait are read in the order of their index, whatever the statistics
/// say: those of a table that was just filled know nothing of its rows. A plan of its own for each group would cost more
/// than the take, and the server would rather read and sort all rows that wait. What the triggers of jobs read is planned
/// so too, once per session; nothing is compiled, whatever it is thought to cost.
const PLANNING: [(&str, &str); 5] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("jit", "off"),
];
/// From version 17 on.
const TRANSACTION_TIMEOUT: (&str, &str) = ("transaction_timeout", "0");

fn settings(major: u32) -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS.into_iter().chain((major >= 17).then_some(TRANSACTION_TIMEOUT))
}

/// The same on a session that is as new, as one statement. Answers how many prepared statements there are that are not
/// ours, and what else `Framed` reads, and gives the task's locks back. Which are ours stands in the text: it is the same for as long as the session lives.
fn short_frame(session: &Session) -> String {
    let set = set_locally(settings(server_major(session)).chain(PLANNING));
    let ours = literal(session.standing_prefix());
    format!(
        "SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_statement() AS p \
         WHERE NOT pg_catalog.starts_with(p.name, {ours})), pg_catalog.current_setting('log_error_verbosity'), \
         extract(epoch FROM pg_catalog.pg_postmaster_start_time()), pg_catalog.pg_advisory_unlock_all(), {set}"
    )
}

/// As items of a SELECT.
fn set_locally<'s>(settings: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    let set = settings.map(|(name, value)| format!("pg_catalog.set_config('{name}', '{value}', true)"));
    set.collect::<Vec<_>>().join(", ")
}

fn frame(major: u32) -> Vec<String> {
    let own = [BEGIN, "SET LOCAL SESSION AUTHORIZATION DEFAULT", "SET LOCAL ROLE NONE"].map(str::to_owned);
    own.into_iter()
        .chain(settings(major).map(|(name, value)| format!("SET LOCAL {name} = {}", literal_list(value))))
        .collect()
}

/// A path is a list of names, everything else one word.
fn literal_list(value: &str) -> String {
    if value.contains(',') { value.to_owned() } else { format!("'{value}'") }
}

fn server_major(session: &Session) -> u32 {
    let version = session.parameter("server_version").unwrap_or_default();
    let digits: String = version.iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| *byte as char).collect();
    digits.parse().unwrap_or(0)
}

/// A value of type "char". A byte that is no ASCII is written by newer servers as a backslash and three octal digits.
fn character(value: Option<Vec<u8>>) -> Option<u8> {
    let bytes = value?;
    match bytes[..] {
        [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'] => {
            Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
        }
        _ => bytes.first().copied(),
    }
}

/// The values of a row, in the order of the statement's RETURNING list.
struct Values(std::vec::IntoIter<Option<Vec<u8>>>);

impl Values {
    fn bytes(&mut self) -> Option<Vec<u8>> {
        self.0.next().flatten()
    }

    fn text(&mut self) -> String {
        self.bytes().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    }

    fn number<T: std::str::FromStr + Default>(&mut self) -> T {
        self.text().parse().unwrap_or_default()
    }

    /// As a truth value is written, or as it is cast to text.
    fn truth(&mut self) -> bool {
        matches!(self.bytes().as_deref(), Some(b"t" | b"true"))
    }

    fn format(&mut self) -> Format {
        Format {
            header: self.truth(),
            string: self.truth(),
            delimiter: character(self.bytes()),
            escape: character(self.bytes()),
            quote: character(self.bytes()),
            null: self.bytes().unwrap_or_default(),
        }
    }
}

pub fn task_row(row: Row) -> TaskRow {
    let mut values = Values(row.into_iter());
    TaskRow {
        task: values.number(),
        attempt: values.number(),
        input: values.bytes().unwrap_or_default(),
        group: values.bytes().unwrap_or_default(),
        remote: values.bytes(),
        atomic: values.truth(),
        format: values.format(),
        timeout_ms: values.number(),
        verbosity: Verbosity::from_setting(&values.text()).unwrap_or_default(),
        postmaster: values.bytes().unwrap_or_default(),
        start: values.bytes().unwrap_or_default(),
        max: values.number(),
        reuse: values.truth(),
        save: values.truth(),
        consequences: values.truth(),
        job: values.bytes(),
        at: values.bytes(),
        priority: values.number(),
        dressed: false,
        sign: None,
    }
}

/// One of several that were taken together, with what is the same for all of them.
fn batch_row(row: Row, reuse: &Reuse, framed: &Framed) -> TaskRow {
    let mut values = Values(row.into_iter());
    TaskRow {
        task: values.number(),
        attempt: values.number(),
        input: values.bytes().unwrap_or_default(),
        group: reuse.group.clone(),
        remote: None,
        atomic: values.truth(),
        format: values.format(),
        timeout_ms: values.number(),
        verbosity: framed.verbosity,
        postmaster: framed.postmaster.clone(),
        start: reuse.started.clone(),
        max: values.number(),
        reuse: values.truth(),
        save: values.truth(),
        consequences: values.truth(),
        job: None,
        at: None,
        priority: values.number(),
        dressed: false,
        sign: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{array, character};

    #[test]
    fn an_array_says_which_values_are_null_and_which_only_look_like_it() {
        let values: [Option<&[u8]>; 4] = [Some(b"a\"b\\c"), None, Some(b"NULL"), Some(b"")];
        assert_eq!(array(values.into_iter()), br#"{"a\"b\\c",NULL,"NULL",""}"#);
        assert_eq!(array(std::iter::empty()), b"{}");
    }

    #[test]
    fn a_character_is_one_byte_however_the_server_writes_it() {
        let read = |text: &[u8]| character(Some(text.to_vec()));
        assert_eq!(read(b"\t"), Some(b'\t'));
        assert_eq!(read(b"\\"), Some(b'\\'));
        assert_eq!(read(b"\\303"), Some(0xc3));
        assert_eq!(read(b"\\377"), Some(0xff));
        assert_eq!(read(b"\xe9"), Some(0xe9));
        assert_eq!((read(b""), character(None)), (None, None));
    }
}
