//! The queues that are served: which there are, and the life of each.

pub mod database_list;
pub mod found_queue;
pub mod queue_entry;
pub mod queue_state;
pub mod queue_table;
pub mod restart_policy;
pub mod wanted;
