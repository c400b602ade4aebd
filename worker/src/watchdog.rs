//! The watchdog: a thread beside the task that cancels its statement when time is up, when the output grows too
//! large, or when the scheduler wants the task back.
//!
//! While a worker lives, only it cancels its own session, and only for its current task. `finished` waits for the lock:
//! it returns when no cancel is under way any more, so that a late one cannot hit what the session does next. If a
//! cancel does not help, the backend is terminated over a second connection; if that does not help, we hang up.

use crate::outcome::Cancelled;
use crate::pace::SLOW;
use crate::session::connect_in_turn;
use crate::wire::{Canceller, Session};
use crossbeam_channel::{Receiver, Sender, after, never, select, unbounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::{Pid, getppid};
use shared::conninfo::Target;
use shared::process::exit_code::ExitCode;
use shared::process::order::ring_parent;
use shared::region::{Cancel, Region, Request, SlotHandle};
use shared::sys::fork::leave;
use shared::sys::memory;
use shared::sys::signal::Bell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The server's own statement_timeout shall come first: its words are the familiar ones.
const TIMEOUT_GRACE: Duration = Duration::from_millis(250);
/// A server that has not yet begun to read the statement lets a cancel fall: it is sent once more after this time. Not
/// oftener, because a statement may catch it and clean up.
const CANCEL_AGAIN: Duration = Duration::from_millis(300);
/// How long a cancelled statement may take to end before its backend is terminated.
const CANCEL_PATIENCE: Duration = Duration::from_secs(3);
/// How often the backend is terminated before we hang up on a server that pays no heed.
const TERMINATIONS: usize = 3;
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const STACK_BYTES: usize = 128 * 1024;
/// A worker that is still here after this time is likely to wait for long: then it keeps only what it needs for that.
const LINGER: Duration = Duration::from_millis(500);

/// What is watched.
#[derive(Debug)]
pub struct Watched {
    pub task: i64,
    pub attempt: i32,
    pub canceller: Canceller,
    /// The session's socket, to be shut when nothing else helps.
    pub hang_up: Option<Arc<OwnedFd>>,
    pub timeout: Option<Duration>,
    /// For the last resort.
    pub target: Arc<Target>,
    /// On a remote, whose connections are not of our budget.
    pub far: bool,
    /// One of a batch: if it takes long, the scheduler is to have the rest back.
    pub batch: bool,
}

/// What is going on, under one lock: whoever holds it decides. The kennel keeps it while a cancel is under way.
#[derive(Debug, Default)]
struct Post {
    watched: Option<Watched>,
    cancelled: Option<Cancelled>,
    deadline: Option<Instant>,
    /// When the task of a batch is called slow. Stands on after its end: the kennel sees to it.
    slow_at: Option<Instant>,
    cancel_repeated: bool,
    terminations: usize,
    /// The worker was told to give its task back.
    interrupted: bool,
    /// Counts the tasks: a word about an earlier one is not for this one.
    number: u64,
}

#[derive(Debug)]
enum Word {
    /// Something at the post is to be looked at: a deadline, or a cancel that was asked for before the task began.
    Look,
    Overflowed(u64),
}

/// The life pipe, and what its threads listen to.
type Bed = (OwnedFd, Receiver<Word>);

/// The task's side of it.
#[derive(Clone, Debug)]
pub struct Watchdog {
    parent: Pid,
    words: Sender<Word>,
    post: Arc<Mutex<Post>>,
    last: Arc<AtomicBool>,
    region: Region,
    slot: SlotHandle,
    /// What its threads begin with, while it sleeps.
    asleep: Arc<Mutex<Option<Bed>>>,
}

impl Watchdog {
    /// Starts the watchdog and the thread that listens to the bell. From here on this process must not fork.
    pub fn start(bell: Bell, life: OwnedFd, parent: Pid, region: Region, slot: SlotHandle) -> io::Result<Watchdog> {
        let (watchdog, heard) = Watchdog::new(parent, region, slot);
        watchdog.start_threads(bell, life, heard)?;
        Ok(watchdog)
    }

    /// One that sleeps until somebody wakes it: most tasks have ended before it would have anything to do, and threads
    /// cost as much as they. Signals wait for it.
    pub fn dormant(life: OwnedFd, region: Region, slot: SlotHandle) -> Watchdog {
        let (watchdog, heard) = Watchdog::new(getppid(), region, slot);
        *watchdog.asleep.lock().unwrap_or_else(PoisonError::into_inner) = Some((life, heard));
        watchdog
    }

    pub fn is_dormant(&self) -> bool {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// A worker that cannot be watched leaves; what it runs is ended by its parent.
    pub fn wake(&self) {
        let asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((life, heard)) = asleep else { return };
        // Its parent was deeper in its calls than this one will be.
        memory::shed_stack();
        let awake = hang_bell().and_then(|bell| self.start_threads(bell, life, heard));
        if let Err(error) = awake {
            // Its scheduler logs it, once for many.
            self.region.slots().notes(self.slot).set_reason(&format!("cannot start the watchdog: {error}"));
            leave(ExitCode::Temporary);
        }
        let _ = self.words.send(Word::Look);
    }

    fn new(parent: Pid, region: Region, slot: SlotHandle) -> (Watchdog, Receiver<Word>) {
        let (words, heard) = unbounded();
        let (post, last) = (Arc::new(Mutex::new(Post::default())), Arc::new(AtomicBool::new(false)));
        (Watchdog { parent, words, post, last, region, slot, asleep: Arc::default() }, heard)
    }

    fn start_threads(&self, bell: Bell, life: OwnedFd, heard: Receiver<Word>) -> io::Result<()> {
        let (rings, rung) = unbounded();
        thread::Builder::new().name("bell".into()).stack_size(STACK_BYTES).spawn(move || listen(bell, life, &rings))?;
        let (post, region, last) = (self.post.clone(), self.region.clone(), self.last.clone());
        let kennel = Kennel { parent: self.parent, heard, rung, post, region, slot: self.slot, last };
        thread::Builder::new().name("watchdog".into()).stack_size(STACK_BYTES).spawn(move || kennel.watch())?;
        Ok(())
    }

    /// The kennel is only woken if there is something to do for it: a time limit, or a cancel asked for already.
    pub fn started(&self, watched: Watched) {
        let mut post = lock(&self.post);
        post.deadline = watched.timeout.and_then(|timeout| Instant::now().checked_add(timeout + TIMEOUT_GRACE));
        let watched_batch = watched.batch;
        post.watched = Some(watched);
        (post.cancelled, post.cancel_repeated, post.terminations) = (None, false, 0);
        post.number += 1;
        // The kennel is at it already while the tasks of batches follow each other.
        let idle = post.slow_at.is_none();
        if watched_batch {
            post.slow_at = Some(Instant::now() + SLOW);
        }
        if post.deadline.is_some() || (watched_batch && idle) || asked(&post, &self.region, self.slot).is_some() {
            let _ = self.words.send(Word::Look);
        }
    }

    /// The output has reached its limit: the statement is cancelled while the rest is drained.
    pub fn overflowed(&self) {
        self.wake();
        let number = lock(&self.post).number;
        let _ = self.words.send(Word::Overflowed(number));
    }

    /// The worker was told to end: no task after this one.
    pub fn last_task(&self) -> bool {
        self.last.load(SeqCst)
    }

    /// The worker was told to give its task back.
    pub fn interrupted(&self) -> bool {
        lock(&self.post).interrupted
    }

    /// The statement has ended. Why it was cancelled, if it was; nothing is under way any more.
    pub fn finished(&self) -> Option<Cancelled> {
        let mut post = lock(&self.post);
        (post.watched, post.deadline) = (None, None);
        post.cancelled
    }
}

/// TERM means "finish", which a worker does anyway; INT and USR1 mean "give it back".
pub fn hang_bell() -> io::Result<Bell> {
    Bell::hang(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1])
}

fn lock(post: &Mutex<Post>) -> MutexGuard<'_, Post> {
    post.lock().unwrap_or_else(PoisonError::into_inner)
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
    parent: Pid,
    heard: Receiver<Word>,
    rung: Receiver<Signal>,
    post: Arc<Mutex<Post>>,
    region: Region,
    slot: SlotHandle,
    last: Arc<AtomicBool>,
}

