//! The socket itself: receive, and send whatever waits to be sent while nothing can be received.
//!
//! Only `link.rs` uses it. The reader drives: bytes leave while we wait for an answer, so a server that stops
//! reading until its own answers are read can never stand against a client that stops reading until its input
//! is written. The socket stays in blocking mode; single calls are made non-blocking by a flag. TLS comes in here
//! and nowhere else: `tls.rs` turns what is sent and received into its records. What can go wrong is an `io::Error`; after it the socket is of no use.

use crate::limits::LAST_MESSAGE_TIMEOUT;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, sendmsg, shutdown};

use shared::db::tls::{PreparedTls, TlsError};

use super::outgoing::Outgoing;
use super::tls::Records;

/// What is done, once, if an answer takes longer.
pub(super) struct Alarm {
    pub(super) at: Instant,
    pub(super) wake: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Alarm({:?})", self.at)
    }
}

#[derive(Debug)]
pub(super) struct Pipe {
    socket: OwnedFd,
    alarm: Option<Alarm>,
    /// Past it every call fails with `TimedOut`. None: wait for ever.
    deadline: Option<Instant>,
    /// Why nothing more can be written, once that is so.
    unwritable: Option<Errno>,
    records: Option<Box<Records>>,
}

/// What a client says to ask for TLS: the length and a number that is no version.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

impl Pipe {
    pub(super) fn new(socket: OwnedFd, deadline: Option<Instant>) -> Pipe {
        Pipe { socket, alarm: None, deadline, unwritable: None, records: None }
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    pub(super) fn set_alarm(&mut self, alarm: Option<Alarm>) {
        self.alarm = alarm;
    }

    /// Waits for an answer until the alarm goes off, and lets it; also if the other side never stops talking.
    fn wait_for_alarm(&mut self) -> io::Result<()> {
        while let Some(alarm) = &self.alarm {
            let left = alarm.at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if let Some(alarm) = self.alarm.take() {
                    (alarm.wake)();
                }
                break;
            }
            let timeout = PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Asks for TLS and shakes hands. False: the server does not offer it. The answer is read alone, not a byte more:
    /// what stood behind it in the clear must not be taken for the server's word.
    pub(super) fn encrypt(&mut self, tls: &PreparedTls) -> Result<bool, TlsError> {
        let cut = |error: io::Error| TlsError::Cut(error.to_string());
        let mut request = Outgoing::default();
        request.own(&TLS_REQUEST);
        self.send_all(&mut request).map_err(cut)?;
        let mut answer = [0];
        while let Err(error) = self.receive(&mut request, &mut answer) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(cut(error));
            }
        }
        match answer[0] {
            b'S' => {}
            b'N' => return Ok(false),
            _ => return Err(TlsError::Cut("the server did not answer the TLS request with S or N".to_owned())),
        }
        let mut records = Records::new(tls)?;
        while records.is_shaking_hands() {
            records.send(&self.socket).map_err(cut)?;
            self.wait(records.wants_send()).map_err(cut)?;
            if let Err(error) = records.receive(&self.socket) {
                // The reason goes to the server, if it can.
                let _ = records.send(&self.socket);
                return Err(error);
            }
        }
        self.records = Some(Box::new(records));
        Ok(true)
    }

    pub(super) fn end_point(&self) -> Option<Vec<u8>> {
        self.records.as_ref().and_then(|records| records.end_point())
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.records.is_some()
    }

