//! The whole program, seen from outside. One module per story.
#![forbid(unsafe_code)]

mod conninfo_dialect;
mod harness;
mod outage;
mod pooler;
mod tls;