impl Kennel {
    fn watch(&self) {
        let mut lasting = after(LINGER);
        loop {
            let deadline = {
                let post = lock(&self.post);
                [post.deadline, post.slow_at].into_iter().flatten().min()
            };
            let alarm = deadline.map_or_else(never, |at| after(at.saturating_duration_since(Instant::now())));
            select! {
                recv(self.heard) -> word => match word {
                    Ok(Word::Look) => self.look(&mut lock(&self.post)),
                    Ok(Word::Overflowed(number)) => {
                        let mut post = lock(&self.post);
                        if post.number == number {
                            cancel(&mut post, Cancelled::Overflow);
                        }
                    }
                    Err(_) => return,
                },
                recv(self.rung) -> signal => {
                    let mut post = lock(&self.post);
                    match signal {
                        Ok(Signal::SIGUSR1) => {}
                        Ok(signal) => {
                            self.last.store(true, SeqCst);
                            post.interrupted |= signal == Signal::SIGINT;
                        }
                        Err(_) => return,
                    }
                    self.look(&mut post);
                },
                recv(lasting) -> _ => {
                    lasting = never();
                    memory::shed_heap();
                    memory::shed_code();
                },
                recv(alarm) -> _ => {
                    let mut post = lock(&self.post);
                    if post.slow_at.is_some_and(|at| Instant::now() >= at) {
                        post.slow_at = None;
                        if post.watched.as_ref().is_some_and(|watched| watched.batch) {
                            self.region.call_batch_slow(self.slot);
                            ring_parent(self.parent);
                        }
                    }
                    // The task may have ended meanwhile, and another one begun.
                    if post.deadline.is_some_and(|at| Instant::now() >= at) {
                        if post.cancelled.is_none() {
                            cancel(&mut post, Cancelled::Timeout);
                        } else if !post.cancel_repeated {
                            post.cancel_repeated = true;
                            send_cancel(post.watched.as_ref());
                            post.deadline = Some(Instant::now() + CANCEL_PATIENCE - CANCEL_AGAIN);
                        } else if post.terminations < TERMINATIONS {
                            post.terminations += 1;
                            terminate(post.watched.as_ref());
                            post.deadline = Some(Instant::now() + CANCEL_PATIENCE);
                        } else {
                            hang_up(post.watched.as_ref());
                            post.deadline = None;
                        }
                    }
                },
            }
        }
    }

