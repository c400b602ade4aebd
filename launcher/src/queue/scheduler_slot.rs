//! What the slot of a scheduler shows: its phase, its reason, its sessions and those of its workers.

use shared::region::{Kind, Phase, Region, SlotHandle};

pub fn phase(region: &Region, slot: SlotHandle) -> Option<Phase> {
    region.slots().notes(slot).phase()
}

/// Why it does not do its work, as it reports it.
pub fn reason(region: &Region, slot: SlotHandle) -> Option<String> {
    region.slots().notes(slot).reason()
}

/// The backend of the session that serves the queue.
pub fn own_backend(region: &Region, slot: SlotHandle) -> Option<i32> {
    region.slots().notes(slot).running().map(|(_, _, backend)| backend)
}

/// The backends of its workers.
pub fn workers_backends(region: &Region, slot: SlotHandle) -> Vec<i32> {
    let slots = region.slots();
    let notes = slots.holders().into_iter().map(|holder| slots.notes(holder.handle));
    notes
        .filter(|notes| notes.kind() == Some(Kind::Worker) && notes.parent() == Some(slot.index()))
        .filter_map(|notes| notes.running().map(|(_, _, backend)| backend))
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
            let notes = slots.notes(holder.handle);
            let far = notes.running().is_some_and(|(_, _, backend)| backend < 0);
            notes.kind() == Some(Kind::Worker) && notes.parent() == Some(slot.index()) && !far
        })
}
