//! PURE. A server's error as the text of a task's `error` column, in the style of the server's own log.
//!
//! `format::Output` calls it for errors of a task's SQL, the worker for those of connecting. Bytes in, bytes
//! out: the text is whatever the server sent. Nothing can go wrong; what is missing is left out.
//!
//! The lines, each only if it is there: `SEVERITY:  message at character N`, `DETAIL:  `, `HINT:  `, `QUERY:  `,
//! `CONTEXT:  `, `LOCATION:  `, `STATEMENT:  `; a newline inside a field is followed by a TAB, so that a line
//! without one always begins a field.

use crate::wire::ServerError;

/// How much is told, as the server's `log_error_verbosity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// No DETAIL, HINT, QUERY, CONTEXT.
    Terse,
    #[default]
    Default,
    /// With the SQLSTATE and the place in the server's source.
    Verbose,
}

impl Verbosity {
    /// Reads the setting's value as the server spells it.
    pub fn from_setting(value: &str) -> Option<Verbosity> {
        match value.to_ascii_lowercase().as_str() {
            "terse" => Some(Verbosity::Terse),
            "default" => Some(Verbosity::Default),
            "verbose" => Some(Verbosity::Verbose),
            _ => None,
        }
    }
}

/// The text of one error, without a newline at its end. `statement` is the whole input if it was sent.
pub fn error_text(error: &ServerError, statement: Option<&[u8]>, verbosity: Verbosity) -> Vec<u8> {
    let mut text = Vec::new();
    text.extend_from_slice(error.severity().unwrap_or(b"ERROR"));
    text.extend_from_slice(b":  ");
    if verbosity == Verbosity::Verbose {
        text.extend_from_slice(error.code().unwrap_or(b"XX000"));
        text.extend_from_slice(b": ");
    }
    indent(&mut text, error.message().unwrap_or(b"missing error text"));
    if let Some(position) = position(error.position()).or_else(|| position(error.internal_position())) {
        text.extend_from_slice(format!(" at character {position}").as_bytes());
    }
    if verbosity != Verbosity::Terse {
        line(&mut text, "DETAIL", error.detail());
        line(&mut text, "HINT", error.hint());
        line(&mut text, "QUERY", error.internal_query());
        line(&mut text, "CONTEXT", error.context());
    }
    if verbosity == Verbosity::Verbose {
        line(&mut text, "LOCATION", location(error).as_deref());
    }
    line(&mut text, "STATEMENT", statement);
    text
}

fn line(text: &mut Vec<u8>, label: &str, value: Option<&[u8]>) {
    if let Some(value) = value {
        // The statement may be long: one reservation, not a growth by doubling.
        text.reserve_exact(value.len() + label.len() + 4);
        text.push(b'\n');
        text.extend_from_slice(label.as_bytes());
        text.extend_from_slice(b":  ");
        indent(text, value);
    }
}

/// Appends with a TAB after every newline.
fn indent(text: &mut Vec<u8>, value: &[u8]) {
    for (index, part) in value.split(|&byte| byte == b'\n').enumerate() {
        if index > 0 {
            text.extend_from_slice(b"\n\t");
        }
        text.extend_from_slice(part);
    }
}

/// A position counts from 1; anything else is none.
fn position(field: Option<&[u8]>) -> Option<u32> {
    let number = std::str::from_utf8(field?).ok()?.parse().ok()?;
    (number > 0).then_some(number)
}