    fn look(&self, post: &mut Post) {
        if let Some(why) = asked(post, &self.region, self.slot) {
            cancel(post, why);
        }
    }
}

/// Why the task at hand is to be cancelled, if it is. A request in our slot names the task it means: one for an
/// earlier task is not for this one.
fn asked(post: &Post, region: &Region, slot: SlotHandle) -> Option<Cancelled> {
    let watched = post.watched.as_ref()?;
    if post.interrupted {
        return Some(Cancelled::Interrupt);
    }
    let Request { cancel, task, attempt } = region.slots().notes(slot).requested()?;
    let why = match cancel {
        Cancel::Unwanted => Cancelled::Unwanted,
        Cancel::Overrun => Cancelled::Overrun,
        Cancel::Deleted => Cancelled::Deleted,
    };
    (task == watched.task && attempt == watched.attempt).then_some(why)
}

/// Sends the cancel, once, and says when to look again.
fn cancel(post: &mut Post, why: Cancelled) {
    let (Some(watched), None) = (&post.watched, post.cancelled) else { return };
    shared::info!("task cancelled", task = watched.task, why = format!("{why:?}").to_lowercase());
    let now = Instant::now();
    send_cancel(Some(watched));
    post.cancelled = Some(why);
    post.deadline = Some(now + CANCEL_AGAIN);
}

fn send_cancel(watched: Option<&Watched>) {
    let Some(watched) = watched else { return };
    if let Err(error) = watched.canceller.cancel(Instant::now() + CONNECT_PATIENCE) {
        shared::warning!("the cancel could not be sent", task = watched.task, error = error);
    }
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
