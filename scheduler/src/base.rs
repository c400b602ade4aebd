//! What every part of the scheduler reads: its order, the names of its queue, the settings in force, and its slot.

use shared::config::Settings;
use shared::db::statement::Queue;
use shared::process::order::{SchedulerOrder, Start};
use shared::region::SlotStatus;

#[derive(Debug)]
pub struct Base {
    pub start: Start,
    pub order: SchedulerOrder,
    pub queue: Queue,
    /// Database and table, for the log.
    pub label: String,
    /// The config's settings with the server's over them.
    pub settings: Settings,
    /// This process was another version's before.
    pub reexecuted: bool,
}

impl Base {
    pub fn new(start: Start, order: SchedulerOrder, reexecuted: bool) -> Base {
        Base {
            queue: Queue { schema: order.schema.clone(), table: order.table.clone() },
            label: format!("{} {}.{}", order.target.database, order.schema, order.table),
            settings: order.settings.clone(),
            start,
            order,
            reexecuted,
        }
    }

    pub fn slot_status(&self) -> SlotStatus<'_> {
        self.start.region.slots().slot_status(self.start.slot)
    }

    /// What pg_stat_activity shows of this scheduler.
    pub fn application_name(&self) -> String {
        format!("pg_work {} {} {}", self.queue.schema, self.queue.table, self.settings.sleep_ms)
    }
}
