//! Claims: when the next pass is due, what the one in flight may claim, and what keeps more from being claimed.

use super::group::Group;
use super::pass::GroupCursor;
use super::poll_timer::Doze;
use super::process_limit::Shortage;
use crate::limits::{FAILED_START_FIRST, FAILED_START_LAST};
use shared::db::back_off::BackOff;
use shared::region::SlotHandle;
use std::rc::Rc;
use std::time::Instant;

#[derive(Debug)]
pub struct Claims {
    pub timer: Doze,
    /// Slots reserved for the rows of the pass in flight.
    pub looking: Option<Vec<SlotHandle>>,
    /// The pass in flight only claims; and when the next full one is due.
    pub brief: bool,
    pub next_thorough: Instant,
    /// When the last pass began.
    pub looked_at: Instant,
    /// The last pass has filled all slots that it had.
    pub backlog: bool,
    /// Backends whose connections are reserved for the rows of the pass in flight.
    pub promised: Vec<i32>,
    /// No slot was free at the last pass; the launcher signals when one is.
    pub wants_slot: bool,
    /// Slots came free by us since the last turn of the loop.
    pub freed: bool,
    pub cursor: GroupCursor,
    /// The group whose plain tasks the last pass has begun, if no other waited.
    pub only: Option<Rc<Group>>,
    /// Locks that tell `mill.why` what is missing.
    pub signs: Vec<i32>,
    /// Too few descriptors or processes.
    pub process_limit: Shortage,
    /// Pause between passes while workers cannot even begin.
    pub stumbling: BackOff,
    /// A worker's reason for not beginning was told, and none has got further since.
    pub stumbled: bool,
    pub next_chores: Instant,
}

impl Claims {
    pub fn new(slots: u32, now: Instant) -> Claims {
        Claims {
            timer: Doze::new(now),
            looking: None,
            brief: false,
            next_thorough: now,
            looked_at: now,
            backlog: false,
            promised: Vec::new(),
            wants_slot: false,
            freed: false,
            cursor: GroupCursor::default(),
            only: None,
            signs: Vec::new(),
            process_limit: Shortage::new(slots, now),
            stumbling: BackOff::new(FAILED_START_FIRST, FAILED_START_LAST),
            stumbled: false,
            next_chores: now,
        }
    }
}
