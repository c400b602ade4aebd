//! The launcher decides which databases live; it is also the operator's one binary.
//!
//! `cli` is the command line, `command` the one-shot commands and the start of the long one. `event_loop` owns the
//! components, hands them events and runs the commands that they return: `leader` (is this launcher the active one),
//! `queue` (the life of each queue), `server` (queries on the launcher's own server), `message` (messages of users),
//! `control` (operators and the service manager), `embedded` (the private PostgreSQL). Pure decisions: `leader_state`,
//! `queue_state`, `queue_step`, `restart_policy`, `message_table`, `lock_watch`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod base;
mod cli;
mod command;
mod control;
mod dot_text;
mod embedded;
mod event_loop;
mod host;
mod import;
mod launcher_session;
mod leader;
mod limits;
mod loop_command;
mod message;
mod queue;
mod server;
mod status;

use clap::Parser;
use cli::{Cli, CliCommand, ImportSource};
use command::output;
use shared::sys::child_allocator::ChildAllocator;
use std::process::ExitCode;

/// Workers are forked from schedulers that are forked from here; they take their memory from pages of their own.
#[global_allocator]
static ALLOCATOR: ChildAllocator = ChildAllocator;

fn main() -> ExitCode {
    shared::sys::title::claim();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return ExitCode::from(output::print_usage(&usage)),
    };
    shared::log::start(cli.log_level.into(), cli.log.into());
    ExitCode::from(output::settled(match &cli.command {
        None => command::serve::run(&cli),
        Some(CliCommand::Check { connect }) => command::check::run(&cli.place, *connect),
        Some(CliCommand::Start { database }) => command::order::run(&cli.place, "start", database),
        Some(CliCommand::Stop { database }) => command::order::run(&cli.place, "stop", database),
        Some(CliCommand::Restart { database }) => command::order::run(&cli.place, "restart", database),
        Some(CliCommand::Install { print: true, .. }) => command::install::print_text(),
        Some(CliCommand::Install { database, owner, print: false }) => {
            command::install::run(&cli.place, database.as_deref().unwrap_or_default(), owner.as_deref())
        }
        Some(CliCommand::Upgrade { print: Some(from), .. }) => command::upgrade::print_text(from),
        Some(CliCommand::Upgrade { database, print: None }) => {
            command::upgrade::run(&cli.place, database.as_deref().unwrap_or_default())
        }
        Some(CliCommand::Uninstall { database }) => command::uninstall::run(&cli.place, database),
        Some(CliCommand::Import { source: ImportSource::PgCron, options }) => {
            command::import::pg_cron(&cli.place, options)
        }
        Some(CliCommand::Fsck { database }) => command::fsck::run(&cli.place, database),
        Some(CliCommand::Sql { name }) => command::sql::run(&cli.place, name.as_deref()),
        Some(CliCommand::Apply { file, database }) => command::flow::apply(&cli.place, database.as_deref(), file),
        Some(CliCommand::Export { flow, database }) => command::flow::export(&cli.place, database.as_deref(), flow),
        Some(CliCommand::Graph { flow, database, at, svg }) => {
            command::flow::graph(&cli.place, database.as_deref(), flow, at.as_deref(), *svg)
        }
        Some(CliCommand::Status { json, wait }) => command::status::run(&cli.place, *json, *wait),
    }))
}
