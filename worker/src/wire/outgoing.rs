//! What is still to be sent: frames of our own making and slices borrowed from the caller, in order, never joined.
//!
//! `simple.rs` and `extended.rs` put messages in, `pipe.rs` takes them out while it waits for answers. A long
//! input or parameter goes from the caller's memory to the kernel with no copy between. A message longer than
//! the server takes is refused here, before a byte of it is sent.

use crate::limits::{BORROWED_FROM_BYTES, LONGEST_SENT_BYTES, SENT_ENTRIES};
use std::collections::VecDeque;
use std::io::IoSlice;

use super::server_error::ServerError;

#[derive(Debug, Default)]
pub(super) struct Outgoing<'a> {
    pieces: VecDeque<Piece<'a>>,
    /// How much of the first piece is sent.
    sent: usize,
}

#[derive(Debug)]
enum Piece<'a> {
    Own(Vec<u8>),
    Borrowed(&'a [u8]),
}

impl Piece<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Borrowed(bytes) => bytes,
        }
    }
}

impl<'a> Outgoing<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds bytes of our own.
    pub(super) fn own(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        match self.pieces.back_mut() {
            Some(Piece::Own(last)) => last.extend_from_slice(bytes),
            _ => self.pieces.push_back(Piece::Own(bytes.to_vec())),
        }
    }

    /// Adds bytes of the caller, by reference if they are many.
    fn push_borrowed(&mut self, bytes: &'a [u8]) {
        if bytes.len() < BORROWED_FROM_BYTES {
            self.own(bytes);
        } else {
            self.pieces.push_back(Piece::Borrowed(bytes));
        }
    }

    /// Would it be refused as a simple query?
    pub(super) fn check_query(input: &[u8]) -> Result<(), ServerError> {
        refuse_nul(input)?;
        length(input.len() + 1).map(|_| ())
    }

    /// A simple query.
    pub(super) fn query(&mut self, input: &'a [u8]) -> Result<(), ServerError> {
        Outgoing::check_query(input)?;
        self.head(b'Q', input.len() + 1)?;
        self.push_borrowed(input);
        self.own(&[0]);
        Ok(())
    }

    /// Parse, Bind and Execute over the unnamed statement and portal: types left to the server, text both ways.
    #[cfg(test)]
    pub(super) fn statement(&mut self, sql: &'a str, params: &[Option<&'a [u8]>]) -> Result<(), ServerError> {
        self.parse("", sql)?;
        self.execute("", params)
    }

    /// Parse: under a name the statement stays until the session ends or somebody deallocates it.
    pub(super) fn parse(&mut self, name: &str, sql: &'a str) -> Result<(), ServerError> {
        refuse_nul(sql.as_bytes())?;
        self.head(b'P', name.len() + 1 + sql.len() + 1 + 2)?;
        self.own(name.as_bytes());
        self.own(&[0]);
        self.push_borrowed(sql.as_bytes());
        self.own(&[0, 0, 0]);
        Ok(())
    }

    /// Bind and Execute of a parsed statement over the unnamed portal.
    pub(super) fn execute(&mut self, name: &str, params: &[Option<&'a [u8]>]) -> Result<(), ServerError> {
        let count = u16::try_from(params.len()).map_err(|_| too_long())?;
        let values: usize = params.iter().map(|param| 4 + param.map_or(0, <[u8]>::len)).sum();
        self.head(b'B', 1 + name.len() + 1 + 2 + 2 + values + 2)?;
        self.own(&[0]);
        self.own(name.as_bytes());
        self.own(&[0, 0, 0]);
        self.own(&count.to_be_bytes());
        for param in params {
            match param {
                // Shorter than its message, which `head` has measured: it fits.
                Some(value) => {
                    self.own(&(value.len() as u32).to_be_bytes());
                    self.push_borrowed(value);
                }
                None => self.own(&(-1i32).to_be_bytes()),
            }
        }
        self.own(&[0, 0]);

        self.head(b'E', 1 + 4)?;
        self.own(&[0, 0, 0, 0, 0]);
        Ok(())
    }

    pub(super) fn sync(&mut self) {
        self.own(b"S\0\0\0\x04");
    }

    fn head(&mut self, tag: u8, body: usize) -> Result<(), ServerError> {
        let length = length(body)?;
        self.own(&[tag]);
        self.own(&length.to_be_bytes());
        Ok(())
    }

    /// The next bytes, ready for one system call.
    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(self.pieces.len().min(SENT_ENTRIES));
        for (index, piece) in self.pieces.iter().take(SENT_ENTRIES).enumerate() {
            let skip = if index == 0 { self.sent } else { 0 };
            slices.push(IoSlice::new(&piece.bytes()[skip..]));
        }
        slices
    }

    /// The kernel took this many bytes.
    pub(super) fn advance(&mut self, taken: usize) {
        let mut left = taken;
        while let Some(first) = self.pieces.front() {
            let rest = first.bytes().len() - self.sent;
            if left < rest {
                self.sent += left;
                return;
            }
            left -= rest;
            self.sent = 0;
            self.pieces.pop_front();
        }
        assert_eq!(left, 0, "the kernel cannot take more than it was given");
    }

    /// Gives up what was not sent.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.sent = 0;
    }
}

