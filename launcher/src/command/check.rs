//! `launcher check`: every mistake of the config at once, each with its place.

use super::{check_rights, environment, on_its_server, print, print_error, read_config};
use crate::cli::Place;
use shared::config::{Config, Environment, Mistake};
use shared::exit_code::launcher_status;

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
    let rows = config.rows.iter().filter_map(|row| {
        let error = config.row_target(row, environment).err()?;
        Some(Mistake { place: row.place.clone(), text: error.to_string() })
    });
    general.into_iter().chain(rows).collect()
}

/// Says them all.
pub fn tell(name: &str, mistakes: &[Mistake]) -> u8 {
    for mistake in mistakes {
        print_error(&format!("{name}: {mistake}"));
    }
    launcher_status::BAD_CONFIG
}