    /// Something is decrypted and not yet handed out.
    pub(super) fn has_unread(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.has_unread())
    }

    /// Receives at least one byte. An end of the stream is the error `UnexpectedEof`.
    pub(super) fn receive(&mut self, outgoing: &mut Outgoing<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        if self.records.is_some() {
            return self.receive_records(outgoing, buffer);
        }
        loop {
            self.send(outgoing);
            self.wait_for_alarm()?;
            let flags = if outgoing.is_empty() && self.deadline.is_none() {
                MsgFlags::empty()
            } else {
                self.wait(!outgoing.is_empty())?;
                MsgFlags::MSG_DONTWAIT
            };
            match recv(self.socket.as_raw_fd(), buffer, flags) {
                Ok(0) => return Err(self.end()),
                Ok(count) => return Ok(count),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn receive_records(&mut self, outgoing: &mut Outgoing<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.send(outgoing);
            let Some(records) = &mut self.records else { return Err(self.end()) };
            match records.read(buffer) {
                Ok(Some(0)) => return Err(self.end()),
                Ok(Some(count)) => return Ok(count),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
            let writing = records.wants_send() && self.unwritable.is_none();
            self.wait(writing || !outgoing.is_empty())?;
            if let Some(records) = &mut self.records {
                records.receive(&self.socket).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
        }
    }

    /// Sends all there is, reading nothing; for a farewell or a request that has no answer.
    pub(super) fn send_all(&mut self, outgoing: &mut Outgoing<'_>) -> io::Result<()> {
        loop {
            self.send(outgoing);
            if let Some(errno) = self.unwritable {
                return Err(errno.into());
            }
            if outgoing.is_empty() && !self.records.as_ref().is_some_and(|records| records.wants_send()) {
                return Ok(());
            }
            self.poll(PollFlags::POLLOUT)?;
        }
    }

    /// Ends both directions: nobody shall go on in the middle of a message.
    pub(super) fn shut(&mut self) {
        // Already gone is as good.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
    }

    /// Sends what the kernel takes at once. A failure is kept and not told: the server's last word may still be
    /// there to be read, and it says more.
    fn send(&mut self, outgoing: &mut Outgoing<'_>) {
        if let (Some(records), None) = (&mut self.records, self.unwritable)
            && let Err(error) = records.send_through(&self.socket, outgoing)
        {
            self.give_up_writing(Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EPIPE as i32)));
        }
        while self.records.is_none() && !outgoing.is_empty() && self.unwritable.is_none() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let taken = sendmsg::<()>(self.socket.as_raw_fd(), &outgoing.slices(), &[], flags, None);
            match taken {
                Ok(count) => outgoing.advance(count),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(errno) => self.give_up_writing(errno),
            }
        }
        if self.unwritable.is_some() {
            outgoing.clear();
        }
    }

    fn give_up_writing(&mut self, errno: Errno) {
        self.unwritable = Some(errno);
        self.deadline.get_or_insert_with(|| Instant::now() + LAST_MESSAGE_TIMEOUT);
    }

    /// Sends, and waits for something to receive, until then at most. False: nothing came.
    pub(super) fn await_answer(&mut self, outgoing: &mut Outgoing<'_>, until: Instant) -> bool {
        loop {
            self.send(outgoing);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let write = if outgoing.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN | write)];
            let timeout = PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
            let polled = poll(&mut fds, timeout);
            let seen = fds[0].revents().unwrap_or(PollFlags::empty());
            match polled {
                Ok(_) if seen.intersects(!PollFlags::POLLOUT) => return true,
                Ok(_) | Err(Errno::EINTR) => {}
                // Whoever reads finds out.
                Err(_) => return true,
            }
        }
    }

    fn wait(&self, writing: bool) -> io::Result<()> {
        let write = if writing { PollFlags::POLLOUT } else { PollFlags::empty() };
        self.poll(PollFlags::POLLIN | write)
    }

    fn poll(&self, events: PollFlags) -> io::Result<()> {
        loop {
            let timeout = match self.deadline {
                None => PollTimeout::NONE,
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "timeout"));
                    }
                    // Rounded up, or the last fraction of a millisecond would be spun away.
                    PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX)
                }
            };
            match poll(&mut [PollFd::new(self.socket.as_fd(), events)], timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn end(&self) -> io::Error {
        match self.unwritable {
            Some(errno) => errno.into(),
            None => io::Error::new(io::ErrorKind::UnexpectedEof, "server closed the connection"),
        }
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    #[test]
    fn a_peer_that_writes_before_it_reads_does_not_block_a_long_input() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let size = 8 << 20;
        let server = thread::spawn(move || {
            // First all its answers, only then does it read: two blocking writers would stand for ever.
            theirs.write_all(&vec![b'a'; size]).unwrap();
            let mut input = vec![0; size + 6];
            theirs.read_exact(&mut input).unwrap();
            theirs.write_all(b"!").unwrap();
            input
        });
        let input = vec![b'i'; size];
        let mut outgoing = Outgoing::default();
        outgoing.query(&input).unwrap();
        let mut pipe = Pipe::new(ours.into(), Some(Instant::now() + Duration::from_secs(60)));
        let mut buffer = vec![0; 65536];
        let mut received = 0;
        while received < size + 1 {
            received += pipe.receive(&mut outgoing, &mut buffer).unwrap();
        }
        assert!(outgoing.is_empty());
        assert_eq!(&server.join().unwrap()[5..size + 5], &input[..]);
    }

    #[test]
    fn a_silent_peer_is_left_at_the_deadline() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut pipe = Pipe::new(ours.into(), Some(Instant::now() + Duration::from_millis(30)));
        let error = pipe.receive(&mut Outgoing::default(), &mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn an_alarm_goes_off_though_the_peer_never_stops_talking() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || while theirs.write_all(&[b'n'; 4096]).is_ok() {});
        let (wake, woken) = crossbeam_channel::bounded(1);
        let mut pipe = Pipe::new(ours.into(), Some(Instant::now() + Duration::from_secs(60)));
        let wake = Box::new(move || wake.send(()).unwrap());
        pipe.set_alarm(Some(Alarm { at: Instant::now() + Duration::from_millis(20), wake }));
        while woken.try_recv().is_err() {
            pipe.receive(&mut Outgoing::default(), &mut [0; 4096]).expect("the alarm goes off first");
        }
        drop(pipe);
        server.join().unwrap();
    }

    #[test]
    fn what_a_peer_said_before_it_left_is_read_though_writing_fails() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"bye").unwrap();
        drop(theirs);
        let mut outgoing = Outgoing::default();
        outgoing.query(b"SELECT 1").unwrap();
        let mut pipe = Pipe::new(ours.into(), None);
        let mut buffer = [0; 8];
        assert_eq!(pipe.receive(&mut outgoing, &mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"bye");
        assert_eq!(pipe.receive(&mut outgoing, &mut buffer).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
