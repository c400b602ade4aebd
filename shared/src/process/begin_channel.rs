//! How a worker that has connected reports to its scheduler, which then writes down that its task begins: a pair of
//! sockets for one question and one answer.
//!
//! The question is the worker's backend, the answer says who has begun the task. A scheduler that wants the task no
//! more, or is gone, closes its end.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What the scheduler answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The row says WORK, with the worker's backend.
    Begun = 1,
    /// It was not to be had without waiting: the worker sees for itself.
    Yourself = 2,
}

/// The scheduler's end and the worker's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// By the worker: asks, and waits for the answer. None: nobody wants the task to begin.
pub fn ask_to_begin(scheduler: &OwnedFd, backend: i32) -> Option<Reply> {
    say(scheduler, &backend.to_le_bytes())?;
    let mut answer = [0];
    match hear(scheduler, &mut answer, MsgFlags::empty()) {
        Ok(1) if answer[0] == Reply::Begun as u8 => Some(Reply::Begun),
        Ok(1) if answer[0] == Reply::Yourself as u8 => Some(Reply::Yourself),
        _ => None,
    }
}

/// By the scheduler: the backend, once the worker has said it.
pub fn asked(worker: &OwnedFd) -> Option<i32> {
    let mut backend = [0; 4];
    let length = hear(worker, &mut backend, MsgFlags::MSG_DONTWAIT).ok()?;
    (length == backend.len()).then(|| i32::from_le_bytes(backend))
}

/// By the scheduler. A worker that is gone needs no answer.
pub fn answer(worker: &OwnedFd, reply: Reply) {
    let _ = say(worker, &[reply as u8]);
}

fn say(to: &impl AsFd, bytes: &[u8]) -> Option<()> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    (send(to.as_fd().as_raw_fd(), bytes, flags) == Ok(bytes.len())).then_some(())
}

fn hear(from: &impl AsFd, buffer: &mut [u8], flags: MsgFlags) -> nix::Result<usize> {
    loop {
        match recv(from.as_fd().as_raw_fd(), buffer, flags) {
            Err(Errno::EINTR) => {}
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_question_is_answered() {
        for reply in [Reply::Begun, Reply::Yourself] {
            let (ours, theirs) = pair().unwrap();
            assert_eq!(asked(&ours), None);
            let worker = thread::spawn(move || ask_to_begin(&theirs, 4711));
            let mut fds = [nix::poll::PollFd::new(ours.as_fd(), nix::poll::PollFlags::POLLIN)];
            nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).unwrap();
            assert_eq!(asked(&ours), Some(4711));
            answer(&ours, reply);
            assert_eq!(worker.join().unwrap(), Some(reply));
        }
    }

    #[test]
    fn who_is_gone_gives_no_answer() {
        let (ours, theirs) = pair().unwrap();
        drop(ours);
        assert_eq!(ask_to_begin(&theirs, 1), None);
        let (ours, theirs) = pair().unwrap();
        let worker = thread::spawn(move || ask_to_begin(&theirs, 1));
        let mut fds = [nix::poll::PollFd::new(ours.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).unwrap();
        drop(ours);
        assert_eq!(worker.join().unwrap(), None);
        let (ours, theirs) = pair().unwrap();
        drop(theirs);
        assert_eq!(asked(&ours), None);
        answer(&ours, Reply::Begun);
    }
}
