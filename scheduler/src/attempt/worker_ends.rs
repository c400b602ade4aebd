//! Workers that have ended: their connections, results and rows.

use super::attempt_table::AttemptTable;
use super::attempt_table::reap::WorkerEnd;
use super::attempts::{AttemptAnswer, Attempts};
use crate::command::{Command, Purpose};
use crate::pool::connection_pool::ConnectionPool;
use crate::turn::Turn;
use shared::region::{ConnectionReceipt, SlotHandle};
use shared::sys::wait::ProcessEnd;

impl Attempts {
    /// Sweeps and reaps the workers that have ended; asks the database about rows that they left unfinished.
    pub fn reap(
        &mut self,
        pool: &mut ConnectionPool,
        turn: &Turn<'_>,
    ) -> (Vec<WorkerEnd>, Vec<Command<AttemptAnswer>>) {
        let now = turn.now;
        let (ends, questions) = self.table.reap(now);
        // A worker that has ended has offered its connection before.
        pool.turn(&turn.base.start.region, |slot, pid| slot_of(&ends, &self.table, slot, pid), now);
        for worker in &ends {
            let quiet = worker.returned.is_some_and(ConnectionReceipt::is_quiet);
            pool.ended(worker.slot, worker.end == ProcessEnd::Exited(0) && quiet, now);
        }
        self.results_left(&ends, turn);
        // What the row of a stray says here is not known; and a worker may have claimed its next task in the moment it died.
        if ends.iter().any(|worker| worker.stray || worker.left.is_some()) {
            self.find_unfinished(Purpose { adopt: true, sweep: false });
        }
        (ends, self.settle(questions, pool, turn))
    }
}

/// Which use of a slot a worker of ours has, or had until just now.
fn slot_of(ends: &[WorkerEnd], table: &AttemptTable, slot: u32, pid: i32) -> Option<SlotHandle> {
    let ended = ends.iter().find(|worker| worker.slot.index() == slot && worker.pid == pid);
    ended.map(|worker| worker.slot).or_else(|| table.slot_of(slot, pid))
}
