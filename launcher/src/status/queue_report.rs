//! What `launcher status` prints of each queue; an answer to an order contains the same.

use crate::queue::queue_counts::is_served;
use crate::queue::queue_state::QueueState;
use crate::queue::queue_table::QueueTable;
use serde_json::{Value, json};
use shared::region::{Phase, ProcessKind, SlotHandle};

/// `launcher_why`: why the launcher itself waits, which is then the reason of every queue that has no process.
pub fn queue_report(table: &QueueTable, launcher_why: Option<&str>) -> Value {
    let region = &table.region;
    let slots = region.slots();
    let parents: Vec<(u32, Option<ProcessKind>)> = slots
        .holders()
        .iter()
        .filter_map(|holder| {
            Some((slots.slot_status(holder.handle).parent()?, slots.slot_status(holder.handle).kind()))
        })
        .collect();
    let entries = table.entries.iter();
    entries
        .map(|entry| {
            let index = entry.state.slot().map(SlotHandle::index);
            let running =
                parents.iter().filter(|(parent, kind)| Some(*parent) == index && *kind == Some(ProcessKind::Worker));
            let size = entry.state.slot().and_then(|slot| slots.slot_status(slot).size());
            json!({
                "data": entry.wanted.target.database,
                "user": entry.wanted.config.user,
                "schema": entry.wanted.config.schema,
                "table": entry.wanted.config.table,
                "state": entry.state.name(),
                "phase": entry.phase(region).map(Phase::name),
                "pid": entry.state.pid().map(|pid| pid.as_raw()),
                "slot": index,
                "running": running.count(),
                "served": is_served(entry, region),
                "why": entry.why(region).or_else(|| {
                    let idle = matches!(entry.state, QueueState::Enabled { .. } | QueueState::Allocated(_));
                    launcher_why.filter(|_| idle).map(str::to_owned)
                }),
                "rows": size.map(|(rows, _)| rows),
                "bytes": size.map(|(_, bytes)| bytes),
                "last_death": entry.memory.last_death,
            })
        })
        .collect()
}