/// A NUL would end the text early and put the rest of it where the server expects other fields.
fn refuse_nul(text: &[u8]) -> Result<(), ServerError> {
    if text.contains(&0) {
        return Err(ServerError::local("ERROR", "22021", "invalid byte sequence for encoding \"UTF8\": 0x00"));
    }
    Ok(())
}

/// A message's length word.
fn length(body: usize) -> Result<u32, ServerError> {
    let length = body.saturating_add(4);
    if length > LONGEST_SENT_BYTES { Err(too_long()) } else { Ok(length as u32) }
}

fn too_long() -> ServerError {
    ServerError::local("ERROR", "54000", "statement or parameter is longer than the server accepts")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(outgoing: &mut Outgoing<'_>, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !outgoing.is_empty() {
            let next: Vec<u8> = outgoing.slices().iter().flat_map(|slice| slice.to_vec()).take(step).collect();
            outgoing.advance(next.len());
            all.extend(next);
        }
        all
    }

    #[test]
    fn pieces_leave_in_order_however_few_bytes_the_kernel_takes() {
        let long = vec![b'x'; BORROWED_FROM_BYTES + 3];
        for step in [1, 7, 4096, 1 << 20] {
            let mut outgoing = Outgoing::default();
            outgoing.query(&long).unwrap();
            outgoing.sync();
            assert!(matches!(outgoing.pieces[1], Piece::Borrowed(_)));
            let sent = drain(&mut outgoing, step);
            assert_eq!(sent[0], b'Q');
            assert_eq!(u32::from_be_bytes(sent[1..5].try_into().unwrap()) as usize, 4 + long.len() + 1);
            assert_eq!(&sent[5..5 + long.len()], &long[..]);
            assert_eq!(&sent[5 + long.len()..], b"\0S\0\0\0\x04");
        }
    }

    #[test]
    fn a_statement_is_parse_bind_and_execute() {
        let mut outgoing = Outgoing::default();
        outgoing.statement("SELECT $1", &[Some(b"ab"), None]).unwrap();
        let sent = drain(&mut outgoing, 100);
        let mut wanted = b"P\0\0\0\x11\0SELECT $1\0\0\0".to_vec();
        wanted.extend(b"B\0\0\0\x16\0\0\0\0\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\0");
        wanted.extend(b"E\0\0\0\x09\0\0\0\0\0");
        assert_eq!(sent, wanted);
    }

    #[test]
    fn a_nul_in_the_text_is_refused_before_anything_is_queued() {
        let mut outgoing = Outgoing::default();
        assert_eq!(outgoing.query(b"SELECT 1\0").unwrap_err().code(), Some(&b"22021"[..]));
        assert!(outgoing.statement("SELECT\0", &[]).is_err());
        assert!(outgoing.is_empty());
    }
}
