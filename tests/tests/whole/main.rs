//! The whole program, seen from outside. One module per story.
#![forbid(unsafe_code)]

mod atomic;
mod cli;
mod connections;
mod embedded;
mod harness;
mod large;
mod ledger;
mod log_lines;
mod names;
mod processes;
mod queue;
mod result;
mod server;
mod signals;
mod status;
