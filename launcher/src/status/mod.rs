//! What `launcher status` prints.

pub mod queue_report;
pub mod status_report;
