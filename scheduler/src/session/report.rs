//! What the queue waits for: one line in the log when an error begins and one when it is over, and the reason in the slot
//! status.

use super::queue_session::QueueSession;
use crate::base::Base;
use crate::command::Refused;
use shared::db::db_error::{DbError, DbErrorKind};
use shared::sys::memory;
use std::time::Instant;

impl QueueSession {
    /// A condition is logged once when it begins; its changes go into the slot status.
    pub fn report(&mut self, db_error: DbError, base: &Base) {
        let reason = db_error.text.clone();
        // A server that is away gives the same reason each second: the launcher need not be woken for that.
        if self.said.current() != Some(reason.as_str()) {
            base.slot_status().set_reason(&reason);
            base.start.signal_parent();
        }
        if self.said.begin(db_error) {
            shared::warning!("queue waits", queue = base.label, reason = reason);
        } else {
            shared::debug!("queue still waits", queue = base.label, reason = reason);
        }
    }

    pub fn report_end(&mut self, base: &Base) {
        base.slot_status().set_reason("");
        base.start.signal_parent();
        // The memory that it took to get here is not needed again soon.
        memory::shed_heap();
        if self.said.end() {
            shared::info!("queue served again", queue = base.label);
        } else {
            shared::info!("queue served", queue = base.label);
        }
    }

    /// The server has refused a statement, and the session lives.
    pub fn refused(&mut self, what: &Refused, db_error: &DbError, base: &Base, now: Instant) {
        shared::debug!("statement refused", queue = base.label, what = format!("{what:?}"), why = db_error);
        if !self.write_pause.refused(db_error.kind, now) {
            self.report_write_pause(&db_error.text, base, now);
        }
    }

    /// The server does not write: in the log when that begins, and once in a while.
    pub fn report_write_pause(&mut self, why: &str, base: &Base, now: Instant) {
        let text = format!("the server does not write: {why}; results are kept until it does");
        if self.write_pause.lasts(now) {
            self.said.remind();
        }
        self.report(DbError { kind: DbErrorKind::Short, text }, base);
    }
}
