//! Signals as a readable pipe: a signal wakes the loop and carries nothing else.
//!
//! A `SignalPipe` registers signals with signal-hook: each sets its own flag, then writes a byte into one pipe that the
//! loop polls; all share its writing end. After a fork signal-hook still believes that the parent's registrations stand, and the inherited pipe
//! would wake the parent: a child unregisters the parent's actions, which own their copies of the pipe, before it lets
//! any signal in (`forget_inherited`). One that never does need not bother: that is worth as much as the rest of a fork.
//! The kernel-side handlers stay in place, so a child that wants a signal's default action must ask for it: `SignalPipe::open`
//! does so for each of `PIPE_SIGNALS` that it was not given.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use nix::unistd::Pid;
use signal_hook::SigId;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Every signal that any of our processes handles.
const PIPE_SIGNALS: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCHLD,
];

/// Handlers of signal-hook's that `default_action` has replaced. signal-hook installs its handler only once per signal
/// and process family: a grandchild that handles such a signal must have it back.
static REPLACED: Mutex<Vec<(Signal, SigAction)>> = Mutex::new(Vec::new());

/// What signal-hook has been asked to do in this process, or in its parent as long as `INHERITED` says so; and the
/// descriptor that this owns.
static REGISTERED: Mutex<Vec<(SigId, RawFd)>> = Mutex::new(Vec::new());
static INHERITED: AtomicBool = AtomicBool::new(false);

/// The pipe that signals make readable.
#[derive(Debug)]
pub struct SignalPipe {
    pipe: UnixStream,
    flags: Vec<(Signal, Arc<AtomicBool>)>,
}

impl SignalPipe {
    /// Handles `signals`, gives every other signal its default action, and opens the signal mask.
    pub fn open(signals: &[Signal]) -> io::Result<SignalPipe> {
        forget_inherited();
        let (pipe, writer) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let writer = Arc::new(writer);
        let mut flags = Vec::with_capacity(signals.len());
        let mut registered = registered();
        for signal in signals {
            let flag = Arc::new(AtomicBool::new(false));
            let (raised, pipe) = (flag.clone(), writer.clone());
            let owned = pipe.as_raw_fd();
            let action = move || {
                raised.store(true, Ordering::SeqCst);
                // A full pipe is readable already.
                // SAFETY: send is async-signal-safe; the descriptor is open as long as this closure, which owns a share of it.
                unsafe {
                    libc::send(pipe.as_raw_fd(), [1u8].as_ptr().cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                };
            };
            // SAFETY: the action stores an atomic and sends one byte: it neither allocates nor locks nor panics.
            registered.push((unsafe { signal_hook::low_level::register(*signal as i32, action) }?, owned));
            flags.push((*signal, flag));
            restore_handler(*signal);
        }
        drop(registered);
        for signal in PIPE_SIGNALS.iter().filter(|signal| !signals.contains(signal)) {
            default_action(*signal);
        }
        open_mask();
        Ok(SignalPipe { pipe, flags })
    }

    /// The signals that came since the last call. Empties the pipe first: a signal that comes later makes it readable again.
    pub fn received(&mut self) -> Vec<Signal> {
        let mut bytes = [0u8; 256];
        while matches!(self.pipe.read(&mut bytes), Ok(count) if count > 0) {}
        self.flags.iter().filter(|(_, flag)| flag.swap(false, Ordering::SeqCst)).map(|(signal, _)| *signal).collect()
    }
}

impl AsFd for SignalPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Signals another process. If it is gone, its parent finds out when it reaps.
pub fn send(pid: Pid, signal: Signal) {
    let _ = nix::sys::signal::kill(pid, signal);
}

/// For a short-lived child that handles no signals: default actions and an open mask.
pub fn open_to_defaults() {
    forget_inherited();
    PIPE_SIGNALS.into_iter().for_each(default_action);
    open_mask();
}

/// Blocks every signal until the guard is dropped.
pub(super) fn block_all() -> Blocked {
    let mut before = SigSet::empty();
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before));
    Blocked { before }
}

pub(super) struct Blocked {
    before: SigSet,
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

/// In a fresh child, while signals are blocked: what is registered is the parent's. Its descriptors stay open until it is
/// forgotten, so that nobody else gets their numbers, and are the answer.
pub(super) fn inherit() -> Vec<RawFd> {
    INHERITED.store(true, Ordering::SeqCst);
    let mut owned: Vec<RawFd> = registered().iter().map(|(_, owned)| *owned).collect();
    owned.dedup();
    owned
}

/// In a child: the parent's actions no longer stand.
fn forget_inherited() {
    if INHERITED.swap(false, Ordering::SeqCst) {
        for (id, _) in registered().drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

fn registered() -> std::sync::MutexGuard<'static, Vec<(SigId, RawFd)>> {
    REGISTERED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn replaced() -> std::sync::MutexGuard<'static, Vec<(Signal, SigAction)>> {
    REPLACED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn default_action(signal: Signal) {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: SIG_DFL runs no code of ours; the replaced handler (signal-hook's) is kept for `restore_handler`.
    if let Ok(before) = unsafe { sigaction(signal, &action) }
        && !matches!(before.handler(), SigHandler::SigDfl | SigHandler::SigIgn)
    {
        replaced().push((signal, before));
    }
}

fn restore_handler(signal: Signal) {
    let mut replaced = replaced();
    if let Some(index) = replaced.iter().position(|(of, _)| *of == signal) {
        let (_, handler) = replaced.swap_remove(index);
        // SAFETY: this is signal-hook's own handler, which it installed in an ancestor of this process and which is
        // async-signal-safe; its code and data were copied by the fork.
        let _ = unsafe { sigaction(signal, &handler) };
    }
}

fn open_mask() {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
}
