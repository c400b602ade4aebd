//! The watchdog: a thread beside the task that cancels its statement when time is up, when the output grows too
//! large, or when the scheduler wants the task back.
//!
//! While a worker lives, only it cancels its own session, and only for its current task. `finish` is a rendezvous: it
//! returns when no cancel is under way any more, so that a late one cannot hit what the session does next. If a
//! cancel does not help, the backend is terminated over a second connection; if that does not help, we hang up.

use crate::outcome::Cancelled;
use crate::session::connect_in_turn;
use crate::wire::{Canceller, Session};
use crossbeam_channel::{Receiver, Sender, after, bounded, never, select, unbounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};
use shared::conninfo::Target;
use shared::exit_code::ExitCode;
use shared::region::{Cancel, Region, Request, SlotHandle};
use shared::sys::fork::leave;
use shared::sys::signal::Bell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// The server's own statement_timeout shall come first: its words are the familiar ones.
const TIMEOUT_GRACE: Duration = Duration::from_millis(250);
/// How long a cancelled statement may take to end before its backend is terminated.
const CANCEL_PATIENCE: Duration = Duration::from_secs(3);
/// How often the backend is terminated before we hang up on a server that pays no heed.
const TERMINATIONS: usize = 3;
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const STACK_BYTES: usize = 128 * 1024;

/// What is watched.
#[derive(Debug)]
pub struct Watched {
    pub task: i64,
    pub attempt: i32,
    pub canceller: Canceller,
    /// The session's socket, to be shut when nothing else helps.
    pub hang_up: Option<OwnedFd>,
    pub timeout: Option<Duration>,
    /// For the last resort.
    pub target: Target,
    /// On a remote, whose connections are not of our budget.
    pub far: bool,
}

#[derive(Debug)]
enum Word {
    Started(Box<Watched>),
    Overflowed,
    Finished(Sender<Option<Cancelled>>),
}

/// The task's side of it.
#[derive(Clone, Debug)]
pub struct Watchdog {
    words: Sender<Word>,
    last: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts the watchdog and the thread that listens to the bell. From here on this process must not fork.
    pub fn start(bell: Bell, life: OwnedFd, region: Region, slot: SlotHandle) -> io::Result<Watchdog> {
        let (words, heard) = unbounded();
        let (rings, rung) = unbounded();
        thread::Builder::new().name("bell".into()).stack_size(STACK_BYTES).spawn(move || listen(bell, life, &rings))?;
        let last = Arc::new(AtomicBool::new(false));
        let kennel = Kennel { heard, rung, region, slot, last: last.clone() };
        thread::Builder::new().name("watchdog".into()).stack_size(STACK_BYTES).spawn(move || kennel.watch())?;
        Ok(Watchdog { words, last })
    }

    pub fn started(&self, watched: Watched) {
        let _ = self.words.send(Word::Started(Box::new(watched)));
    }

    /// The output has reached its limit: the statement is cancelled while the rest is drained.
    pub fn overflowed(&self) {
        let _ = self.words.send(Word::Overflowed);
    }

    /// The worker was told to end: no task after this one.
    pub fn last_task(&self) -> bool {
        self.last.load(SeqCst)
    }

    /// The statement has ended. Why it was cancelled, if it was; nothing is under way any more.
    pub fn finished(&self) -> Option<Cancelled> {
        let (answer, answered) = bounded(1);
        let _ = self.words.send(Word::Finished(answer));
        answered.recv().ok().flatten()
    }
}

