//! The watchdog: a thread beside the task that cancels its statement when time is up, when the output grows too
//! large, or when the scheduler wants the task back.
//!
//! While a worker lives, only it cancels its own session, and only for its current task. `finished` waits for the lock:
//! it returns when no cancel is under way any more, so that a late one cannot hit what the session does next. If a
//! cancel does not help, the backend is terminated over a second connection; if that does not help, we hang up.

use crate::limits::{
    CANCEL_AGAIN, CANCEL_CONNECT_TIMEOUT, CANCEL_TIMEOUT, SHED_AGE, SLOW_TASK, TERMINATIONS, TIMEOUT_GRACE,
    WATCHDOG_STACK_BYTES,
};
use crate::record::Interrupts;
use crate::result::outcome::Cancelled;
use crate::session::connect_within_budget;
use crate::wire::{Canceller, Session};
use crossbeam_channel::{Receiver, Sender, after, never, select, unbounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::{Pid, getppid};
use shared::conninfo::Target;
use shared::process::exit_code::ExitCode;
use shared::process::order::signal_parent;
use shared::region::{Cancel, Region, Request, SlotHandle, TaskKey};
use shared::sys::fork::leave;
use shared::sys::memory;
use shared::sys::signal::SignalPipe;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What is watched.
#[derive(Debug)]
pub(crate) struct WatchedInput {
    pub key: TaskKey,
    pub canceller: Canceller,
    /// The session's, to be shut when nothing else helps.
    pub socket: Option<Arc<OwnedFd>>,
    pub timeout: Option<Duration>,
    /// For the last resort.
    pub target: Arc<Target>,
    /// On a remote, whose connections are not of our budget.
    pub far: bool,
    /// One of a batch: if it takes long, the scheduler is to have the rest back.
    pub batch: bool,
}

/// What is going on, under one lock: its holder decides. The watchdog's thread keeps it while a cancel is under way.
#[derive(Debug, Default)]
struct WatchState {
    watched: Option<WatchedInput>,
    cancelled: Option<Cancelled>,
    deadline: Option<Instant>,
    /// When the task of a batch is called slow. Stays after its end: the thread clears it.
    slow_at: Option<Instant>,
    cancel_repeated: bool,
    terminations: usize,
    /// The worker was told to give its task back.
    interrupted: bool,
    /// Counts the tasks: a word about an earlier one is not for this one.
    number: u64,
}

#[derive(Debug)]
enum WatchdogMessage {
    /// The state has changed: a deadline, or a cancel that was requested before the task began.
    Check,
    Overflowed(u64),
}

/// The life pipe, and what its threads listen to.
type Dormant = (OwnedFd, Receiver<WatchdogMessage>);

/// The task's side of it.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog {
    parent: Pid,
    messages: Sender<WatchdogMessage>,
    state: Arc<Mutex<WatchState>>,
    last: Arc<AtomicBool>,
    region: Region,
    slot: SlotHandle,
    /// What its threads begin with, while it sleeps.
    asleep: Arc<Mutex<Option<Dormant>>>,
}

impl Watchdog {
    /// Starts the watchdog and the thread that waits for signals. From here on this process must not fork.
    pub(crate) fn start(
        signals: SignalPipe,
        life: OwnedFd,
        parent: Pid,
        region: Region,
        slot: SlotHandle,
    ) -> io::Result<Watchdog> {
        let (watchdog, heard) = Watchdog::new(parent, region, slot);
        watchdog.start_threads(signals, life, heard)?;
        Ok(watchdog)
    }

    /// One that sleeps until somebody wakes it: most tasks have ended before it would have anything to do, and threads
    /// cost as much as they. Signals wait for it.
    pub(crate) fn dormant(life: OwnedFd, region: Region, slot: SlotHandle) -> Watchdog {
        let (watchdog, heard) = Watchdog::new(getppid(), region, slot);
        *watchdog.asleep.lock().unwrap_or_else(PoisonError::into_inner) = Some((life, heard));
        watchdog
    }

