//! A task that runs on another server: its input goes there, its books stay here.
//!
//! Two sessions: `home`, on our own server, begins the row and writes its end; the far one runs the input and nothing
//! else of ours but a few settings. Before the input is sent the row names the far session so that it can be found
//! again whoever dies. What fails before that (a conninfo that may not be used, a remote that is not to be reached) is
//! the task's failure, without a STATEMENT line. A far session that is lost says nothing about its task: the
//! scheduler finds out what became of it, and this worker leaves the row alone.
//! A worker serves one group of one remote, so it is for remote tasks all its life, and keeps the far session.

use crate::book::{Book, FarReuse, Record, Reuse, TaskRow};
use crate::error_text::error_text;
use crate::execute::{Next, Run, Sent, announce};
use crate::outcome::{Ending, Server, Verdict, verdict};
use crate::session::{self, WATCHED};
use crate::watchdog::{Watchdog, Watched};
use crate::wire::{ConnectError, QueryError, ServerError, Session, Statement};
use shared::conninfo::untrusted::Remote;
use shared::db::pinned::FIXED_PATH;
use shared::db::remote_session::{Found, RemoteSession};
use shared::db::statement::{self, bare};
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::process::order::WorkerOrder;
use shared::region::{Region, SlotHandle};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const CANNOT_CONNECT: &str = "08001";
/// How long a result waits for our own server to come back.
const HOME_PATIENCE: Duration = Duration::from_secs(600);
const HOME_PAUSE: Duration = Duration::from_millis(500);

/// The session on the remote, and how to find it again.
struct Far {
    session: Session,
    /// At the very place where the session is.
    remote: Remote,
    pid: i32,
    name: RemoteSession,
}

/// What all tasks of this worker have in common.
pub(crate) struct Workplace<'a> {
    pub(crate) order: &'a WorkerOrder,
    pub(crate) region: &'a Region,
    pub(crate) slot: SlotHandle,
    pub(crate) watchdog: &'a Watchdog,
    pub(crate) book: &'a Book,
}

/// Runs tasks until there are none for this worker. The first is begun and not yet anywhere.
pub(crate) fn execute(place: &Workplace<'_>, mut home: Session, mut row: TaskRow) -> ExitCode {
    let (max, started) = (row.max, row.start.clone());
    let target = Arc::new(place.order.target.clone());
    let mut far: Option<Far> = None;
    let mut executed = 0;
    loop {
        executed += 1;
        let backend = far.as_ref().map_or(home.backend_pid(), |far| -far.pid);
        place.region.slots().notes(place.slot).set_running(row.task, row.attempt, backend);
        announce(place.order, &row);
        let job = row.job.clone();
        let reuse = Reuse { group: row.group.clone(), max, executed, started: started.clone(), far: None, job };
        let mut run = Run {
            order: place.order,
            target: &target,
            book: place.book,
            row: &row,
            watchdog: place.watchdog,
            reuse,
            floor: None,
            notes: place.region.slots().notes(place.slot),
            desk: None,
            pace: None,
        };
        let there = match far.take() {
            Some(far) => far,
            None => match run.reach(&home) {
                Ok(far) => match place.book.begin_remote(&mut home, run.row, far.pid, &far.name) {
                    Ok(true) => far,
                    Ok(false) => {
                        shared::debug!("the task is no longer ours", task = run.row.task);
                        return ExitCode::Asked;
                    }
                    // Nothing has been sent: the scheduler plans it again.
                    Err(_) => return ExitCode::Temporary,
                },
                Err(text) => return run.fail(home, &text, false).code(),
            },
        };
        place.region.slots().notes(place.slot).set_running(run.row.task, run.row.attempt, -there.pid);
        fault::point("worker.after_begin");
        let remote = run.row.remote.clone().unwrap_or_default();
        run.reuse.far = Some(FarReuse { remote, pid: there.pid.to_string(), name: there.name.to_string() });
        let (next, kept) = run.run_far(home, there);
        match next {
            Next::Leave(code) => return code,
            Next::Run(next) => {
                let (rows, session) = *next;
                let Some(next) = rows.into_iter().next() else { return ExitCode::Asked };
                (row, home) = (next, session);
            }
        }
        far = kept;
        if far.is_none() {
            // The next task is ours, names the lost session, and is not begun.
            return ExitCode::Unsettled;
        }
    }
}

