//! Records of TLS between the pipe and the socket.
//!
//! Only `pipe.rs` uses it. rustls keeps the state and never touches the socket; here its records are sent and received
//! without waiting. Its buffers are bounded: what does not fit stays with the sender. A record that is not right ends
//! the connection.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use rustls::ClientConnection;
use shared::db::tls::{PreparedTls, TlsError, end_point, handshake_error};

use super::outgoing::Outgoing;

#[derive(Debug)]
pub(super) struct Records {
    connection: ClientConnection,
    unread: bool,
}

impl Records {
    pub(super) fn new(tls: &PreparedTls) -> Result<Records, TlsError> {
        let connection = ClientConnection::new(tls.config.clone(), tls.name.clone());
        Ok(Records { connection: connection.map_err(|error| handshake_error(&error))?, unread: false })
    }

    pub(super) fn is_shaking_hands(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(super) fn wants_send(&self) -> bool {
        self.connection.wants_write()
    }

    pub(super) fn has_unread(&self) -> bool {
        self.unread
    }

    pub(super) fn end_point(&self) -> Option<Vec<u8>> {
        let chain = self.connection.peer_certificates()?;
        chain.first().and_then(|certificate| end_point(certificate))
    }

    /// Sends the records that are ready, as far as the kernel takes them.
    pub(super) fn send(&mut self, socket: &OwnedFd) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Unwaiting(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Encrypts and sends as much as is taken at once.
    pub(super) fn send_through(&mut self, socket: &OwnedFd, outgoing: &mut Outgoing<'_>) -> io::Result<()> {
        loop {
            self.send(socket)?;
            if outgoing.is_empty() || self.connection.wants_write() {
                return Ok(());
            }
            let taken = self.connection.writer().write_vectored(&outgoing.slices())?;
            outgoing.advance(taken);
        }
    }

    /// Receives what is there. The end of the stream is seen by `read`.
    pub(super) fn receive(&mut self, socket: &OwnedFd) -> Result<(), TlsError> {
        match self.connection.read_tls(&mut Unwaiting(socket)) {
            Ok(0) if self.connection.is_handshaking() => {
                return Err(TlsError::Cut("server closed the connection".to_owned()));
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(TlsError::Cut(error.to_string())),
        }
        self.connection.process_new_packets().map(|_| ()).map_err(|error| handshake_error(&error))
    }

    /// Decrypted bytes. None: there are none yet; 0: there will be none.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let count = match self.connection.reader().read(buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            // Closed without a farewell, which is what a server that crashes does.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(error),
        };
        self.unread = self.connection.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0);
        Ok(Some(count))
    }
}

/// The socket as rustls wants it: what would wait is an error.
struct Unwaiting<'a>(&'a OwnedFd);

impl Read for Unwaiting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        recv(self.0.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT).map_err(Errno::into)
    }
}

impl Write for Unwaiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        send(self.0.as_raw_fd(), bytes, flags).map_err(Errno::into)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