/// `routine, file:line`, or without the routine if the server did not name it.
fn location(error: &ServerError) -> Option<Vec<u8>> {
    let (file, line) = (error.file()?, error.line().unwrap_or(b"0"));
    let place = [file, b":", line].concat();
    Some(match error.routine() {
        Some(routine) => [routine, b", ", &place].concat(),
        None => place,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn full() -> ServerError {
        ServerError::from_fields(&[
            (b'S', b"ERROR"),
            (b'C', b"22012"),
            (b'M', b"division by zero"),
            (b'D', b"some detail"),
            (b'H', b"a hint"),
            (b'p', b"8"),
            (b'q', b"SELECT 1/0"),
            (b'W', b"line one\nline two"),
            (b'F', b"int.c"),
            (b'L', b"841"),
            (b'R', b"int4div"),
        ])
    }

    fn shown(error: &ServerError, statement: Option<&str>, verbosity: Verbosity) -> String {
        String::from_utf8(error_text(error, statement.map(str::as_bytes), verbosity)).unwrap()
    }

    #[test]
    fn r13_fields_follow_each_other_in_the_order_of_the_log() {
        assert_eq!(
            shown(&full(), Some("DO\n'x'"), Verbosity::Default),
            "ERROR:  division by zero at character 8\nDETAIL:  some detail\nHINT:  a hint\nQUERY:  SELECT 1/0\n\
             CONTEXT:  line one\n\tline two\nSTATEMENT:  DO\n\t'x'"
        );
    }

    #[test]
    fn r13_only_what_is_present_has_a_line() {
        let error = ServerError::local("ERROR", "22012", "division by zero");
        assert_eq!(
            shown(&error, Some("SELECT 1/0"), Verbosity::Default),
            "ERROR:  division by zero\nSTATEMENT:  SELECT 1/0"
        );
    }

    #[test]
    fn r13_the_position_in_the_input_goes_before_the_internal_one() {
        let both = [(b'M', &b"m"[..]), (b'P', b"1"), (b'p', b"9")];
        assert_eq!(shown(&ServerError::from_fields(&both), None, Verbosity::Default), "ERROR:  m at character 1");
        for nonsense in [&b"0"[..], b"-1", b"x", b""] {
            let error = ServerError::from_fields(&[(b'M', b"m"), (b'P', nonsense)]);
            assert_eq!(shown(&error, None, Verbosity::Default), "ERROR:  m");
        }
    }

    #[test]
    fn r13_a_syntax_error_shows_its_character() {
        let message = &b"syntax error at or near \"SELEC\""[..];
        let error = ServerError::from_fields(&[(b'S', b"ERROR"), (b'M', message), (b'P', b"1")]);
        assert_eq!(
            shown(&error, Some("SELEC 1"), Verbosity::Default),
            "ERROR:  syntax error at or near \"SELEC\" at character 1\nSTATEMENT:  SELEC 1"
        );
    }

    #[test]
    fn r14_without_a_statement_there_is_no_statement_line() {
        let error = ServerError::local("FATAL", "3D000", "database \"x\" does not exist");
        assert_eq!(shown(&error, None, Verbosity::Default), "FATAL:  database \"x\" does not exist");
    }

    #[test]
    fn r14_a_task_not_started_in_time_says_exactly_that() {
        let error = ServerError::local("ERROR", "57014", "task not active");
        assert_eq!(shown(&error, None, Verbosity::Default), "ERROR:  task not active");
    }

    #[test]
    fn r15_terse_drops_detail_to_context_and_keeps_the_statement() {
        let wanted = "ERROR:  division by zero at character 8\nSTATEMENT:  SELECT 1/0";
        assert_eq!(shown(&full(), Some("SELECT 1/0"), Verbosity::Terse), wanted);
    }

    #[test]
    fn r15_verbose_adds_the_sqlstate_and_the_location() {
        assert_eq!(
            shown(&full(), Some("SELECT 1/0"), Verbosity::Verbose),
            "ERROR:  22012: division by zero at character 8\nDETAIL:  some detail\nHINT:  a hint\n\
             QUERY:  SELECT 1/0\nCONTEXT:  line one\n\tline two\nLOCATION:  int4div, int.c:841\nSTATEMENT:  SELECT 1/0"
        );
    }

    #[test]
    fn settings_are_read_as_the_server_spells_them() {
        assert_eq!(Verbosity::from_setting("VERBOSE"), Some(Verbosity::Verbose));
        assert_eq!(Verbosity::from_setting("chatty"), None);
    }

    proptest! {
        #[test]
        fn no_line_of_a_field_can_pose_as_another_field(message in "[ABC:\n ]{0,40}", statement in "[ABC:\n ]{0,40}") {
            let error = ServerError::from_fields(&[(b'S', b"ERROR"), (b'M', message.as_bytes())]);
            let text = shown(&error, Some(&statement), Verbosity::Default);
            let bare: Vec<&str> = text.split('\n').filter(|line| !line.starts_with('\t')).collect();
            prop_assert_eq!(bare.len(), 2);
            prop_assert!(bare[0].starts_with("ERROR:  ") && bare[1].starts_with("STATEMENT:  "));
        }
    }
}
