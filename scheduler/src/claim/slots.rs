//! Slots: reserved before rows are claimed, shared with other queues, and offered to them when they come free.

use super::claims::Claims;
use crate::attempt::attempts::Attempts;
use crate::base::Base;
use crate::turn::Turn;
use shared::region::{ProcessKind, SlotHandle};

impl Claims {
    /// As many slots as there are, at most `count`. None at all: says so in the slot status, and only then looks for the
    /// last time, so that a slot that comes free meanwhile is either seen here or brings a signal.
    pub(super) fn reserve(&mut self, count: usize, attempts: &Attempts, turn: &Turn<'_>) -> Vec<SlotHandle> {
        let counter = turn.base.start.region.slots();
        let hungry = hungry(attempts, turn.base);
        let reserve = || {
            let few = count.min((counter.for_workers() as usize).saturating_sub(hungry));
            std::iter::from_fn(|| counter.reserve()).take(few).collect::<Vec<SlotHandle>>()
        };
        let mut slots = reserve();
        if slots.is_empty() && count > 0 {
            turn.base.slot_status().set_wants_slot(true);
            slots = reserve();
        }
        self.set_wants_slot(slots.is_empty() && count > 0, turn);
        slots
    }
}

/// So many slots are left to others: a queue that wants one and has none comes before one that has some.
fn hungry(attempts: &Attempts, base: &Base) -> usize {
    if attempts.table.active() == 0 {
        return 0;
    }
    let slots = base.start.region.slots();
    let holders = slots.holders();
    let served: Vec<Option<u32>> = holders
        .iter()
        .map(|holder| slots.slot_status(holder.handle))
        .filter(|slot_status| slot_status.kind() == Some(ProcessKind::Worker))
        .map(|slot_status| slot_status.parent())
        .collect();
    let own = base.start.slot.index();
    let waits = |slot: SlotHandle| {
        slot.index() != own && slots.slot_status(slot).wants_slot() && !served.contains(&Some(slot.index()))
    };
    holders.iter().filter(|holder| waits(holder.handle)).count()
}

/// The launcher signals those who wait for the slots that came free here; only it may signal its children.
pub fn offer(base: &Base) {
    let slots = base.start.region.slots();
    let own = base.start.slot.index();
    let wanted = |slot: SlotHandle| slot.index() != own && slots.slot_status(slot).wants_slot();
    let somebody = || slots.wanted() > 0 || slots.holders().iter().any(|holder| wanted(holder.handle));
    if slots.used() < slots.limit() && somebody() {
        base.start.signal_parent();
    }
}
