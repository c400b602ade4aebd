//! `launcher check`: every mistake of the config at once, each with its place.

use super::{check_rights, environment, on_its_server, print, print_error, read_config};
use crate::cli::Place;
use crate::limits::LEARNT_BYTES;
use crate::queue::queue_entry::Origin;
use crate::queue::wanted::Wanted;
use shared::config::{Config, Environment, Mistake, Row};
use shared::conninfo::ConninfoError;
use shared::process::exit_code::launcher_status;
use shared::process::order::{WaitFor, encode};
use shared::region::CELL_PAYLOAD_BYTES;
use std::path::PathBuf;

pub fn run(place: &Place, connect: bool) -> u8 {
    let name = place.config.as_ref().map_or_else(|| "no config file".to_owned(), |path| path.display().to_string());
    let mut config = match read_config(place) {
        Ok(config) => config,
        Err(mistakes) => return tell(&name, &mistakes),
    };
    if let Err(error) = on_its_server(place, &mut config) {
        return tell(&name, &[Mistake { place: "embedded".into(), text: error.to_string() }]);
    }
    for warning in &config.warnings {
        print_error(&format!("{name}: warning: {warning}"));
    }
    let mistakes = unresolved(&config, &environment(place));
    if !mistakes.is_empty() {
        return tell(&name, &mistakes);
    }
    let rows = config.rows.len();
    print(&format!(
        "{name}: good: {rows} row{}, {} workers at most",
        if rows == 1 { "" } else { "s" },
        config.max_workers
    ));
    if connect { check_rights::run(&config, place, &name) } else { launcher_status::ORDERLY }
}

/// Logins that cannot be resolved: what is only known together with the environment.
pub fn unresolved(config: &Config, environment: Environment<'_>) -> Vec<Mistake> {
    let general =
        config.target(environment).err().map(|error| Mistake { place: "connect".into(), text: error.to_string() });
    let rows = config.rows.iter().filter_map(|row| match wanted(config, row, environment) {
        Err(error) => Some(Mistake { place: row.place.clone(), text: error.to_string() }),
        Ok(wanted) => untellable(config, &wanted),
    });
    let mut mistakes: Vec<Mistake> = general.into_iter().chain(rows).collect();
    mistakes.dedup();
    mistakes
}

/// A row with its login and all that its scheduler is told.
pub fn wanted(config: &Config, row: &Row, environment: Environment<'_>) -> Result<Wanted, ConninfoError> {
    let target = config.row_target(row, environment)?;
    let installer = config.installer(row, &target, environment);
    let versions = config.versions.clone().unwrap_or_else(beside_us);
    let (remotes, launcher) = (config.remotes.clone(), config.name.clone());
    Ok(Wanted { row: row.clone(), target, installer, versions, remotes, launcher, refusal: None, as_owner: false })
}

/// The programs of other versions, unless the config says where: beside this one.
fn beside_us() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().unwrap_or(&own).join("versions")
}

/// What a scheduler is told must fit into its cell.
fn untellable(config: &Config, wanted: &Wanted) -> Option<Mistake> {
    let longest = WaitFor { message: Some((i32::MAX, u32::MAX)), marker: true };
    let length = encode(&wanted.order(Origin::Named, longest, true)).len() + LEARNT_BYTES;
    if length <= CELL_PAYLOAD_BYTES {
        return None;
    }
    let too_much = length - CELL_PAYLOAD_BYTES;
    let (place, advice) = if config.remotes.is_empty() {
        (wanted.row.place.clone(), "shorten its connect")
    } else {
        ("remotes".to_owned(), "name fewer or shorten them; a row is told all of them at once")
    };
    Some(Mistake { place, text: format!("take {too_much} bytes more than fit with {}: {advice}", wanted.row.place) })
}

/// Says them all.
pub fn tell(name: &str, mistakes: &[Mistake]) -> u8 {
    for mistake in mistakes {
        print_error(&format!("{name}: {mistake}"));
    }
    launcher_status::BAD_CONFIG
}
