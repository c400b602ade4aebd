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
//!
//! What a row tells is read in `row`; several ends at once are written in `batch`.

mod batch;
mod row;

pub use batch::{End, Wish};
pub use row::{Floor, TaskRow, task_row};

use crate::error_text::Verbosity;
use crate::wire::{QueryError, Row, ServerError, Session, Statement};
use shared::db::identifier::literal;
use shared::db::remote_session::RemoteSession;
use shared::db::server::proof_item;
use shared::db::statement::{self, Crowd, Dress, Queue};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A deadlock or a late cancel is worth another try; more of them in a row are not bad luck.
const TRIES: usize = 5;

/// What is written at the end.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub state: &'static str,
    pub output: Option<&'a [u8]>,
    pub error: Option<&'a [u8]>,
    pub reason: Option<&'static str>,
    /// The SQLSTATE of the error, for the history of jobs.
    pub code: Option<Code>,
}

pub type Code = [u8; 5];

/// A SQLSTATE as the server sent it.
pub fn code(text: Option<&[u8]>) -> Option<Code> {
    text.and_then(|text| text.try_into().ok())
}

/// The row trigger of a run reads the SQLSTATE of its end from this setting.
const SET_CODE: &str = "SELECT pg_catalog.set_config('mill.sqlstate', $1, true)";

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

/// The take that dresses the session for what it has found.
#[derive(Debug)]
struct NextDressed {
    anywhere: String,
    floored: String,
}

impl NextDressed {
    fn new(queue: &Queue, dress: Dress, proof: Option<i64>) -> NextDressed {
        let [anywhere, floored] = [false, true].map(|floor| queue.fill_take_next(Some(dress), floor, proof));
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
    /// What the scheduler's session holds as a lock.
    proof: Option<i64>,
}

impl Book {
    /// `proof`: nothing is begun or claimed where nobody holds this number.
    pub fn new(queue: Queue, lazy: bool, proof: Option<i64>) -> Book {
        Book {
            lazy,
            proof,
            finish_batch: ["DONE", "FAIL"].map(|state| (state, queue.fill_finish_batch(state))),
            delete_batch: queue.fill(statement::DELETE_BATCH),
            return_batch: queue.fill(statement::RETURN_BATCH),
            takes: RefCell::default(),
            finish: queue.fill(statement::FINISH_TASK),
            delete: queue.fill(statement::DELETE_FINISHED),
            next: queue.fill_take_next(None, false, proof),
            next_task: NextDressed::new(&queue, Dress::Task, proof),
            next_run: NextDressed::new(&queue, Dress::Run, proof),
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
        let floor = floor.map(Floor::numbers);
        // No remote, and so no pid and session of it.
        let mut asked = [&asked[..], &[None, None, None, reuse.job.as_deref()], &dressing.map(Some)].concat();
        asked.extend(floor.iter().flatten().map(|number| Some(number.as_bytes())));
        let take = if reuse.job.is_some() { &self.next_run } else { &self.next_task };
        let take = if floor.is_some() { &take.floored } else { &take.anywhere };
        let frame = short_frame(session);
        let mut statements = self.short_way(&frame);
        let code = [record.code.as_ref().map(|code| &code[..])];
        let framed = statements.len() - 1;
        if row.job.is_some() && record.code.is_some() {
            statements.push(Statement::standing(SET_CODE, &code));
        }
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
        tidy(session, &Framed::read(std::mem::take(&mut rows[framed])))?;
        Ok(Finished { written: !rows[head].is_empty(), next, renewed: true })
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

    /// TAKE → WORK. None: the task is no longer ours.
    pub fn begin(&self, session: &mut Session, task: i64, attempt: i32) -> Result<Option<TaskRow>, QueryError> {
        let text = self.queue.fill(statement::BEGIN_TASK);
        let key = Key::new(task, attempt);
        let params = key.params();
        let proof = self.proof.map(|proof| format!("SELECT {}", proof_item(proof)));
        let mut statements: Vec<Statement<'_>> = proof.iter().map(|text| Statement::once(text, &[])).collect();
        statements.push(Statement::once(&text, &params));
        let mut rows = self.transaction(session, &statements)?;
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
        let code = [record.code.as_ref().map(|code| &code[..])];
        let mut statements = Vec::new();
        if row.job.is_some() && record.code.is_some() {
            statements.push(Statement::once(SET_CODE, &code));
        }
        let head = statements.len();
        statements.push(Statement::once(&self.finish, &end));
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
        Ok(Finished { written: rows.get(head).is_some_and(|rows| !rows.is_empty()), next, renewed: false })
    }

    /// WORK → PLAN, or, for the run of a job, its end; by the session that ran it and runs nothing any more.
    /// `severed`: it was lost without a word, and the server that it was on began then.
    pub fn plan_again(
        &self,
        session: &mut Session,
        row: &TaskRow,
        reason: &str,
        severed: Option<i64>,
    ) -> Result<bool, QueryError> {
        let text = self.queue.fill(statement::PLAN_AGAIN);
        let key = Key::new(row.task, row.attempt);
        let [task, attempt] = key.params();
        let (dead, server) = (if severed.is_some() { b"t" } else { b"f" }, severed.map(|began| began.to_string()));
        let server = server.as_ref().map(String::as_bytes);
        let params = [task, attempt, Some(reason.as_bytes()), Some(&b"{}"[..]), Some(&dead[..]), server];
        let rows = self.retried(session, &[Statement::once(&text, &params)])?;
        let spent = |row: &Row| row.get(2).and_then(Option::as_deref) == Some(b"t");
        Ok(rows.first().and_then(|rows| rows.first()).is_some_and(|row| !spent(row)))
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
/// than the take, and the server would rather read and sort all rows that wait, or join the rows of a batch by a hash. What the triggers of jobs read is planned
/// so too, once per session; nothing is compiled, whatever it is thought to cost.
const PLANNING: [(&str, &str); 6] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("enable_hashjoin", "off"),
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
