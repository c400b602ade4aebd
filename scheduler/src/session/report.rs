//! What the queue waits for: one line in the log when trouble begins and one when it ends, and the reason in the slot status.

use super::queue_session::QueueSession;
use crate::base::Base;
use crate::command::Refused;
use shared::db::trouble::{Trouble, TroubleKind};
use shared::sys::memory;
use std::time::Instant;

impl QueueSession {
    /// A condition is logged once when it begins; its changes go into the slot status.
    pub fn report(&mut self, trouble: Trouble, base: &Base) {
        let reason = trouble.text.clone();
        // A server that is away gives the same reason each second: the launcher need not be woken for that.
        if self.said.current() != Some(reason.as_str()) {
            base.notes().set_reason(&reason);
            base.start.ring_parent();
        }
        if self.said.begin(trouble) {
            shared::warning!("queue waits", queue = base.label, reason = reason);
        } else {
            shared::debug!("queue still waits", queue = base.label, reason = reason);
        }
    }

    pub fn report_end(&mut self, base: &Base) {
        base.notes().set_reason("");
        base.start.ring_parent();
        // The memory that it took to get here is not needed again soon.
        memory::shed_heap();
        if self.said.end() {
            shared::info!("queue served again", queue = base.label);
        } else {
            shared::info!("queue served", queue = base.label);
        }
    }

    /// The server has refused a statement, and the session lives.
    pub fn refused(&mut self, what: &Refused, trouble: &Trouble, base: &Base, now: Instant) {
        shared::debug!("statement refused", queue = base.label, what = format!("{what:?}"), why = trouble);
        if !self.write_pause.refused(trouble.kind, now) {
            self.report_write_pause(&trouble.text, base, now);
        }
    }

    /// The server does not write: in the log when that begins, and once in a while.
    pub fn report_write_pause(&mut self, why: &str, base: &Base, now: Instant) {
        let text = format!("the server does not write: {why}; results are kept until it does");
        if self.write_pause.lasts(now) {
            self.said.remind();
        }
        self.report(Trouble { kind: TroubleKind::Short, text }, base);
    }
}
