//! The three ways in which talking to a server fails: not connected, link broken, statement refused.
//!
//! Made by every room of `wire`; the callers decide by the kind alone: a `ConnectError` or a `LinkError` is trouble
//! of the infrastructure, a `ServerError` is an answer. No text in here ever holds a password.

use std::io;

use super::server_error::ServerError;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server answered and said no (wrong password, no such database, starting up, too many clients).
    #[error("server refused the connection: {0}")]
    Server(ServerError),
    /// The transport failed, the deadline passed, or the other side does not speak our protocol.
    #[error("could not {attempted} {place}: {source}")]
    Io { attempted: &'static str, place: String, source: io::Error },
    /// The server asks for a password and the target has none.
    #[error("server at {place} asks for a password, but none was given")]
    NoPassword { place: String },
    /// The server asks for a way to log in that is not spoken here.
    #[error("server at {place} asks for {method} authentication, which is not supported")]
    Method { place: String, method: String },
}

/// Why a session ended under our hands. The session is of no use after it.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}", last_word(.fatal))]
pub struct LinkError {
    /// The last word of the server, if it said one before it left: a FATAL or PANIC error, or the warning with
    /// which it leaves when it crashes (57P02) or is stopped at once (57P01).
    pub fatal: Option<ServerError>,
    /// What was attempted and what came of it.
    pub what: String,
}

fn last_word(fatal: &Option<ServerError>) -> String {
    fatal.as_ref().map(|error| format!(" ({error})")).unwrap_or_default()
}

/// Why a statement of ours gave no rows.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The server refused it; the session lives on.
    #[error("{0}")]
    Server(ServerError),
    /// The session is lost.
    #[error("{0}")]
    Link(#[from] LinkError),
}

impl QueryError {
    /// The server's own words, whether it refused the statement or left.
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            QueryError::Server(error) => Some(error),
            QueryError::Link(error) => error.fatal.as_ref(),
        }
    }
}
