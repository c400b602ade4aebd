//! Connections that one worker leaves and the next one uses.

mod connection;
pub mod connection_pool;
pub mod reset;
