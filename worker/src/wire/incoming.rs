//! From frames to messages: what each kind of message is after the login, and what becomes of it.
//!
//! `simple.rs` and `extended.rs` ask for the next message and match on it. Chat that may come at any time
//! (changed parameters, notifications) ends here. A kind of message that no server sends after the login, or one
//! whose body contradicts itself, is `InvalidData`, and the link is given up. Each kind has its own limit, so no
//! server can make us keep more than the sink has room for plus a mebibyte.

use crate::limits::{LEAVE_TIMEOUT, LONGEST_NOTICE_BYTES, LONGEST_PARAMETER_BYTES, MOST_PARAMETERS};
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use super::link::{WireLink, u32_at};
use super::outgoing::Outgoing;
use super::server_error::ServerError;
use super::sink::Column;

/// What the server told about its settings, latest values.
pub(super) type ServerSettings = BTreeMap<Vec<u8>, Vec<u8>>;

/// Where a session stands between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    Idle,
    InBlock,
    Failed,
}

impl TransactionStatus {
    pub(super) fn read(body: &[u8]) -> io::Result<TransactionStatus> {
        match body {
            b"I" => Ok(TransactionStatus::Idle),
            b"T" => Ok(TransactionStatus::InBlock),
            b"E" => Ok(TransactionStatus::Failed),
            _ => Err(malformed("ReadyForQuery")),
        }
    }
}

#[derive(Debug)]
pub(super) enum Incoming<'a> {
    Columns(Vec<Column<'a>>),
    Row(Vec<Option<&'a [u8]>>),
    CopyOut,
    CopyData(&'a [u8]),
    /// The server waits for COPY data from us.
    CopyIn,
    /// A row or COPY data with more bytes than there was room for; passed over.
    TooLong,
    Tag(&'a [u8]),
    Empty,
    Error(ServerError),
    Notice(ServerError),
    /// A statement was parsed.
    Parsed,
    /// Another step of the extended protocol, or the end of a COPY: nothing to do.
    Step,
    Ready(TransactionStatus),
}

/// Waits for the next message that is of interest.
pub(super) fn receive<'a>(
    link: &'a mut WireLink,
    parameters: &mut ServerSettings,
    outgoing: &mut Outgoing<'_>,
    room: usize,
) -> io::Result<Incoming<'a>> {
    loop {
        let head = link.head(outgoing)?;
        if !link.last_word.as_ref().is_some_and(ServerError::is_fatal) {
            link.last_word = None;
        }
        let limit = LONGEST_NOTICE_BYTES;
        match head.tag {
            b'D' => {
                if head.body < 2 {
                    return Err(malformed("DataRow"));
                }
                let count = link.peek(2, outgoing)?;
                let framing = 2 + 4 * usize::from(u16::from_be_bytes([count[0], count[1]]));
                if head.body.saturating_sub(framing) > room {
                    link.skip(head.body, outgoing)?;
                    return Ok(Incoming::TooLong);
                }
                return row(link.body(head.body, outgoing)?).map(Incoming::Row);
            }
            b'd' if head.body > room => {
                link.skip(head.body, outgoing)?;
                return Ok(Incoming::TooLong);
            }
            b'd' => return Ok(Incoming::CopyData(link.body(head.body, outgoing)?)),
            b'E' | b'N' => {
                let said = speech(link, head.body, outgoing)?;
                if head.tag == b'E' && said.is_fatal() {
                    link.last_word = Some(said);
                    link.set_deadline(Some(Instant::now() + LEAVE_TIMEOUT));
                    continue;
                }
                if head.tag == b'E' {
                    return Ok(Incoming::Error(said));
                }
                if said.is_farewell() {
                    link.last_word = Some(said.clone());
                }
                return Ok(Incoming::Notice(said));
            }
            b'A' => link.skip(head.body, outgoing)?,
            b'S' if head.body > LONGEST_PARAMETER_BYTES => link.skip(head.body, outgoing)?,
            b'S' => remember(parameters, link.body(head.body, outgoing)?)?,
            tag if head.body > limit => {
                let text = format!("server sent {} bytes in a message of type {}", head.body, tag.escape_ascii());
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            b'T' => return columns(link.body(head.body, outgoing)?).map(Incoming::Columns),
            b'C' => {
                let (tag, _) = text(link.body(head.body, outgoing)?).ok_or_else(|| malformed("CommandComplete"))?;
                return Ok(Incoming::Tag(tag));
            }
            b'Z' if link.last_word.is_some() => return Err(malformed("ReadyForQuery after a FATAL error")),
            b'Z' => return TransactionStatus::read(link.body(head.body, outgoing)?).map(Incoming::Ready),
            tag => {
                link.skip(head.body, outgoing)?;
                return match tag {
                    b'I' => Ok(Incoming::Empty),
                    b'H' => Ok(Incoming::CopyOut),
                    b'G' | b'W' => Ok(Incoming::CopyIn),
                    b'1' => Ok(Incoming::Parsed),
                    // BindComplete, CloseComplete, NoData, PortalSuspended, ParameterDescription, CopyDone
                    b'2' | b'3' | b'n' | b's' | b't' | b'c' => Ok(Incoming::Step),
                    _ => Err(unexpected(tag)),
                };
            }
        }
    }
}

/// Reads an error or a notice, the start of it if it is very long.
pub(super) fn speech(link: &mut WireLink, body: usize, outgoing: &mut Outgoing<'_>) -> io::Result<ServerError> {
    let kept = body.min(LONGEST_NOTICE_BYTES);
    let mut bytes = link.body(kept, outgoing)?;
    if kept < body {
        bytes = whole_characters(bytes);
    }
    let said = ServerError::from_body(bytes);
    link.skip(body - kept, outgoing)?;
    Ok(said)
}

/// A cut must not leave half a UTF-8 character, or the server would not take the text back into a column.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    let lead = bytes.iter().rposition(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
    let half = bytes.get(lead).is_some_and(|&byte| byte >= 0xc0) && bytes.len() - lead < 4;
    if half { &bytes[..lead] } else { bytes }
}

/// Keeps a ParameterStatus.
pub(super) fn remember(parameters: &mut ServerSettings, body: &[u8]) -> io::Result<()> {
    let pair = text(body).and_then(|(name, rest)| text(rest).map(|(value, _)| (name, value)));
    let (name, value) = pair.ok_or_else(|| malformed("ParameterStatus"))?;
    if parameters.len() < MOST_PARAMETERS || parameters.contains_key(name) {
        parameters.insert(name.to_vec(), value.to_vec());
    }
    Ok(())
}

fn columns(body: &[u8]) -> io::Result<Vec<Column<'_>>> {
    let read = || {
        let (count, mut rest) = body.split_first_chunk::<2>()?;
        let count = usize::from(u16::from_be_bytes(*count));
        let mut columns = Vec::with_capacity(count.min(rest.len()));
        for _ in 0..count {
            // The name, then table (4), attribute (2), type (4), size (2), modifier (4), format (2).
            let (name, after) = text(rest)?;
            let (facts, after) = after.split_first_chunk::<18>()?;
            columns.push(Column { name, type_oid: u32_at(facts, 6) });
            rest = after;
        }
        rest.is_empty().then_some(columns)
    };
    read().ok_or_else(|| malformed("RowDescription"))
}

