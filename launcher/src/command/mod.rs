//! The subcommands: one module each. These, and no other module, print.

pub mod check;
mod check_rights;
mod config_file;
pub mod flow;
pub mod fsck;
pub mod import;
pub mod install;
pub mod order;
pub mod output;
mod resolve;
pub mod serve;
pub mod sql;
pub mod status;
pub mod uninstall;
pub mod upgrade;

pub use config_file::{config_name, environment, login_in, on_its_server, print_mistakes, read_config};
pub use output::{print, print_error};
