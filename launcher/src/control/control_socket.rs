//! The control socket: where `launcher status` and its like ask a running launcher.
//!
//! A Unix socket of mode 0600; besides, the peer's credentials are checked: our own uid and uid 0 may ask. One JSON
//! line in, one JSON line out, at once or once there is something to report. Nothing here blocks: callers that are
//! slow, silent or too many are dropped. A live socket of another launcher is an error with its pid; a dead one is
//! replaced. Every second `keep` compares the file with the bound socket and binds again if the file was removed.

use crate::limits::{CALL_TIMEOUT, CALLERS_MAX, REQUEST_MAX_BYTES, SOCKET_CHECK_PERIOD};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket, sockopt,
};
use nix::sys::stat::{Mode, fchmod};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("another launcher{} uses control socket {path}; stop it, or set another \"control\" in the config", pid_text(.pid))]
    InUse { path: PathBuf, pid: Option<i32> },
    #[error("{path} exists and is not a socket; remove it, or set another \"control\" in the config")]
    NotASocket { path: PathBuf },
    #[error("cannot create control socket {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Nobody else's from the first moment on: the file gets the mode that the socket has when it is bound. (A umask would
/// count for the whole process.)
fn listener(path: &Path) -> nix::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&socket, Backlog::MAXCONN)?;
    Ok(UnixListener::from(socket))
}

fn pid_text(pid: &Option<i32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// A call that has not been answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerId(u64);

#[derive(Debug)]
struct Caller {
    id: CallerId,
    asked: bool,
    stream: UnixStream,
    question: Vec<u8>,
    answer: Option<Vec<u8>>,
    deadline: Instant,
}

/// Device and inode of a file. The kernel keeps the inode of a bound socket as long as the socket is open, so no later
/// file can have the same pair.
type FileId = (u64, u64);

#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The file that the listener was bound to.
    file: Option<FileId>,
    next_check: Instant,
    /// Why the file could not be bound again; logged once per cause.
    refused: Option<String>,
    /// No call can be taken before this moment: there is no descriptor for it.
    accept_after: Option<Instant>,
    refusal_logged: bool,
    callers: Vec<Caller>,
    calls: u64,
}

impl ControlSocket {
    pub fn open(path: &Path) -> Result<ControlSocket, ControlError> {
        let failed = |source: io::Error| ControlError::Io { path: path.to_owned(), source };
        make_way(path)?;
        let listener = listener(path).map_err(|errno| failed(errno.into()))?;
        Ok(ControlSocket {
            listener,
            path: path.to_owned(),
            file: file_id(path),
            next_check: Instant::now() + SOCKET_CHECK_PERIOD,
            refused: None,
            accept_after: None,
            refusal_logged: false,
            callers: Vec::new(),
            calls: 0,
        })
    }

    /// Binds the socket again if its file was removed. The file of another living program is left alone.
    pub fn keep(&mut self, now: Instant) {
        if now >= self.next_check {
            self.check(now);
        }
    }

    pub fn check(&mut self, now: Instant) {
        self.next_check = now + SOCKET_CHECK_PERIOD;
        if self.is_in_place() {
            self.refused = None;
            return;
        }
        match make_way(&self.path).and_then(|()| {
            listener(&self.path).map_err(|errno| ControlError::Io { path: self.path.clone(), source: errno.into() })
        }) {
            Ok(listener) => {
                shared::info!("control socket bound again: its file was deleted", path = self.path.display());
                self.listener = listener;
                self.file = file_id(&self.path);
                self.refused = None;
            }
            Err(error) => {
                let why = error.to_string();
                if self.refused.as_ref() != Some(&why) {
                    shared::warning!(
                        "control socket cannot be bound again after its file was deleted; retrying every second",
                        error = why
                    );
                }
                self.refused = Some(why);
            }
        }
    }

    fn is_in_place(&self) -> bool {
        self.file.is_some() && file_id(&self.path) == self.file
    }

    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let callers = self.callers.iter().map(|caller| {
            let flags = if caller.answer.is_some() { PollFlags::POLLOUT } else { PollFlags::POLLIN };
            PollFd::new(caller.stream.as_fd(), flags)
        });
        // A call that cannot be taken would wake the loop again at once.
        let listener = self.accept_after.is_none().then(|| PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        listener.into_iter().chain(callers)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.callers.iter().map(|caller| caller.deadline).chain([self.next_check]).chain(self.accept_after).min()
    }

