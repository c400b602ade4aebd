//! Schedules of other programs, read as jobs of ours. Pure: the command reads and writes.

pub mod pg_cron;
