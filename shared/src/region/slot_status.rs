//! The status beside a slot's word: what runs there, since when, and what its parent asks of it.
//!
//! The word is the truth; the status is valid only while its generation equals the word's. Writers: the parent opens
//! the status (kind, start, parent, label) before it forks and writes the request; the process in the slot writes its
//! backend, task, attempt, beat, phase, reason and whether it wants a slot. One writer per word, every word atomic. A
//! text has a sequence in its first word: odd while it is being written, so a reader takes a torn text for none.

use super::slot::SlotHandle;
use super::{layout, text};
use crate::sys::map::Words;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// What kind of process a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    Launcher,
    Scheduler,
    Worker,
}

impl ProcessKind {
    const ALL: [ProcessKind; 3] = [ProcessKind::Launcher, ProcessKind::Scheduler, ProcessKind::Worker];

    pub fn name(self) -> &'static str {
        match self {
            ProcessKind::Launcher => "launcher",
            ProcessKind::Scheduler => "scheduler",
            ProcessKind::Worker => "worker",
        }
    }
}

/// How far a scheduler has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Forked; parameters not read yet.
    Forked,
    /// Looking for its server, its table or its lock; the reason says which.
    Waiting,
    /// Has taken for the first time, or would have if a slot were free: it does its work.
    Running,
    /// Ends.
    Stopping,
    /// A worker: has a result that the server does not take; the reason says why.
    Recording,
}

impl Phase {
    const ALL: [Phase; 5] = [Phase::Forked, Phase::Waiting, Phase::Running, Phase::Stopping, Phase::Recording];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Forked => "forked",
            Phase::Waiting => "waiting",
            Phase::Running => "running",
            Phase::Stopping => "stopping",
            Phase::Recording => "recording",
        }
    }
}

/// Why a parent asks a worker to cancel its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// Its owner has stopped or deleted the row: nothing is written.
    Unwanted,
    /// The run of a job has taken longer than its max_runtime: it has failed.
    Overrun,
    /// The job was deleted: its run is written off.
    Deleted,
}

impl Cancel {
    const ALL: [Cancel; 3] = [Cancel::Unwanted, Cancel::Overrun, Cancel::Deleted];

    const fn code(self) -> u64 {
        match self {
            Cancel::Unwanted => 1,
            Cancel::Overrun => 2,
            Cancel::Deleted => 3,
        }
    }
}

/// A request of the parent: cancel this attempt of this task, if it is still the one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub cancel: Cancel,
    pub task: i64,
    pub attempt: i32,
}

/// The status of one use of one slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotStatus<'a> {
    words: &'a Words,
    slot: SlotHandle,
}

