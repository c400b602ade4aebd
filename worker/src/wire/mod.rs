//! The worker's own client: blocking, bounded in memory, over `postgres-protocol` and one socket.
//!
//! A task's SQL needs what the common clients hide: command tags, column types, COPY, the transaction status, and
//! an answer to COPY FROM STDIN that does not hang. From the wire upwards: `pipe` (bytes both ways at once),
//! `tls` (the same encrypted), `link` (frames), `incoming` and `outgoing` (messages), `startup` (login), `simple` (a task's input),
//! `extended` (our statements, of which `prepared` ones stay), `chain` (inputs behind each other), `cancel`. `session` is one
//! logged-in connection. Text is bytes everywhere, because a server may hold any.
//!
//! One thread per session; a `Canceller` serves another thread. A task's input
//! has no time limit here: the watchdog cancels, then ends, then hangs up. Our own statements have one. There is no GSSAPI.

mod cancel;
mod chain;
mod dial;
mod error;
mod extended;
mod incoming;
mod link;
mod outgoing;
mod pipe;
mod prepared;
mod server_error;
mod session;
mod simple;
mod sink;
mod startup;
mod tls;

pub use cancel::Canceller;
pub use chain::{Chain, ChainAnswer};
pub use error::{ConnectError, LinkError, QueryError};
pub use extended::{Row, Statement};
pub use incoming::TransactionStatus;
pub use server_error::ServerError;
pub use session::Session;
pub use sink::{Column, Sink};
