//! The config that a subcommand reads, and the launcher's own login.

use super::output::print_error;
use crate::cli::ConfigPlace;
use crate::embedded::conninfo_of;
use shared::config::{Config, Mistake};
use shared::conninfo::{Conninfo, ConninfoError, Target};
use shared::process::exit_code::launcher_status;

/// The process's environment, as far as it is text. Without PG* for an embedded server: these are meant for another
/// one.
pub fn environment(place: &ConfigPlace) -> impl Fn(&str) -> Option<String> + use<> {
    let embedded = place.embedded.is_some();
    move |name| if embedded && name.starts_with("PG") { None } else { std::env::var(name).ok() }
}

/// What mistakes are printed with.
pub fn config_name(place: &ConfigPlace) -> String {
    place.config.as_ref().map_or_else(|| "no config file".to_owned(), |path| path.display().to_string())
}

/// The config file, or the defaults without one. An embedded launcher without a config has its socket in its folder.
pub fn read_config(place: &ConfigPlace) -> Result<Config, Vec<Mistake>> {
    let environment = environment(place);
    match (&place.config, &place.embedded) {
        (Some(path), _) => Config::read(path, &environment),
        (None, None) => Config::without_file(&environment),
        (None, Some(dir)) => {
            Config::without_file(&environment).map(|config| Config { control: dir.join("mill.sock"), ..config })
        }
    }
}

/// With an embedded server everything goes there; hosts of the config do not count.
pub fn on_its_server(place: &ConfigPlace, config: &mut Config) -> Result<(), ConninfoError> {
    if let Some(dir) = &place.embedded {
        config.connect = Conninfo::parse(&conninfo_of(dir))?.over(&config.connect);
    }
    Ok(())
}

/// The config, and the launcher's own login in a database; mistakes have been printed, and the
/// exit status is left.
pub fn login_in(place: &ConfigPlace, database: &str) -> Result<(Config, Target), u8> {
    let name = config_name(place);
    let mut config = read_config(place).map_err(|mistakes| print_mistakes(&name, &mistakes))?;
    let fail = |text: String| {
        print_error(&text);
        launcher_status::FAILED
    };
    on_its_server(place, &mut config).map_err(|error| fail(error.to_string()))?;
    let target = config
        .target_in(database, &environment(place))
        .map_err(|error| print_mistakes(&name, &[Mistake { place: "connect".into(), text: error.to_string() }]))?;
    Ok((config, target))
}

/// Prints them all; returns the exit status. A mistake of the file itself has its name already.
pub fn print_mistakes(name: &str, mistakes: &[Mistake]) -> u8 {
    for mistake in mistakes {
        print_error(&if mistake.place == name { mistake.to_string() } else { format!("{name}: {mistake}") });
    }
    launcher_status::BAD_CONFIG
}
