//! Errors of a server or of the way to it, sorted by what helps.

use super::refusal::Refusal;
use super::server::is_apart;
use crate::db::tls::TlsError;
use std::error::Error as _;
use std::time::Duration;
use tokio_postgres::error::Severity;

/// Why a connection or a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbError {
    pub kind: DbErrorKind,
    /// One sentence for the log: the server's or the system's own words, and what to do where we know it.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DbErrorKind {
    /// Passes by itself: down, starting up, no connection free, link cut, deadlock.
    Passing,
    /// Two servers where there should be one: it may pass, but somebody has to know.
    Apart,
    /// Somebody must change something: password, pg_hba, missing database or right.
    Standing,
    /// The statement was refused; the link is alive.
    Statement,
    /// The same, because the machine is short of something (disk, memory) or takes no writes now.
    Short,
    /// The same, because another transaction was in the way, or somebody has cancelled it.
    Busy,
}

impl DbError {
    pub fn passing(text: impl Into<String>) -> DbError {
        DbError { kind: DbErrorKind::Passing, text: text.into() }
    }

    pub fn standing(text: impl Into<String>) -> DbError {
        DbError { kind: DbErrorKind::Standing, text: text.into() }
    }

    /// Between sessions of ours; a text that names two servers (`server::apart`) is known from others.
    pub fn between(text: impl Into<String>) -> DbError {
        let text = text.into();
        let kind = if is_apart(&text) { DbErrorKind::Apart } else { DbErrorKind::Passing };
        DbError { kind, text }
    }

    pub fn of(error: &tokio_postgres::Error) -> DbError {
        match error.as_db_error() {
            Some(refusal) => DbError { kind: kind_of(refusal), text: sentence(refusal) },
            None => match error.source().and_then(|inner| inner.downcast_ref::<TlsError>()) {
                Some(TlsError::Cut(why)) => DbError::passing(format!("TLS: {why}")),
                Some(tls) => DbError::standing(tls.to_string()),
                None => unanswered(chain(error)),
            },
        }
    }

    /// It passes by itself: the same statement may succeed later.
    pub fn passes(&self) -> bool {
        matches!(self.kind, DbErrorKind::Passing | DbErrorKind::Short | DbErrorKind::Busy)
    }

    /// How far apart tries may grow: a server that is down is asked each second, a wrong password less often.
    pub fn retry_cap(&self) -> Duration {
        match self.kind {
            DbErrorKind::Passing | DbErrorKind::Apart | DbErrorKind::Short | DbErrorKind::Busy => {
                Duration::from_secs(1)
            }
            DbErrorKind::Standing | DbErrorKind::Statement => Duration::from_secs(10),
        }
    }
}

impl std::fmt::Display for DbError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The library gives only a text where somebody has to change something.
fn unanswered(text: String) -> DbError {
    if text.contains("server does not support TLS") {
        DbError::standing(TlsError::Declined.to_string())
    } else if text.contains("password missing") {
        DbError::standing(
            // `refuses_login` knows it by its beginning.
            "password missing; the server asks for one: set it in the config's connect, PGPASSWORD or the password \
             file",
        )
    } else if text.contains("authentication error") || text.contains("unsupported authentication method") {
        DbError::standing(text)
    } else {
        DbError::passing(text)
    }
}

/// Whether a sentence of ours is about a role that may not log in, or lacks its password.
pub fn refuses_login(sentence: &str) -> bool {
    ["[28P01]", "[28000]", "password missing"].iter().any(|mark| sentence.contains(mark))
        || sentence.starts_with("FATAL") && sentence.contains("[42501]")
}

fn kind_of(error: &tokio_postgres::error::DbError) -> DbErrorKind {
    let code = error.code().code();
    // After a FATAL error the session is gone.
    let alive = error.parsed_severity().is_none_or(|severity| severity == Severity::Error);
    match (Refusal::of(code, false), code.get(..2).unwrap_or_default()) {
        (Refusal::Machine, "53" | "58" | "25" | "XX") if alive => DbErrorKind::Short,
        (Refusal::Transient, _) if alive => DbErrorKind::Busy,
        // Connection exceptions, deadlocks and the like, insufficient resources, operator intervention, system errors.
        (_, "08" | "40" | "53" | "57" | "58") => DbErrorKind::Passing,
        (_, "28" | "3D") => DbErrorKind::Standing,
        _ => DbErrorKind::Statement,
    }
}

/// What to do about a refusal, by its SQLSTATE; empty where we do not know it.
pub fn advice(code: &str) -> &'static str {
    match code {
        "28P01" => "; set the right password in the config's connect, PGPASSWORD or the password file",
        "28000" => "; allow this role in the server's pg_hba.conf, or give it LOGIN",
        "3D000" => "; create the database, or remove its queue from the config",
        "53300" => "; raise max_connections, or lower connections or max_workers",
        "42501" => "; grant the right, or set the queue's user to a role that has it",
        _ => "",
    }
}

fn sentence(error: &tokio_postgres::error::DbError) -> String {
    let advice = advice(error.code().code());
    let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    format!("{}: {}{detail} [{}]{advice}", error.severity(), error.message(), error.code().code())
}

/// The error and its causes; none of them carries a password.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}