/// Turns signals into rings, and leaves with the parent.
fn listen(mut bell: Bell, life: OwnedFd, rings: &Sender<Signal>) {
    loop {
        let mut fds = [PollFd::new(bell.as_fd(), PollFlags::POLLIN), PollFd::new(life.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::NONE);
        if fds[1].any().unwrap_or(false) {
            leave(ExitCode::Asked);
        }
        for signal in bell.rung() {
            if rings.send(signal).is_err() {
                return;
            }
        }
    }
}

struct Kennel {
    heard: Receiver<Word>,
    rung: Receiver<Signal>,
    region: Region,
    slot: SlotHandle,
    last: Arc<AtomicBool>,
}

impl Kennel {
    fn watch(&self) {
        let mut watched: Option<Watched> = None;
        let mut cancelled: Option<Cancelled> = None;
        let mut deadline: Option<Instant> = None;
        let mut interrupted = false;
        let mut terminations = 0;
        loop {
            let alarm = deadline.map_or_else(never, |at| after(at.saturating_duration_since(Instant::now())));
            select! {
                recv(self.heard) -> word => match word {
                    Ok(Word::Started(new)) => {
                        deadline = new.timeout.and_then(|timeout| Instant::now().checked_add(timeout + TIMEOUT_GRACE));
                        watched = Some(*new);
                        (cancelled, terminations) = (None, 0);
                        // It may have been asked for before it began.
                        if let Some(why) = self.asked(watched.as_ref(), interrupted) {
                            (cancelled, deadline) = cancel(watched.as_ref(), why);
                        }
                    }
                    Ok(Word::Overflowed) if cancelled.is_none() => {
                        (cancelled, deadline) = cancel(watched.as_ref(), Cancelled::Overflow);
                    }
                    Ok(Word::Overflowed) => {}
                    Ok(Word::Finished(answer)) => {
                        let _ = answer.send(cancelled);
                        (watched, deadline) = (None, None);
                    }
                    Err(_) => return,
                },
                recv(self.rung) -> signal => {
                    match signal {
                        Ok(Signal::SIGUSR1) => {}
                        Ok(signal) => {
                            self.last.store(true, SeqCst);
                            interrupted |= signal == Signal::SIGINT;
                        }
                        Err(_) => return,
                    }
                    if let (Some(why), None) = (self.asked(watched.as_ref(), interrupted), cancelled) {
                        (cancelled, deadline) = cancel(watched.as_ref(), why);
                    }
                },
                recv(alarm) -> _ => {
                    if cancelled.is_none() {
                        (cancelled, deadline) = cancel(watched.as_ref(), Cancelled::Timeout);
                    } else if terminations < TERMINATIONS {
                        terminations += 1;
                        terminate(watched.as_ref());
                        deadline = Some(Instant::now() + CANCEL_PATIENCE);
                    } else {
                        hang_up(watched.as_ref());
                        deadline = None;
                    }
                },
            }
        }
    }

    /// Why the task at hand is to be cancelled, if it is. A request in our slot names the task it means: one for an
    /// earlier task is not for this one.
    fn asked(&self, watched: Option<&Watched>, interrupted: bool) -> Option<Cancelled> {
        let watched = watched?;
        if interrupted {
            return Some(Cancelled::Interrupt);
        }
        let Request { cancel, task, attempt } = self.region.slots().notes(self.slot).requested()?;
        let why = match cancel {
            Cancel::Unwanted => Cancelled::Unwanted,
            Cancel::Overrun => Cancelled::Overrun,
            Cancel::Deleted => Cancelled::Deleted,
        };
        (task == watched.task && attempt == watched.attempt).then_some(why)
    }
}

/// Sends the cancel and says what was done and when to look again.
fn cancel(watched: Option<&Watched>, why: Cancelled) -> (Option<Cancelled>, Option<Instant>) {
    let Some(watched) = watched else { return (None, None) };
    let now = Instant::now();
    shared::info!("task cancelled", task = watched.task, why = format!("{why:?}").to_lowercase());
    if let Err(error) = watched.canceller.cancel(now + CONNECT_PATIENCE) {
        shared::warning!("the cancel could not be sent", task = watched.task, error = error);
    }
    (Some(why), Some(now + CANCEL_PATIENCE))
}

/// The task's thread finds its session lost, and then what became of the task is found out as after any lost session.
fn hang_up(watched: Option<&Watched>) {
    let Some(watched) = watched else { return };
    shared::warning!("the server pays no heed; the worker hangs up", task = watched.task);
    if let Some(socket) = &watched.hang_up {
        let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
    }
}

fn terminate(watched: Option<&Watched>) {
    let Some(watched) = watched else { return };
    let pid = watched.canceller.backend_pid();
    shared::warning!("the cancel did not help; the backend is terminated", task = watched.task, backend = pid);
    let deadline = Instant::now() + CONNECT_PATIENCE;
    let session = if watched.far {
        Session::connect(&watched.target, &[], deadline)
    } else {
        connect_in_turn(&watched.target, &[], deadline)
    };
    let pid = pid.to_string();
    let sent = session.map(|mut session| {
        session
            .execute("SELECT pg_catalog.pg_terminate_backend($1::int)", &[Some(pid.as_bytes())])
            .map(|_| session.close())
    });
    if !matches!(sent, Ok(Ok(()))) {
        shared::warning!("the backend could not be terminated; trying again", task = watched.task);
    }
}
