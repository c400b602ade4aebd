//! The jobs of the queue: due runs, runs under way, next starts.

pub mod job_queries;
pub mod job_state;
pub mod job_statements;
pub mod job_table;
pub mod next_start;
