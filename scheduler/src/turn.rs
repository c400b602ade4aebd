//! What a component may read of the others while it handles an event.

use crate::base::Base;
use crate::session::queue_session::QueueSession;
use crate::table::make::Prepared;
use shared::process::stopping::Stopping;
use std::rc::Rc;
use std::time::Instant;

#[derive(Clone, Copy)]
pub struct Turn<'a> {
    pub base: &'a Base,
    pub session: &'a QueueSession,
    pub stop: Stopping,
    /// A pass is in flight.
    pub passing: bool,
    pub now: Instant,
}

impl<'a> Turn<'a> {
    /// The statements of the session, while it serves the queue.
    pub fn statements(&self) -> Option<&'a Rc<Prepared>> {
        self.session.statements.as_ref().filter(|_| self.session.state.working())
    }

    /// The same, where the statement writes and the server is not known to refuse that.
    pub fn writing(&self) -> Option<&'a Rc<Prepared>> {
        self.statements().filter(|_| !self.session.write_pause.pauses(self.now))
    }

    pub fn leads(&self) -> bool {
        self.base.start.region.leads()
    }

    pub fn label(&self) -> &'a str {
        &self.base.label
    }
}

/// What components may read of the others; the component that takes it stays free to change.
macro_rules! turn {
    ($parts:expr, $now:expr) => {
        Turn {
            base: &$parts.base,
            session: &$parts.session,
            stop: $parts.stop.state,
            passing: $parts.claims.is_passing(),
            now: $now,
        }
    };
}
pub(crate) use turn;
