//! The whole program, seen from outside. One module per story.
#![forbid(unsafe_code)]

mod asking;
mod atomic;
mod by_itself;
mod cli;
mod connections;
mod conninfo_dialect;
mod cut_cable;
mod embedded;
mod every_database;
mod harness;
mod keep_and_why;
mod large;
mod ledger;
mod log_lines;
mod messages;
mod names;
mod orphans;
mod outage;
mod pooler;
mod processes;
mod queue;
mod repeat;
mod result;
mod reuse;
mod running;
mod server;
mod settings;
mod signals;
mod slots;
mod status;
mod take;
mod take_over;
mod tls;
mod wakeup;