    /// Accepts calls and reads questions; each is answered by `reply`, now or later.
    #[must_use]
    pub fn drive(&mut self, now: Instant) -> Vec<(CallerId, String)> {
        if self.accept_after.is_some_and(|until| now >= until) {
            self.accept_after = None;
        }
        while self.accept_after.is_none() {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => {
                    self.refusal_logged = false;
                    stream
                }
                Err(error) => {
                    self.cannot_accept(&error, now);
                    break;
                }
            };
            if self.callers.len() < CALLERS_MAX && may_ask(&stream) && stream.set_nonblocking(true).is_ok() {
                self.calls += 1;
                let (id, deadline) = (CallerId(self.calls), now + CALL_TIMEOUT);
                let (question, answer) = (Vec::new(), None);
                self.callers.push(Caller { id, asked: false, stream, question, answer, deadline });
            }
        }
        let mut questions = Vec::new();
        self.callers.retain_mut(|caller| now < caller.deadline && caller.read(&mut questions));
        questions
    }

    fn cannot_accept(&mut self, error: &io::Error, now: Instant) {
        let short = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS];
        if short.iter().any(|errno| error.raw_os_error() == Some(*errno as i32)) {
            if !std::mem::replace(&mut self.refusal_logged, true) {
                shared::warning!("control socket cannot accept a connection; retrying every second", error = error);
            }
            self.accept_after = Some(now + SOCKET_CHECK_PERIOD);
        }
    }

    /// Without effect if the caller has closed its connection.
    pub fn reply(&mut self, id: CallerId, answer: &str) {
        if let Some(caller) = self.callers.iter_mut().find(|caller| caller.id == id) {
            caller.answer = Some(format!("{answer}\n").into_bytes());
        }
    }

    /// Writes what can be written; a caller with a whole answer is dropped.
    pub fn flush(&mut self) {
        self.callers.retain_mut(Caller::write);
    }

    /// Removes the socket file, if it is still ours.
    pub fn close(self) {
        if self.is_in_place() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Caller {
    /// False when the call is over.
    fn read(&mut self, questions: &mut Vec<(CallerId, String)>) -> bool {
        if self.answer.is_none() {
            let mut bytes = [0u8; 1024];
            loop {
                match self.stream.read(&mut bytes) {
                    Ok(0) => return false,
                    Ok(count) => self.question.extend_from_slice(bytes.get(..count).unwrap_or_default()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
                if self.question.len() > REQUEST_MAX_BYTES {
                    return false;
                }
            }
            let Some(end) = self.question.iter().position(|byte| *byte == b'\n') else { return true };
            if !std::mem::replace(&mut self.asked, true) {
                let question = String::from_utf8_lossy(self.question.get(..end).unwrap_or_default()).into_owned();
                questions.push((self.id, question));
            }
        }
        true
    }

    /// False when the call is over.
    fn write(&mut self) -> bool {
        let Some(rest) = &mut self.answer else { return true };
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => drop(rest.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }
}

/// Our own uid and root.
fn may_ask(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    match getsockopt(stream, sockopt::PeerCredentials) {
        Ok(peer) if peer.uid() == own || peer.uid() == 0 => true,
        Ok(peer) => {
            shared::warning!("control socket refused a connection of another user", uid = peer.uid());
            false
        }
        Err(_) => false,
    }
}

/// Removes what a dead launcher left; refuses what a live one holds.
fn make_way(path: &Path) -> Result<(), ControlError> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(ControlError::NotASocket { path: path.to_owned() });
    }
    let failed = |errno: Errno| ControlError::Io { path: path.to_owned(), source: errno.into() };
    match call(path) {
        Ok(pid) => Err(ControlError::InUse { path: path.to_owned(), pid }),
        Err(Errno::ECONNREFUSED) => {
            fs::remove_file(path).map_err(|source| ControlError::Io { path: path.to_owned(), source })
        }
        Err(Errno::ENOENT) => Ok(()),
        // Not ours to judge: a socket of another user or of another kind.
        Err(errno) => Err(failed(errno)),
    }
}

/// Calls the program that listens on a socket; gives its pid. Does not wait: a full backlog shows a living listener,
/// too.
fn call(path: &Path) -> nix::Result<Option<i32>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) => Ok(getsockopt(&socket, sockopt::PeerCredentials).ok().map(|peer| peer.pid())),
        Err(Errno::EAGAIN) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("mill-{}-{name}.sock", std::process::id()))
    }

    #[test]
    fn a_question_gets_its_answer_and_the_socket_is_its_owners_alone() {
        let path = place("answer");
        let mut control = ControlSocket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut caller = UnixStream::connect(&path).unwrap();
        caller.write_all(b"{\"command\":\"status\"}\n").unwrap();
        for (caller, question) in control.drive(Instant::now()) {
            control.reply(caller, &format!("heard {question}"));
        }
        control.flush();
        let mut line = String::new();
        BufReader::new(caller).read_line(&mut line).unwrap();
        assert_eq!(line, "heard {\"command\":\"status\"}\n");
        assert!(control.callers.is_empty());
        control.close();
        assert!(!path.exists());
    }

    #[test]
    fn an_answer_may_come_later_and_a_question_is_heard_once() {
        let path = place("later");
        let mut control = ControlSocket::open(&path).unwrap();
        let now = Instant::now();
        let mut caller = UnixStream::connect(&path).unwrap();
        caller.write_all(b"wait\n").unwrap();
        let asked = control.drive(now);
        control.flush();
        assert_eq!(asked.len(), 1);
        assert_eq!(control.drive(now), []);
        control.reply(asked[0].0, "done");
        control.flush();
        let mut line = String::new();
        BufReader::new(caller).read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
        assert!(control.callers.is_empty());
        control.close();
    }

    #[test]
    fn a_live_socket_is_refused_with_its_pid_and_a_dead_one_replaced() {
        let path = place("live");
        let first = ControlSocket::open(&path).unwrap();
        let refused = ControlSocket::open(&path).unwrap_err();
        assert!(matches!(refused, ControlError::InUse { pid: Some(pid), .. } if pid == std::process::id() as i32));
        drop(first);
        ControlSocket::open(&path).unwrap().close();
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let path = place("file");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(ControlSocket::open(&path), Err(ControlError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_silent_or_endless_caller_is_dropped() {
        let path = place("silent");
        let mut control = ControlSocket::open(&path).unwrap();
        let now = Instant::now();
        let silent = UnixStream::connect(&path).unwrap();
        let mut endless = UnixStream::connect(&path).unwrap();
        endless.write_all(&vec![b'x'; REQUEST_MAX_BYTES + 1024]).unwrap();
        assert_eq!(control.drive(now), []);
        assert_eq!(control.callers.len(), 1);
        assert_eq!(control.drive(now + CALL_TIMEOUT), []);
        assert!(control.callers.is_empty());
        drop(silent);
        control.close();
    }

    proptest::proptest! {
        #[test]
        fn whatever_callers_say_nobody_waits_and_only_whole_lines_are_asked(
            calls in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..6000), 1..5),
        ) {
            let path = place("fuzz");
            let mut control = ControlSocket::open(&path).unwrap();
            let now = Instant::now();
            let callers: Vec<UnixStream> = calls
                .iter()
                .map(|bytes| {
                    let mut caller = UnixStream::connect(&path).unwrap();
                    caller.write_all(bytes).unwrap();
                    caller
                })
                .collect();
            let questions = control.drive(now);
            let asked = questions.len();
            for (caller, question) in questions {
                assert!(!question.contains('\n'));
                control.reply(caller, &question);
            }
            control.flush();
            let lines = calls.iter().filter(|bytes| bytes.contains(&b'\n')).count();
            proptest::prop_assert!(asked <= lines);
            drop(callers);
            let _ = control.drive(now + CALL_TIMEOUT);
            proptest::prop_assert!(control.callers.is_empty());
            control.close();
        }
    }
}
