//! What open transactions of others mean for the start of a scheduler. `server` reads it from pg_locks; the queue table
//! asks.

use shared::process::order::WaitFor;

pub trait StartConditions {
    /// Somebody works on this database as a whole: no session of ours may be in it.
    fn held(&self, database: u32) -> bool;
    /// No scheduler may start there yet: a restart was asked for in another database, where no scheduler can wait for
    /// it.
    fn held_back(&self, database: u32) -> bool;
    /// What a scheduler that starts there now has to wait for.
    fn waits_for(&self, database: u32, marker: Option<u32>) -> WaitFor;
}
