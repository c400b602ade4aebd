//! What the slot of a scheduler shows: its phase, its reason, its sessions and those of its workers.

use shared::region::{Phase, ProcessKind, Region, SlotHandle};

pub fn phase(region: &Region, slot: SlotHandle) -> Option<Phase> {
    region.slots().slot_status(slot).phase()
}

/// Why it does not do its work, as it reports it.
pub fn reason(region: &Region, slot: SlotHandle) -> Option<String> {
    region.slots().slot_status(slot).reason()
}

/// The backend of the session that serves the queue.
pub fn own_backend(region: &Region, slot: SlotHandle) -> Option<i32> {
    region.slots().slot_status(slot).running().map(|(_, _, backend)| backend)
}

/// The backends of its workers.
pub fn workers_backends(region: &Region, slot: SlotHandle) -> Vec<i32> {
    let slots = region.slots();
    let slot_status = slots.holders().into_iter().map(|holder| slots.slot_status(holder.handle));
    slot_status
        .filter(|slot_status| {
            slot_status.kind() == Some(ProcessKind::Worker) && slot_status.parent() == Some(slot.index())
        })
        .filter_map(|slot_status| slot_status.running().map(|(_, _, backend)| backend))
        .collect()
}

pub fn all_backends(region: &Region, slot: SlotHandle) -> Vec<i32> {
    workers_backends(region, slot).into_iter().chain(own_backend(region, slot)).collect()
}

/// It has a session, or a worker at something here. A task on a remote goes on, and waits with its result: the next
/// leader ends it there before anything is done again.
pub fn serves(region: &Region, slot: SlotHandle) -> bool {
    let slots = region.slots();
    own_backend(region, slot).is_some()
        || slots.holders().into_iter().any(|holder| {
            let slot_status = slots.slot_status(holder.handle);
            let far = slot_status.running().is_some_and(|(_, _, backend)| backend < 0);
            slot_status.kind() == Some(ProcessKind::Worker) && slot_status.parent() == Some(slot.index()) && !far
        })
}
