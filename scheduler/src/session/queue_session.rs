//! The session that serves the queue: its state, its statements, its server, and what was told about its trouble.

use super::home_server::Home;
use super::session_state::Session;
use super::write_pause::WritePause;
use crate::table::make::Prepared;
use shared::db::saying::Saying;
use std::rc::Rc;
use std::time::Instant;

#[derive(Debug)]
pub struct QueueSession {
    pub state: Session,
    /// It is known to have a backend of its own.
    pub proven: bool,
    pub statements: Option<Rc<Prepared>>,
    /// The server on which the queue is served.
    pub home: Home,
    /// Whether it writes.
    pub write_pause: WritePause,
    /// The trouble that was told and has not ended.
    pub said: Saying,
    /// The marker table of the catalog, as it was when the session began.
    pub marker: Option<u32>,
    pub next_marker: Instant,
}

impl QueueSession {
    pub fn new(now: Instant) -> QueueSession {
        QueueSession {
            state: Session::new(now),
            proven: false,
            statements: None,
            home: Home::default(),
            write_pause: WritePause::default(),
            said: Saying::default(),
            marker: None,
            next_marker: now,
        }
    }
}
