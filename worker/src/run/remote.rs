//! A task that runs on another server: its input goes there, its row stays here.
//!
//! Two sessions: `home`, on our own server, begins the row and writes its end; the far one runs the input and nothing
//! else of ours but a few settings. Before the input is sent the row names the far session so that it can be found
//! again whoever dies. What fails before that (a conninfo that may not be used, a remote that is not to be reached) is
//! the task's failure, without a STATEMENT line. A far session that is lost says nothing about its task: the
//! scheduler finds out what became of it, and this worker leaves the row alone.
//! A worker serves one group of one remote, so it is for remote tasks all its life, and keeps the far session.

use super::input::Sent;
use super::task_run::{Next, TaskRun};
use super::watchdog::WatchedInput;
use super::worker::Worker;
use crate::limits::{HOME_PAUSE, HOME_TIMEOUT};
use crate::record::RemoteClaimant;
use crate::result::error_text::error_text;
use crate::result::outcome::{Ending, Server, Verdict, verdict};
use crate::session::reset::BetweenTasks;
use crate::session::{setup, task_lock};
use crate::task_row::TaskRow;
use crate::wire::{ConnectError, QueryError, ServerError, Session, Statement};
use shared::conninfo::untrusted::Remote;
use shared::db::pinned::{FIXED_PATH, WATCH};
use shared::db::remote_session::{FoundSession, RemoteSession};
use shared::db::statement::{self, bare};
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

const CANNOT_CONNECT: &str = "08001";

/// The session on the remote, and how to find it again.
pub(super) struct Far {
    session: Session,
    /// At the very place where the session is.
    remote: Remote,
    pid: i32,
    name: RemoteSession,
}

impl Far {
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }
}

/// Runs one task. The first one of a worker is begun and not yet anywhere; the later ones run on the same session (`far`).
pub(super) fn run(worker: &Worker<'_>, mut home: Session, row: &TaskRow, far: &mut Option<Far>) -> Next {
    worker.count();
    let mut run = TaskRun::new(worker, row, None);
    let there = match far.take() {
        Some(far) => far,
        None => match run.reach(&home) {
            Ok(far) => match worker.context.statements.begin_remote(&mut home, row.key(), far.pid, &far.name) {
                Ok(true) => far,
                Ok(false) => {
                    shared::debug!("task does not belong to this worker any more", task = row.task);
                    return Next::Exit(ExitCode::Asked);
                }
                // Nothing has been sent: the scheduler plans it again.
                Err(_) => return Next::Exit(ExitCode::Temporary),
            },
            Err(text) => return run.fail(home, text),
        },
    };
    worker.slot_status().set_running(row.task, row.attempt, -there.pid);
    fault::point("worker.after_begin");
    let remote = row.remote.clone().unwrap_or_default();
    run.remote = Some(RemoteClaimant { remote, pid: there.pid.to_string(), name: there.name.to_string() });
    let (next, kept) = run.run_far(home, there);
    *far = kept;
    match next {
        // The next task is ours, names the lost session, and is not begun.
        Next::Continue(_) if far.is_none() => Next::Exit(ExitCode::Unsettled),
        next => next,
    }
}

