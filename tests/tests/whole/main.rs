//! The whole program, seen from outside. One module per story.
#![forbid(unsafe_code)]

mod asking;
mod atomic;
mod calendar;
mod cli;
mod connections;
mod conninfo_dialect;
mod cut_cable;
mod embedded;
mod graph_tokens;
mod graphs;
mod harness;
mod install;
mod keep_and_why;
mod large;
mod ledger;
mod log_lines;
mod names;
mod orphans;
mod outage;
mod pooler;
mod processes;
mod queue;
mod repeat;
mod result;
mod reuse;
mod rights;
mod running;
mod server;
mod settings;
mod signals;
mod status;
mod take;
mod take_over;
mod tls;
mod wakeup;
