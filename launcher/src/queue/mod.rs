//! The queues that are served: which there are, and the life of each.

pub mod database_list;
pub mod departure;
pub mod found_queue;
pub mod login_refusal;
pub mod needed;
pub mod orphans;
pub mod queue_counts;
pub mod queue_entry;
pub mod queue_state;
pub mod queue_step;
pub mod queue_table;
pub mod request;
pub mod restart_policy;
pub mod scheduler_slot;
pub mod start_conditions;
pub mod wanted;
