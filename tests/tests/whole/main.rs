//! The whole program, seen from outside. One module per story.
#![forbid(unsafe_code)]

mod cli;
mod connections;
mod conninfo_dialect;
mod embedded;
mod harness;
mod large;
mod ledger;
mod log_lines;
mod names;
mod outage;
mod pooler;
mod processes;
mod queue;
mod result;
mod server;
mod signals;
mod status;
mod tls;
