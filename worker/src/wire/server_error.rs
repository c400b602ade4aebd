//! What a server says in an ErrorResponse or a NoticeResponse, field by field, as bytes.
//!
//! Kept as the one block that came over the wire, so an error costs one allocation; the accessors look a field
//! up. Bytes and not text: a server in SQL_ASCII sends what it has. A malformed block never fails, it has fewer
//! fields. Used by `Sink`, by the error texts, and by all who decide on an SQLSTATE.

use std::fmt;

/// One error, warning or notice of the server.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerError {
    /// Fields: one code byte, the value, a NUL; as sent.
    fields: Vec<u8>,
}

impl ServerError {
    /// Takes the body of an ErrorResponse or a NoticeResponse.
    pub(super) fn from_body(body: &[u8]) -> ServerError {
        ServerError { fields: body.to_vec() }
    }

    /// An error built field by field, the codes as in the protocol (`S` severity, `C` SQLSTATE, `M` message, ..).
    /// A NUL inside a value would end it, so it becomes a blank.
    pub fn from_fields(fields: &[(u8, &[u8])]) -> ServerError {
        let mut block = Vec::new();
        for (code, value) in fields {
            block.push(*code);
            block.extend(value.iter().map(|&byte| if byte == 0 { b' ' } else { byte }));
            block.push(0);
        }
        ServerError { fields: block }
    }

    /// An error that we raise ourselves in the words the server would use.
    pub fn local(severity: &str, code: &str, message: &str) -> ServerError {
        let severity = severity.as_bytes();
        ServerError::from_fields(&[
            (b'S', severity),
            (b'V', severity),
            (b'C', code.as_bytes()),
            (b'M', message.as_bytes()),
        ])
    }

    /// The value of one field by its protocol code.
    pub fn field(&self, code: u8) -> Option<&[u8]> {
        let mut rest = self.fields.as_slice();
        while let Some((&found, after)) = rest.split_first() {
            if found == 0 {
                return None;
            }
            // The last field of a block that was cut short has no NUL: it reaches to the end.
            let end = after.iter().position(|&byte| byte == 0).unwrap_or(after.len());
            if found == code {
                return Some(&after[..end]);
            }
            rest = after.get(end + 1..).unwrap_or_default();
        }
        None
    }

    /// In the server's language, as its log shows it.
    pub fn severity(&self) -> Option<&[u8]> {
        self.field(b'S').or_else(|| self.field(b'V'))
    }

    /// Never translated: `ERROR`, `FATAL`, `PANIC`, `WARNING`, `NOTICE`, ..
    pub fn severity_plain(&self) -> Option<&[u8]> {
        self.field(b'V').or_else(|| self.field(b'S'))
    }

    /// The SQLSTATE.
    pub fn code(&self) -> Option<&[u8]> {
        self.field(b'C')
    }

    pub fn message(&self) -> Option<&[u8]> {
        self.field(b'M')
    }

    pub fn detail(&self) -> Option<&[u8]> {
        self.field(b'D')
    }

    pub fn hint(&self) -> Option<&[u8]> {
        self.field(b'H')
    }

    /// Counted in characters of the statement, from 1.
    pub fn position(&self) -> Option<&[u8]> {
        self.field(b'P')
    }

    /// Counted in characters of the internal query, from 1.
    pub fn internal_position(&self) -> Option<&[u8]> {
        self.field(b'p')
    }

    pub fn internal_query(&self) -> Option<&[u8]> {
        self.field(b'q')
    }

    /// The protocol calls it `where`.
    pub fn context(&self) -> Option<&[u8]> {
        self.field(b'W')
    }

    pub fn file(&self) -> Option<&[u8]> {
        self.field(b'F')
    }

    pub fn line(&self) -> Option<&[u8]> {
        self.field(b'L')
    }

    pub fn routine(&self) -> Option<&[u8]> {
        self.field(b'R')
    }

    /// Does the session end with it?
    pub fn is_fatal(&self) -> bool {
        matches!(self.severity_plain(), Some(b"FATAL" | b"PANIC"))
    }

    /// Is it a farewell that comes as a mere warning? A server that crashed or was told to stop at once has time
    /// for no more than that.
    pub(super) fn is_farewell(&self) -> bool {
        matches!(self.code(), Some(b"57P01" | b"57P02" | b"57P03"))
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = String::from_utf8_lossy(self.severity().unwrap_or(b"ERROR"));
        let message = String::from_utf8_lossy(self.message().unwrap_or(b"missing error text"));
        write!(f, "{severity}: {message}")
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = String::from_utf8_lossy(self.code().unwrap_or(b"?????"));
        write!(f, "ServerError({code} {self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_by_its_accessor() {
        let error = ServerError::from_body(b"SFEHLER\0VERROR\0C22012\0Mm\0Dd\0Hh\0P7\0p8\0qq\0Ww\0Ff.c\0L9\0Rr\0\0");
        assert_eq!(error.severity(), Some(&b"FEHLER"[..]));
        assert_eq!(error.severity_plain(), Some(&b"ERROR"[..]));
        assert_eq!(error.code(), Some(&b"22012"[..]));
        assert_eq!(error.message(), Some(&b"m"[..]));
        assert_eq!(error.detail(), Some(&b"d"[..]));
        assert_eq!(error.hint(), Some(&b"h"[..]));
        assert_eq!(error.position(), Some(&b"7"[..]));
        assert_eq!(error.internal_position(), Some(&b"8"[..]));
        assert_eq!(error.internal_query(), Some(&b"q"[..]));
        assert_eq!(error.context(), Some(&b"w"[..]));
        assert_eq!(error.file(), Some(&b"f.c"[..]));
        assert_eq!(error.line(), Some(&b"9"[..]));
        assert_eq!(error.routine(), Some(&b"r"[..]));
        assert_eq!(error.to_string(), "FEHLER: m");
        assert!(!error.is_fatal());
    }

    #[test]
    fn a_block_cut_anywhere_never_panics() {
        let whole = b"SERROR\0VFATAL\0C57P01\0Mgone\0\0";
        for end in 0..whole.len() {
            let error = ServerError::from_body(&whole[..end]);
            let _ = (error.to_string(), error.field(b'R'), error.is_fatal(), error.is_farewell());
        }
        assert!(ServerError::from_body(whole).is_fatal());
    }

    #[test]
    fn a_nul_in_a_local_error_cannot_forge_a_field() {
        let error = ServerError::from_fields(&[(b'M', b"a\0C57P01"), (b'C', b"XX000")]);
        assert_eq!(error.code(), Some(&b"XX000"[..]));
    }
}