    pub(crate) fn is_dormant(&self) -> bool {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// A worker that cannot be watched leaves; what it runs is ended by its parent.
    pub(crate) fn wake(&self) {
        let asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((life, heard)) = asleep else { return };
        // Its parent was deeper in its calls than this one will be.
        memory::shed_stack();
        let awake = open_signals().and_then(|signals| self.start_threads(signals, life, heard));
        if let Err(error) = awake {
            // Its scheduler logs it, once for many.
            self.region.slots().slot_status(self.slot).set_reason(&format!("cannot start the watchdog: {error}"));
            leave(ExitCode::Temporary);
        }
        let _ = self.messages.send(WatchdogMessage::Check);
    }

    fn new(parent: Pid, region: Region, slot: SlotHandle) -> (Watchdog, Receiver<WatchdogMessage>) {
        let (messages, heard) = unbounded();
        let (state, last) = (Arc::new(Mutex::new(WatchState::default())), Arc::new(AtomicBool::new(false)));
        (Watchdog { parent, messages, state, last, region, slot, asleep: Arc::default() }, heard)
    }

    fn start_threads(&self, signals: SignalPipe, life: OwnedFd, heard: Receiver<WatchdogMessage>) -> io::Result<()> {
        let (sender, received) = unbounded();
        thread::Builder::new()
            .name("signals".into())
            .stack_size(WATCHDOG_STACK_BYTES)
            .spawn(move || listen(signals, life, &sender))?;
        let (state, region, last) = (self.state.clone(), self.region.clone(), self.last.clone());
        let thread = WatchdogThread { parent: self.parent, heard, received, state, region, slot: self.slot, last };
        thread::Builder::new()
            .name("watchdog".into())
            .stack_size(WATCHDOG_STACK_BYTES)
            .spawn(move || thread.watch())?;
        Ok(())
    }

    /// The thread is only woken if there is something to do for it: a time limit, or a cancel asked for already.
    pub(crate) fn started(&self, watched: WatchedInput) {
        let mut state = lock(&self.state);
        state.deadline = watched.timeout.and_then(|timeout| Instant::now().checked_add(timeout + TIMEOUT_GRACE));
        let watched_batch = watched.batch;
        state.watched = Some(watched);
        (state.cancelled, state.cancel_repeated, state.terminations) = (None, false, 0);
        state.number += 1;
        // The thread is at it already while the tasks of batches follow each other.
        let idle = state.slow_at.is_none();
        if watched_batch {
            state.slow_at = Some(Instant::now() + SLOW_TASK);
        }
        if state.deadline.is_some() || (watched_batch && idle) || asked(&state, &self.region, self.slot).is_some() {
            let _ = self.messages.send(WatchdogMessage::Check);
        }
    }

    /// The output has reached its limit: the statement is cancelled while the rest is drained.
    pub(crate) fn overflowed(&self) {
        self.wake();
        let number = lock(&self.state).number;
        let _ = self.messages.send(WatchdogMessage::Overflowed(number));
    }

    /// The worker was told to end: no task after this one.
    pub(crate) fn last_task(&self) -> bool {
        self.last.load(SeqCst)
    }

    /// The statement has ended. Why it was cancelled, if it was; nothing is under way any more.
    pub(crate) fn finished(&self) -> Option<Cancelled> {
        let mut state = lock(&self.state);
        (state.watched, state.deadline) = (None, None);
        state.cancelled
    }
}

impl Interrupts for Watchdog {
    fn wake(&self) {
        Watchdog::wake(self);
    }

    fn interrupted(&self) -> bool {
        lock(&self.state).interrupted
    }
}

/// TERM means "finish", which a worker does anyway; INT and USR1 mean "give it back".
pub(crate) fn open_signals() -> io::Result<SignalPipe> {
    SignalPipe::open(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1])
}

fn lock(state: &Mutex<WatchState>) -> MutexGuard<'_, WatchState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes signals on, and exits with the parent.
fn listen(mut signals: SignalPipe, life: OwnedFd, sender: &Sender<Signal>) {
    loop {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(life.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::NONE);
        if fds[1].any().unwrap_or(false) {
            leave(ExitCode::Asked);
        }
        for signal in signals.received() {
            if sender.send(signal).is_err() {
                return;
            }
        }
    }
}

struct WatchdogThread {
    parent: Pid,
    heard: Receiver<WatchdogMessage>,
    received: Receiver<Signal>,
    state: Arc<Mutex<WatchState>>,
    region: Region,
    slot: SlotHandle,
    last: Arc<AtomicBool>,
}