impl Run<'_> {
    /// A session on the row's remote, or the text of the failure.
    fn reach(&self, home: &Session) -> Result<Far, Vec<u8>> {
        let own =
            |code: &str, text: &str| error_text(&ServerError::local("ERROR", code, text), None, self.row.verbosity);
        if self.row.atomic {
            let mut text =
                own("0A000", "an atomic task cannot be remote: its effects and its result are on two servers");
            text.extend_from_slice(b"\nHINT:  Insert the task with atomic = false.");
            return Err(text);
        }
        let text = self.row.remote.as_deref().unwrap_or_default();
        let remote = Remote::find(text, &self.order.remotes).map_err(|error| own("08001", &error.to_string()))?;
        let mut session = self.connect(home, &remote).map_err(|error| match error {
            ConnectError::Server(refusal) => error_text(&refusal, None, self.row.verbosity),
            other => own(CANNOT_CONNECT, &other.to_string()),
        })?;
        if remote.password_must_count && !session.password_counted() {
            session.close();
            let why = "the remote did not ask for the password; a server that trusts this host needs an entry of the \
                       config's remotes";
            return Err(own("28P01", why));
        }
        // One that falls silent now is given up like one that never answered.
        session.set_patience(remote.patience());
        let place = session.place();
        let (pid, name) = introduce(&mut session, place).map_err(|error| match &error {
            QueryError::Server(refusal) => error_text(refusal, None, self.row.verbosity),
            QueryError::Link(lost) => own(CANNOT_CONNECT, &lost.to_string()),
        })?;
        session.learn_backend(Some(pid.to_string().as_bytes()));
        let here = remote.clone().at(place).unwrap_or(remote);
        Ok(Far { session, remote: here, pid, name })
    }

    /// Not in the budget of connections, which is our own server's, and not through a gate: there is one connect at
    /// a time in each worker, and a remote that does not answer must not stand in anybody's way.
    fn connect(&self, home: &Session, remote: &Remote) -> Result<Session, ConnectError> {
        let name = session::application_name(self.order);
        let encoding = match home.parameter("client_encoding") {
            Some(b"SQL_ASCII") => "SQL_ASCII",
            _ => "UTF8",
        };
        let options = options(self.order, self.row.task);
        let deadline = Instant::now() + remote.patience();
        let usual = [("application_name", name.as_str()), ("client_encoding", encoding), ("options", options.as_str())];
        let watched: Vec<(&str, &str)> = usual.into_iter().chain(WATCHED).collect();
        match Session::connect(&remote.target, &watched, deadline) {
            // Another version or system than ours: it cannot look for its client, and is asked to do without.
            Err(ConnectError::Server(refusal)) if matches!(refusal.code(), Some(b"42704" | b"22023")) => {
                Session::connect(&remote.target, &usual, deadline)
            }
            answer => answer,
        }
    }

    /// Runs the input there and concludes here. The far session comes back if it may be used again.
    fn run_far(self, mut home: Session, far: Far) -> (Next, Option<Far>) {
        let Far { mut session, remote, pid, name } = far;
        // For `why`, and against a second attempt: whoever stops the row and plans it again must wait for us.
        let marked = session::mark(&mut home, self.order, self.row);
        if let Err(error) = marked {
            shared::debug!("the task's lock is not held", task = self.row.task, error = error);
        }
        match session::dress_far(&mut session, self.order, self.row) {
            Ok(()) => {}
            Err(QueryError::Server(refusal)) => {
                return (self.fail(home, &error_text(&refusal, None, self.row.verbosity), false), None);
            }
            Err(QueryError::Link(lost)) => {
                let error = ServerError::local("ERROR", "08006", &lost.to_string());
                return (self.fail(home, &error_text(&error, None, self.row.verbosity), false), None);
            }
        }
        let timeout = u64::try_from(self.row.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        self.watchdog.started(Watched {
            task: self.row.task,
            attempt: self.row.attempt,
            canceller: session.canceller(),
            hang_up: session.as_fd().try_clone_to_owned().ok().map(Arc::new),
            timeout,
            target: Arc::new(remote.target.clone()),
            far: true,
            batch: false,
        });
        let began = Instant::now();
        let mut outcome = match self.send(session) {
            Sent::Ran(outcome) => *outcome,
            // The session was set up before.
            Sent::Refused(..) | Sent::Left(_) => return (Next::Leave(ExitCode::Unsettled), None),
        };
        let timed_out = outcome.said_timeout || timeout.is_some_and(|timeout| began.elapsed() >= timeout);
        let cancelled = self.cancelled(&outcome);
        if let Ending::Lost { server, .. } = &mut outcome.ending {
            *server = look_far_again(&remote, pid, &name);
        }
        fault::point("worker.before_finish");
        let session = outcome.session.take();
        if let (None, Verdict::PlanAgain { reason }) = (&session, verdict(&outcome.ending, cancelled, timed_out)) {
            self.leave_word(reason);
            if outcome.severed && cancelled.is_none() {
                self.notes.set_severed(name.server_began_us);
            }
            shared::info!("session on the remote lost; its task's outcome is to be found out", task = self.row.task);
            home.close();
            return (Next::Leave(ExitCode::Unsettled), None);
        }
        outcome.session = self.come_home(home);
        let next = self.conclude(outcome, cancelled, timed_out);
        let kept = match (&next, session) {
            (Next::Run(_), Some(mut session)) => match session::undress_far(&mut session, self.row) {
                Ok(()) => Some(Far { session, remote, pid, name }),
                Err(error) => {
                    shared::warning!("the remote session cannot be used again", task = self.row.task, error = error);
                    None
                }
            },
            (Next::Leave(_), Some(session)) => {
                session.close();
                None
            }
            (_, None) => None,
        };
        (next, kept)
    }

    /// The session here, made anew if it was lost meanwhile. Our own server may have been away for a while; what the
    /// remote has done must not be done again only because of that.
    fn come_home(&self, mut home: Session) -> Option<Session> {
        if home.execute("SELECT 1", &[]).is_ok() {
            return Some(home);
        }
        let deadline = Instant::now() + HOME_PATIENCE;
        while Instant::now() < deadline && !self.watchdog.last_task() {
            if let Ok(home) = session::reopen(self.order, false) {
                return Some(home);
            }
            thread::sleep(HOME_PAUSE);
        }
        None
    }

    fn fail(&self, home: Session, text: &[u8], again: bool) -> Next {
        let record = Record { state: "FAIL", output: Some(b""), error: Some(text), reason: None, code: None };
        self.write(Some(home), record, again)
    }
}

