//! From where on a worker scans the waiting rows of its group: behind the row that it claimed last.
//!
//! Only a hint, since a row that counts for more, or one with a smaller id, may be committed later; so it is soon forgotten.
//! Workers of one group share how far they have got, and tell each other to scan from the start, through the region.

use crate::limits::{SCAN_START_LIFE, WALKED_TASKS};
use crate::task_row::TaskRow;
use shared::region::{Region, Rescans};
use std::cmp::Reverse;
use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct ScanStart {
    max: i32,
    priority: i32,
    task: i64,
}

impl ScanStart {
    fn behind(row: &TaskRow) -> ScanStart {
        ScanStart { max: row.max, priority: row.priority, task: row.task }
    }

    /// Rows of one kind are claimed in the order of their ids.
    fn kind(self) -> [u8; 8] {
        let ([a, b, c, d], [e, f, g, h]) = (self.max.to_be_bytes(), self.priority.to_be_bytes());
        [a, b, c, d, e, f, g, h]
    }

    /// As parameters of a claim.
    pub fn numbers(self) -> [String; 3] {
        [self.max.to_string(), self.priority.to_string(), self.task.to_string()]
    }

    /// Behind this task, if that is farther.
    fn advance(self, task: i64) -> ScanStart {
        ScanStart { task: self.task.max(task), ..self }
    }

    /// Other workers of the group claim at the same time.
    pub fn is_contended(self) -> bool {
        self.max > 0
    }

    /// The row that it was made from would have been claimed first.
    fn is_before(self, other: ScanStart) -> bool {
        let order = |start: ScanStart| (Reverse((start.max, start.priority)), start.task);
        order(self) < order(other)
    }
}

/// How a worker's scan start moves from claim to claim.
#[derive(Debug)]
pub struct ScanPosition<'a> {
    region: &'a Region,
    /// What the workers of the group share. None: this worker claims nothing.
    rescans: Option<Rescans>,
    /// Runs of a job are claimed by their own ids, and those of other jobs in the group are between them.
    shares_reach: bool,
    /// The last scan from the start.
    scanned: Instant,
    /// The row claimed last. The first one was claimed by the scheduler, which scans the groups in another way.
    last: Option<ScanStart>,
}

impl<'a> ScanPosition<'a> {
    /// Of a worker that begins with this row.
    pub fn new(region: &'a Region, rescans: Option<Rescans>, row: &TaskRow) -> ScanPosition<'a> {
        ScanPosition { region, rescans, shares_reach: row.job.is_none(), scanned: Instant::now(), last: None }
    }

    /// Where the claim behind these rows starts, of a worker that has run so many tasks.
    pub fn next(&mut self, rows: &[TaskRow], executed: u32) -> Option<ScanStart> {
        let rescans = self.rescans?;
        let fresh = self.scanned.elapsed() < SCAN_START_LIFE && !rescans.take(self.region);
        if !fresh {
            self.scanned = Instant::now();
        }
        let own = self.last.is_some();
        let last = rows.last().map(ScanStart::behind)?;
        self.last = Some(last);
        let shared = Some(rescans).filter(|_| self.shares_reach);
        if let (Some(shared), true) = (shared, own) {
            shared.reach(self.region, &last.kind(), last.task);
        }
        // What a worker that is alone in its group has claimed itself is soon walked over: to plan another statement for it
        // takes longer.
        let worth = own && (last.is_contended() || executed >= WALKED_TASKS);
        let farthest = || shared.and_then(|shared| shared.reached(self.region, &last.kind())).unwrap_or_default();
        (fresh && worth).then(|| last.advance(farthest()))
    }

    /// These rows were claimed next. A row that should have come first calls the others to scan from the start.
    pub fn claimed(&self, rows: &[TaskRow]) {
        let (Some(rescans), Some(last), Some(row)) = (self.rescans, self.last, rows.first()) else { return };
        if ScanStart::behind(row).is_before(last) {
            rescans.call(self.region);
        }
    }
}
