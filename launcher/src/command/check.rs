//! `launcher check`: every mistake of the config at once, each with its place.

use super::resolve::unresolved;
use super::{check_rights, config_name, environment, on_its_server, print, print_error, print_mistakes, read_config};
use crate::cli::ConfigPlace;
use shared::config::Mistake;
use shared::process::exit_code::launcher_status;

pub fn run(place: &ConfigPlace, connect: bool) -> u8 {
    let name = config_name(place);
    let mut config = match read_config(place) {
        Ok(config) => config,
        Err(mistakes) => return print_mistakes(&name, &mistakes),
    };
    if let Err(error) = on_its_server(place, &mut config) {
        return print_mistakes(&name, &[Mistake { place: "embedded".into(), text: error.to_string() }]);
    }
    for warning in &config.warnings {
        print_error(&format!("{name}: warning: {warning}"));
    }
    let mistakes = unresolved(&config, &environment(place));
    if !mistakes.is_empty() {
        return print_mistakes(&name, &mistakes);
    }
    let queues = config.queues.len();
    print(&format!(
        "{name}: ok: {queues} queue{}, at most {} worker{}",
        if queues == 1 { "" } else { "s" },
        config.max_workers,
        if config.max_workers == 1 { "" } else { "s" },
    ));
    if connect { check_rights::run(&config, place, &name) } else { launcher_status::ORDERLY }
}