impl TaskRun<'_> {
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
        let remote =
            Remote::find(text, &self.worker.order().remotes).map_err(|error| own("08001", &error.to_string()))?;
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
        session.set_answer_timeout(remote.total_connect_timeout());
        let place = session.place();
        let (pid, name) = introduce(&mut session, place).map_err(|error| match &error {
            QueryError::Server(refusal) => error_text(refusal, None, self.row.verbosity),
            QueryError::Link(lost) => own(CANNOT_CONNECT, &lost.to_string()),
        })?;
        session.learn_backend(Some(pid.to_string().as_bytes()));
        let here = remote.clone().at(place).unwrap_or(remote);
        Ok(Far { session, remote: here, pid, name })
    }

    /// Not in the budget of connections, which is our own server's, and not limited by connect permits: there is one
    /// connect at a time in each worker, and a remote that does not answer must not stand in anybody's way.
    fn connect(&self, home: &Session, remote: &Remote) -> Result<Session, ConnectError> {
        let name = setup::application_name(self.worker.order());
        let encoding = match home.parameter("client_encoding") {
            Some(b"SQL_ASCII") => "SQL_ASCII",
            _ => "UTF8",
        };
        let options = setup::options(self.worker.order(), self.row.task);
        let deadline = Instant::now() + remote.total_connect_timeout();
        let usual = [("application_name", name.as_str()), ("client_encoding", encoding), ("options", options.as_str())];
        let watched: Vec<(&str, &str)> = usual.into_iter().chain(WATCH).collect();
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
        let marked = task_lock::lock(&mut home, self.worker.order(), self.row);
        if let Err(error) = marked {
            shared::debug!("cannot lock the task", task = self.row.task, error = error);
        }
        match setup::set_up_remote(&mut session, self.worker.order(), self.row) {
            Ok(()) => {}
            Err(QueryError::Server(refusal)) => {
                return (self.fail(home, error_text(&refusal, None, self.row.verbosity)), None);
            }
            Err(QueryError::Link(lost)) => {
                let error = ServerError::local("ERROR", "08006", &lost.to_string());
                return (self.fail(home, error_text(&error, None, self.row.verbosity)), None);
            }
        }
        let timeout = self.row.timeout();
        let socket = session.as_fd().try_clone_to_owned().ok().map(Arc::new);
        let target = Arc::new(remote.target.clone());
        let watchdog = self.worker.watchdog;
        watchdog.started(WatchedInput { target, far: true, ..self.watched(&session, socket, false) });
        let began = Instant::now();
        let mut outcome = match self.send(session) {
            Sent::Ran(outcome) => *outcome,
            // The session was set up before.
            Sent::Refused(..) | Sent::Left(_) => return (Next::Exit(ExitCode::Unsettled), None),
        };
        let timed_out = outcome.said_timeout || timeout.is_some_and(|timeout| began.elapsed() >= timeout);
        let cancelled = self.cancelled(&outcome);
        if let Ending::Lost { server, .. } = &mut outcome.ending {
            *server = read_remote_again(&remote, pid, &name);
        }
        fault::point("worker.before_finish");
        let session = outcome.session.take();
        if let (None, Verdict::PlanAgain { reason }) = (&session, verdict(&outcome.ending, cancelled, timed_out)) {
            self.report_interruption(reason);
            if outcome.severed && cancelled.is_none() {
                self.slot_status().set_severed(name.server_began_us);
            }
            shared::info!("session on the remote lost; searching for the outcome of its task", task = self.row.task);
            home.close();
            return (Next::Exit(ExitCode::Unsettled), None);
        }
        outcome.session = self.come_home(home);
        let next = self.conclude(outcome, cancelled, timed_out);
        let kept = match (&next, session) {
            (Next::Continue(_), Some(mut session)) => {
                match BetweenTasks::behind(self.row).apply(&mut session, self.worker.order(), self.row, false) {
                    Ok(()) => Some(Far { session, remote, pid, name }),
                    Err(error) => {
                        shared::warning!(
                            "cannot reset the session on the remote; closing it",
                            task = self.row.task,
                            error = error
                        );
                        None
                    }
                }
            }
            (Next::Exit(_), Some(session)) => {
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
        let deadline = Instant::now() + HOME_TIMEOUT;
        while Instant::now() < deadline && !self.worker.watchdog.last_task() {
            if let Ok(home) = self.worker.connector.reopen(false) {
                return Some(home);
            }
            thread::sleep(HOME_PAUSE);
        }
        None
    }

    fn fail(&self, home: Session, error: Vec<u8>) -> Next {
        self.write(Some(home), self.failure(error, None, None), false)
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
        let text = "the remote did not report its session; is a transaction-pooling proxy in between?";
        QueryError::Server(ServerError::local("ERROR", "08001", text))
    })
}

/// After a lost session: is it the same server still? Nobody waits for that session any more, so it is ended.
fn read_remote_again(remote: &Remote, pid: i32, name: &RemoteSession) -> Server {
    let Ok(mut session) = Session::connect(&remote.target, &[], Instant::now() + remote.total_connect_timeout()) else {
        return Server::Other;
    };
    let (pid, began) = (pid.to_string(), name.began_us.to_string());
    let values = [Some(pid.as_bytes()), Some(began.as_bytes()), Some(&b"t"[..])];
    session.set_answer_timeout(remote.total_connect_timeout());
    let rows = session
        .execute(FIXED_PATH, &[])
        .and_then(|_| session.execute(&bare(statement::END_REMOTE), &values))
        .unwrap_or_default();
    session.close();
    let text = |at: usize| rows.first().and_then(|row| row.get(at)).and_then(Option::as_deref).unwrap_or_default();
    let server_began = std::str::from_utf8(text(0)).ok().and_then(|text| text.parse().ok());
    match server_began.map(|began| name.judge(began, text(1) == b"t")) {
        Some(FoundSession::Alive | FoundSession::Gone) if server_began == Some(name.server_began_us) => Server::Same,
        _ => Server::Other,
    }
}
