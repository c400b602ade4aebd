//! Which queues are served, and what `launcher status` prints.

pub mod readiness;
pub mod status_report;
