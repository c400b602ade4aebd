//! All attempts of the queue: those with a worker, results on their way into the table, and claimed rows without either.

use super::attempt_table::RunTable;
use super::batch_return::Returns;
use super::begin::Guests;
use super::leftovers::Leftovers;
use super::record::Errands;
use super::remote_search::Elsewhere;
use crate::command::Purpose;
use shared::db::statement::Queue;
use shared::region::Region;
use std::time::Instant;

/// The query for claimed and unfinished rows. It is never in flight together with a pass: a row that the pass has claimed and
/// not yet reported would be taken for that of a dead worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfinishedQuestion {
    None,
    Wanted,
    InFlight,
}

#[derive(Debug)]
pub struct Attempts {
    pub table: RunTable,
    /// Results that are to be recorded.
    pub records: Errands,
    /// Workers with connections of their own that have not begun.
    pub begins: Guests,
    /// Tasks of batches that go back unsent.
    pub returns: Returns,
    /// Sessions on remotes that dead workers have left.
    pub remotes: Elsewhere,
    pub leftovers: Leftovers,
    pub unfinished: UnfinishedQuestion,
    pub purpose: Purpose,
    /// When claimed rows are looked for that nobody runs.
    pub next_sweep: Instant,
}

impl Attempts {
    pub fn new(region: &Region, queue: Queue, lazy_commit: bool, now: Instant) -> Attempts {
        Attempts {
            table: RunTable::new(region),
            records: Errands::new(queue, lazy_commit),
            begins: Guests::default(),
            returns: Returns::default(),
            remotes: Elsewhere::default(),
            leftovers: Leftovers::default(),
            unfinished: UnfinishedQuestion::None,
            purpose: Purpose::default(),
            next_sweep: now,
        }
    }
}