fn row(body: &[u8]) -> io::Result<Vec<Option<&[u8]>>> {
    let read = || {
        let (count, mut rest) = body.split_first_chunk::<2>()?;
        let count = usize::from(u16::from_be_bytes(*count));
        let mut values = Vec::with_capacity(count.min(rest.len() / 4));
        for _ in 0..count {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let length = i32::from_be_bytes(*length);
            let (value, after) = match usize::try_from(length) {
                Ok(length) => after.split_at_checked(length).map(|(value, after)| (Some(value), after))?,
                Err(_) if length == -1 => (None, after),
                Err(_) => return None,
            };
            values.push(value);
            rest = after;
        }
        rest.is_empty().then_some(values)
    };
    read().ok_or_else(|| malformed("DataRow"))
}

/// The bytes before the first NUL, and those after it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

pub(super) fn malformed(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("server sent a malformed message: {message}"))
}

pub(super) fn unexpected(tag: u8) -> io::Error {
    let text = format!("server sent a message of the unexpected type {}", tag.escape_ascii());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_row_that_contradicts_itself_is_malformed() {
        for body in [
            &b"\0\x01"[..],
            b"\0\x01\0\0\0\x05abc",
            b"\0\x01\xff\xff\xff\xfe",
            b"\0\x01\x7f\xff\xff\xffabc",
            b"\0\0x",
            b"\xff\xff\0\0\0\0",
        ] {
            assert!(row(body).is_err(), "{body:?}");
        }
        assert_eq!(row(b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0").unwrap(), [Some(&b"ab"[..]), None, Some(b"")]);
    }

    #[test]
    fn columns_have_names_and_types() {
        let body = b"\0\x01a\xff\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
        assert_eq!(columns(body).unwrap(), [Column { name: b"a\xff", type_oid: 23 }]);
        assert!(columns(&body[..body.len() - 1]).is_err());
    }

    #[test]
    fn a_cut_text_ends_with_a_whole_character() {
        assert_eq!(whole_characters("ab€".as_bytes().split_last().unwrap().1), b"ab");
        assert_eq!(whole_characters(b"ab"), b"ab");
        assert_eq!(whole_characters(b""), b"");
        assert_eq!(whole_characters(b"\x80\x80\x80\x80\x80"), b"\x80\x80\x80\x80\x80");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_readers_panic(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (row(&body), columns(&body), remember(&mut ServerSettings::new(), &body));
        }
    }
}