impl<'a> SlotStatus<'a> {
    pub(super) fn over(words: &'a Words, slot: SlotHandle) -> SlotStatus<'a> {
        SlotStatus { words, slot }
    }

    /// By the parent, before the fork: wipes what an earlier use left and makes the status valid.
    pub fn open(&self, kind: ProcessKind, parent: u32, started_ms: u64, label: &str) {
        self.word(layout::STATUS_GENERATION).store(u64::MAX, SeqCst);
        for note in layout::STATUS_KIND..layout::STATUS_LABEL {
            self.word(note).store(0, Relaxed);
        }
        self.word(layout::STATUS_KIND).store(kind as u64, Relaxed);
        self.word(layout::STATUS_PARENT).store(u64::from(parent), Relaxed);
        self.word(layout::STATUS_STARTED_MS).store(started_ms, Relaxed);
        self.write_text(layout::STATUS_LABEL, label);
        self.write_text(layout::STATUS_REASON, "");
        self.word(layout::STATUS_GENERATION).store(u64::from(self.slot.generation()), Release);
    }

    /// False: this status belongs to another use of the slot.
    pub fn valid(&self) -> bool {
        self.word(layout::STATUS_GENERATION).load(Acquire) == u64::from(self.slot.generation())
    }

    pub fn kind(&self) -> Option<ProcessKind> {
        let number = self.number(layout::STATUS_KIND)?;
        ProcessKind::ALL.into_iter().find(|kind| *kind as u64 == number)
    }

    pub fn phase(&self) -> Option<Phase> {
        let number = self.number(layout::STATUS_PHASE)?;
        Phase::ALL.into_iter().find(|phase| *phase as u64 == number)
    }

    pub fn set_phase(&self, phase: Phase) {
        self.word(layout::STATUS_PHASE).store(phase as u64, Release);
    }

    pub fn started_ms(&self) -> Option<u64> {
        self.number(layout::STATUS_STARTED_MS)
    }

    /// The slot of the process that started this one.
    pub fn parent(&self) -> Option<u32> {
        self.number(layout::STATUS_PARENT).map(|index| index as u32)
    }

    pub fn beat(&self) -> Option<u64> {
        self.number(layout::STATUS_BEAT)
    }

    /// One more turn of the loop.
    pub fn count_beat(&self) {
        self.word(layout::STATUS_BEAT).fetch_add(1, Relaxed);
    }

    /// By a scheduler: its session holds this number as a lock; 0: it has no session.
    pub fn set_proof(&self, number: i64) {
        self.word(layout::STATUS_PROOF).store(number as u64, Release);
    }

    /// The number that the scheduler in this slot holds at this moment.
    pub fn proof(&self) -> Option<i64> {
        self.number(layout::STATUS_PROOF).map(|number| number as i64).filter(|number| *number != 0)
    }

    /// By a scheduler: it found no free slot, and wants a signal when there is one. It says so and then looks at the
    /// slots once more; whoever frees a slot looks here afterwards. The fences keep both in that order, so that one
    /// of the two sees the other.
    pub fn set_wants_slot(&self, wants: bool) {
        self.word(layout::STATUS_WANTS_SLOT).store(u64::from(wants), Release);
        fence(SeqCst);
    }

    pub fn wants_slot(&self) -> bool {
        fence(SeqCst);
        self.number(layout::STATUS_WANTS_SLOT) == Some(1)
    }

    /// By the worker, before it sends the input: which task runs on which backend; one on a remote has a minus.
    pub fn set_running(&self, task: i64, attempt: i32, backend: i32) {
        self.word(layout::STATUS_TASK).store(task as u64, Relaxed);
        self.word(layout::STATUS_ATTEMPT).store(attempt as u64, Relaxed);
        self.word(layout::STATUS_BACKEND).store(backend as u64, Release);
    }

    /// (task, attempt, backend), once the worker has one.
    pub fn running(&self) -> Option<(i64, i32, i32)> {
        let backend = self.number(layout::STATUS_BACKEND).filter(|pid| *pid != 0)?;
        Some((self.number(layout::STATUS_TASK)? as i64, self.number(layout::STATUS_ATTEMPT)? as i32, backend as i32))
    }

    /// By the parent: then signal the worker.
    pub fn request(&self, request: Request) {
        self.word(layout::STATUS_REQUEST_TASK).store(request.task as u64, Relaxed);
        self.word(layout::STATUS_REQUEST_ATTEMPT).store(request.attempt as u64, Relaxed);
        self.word(layout::STATUS_REQUEST).store(request.cancel.code(), Release);
    }

    /// By the worker, on a signal.
    pub fn requested(&self) -> Option<Request> {
        let code = self.number(layout::STATUS_REQUEST)?;
        let cancel = Cancel::ALL.into_iter().find(|cancel| cancel.code() == code)?;
        let task = self.number(layout::STATUS_REQUEST_TASK)? as i64;
        Some(Request { cancel, task, attempt: self.number(layout::STATUS_REQUEST_ATTEMPT)? as i32 })
    }

    /// By the scheduler: rows and bytes of its queue.
    pub fn set_size(&self, rows: u64, bytes: u64) {
        self.word(layout::STATUS_ROWS).store(rows, Relaxed);
        self.word(layout::STATUS_BYTES).store(bytes, Release);
    }

    /// (rows, bytes), once they have been measured.
    pub fn size(&self) -> Option<(u64, u64)> {
        let bytes = self.number(layout::STATUS_BYTES).filter(|bytes| *bytes != 0)?;
        Some((self.number(layout::STATUS_ROWS)?, bytes))
    }

    /// By the scheduler: the table whose locks say that somebody changes its catalog.
    pub fn set_marker(&self, relid: u32) {
        self.word(layout::STATUS_MARKER).store(u64::from(relid), Release);
    }

    pub fn marker(&self) -> Option<u32> {
        self.number(layout::STATUS_MARKER).map(|relid| relid as u32).filter(|relid| *relid != 0)
    }

    /// By a worker whose connection was closed without a word while its task ran: the start of the server that it was
    /// connected to, in microseconds. Whether that server has gone on is for the reader to find out.
    pub fn set_severed(&self, server_began_us: i64) {
        self.word(layout::STATUS_SEVERED).store(server_began_us as u64, Release);
    }

    pub fn severed(&self) -> Option<i64> {
        self.number(layout::STATUS_SEVERED).map(|began| began as i64).filter(|began| *began != 0)
    }

    pub fn label(&self) -> Option<String> {
        self.valid().then(|| self.read_text(layout::STATUS_LABEL)).flatten()
    }

    pub fn reason(&self) -> Option<String> {
        self.valid().then(|| self.read_text(layout::STATUS_REASON)).flatten().filter(|reason| !reason.is_empty())
    }

    pub fn set_reason(&self, reason: &str) {
        self.write_text(layout::STATUS_REASON, reason);
    }

    fn word(&self, note: usize) -> &AtomicU64 {
        self.words.at(layout::slot_start(self.slot.index()) + note)
    }

    fn number(&self, note: usize) -> Option<u64> {
        let number = self.word(note).load(Acquire);
        self.valid().then_some(number)
    }

    fn write_text(&self, at: usize, text: &str) {
        text::write(self.words, layout::slot_start(self.slot.index()) + at, text);
    }

    fn read_text(&self, at: usize) -> Option<String> {
        text::read(self.words, layout::slot_start(self.slot.index()) + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    #[test]
    fn notes_of_an_earlier_use_are_not_shown_for_a_later_one() {
        let region = Region::create(1).unwrap();
        let slots = region.slots();
        let first = slots.reserve().unwrap();
        slots.slot_status(first).open(ProcessKind::Worker, 0, 1, "app public.task");
        slots.slot_status(first).set_running(42, 3, 4711);
        assert_eq!(slots.slot_status(first).running(), Some((42, 3, 4711)));
        slots.release(first);
        let second = slots.reserve().unwrap();
        assert_eq!(slots.slot_status(second).running(), None);
        assert_eq!(slots.slot_status(second).label(), None);
        slots.slot_status(second).open(ProcessKind::Scheduler, 0, 2, "other");
        assert_eq!(slots.slot_status(second).label().as_deref(), Some("other"));
        assert_eq!(slots.slot_status(second).running(), None);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let region = Region::create(1).unwrap();
        let slot = region.slots().reserve().unwrap();
        let slot_status = region.slots().slot_status(slot);
        slot_status.open(ProcessKind::Scheduler, 0, 0, "");
        slot_status.set_reason(&"ä".repeat(500));
        let reason = slot_status.reason().unwrap();
        assert!(reason.len() <= layout::TEXT_BYTES && reason.chars().all(|c| c == 'ä'));
    }
}
