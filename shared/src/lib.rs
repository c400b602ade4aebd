//! What launcher, scheduler and worker say to each other.

pub mod conninfo;