impl WatchdogThread {
    fn watch(&self) {
        let mut lasting = after(SHED_AGE);
        loop {
            let deadline = {
                let state = lock(&self.state);
                [state.deadline, state.slow_at].into_iter().flatten().min()
            };
            let alarm = deadline.map_or_else(never, |at| after(at.saturating_duration_since(Instant::now())));
            select! {
                recv(self.heard) -> word => match word {
                    Ok(WatchdogMessage::Check) => self.check(&mut lock(&self.state)),
                    Ok(WatchdogMessage::Overflowed(number)) => {
                        let mut state = lock(&self.state);
                        if state.number == number {
                            cancel(&mut state, Cancelled::Overflow);
                        }
                    }
                    Err(_) => return,
                },
                recv(self.received) -> signal => {
                    let mut state = lock(&self.state);
                    match signal {
                        Ok(Signal::SIGUSR1) => {}
                        Ok(signal) => {
                            self.last.store(true, SeqCst);
                            state.interrupted |= signal == Signal::SIGINT;
                        }
                        Err(_) => return,
                    }
                    self.check(&mut state);
                },
                recv(lasting) -> _ => {
                    lasting = never();
                    memory::shed_heap();
                    memory::shed_code();
                },
                recv(alarm) -> _ => {
                    let mut state = lock(&self.state);
                    if state.slow_at.is_some_and(|at| Instant::now() >= at) {
                        state.slow_at = None;
                        if state.watched.as_ref().is_some_and(|watched| watched.batch) {
                            self.region.call_batch_slow(self.slot);
                            signal_parent(self.parent);
                        }
                    }
                    // The task may have ended meanwhile, and another one begun.
                    if state.deadline.is_some_and(|at| Instant::now() >= at) {
                        if state.cancelled.is_none() {
                            cancel(&mut state, Cancelled::Timeout);
                        } else if !state.cancel_repeated {
                            state.cancel_repeated = true;
                            send_cancel(state.watched.as_ref());
                            state.deadline = Some(Instant::now() + CANCEL_TIMEOUT - CANCEL_AGAIN);
                        } else if state.terminations < TERMINATIONS {
                            state.terminations += 1;
                            terminate(&self.region, state.watched.as_ref());
                            state.deadline = Some(Instant::now() + CANCEL_TIMEOUT);
                        } else {
                            close_socket(state.watched.as_ref());
                            state.deadline = None;
                        }
                    }
                },
            }
        }
    }

    fn check(&self, state: &mut WatchState) {
        if let Some(why) = asked(state, &self.region, self.slot) {
            cancel(state, why);
        }
    }
}

/// Why the task at hand is to be cancelled, if it is. A request in our slot names the task it means: one for an
/// earlier task is not for this one.
fn asked(state: &WatchState, region: &Region, slot: SlotHandle) -> Option<Cancelled> {
    let watched = state.watched.as_ref()?;
    if state.interrupted {
        return Some(Cancelled::Interrupt);
    }
    let Request { cancel, task, attempt } = region.slots().slot_status(slot).requested()?;
    let why = match cancel {
        Cancel::Unwanted => Cancelled::Unwanted,
        Cancel::Overrun => Cancelled::Overrun,
        Cancel::Deleted => Cancelled::Deleted,
    };
    (task == watched.key.task && attempt == watched.key.attempt).then_some(why)
}

/// Sends the cancel, once, and says when to look again.
fn cancel(state: &mut WatchState, why: Cancelled) {
    let (Some(watched), None) = (&state.watched, state.cancelled) else { return };
    shared::info!("task cancelled", task = watched.key.task, why = format!("{why:?}").to_lowercase());
    let now = Instant::now();
    send_cancel(Some(watched));
    state.cancelled = Some(why);
    state.deadline = Some(now + CANCEL_AGAIN);
}

fn send_cancel(watched: Option<&WatchedInput>) {
    let Some(watched) = watched else { return };
    if let Err(error) = watched.canceller.cancel(Instant::now() + CANCEL_CONNECT_TIMEOUT) {
        shared::warning!("cannot send the cancel request", task = watched.key.task, error = error);
    }
}

/// The task's thread finds its session lost, and then what became of the task is found out as after any lost session.
fn close_socket(watched: Option<&WatchedInput>) {
    let Some(watched) = watched else { return };
    shared::warning!("server ignores the cancel request; closing the connection", task = watched.key.task);
    if let Some(socket) = &watched.socket {
        let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
    }
}

fn terminate(region: &Region, watched: Option<&WatchedInput>) {
    let Some(watched) = watched else { return };
    let pid = watched.canceller.backend_pid();
    shared::warning!("cancel request had no effect; terminating the backend", task = watched.key.task, backend = pid);
    let deadline = Instant::now() + CANCEL_CONNECT_TIMEOUT;
    let session = if watched.far {
        Session::connect(&watched.target, &[], deadline)
    } else {
        connect_within_budget(region, &watched.target, &[], deadline)
    };
    let pid = pid.to_string();
    let sent = session.map(|mut session| {
        session
            .execute("SELECT pg_catalog.pg_terminate_backend($1::int)", &[Some(pid.as_bytes())])
            .map(|_| session.close())
    });
    if !matches!(sent, Ok(Ok(()))) {
        shared::warning!("cannot terminate the backend; retrying", task = watched.key.task);
    }
}
