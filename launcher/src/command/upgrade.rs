//! `launcher upgrade`: the catalog of a database to the version of this program, in one transaction.

use super::{login_in, print, print_error};
use crate::cli::ConfigPlace;
use crate::limits::UPGRADE_TIMEOUT;
use shared::VERSION;
use shared::db::migrate::{self, Upgraded};
use shared::db::one_shot;
use shared::process::exit_code::launcher_status;

pub fn print_text(from: &str) -> u8 {
    match migrate::upgrade_text(from) {
        Some(text) => {
            print(&text);
            launcher_status::ORDERLY
        }
        None => {
            print_error(&migrate::no_migration(from));
            launcher_status::FAILED
        }
    }
}

pub fn run(place: &ConfigPlace, database: &str) -> u8 {
    let (_, target) = match login_in(place, database) {
        Ok(login) => login,
        Err(status) => return status,
    };
    let asked = one_shot::ask(&target, "pgmill upgrade", UPGRADE_TIMEOUT, |client| async move {
        migrate::upgrade(&client, true).await
    });
    match asked {
        Ok(Upgraded::From(version)) => {
            print(&format!("{database}: catalog mill upgraded from {version} to {VERSION}"));
            launcher_status::ORDERLY
        }
        Ok(Upgraded::Already) => {
            print(&format!("{database}: catalog mill already has version {VERSION}"));
            launcher_status::ORDERLY
        }
        Err(db_error) => {
            print_error(&format!("{database}: not upgraded, nothing was changed: {db_error}"));
            launcher_status::FAILED
        }
    }
}
