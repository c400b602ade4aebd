//! What launcher, scheduler and worker say to each other.
//!
//! `config` and `conninfo` read the operator's files; `region` is the memory that the processes share; `db` is how the loops
//! and workers speak to a server; `process` has the parts of every process: orders, forks, stops, exit codes, fault points; `log`
//! writes its lines. Unsafe code is in `sys`, and nowhere else.

/// The version of this program, and of the catalog that it makes and runs.
pub const VERSION: &str = if cfg!(feature = "next") { "0.2.0-next" } else { env!("CARGO_PKG_VERSION") };

pub mod calendar;
pub mod config;
pub mod conninfo;
pub mod db;
pub mod limits;
pub mod log;
pub mod process;
pub mod region;
pub mod sys;
