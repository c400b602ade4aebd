//! Frames over the pipe: a header, then its body, whole, cut short or passed over; memory stays bounded.
//!
//! `incoming.rs` and `startup.rs` read through it. A short body is handed out of the fixed receive buffer; a long
//! one goes into a second buffer that grows only as bytes arrive and never past the announced length. A length
//! that no server sends is an error at once. Every error is the last one: the socket is shut, so that nobody
//! reads on in the middle of a message.

use crate::limits::{GROW_BYTES, INBOX_BYTES, LONGEST_RECEIVED_BYTES};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use shared::db::tls::{PreparedTls, TlsError};

use super::error::{ConnectError, LinkError};
use super::outgoing::Outgoing;
use super::pipe::{Alarm, Pipe};
use super::server_error::ServerError;

/// A message begun: its kind, and how long its body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) tag: u8,
    pub(super) body: usize,
}

#[derive(Debug)]
pub(super) struct WireLink {
    pipe: Pipe,
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
    long: Vec<u8>,
    /// What the server said on leaving, see `LinkError::fatal`.
    pub(super) last_word: Option<ServerError>,
}

impl WireLink {
    pub(super) fn new(socket: OwnedFd, deadline: Option<Instant>) -> WireLink {
        WireLink {
            pipe: Pipe::new(socket, deadline),
            inbox: vec![0; INBOX_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            long: Vec::new(),
            last_word: None,
        }
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.pipe.set_deadline(deadline);
    }

    pub(super) fn set_alarm(&mut self, alarm: Option<Alarm>) {
        self.pipe.set_alarm(alarm);
    }

    /// Sends without reading.
    pub(super) fn send_all(&mut self, outgoing: &mut Outgoing<'_>) -> io::Result<()> {
        self.pipe.send_all(outgoing)
    }

    /// Encrypts a connection on which nothing has been said yet. False: the server does not offer it, and that will
    /// do.
    pub(super) fn encrypt(&mut self, tls: &PreparedTls, insist: bool, place: &str) -> Result<bool, ConnectError> {
        let connect_error = |source| ConnectError::Tls { place: place.to_owned(), source };
        match self.pipe.encrypt(tls).map_err(connect_error)? {
            false if insist => Err(connect_error(TlsError::Declined)),
            encrypted => Ok(encrypted),
        }
    }

    /// What a login can be bound to, if the connection is encrypted.
    pub(super) fn end_point(&self) -> Option<Vec<u8>> {
        self.pipe.end_point()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.pipe.is_encrypted()
    }

    /// Is there something that was received and not yet read?
    pub(super) fn has_unread(&self) -> bool {
        self.start < self.end || self.pipe.has_unread()
    }

    /// Sends, and waits until something can be read, until then at most. False: nothing came.
    pub(super) fn await_answer(&mut self, outgoing: &mut Outgoing<'_>, until: Instant) -> bool {
        self.has_unread() || self.pipe.await_answer(outgoing, until)
    }

    /// Reads the header of the next message.
    pub(super) fn head(&mut self, outgoing: &mut Outgoing<'_>) -> io::Result<Head> {
        let header = self.peek(5, outgoing)?;
        let (tag, length) = (header[0], u32_at(header, 1) as usize);
        if !(4..=LONGEST_RECEIVED_BYTES).contains(&length) {
            let text = format!("server sent a message of type {} with the length {length}", tag.escape_ascii());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.start += 5;
        Ok(Head { tag, body: length - 4 })
    }

    /// The next bytes, left where they are. At most the size of the receive buffer.
    pub(super) fn peek(&mut self, count: usize, outgoing: &mut Outgoing<'_>) -> io::Result<&[u8]> {
        assert!(count <= self.inbox.len(), "a peek fits the receive buffer");
        if self.inbox.len() - self.start < count || self.start == self.end {
            self.inbox.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < count {
            self.end += self.pipe.receive(outgoing, &mut self.inbox[self.end..])?;
        }
        Ok(&self.inbox[self.start..self.start + count])
    }

    /// Reads a body of this length.
    pub(super) fn body(&mut self, count: usize, outgoing: &mut Outgoing<'_>) -> io::Result<&[u8]> {
        if count <= self.inbox.len() {
            self.peek(count, outgoing)?;
            self.start += count;
            return Ok(&self.inbox[self.start - count..self.start]);
        }
        self.long.clear();
        self.long.reserve_exact(count);
        self.long.extend_from_slice(&self.inbox[self.start..self.end]);
        (self.start, self.end) = (0, 0);
        let mut filled = self.long.len();
        while filled < count {
            if filled == self.long.len() {
                self.long.resize(count.min(filled + GROW_BYTES), 0);
            }
            filled += self.pipe.receive(outgoing, &mut self.long[filled..])?;
        }
        Ok(&self.long)
    }

    /// Passes over bytes without keeping them.
    pub(super) fn skip(&mut self, count: usize, outgoing: &mut Outgoing<'_>) -> io::Result<()> {
        let mut left = count;
        loop {
            let here = left.min(self.end - self.start);
            self.start += here;
            left -= here;
            if left == 0 {
                return Ok(());
            }
            (self.start, self.end) = (0, 0);
            self.end = self.pipe.receive(outgoing, &mut self.inbox)?;
        }
    }

    /// Gives the memory of a long message back.
    pub(super) fn forget_long(&mut self) {
        if self.long.capacity() > 0 {
            self.long = Vec::new();
        }
    }

    /// Turns an I/O error into the error that the session ends with.
    pub(super) fn broken(&mut self, what: impl Into<String>) -> LinkError {
        self.pipe.shut();
        (self.start, self.end) = (0, 0);
        self.forget_long();
        LinkError { fatal: self.last_word.take(), what: what.into(), closed: false }
    }

    /// The same where reading or writing has failed.
    pub(super) fn broken_by(&mut self, doing: &str, error: &io::Error) -> LinkError {
        let closed = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        );
        LinkError { closed, ..self.broken(format!("lost the session while a {doing} ran: {error}")) }
    }
}

impl AsFd for WireLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// A big-endian word at a place that the caller knows to exist.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Duration;

    fn link(bytes: Vec<u8>) -> WireLink {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // Not joined: a reader that gives up early makes this write fail, as it should.
        thread::spawn(move || theirs.write_all(&bytes));
        WireLink::new(ours.into(), Some(Instant::now() + Duration::from_secs(20)))
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn bodies_around_the_size_of_the_buffer_come_whole_and_in_order() {
        let mut none = Outgoing::default();
        for size in [0, 1, INBOX_BYTES - 6, INBOX_BYTES - 5, INBOX_BYTES, INBOX_BYTES + 1, 3 * GROW_BYTES + 7] {
            let body: Vec<u8> = (0..size).map(|index| index as u8).collect();
            let mut bytes = message(b'x', b"before");
            bytes.extend(message(b'D', &body));
            bytes.extend(message(b'y', b"after"));
            let mut link = link(bytes);
            for (tag, wanted) in [(b'x', &b"before"[..]), (b'D', &body), (b'y', b"after")] {
                let head = link.head(&mut none).unwrap();
                assert_eq!(head, Head { tag, body: wanted.len() });
                assert!(link.body(head.body, &mut none).unwrap() == wanted, "size {size}");
            }
        }
    }

    #[test]
    fn a_body_that_is_skipped_is_not_kept() {
        let mut none = Outgoing::default();
        let mut bytes = message(b'D', &vec![b'x'; 10 << 20]);
        bytes.extend(message(b'Z', b"I"));
        let mut link = link(bytes);
        let head = link.head(&mut none).unwrap();
        link.skip(head.body, &mut none).unwrap();
        assert_eq!(link.long.capacity(), 0);
        assert_eq!(link.head(&mut none).unwrap(), Head { tag: b'Z', body: 1 });
    }

    #[test]
    fn lengths_that_no_server_sends_are_refused() {
        for length in [0u32, 3, (1 << 30) + 1025, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let mut bytes = vec![b'D'];
            bytes.extend(length.to_be_bytes());
            let error = link(bytes).head(&mut Outgoing::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_long_length_without_bytes_takes_no_memory() {
        let mut bytes = vec![b'D'];
        bytes.extend((1u32 << 30).to_be_bytes());
        bytes.extend(vec![b'x'; 100]);
        let mut link = link(bytes);
        let mut none = Outgoing::default();
        let head = link.head(&mut none).unwrap();
        assert_eq!(link.body(head.body, &mut none).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(link.long.len() <= 100 + GROW_BYTES);
    }
}
