//! The harness of the whole-program tests: a real PostgreSQL, the real binary, and
//! nothing seen or touched but SQL, signals, exit codes, the log and /proc.
//!
//! A test asks [`Cluster::shared`] for a [`Database`] of its own (or starts a cluster
//! of its own if it restarts it or counts its connections), starts a [`Supervisor`]
//! on it, and waits with [`eventually()`] for what has to happen. Whatever a test
//! leaves behind is removed by a guardian process, also after kill -9 of the test.
#![forbid(unsafe_code)]

pub mod binary;
pub mod certificates;
pub mod cluster;
pub mod database;
pub mod dialect;
pub mod eventually;
pub mod failover;
pub mod guardian;
pub mod hostile;
pub mod launch;
pub mod log;
pub mod process;
pub mod proxy;
pub mod scale;
pub mod server_programs;
pub mod skipping;
pub mod small_disk;
pub mod supervisor;
pub mod terminal;
pub mod workdir;

pub use cluster::{Cluster, Server, ShutdownMode};
pub use database::Database;
pub use eventually::{eventually, steadily, wait};
pub use failover::Pair;
pub use nix::sys::signal::Signal;
pub use proxy::Proxy;
pub use scale::sized;
pub use skipping::skip;
pub use small_disk::SmallDisk;
pub use supervisor::Supervisor;
pub use workdir::Workdir;
