//! Connections that one worker leaves and the next one uses.

pub mod connection_pool;
pub mod reset;
