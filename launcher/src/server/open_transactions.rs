//! What pg_locks shows of open transactions, as conditions for the start of schedulers.

use crate::message::message_table::MessageTable;
use crate::queue::start_conditions::StartConditions;
use crate::server::lock_watch::LockWatch;
use shared::process::order::WaitFor;

#[derive(Clone, Copy, Debug)]
pub struct OpenTransactions<'a> {
    pub locks: &'a LockWatch,
    pub messages: &'a MessageTable,
}

impl StartConditions for OpenTransactions<'_> {
    fn held(&self, database: u32) -> bool {
        self.locks.holds(database)
    }

    fn held_back(&self, database: u32) -> bool {
        self.messages.holds_back(database)
    }

    fn waits_for(&self, database: u32, marker: Option<u32>) -> WaitFor {
        let marker = self.locks.marker_is_locked(database, marker);
        self.messages.waits_for(database).then(WaitFor { message: None, marker })
    }
}
