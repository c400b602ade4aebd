//! What launcher, scheduler and worker say to each other.
//!
//! `config` and `conninfo` read what the operator wrote; `region` is the memory the processes share; `db` is how the
//! loops speak to a server, `tls` how both clients encrypt; `hand_over` is what travels in a cell, `hand_down` how a scheduler becomes one of another version; `log` and `exit_code` are how a process speaks and
//! leaves. What is dangerous stands in `sys`, and nowhere else.

/// The version of this program, and of the catalog that it makes and runs.
pub const VERSION: &str = if cfg!(feature = "next") { "0.2.0-next" } else { env!("CARGO_PKG_VERSION") };

pub mod calendar;
pub mod config;
pub mod conninfo;
pub mod db;
pub mod duration;
pub mod exit_code;
pub mod fault;
pub mod hand_down;
pub mod hand_over;
pub mod limits;
pub mod log;
pub mod mishap;
mod nearest;
pub mod nursery;
pub mod region;
pub mod remote_session;
pub mod report;
pub mod stopping;
pub mod sys;
pub mod tls;