/// Who the far session is, in the remote's own words.
fn introduce(session: &mut Session, place: usize) -> Result<(i32, RemoteSession), QueryError> {
    let text = bare(statement::NAME_REMOTE);
    let block = ["BEGIN", "SET LOCAL search_path = pg_catalog, pg_temp", &text, "COMMIT"];
    let rows = session.transaction(&block.map(|sql| Statement::once(sql, &[])))?;
    let rows = rows.into_iter().nth(2).unwrap_or_default();
    let number = |at: usize| -> Option<i64> {
        let text = rows.first()?.get(at)?.as_deref()?;
        std::str::from_utf8(text).ok()?.parse().ok()
    };
    let introduced = || {
        let name = RemoteSession { place, began_us: number(1)?, server_began_us: number(2)? };
        Some((i32::try_from(number(0)?).ok()?, name))
    };
    introduced().ok_or_else(|| {
        let text = "the remote does not tell who its session is; is it behind a pooler that lends sessions?";
        QueryError::Server(ServerError::local("ERROR", "08001", text))
    })
}

/// After a lost session: is it the same server still? Nobody waits for that session any more, so it is ended.
fn look_far_again(remote: &Remote, pid: i32, name: &RemoteSession) -> Server {
    let Ok(mut session) = Session::connect(&remote.target, &[], Instant::now() + remote.patience()) else {
        return Server::Other;
    };
    let (pid, began) = (pid.to_string(), name.began_us.to_string());
    let values = [Some(pid.as_bytes()), Some(began.as_bytes()), Some(&b"t"[..])];
    session.set_patience(remote.patience());
    let rows = session
        .execute(FIXED_PATH, &[])
        .and_then(|_| session.execute(&bare(statement::END_REMOTE), &values))
        .unwrap_or_default();
    session.close();
    let text = |at: usize| rows.first().and_then(|row| row.get(at)).and_then(Option::as_deref).unwrap_or_default();
    let server_began = std::str::from_utf8(text(0)).ok().and_then(|text| text.parse().ok());
    match server_began.map(|began| name.judge(began, text(1) == b"t")) {
        Some(Found::Alive | Found::Gone) if server_began == Some(name.server_began_us) => Server::Same,
        _ => Server::Other,
    }
}

/// What a task's SQL may read from the first moment on; `options` of the conninfo stand before it.
fn options(order: &WorkerOrder, task: i64) -> String {
    let task = task.to_string();
    [("schema", order.schema.as_str()), ("table", &order.table), ("id", &task)]
        .map(|(name, value)| format!("-c pg_task.{name}={}", escaped(value)))
        .join(" ")
}

/// A value in `options`: blanks and backslashes get a backslash.
fn escaped(value: &str) -> String {
    value.chars().flat_map(|c| (c.is_whitespace() || c == '\\').then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_value_in_options_stays_one_value() {
        assert_eq!(escaped("public"), "public");
        assert_eq!(escaped("my schema\\x -c a=b"), "my\\ schema\\\\x\\ -c\\ a=b");
    }
}
