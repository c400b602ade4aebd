//! Flows: timers, tokens and back-fills of the database, kept by one of its schedulers.

pub mod backfill;
pub mod graph_state;
pub mod keeper;
pub mod pass;
pub mod timer_queue;
