//! The three ways in which talking to a server fails: not connected, link broken, statement refused.
//!
//! Made by every room of `wire`; the callers decide by the kind alone: a `ConnectError` or a `LinkError` is an error
//! of the infrastructure, a `ServerError` is an answer. No text in here ever holds a password.

use std::io;

use shared::db::route::Failure;
use shared::db::tls::TlsError;

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
    #[error("server at {place} requires a password, but none was given{advice}")]
    NoPassword { place: String, advice: String },
    /// No encrypted connection where one was wanted.
    #[error("could not encrypt the connection to {place}: {source}")]
    Tls { place: String, source: TlsError },
    /// A session, but not of the wanted kind.
    #[error("{place}: {why}")]
    Unsuitable { place: String, why: String },
    /// The login may not go on without being bound to the channel.
    #[error("server at {place} does not support channel binding, which channel_binding=require demands")]
    Unbound { place: String },
    /// The budget of connections is used up.
    #[error("the budget of connections is used up; raise connections in the config")]
    NoConnectionPermit,
    /// The server asks for a way to log in that is not spoken here.
    #[error("server at {place} requires {method} authentication, which is not supported")]
    Method { place: String, method: String },
}

impl ConnectError {
    /// The server's own words, if it was the server who refused.
    pub fn server(&self) -> Option<&ServerError> {
        if let ConnectError::Server(refusal) = self { Some(refusal) } else { None }
    }

    /// The server is down, starting up, or has no room: it will pass.
    pub fn is_away(&self) -> bool {
        match self {
            ConnectError::Server(error) => {
                error.code().is_some_and(|code| code.starts_with(b"57P") || code.starts_with(b"53"))
            }
            ConnectError::Io { .. } => true,
            ConnectError::NoPassword { .. }
            | ConnectError::Method { .. }
            | ConnectError::Tls { .. }
            | ConnectError::Unsuitable { .. }
            | ConnectError::Unbound { .. }
            | ConnectError::NoConnectionPermit => false,
        }
    }

    /// What it means for the route.
    pub(super) fn failure(&self, encrypted: bool) -> Failure {
        match self {
            ConnectError::Server(error) => {
                let text = |part: Option<&[u8]>| String::from_utf8_lossy(part.unwrap_or_default()).into_owned();
                Failure::refused(&text(error.code()), &text(error.message()), encrypted)
            }
            ConnectError::Io { attempted: "log in to", source, .. } if source.kind() != io::ErrorKind::TimedOut => {
                Failure::Broken
            }
            ConnectError::Io { .. } => Failure::Unreachable,
            ConnectError::Tls { .. } => Failure::Tls,
            ConnectError::Unsuitable { .. } => Failure::Unsuitable,
            ConnectError::NoPassword { .. }
            | ConnectError::Method { .. }
            | ConnectError::Unbound { .. }
            | ConnectError::NoConnectionPermit => Failure::Broken,
        }
    }
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
    /// The other side has closed it: the server's process is gone, or something between ended the connection. Not so when
    /// nothing was heard for too long.
    pub closed: bool,
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
