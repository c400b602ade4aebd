//! What the operator can say: one room per subcommand. These, and no other room, print.

pub mod check;
mod check_rights;
pub mod flow;
pub mod fsck;
pub mod import;
pub mod install;
pub mod order;
pub mod output;
pub mod serve;
pub mod sql;
pub mod status;
pub mod uninstall;
pub mod upgrade;

use crate::cli::Place;
use crate::embedded::conninfo_of;
pub use output::{print, print_error};
use shared::config::{Config, Mistake};
use shared::conninfo::{Conninfo, ConninfoError, Target};
use shared::process::exit_code::launcher_status;

/// The process's environment, as far as it is text. What PG* says is meant for another server than an embedded one.
pub fn environment(place: &Place) -> impl Fn(&str) -> Option<String> + use<> {
    let embedded = place.embedded.is_some();
    move |name| if embedded && name.starts_with("PG") { None } else { std::env::var(name).ok() }
}

/// The config file, or what holds without one. An embedded launcher without a config has its socket in its folder.
pub fn read_config(place: &Place) -> Result<Config, Vec<Mistake>> {
    let environment = environment(place);
    match (&place.config, &place.embedded) {
        (Some(path), _) => Config::read(path, &environment),
        (None, None) => Config::without_file(&environment),
        (None, Some(dir)) => {
            Config::without_file(&environment).map(|config| Config { control: dir.join("mill.sock"), ..config })
        }
    }
}

/// With an embedded server everything goes there, whatever the config says about hosts.
pub fn on_its_server(place: &Place, config: &mut Config) -> Result<(), ConninfoError> {
    if let Some(dir) = &place.embedded {
        config.connect = Conninfo::parse(&conninfo_of(dir))?.over(&config.connect);
    }
    Ok(())
}

/// The config, and the launcher's own login in a database; what is wrong with them has been said, and the exit status
/// is left.
pub fn login_in(place: &Place, database: &str) -> Result<(Config, Target), u8> {
    let name = place.config.as_ref().map_or_else(|| "no config file".to_owned(), |path| path.display().to_string());
    let mut config = read_config(place).map_err(|mistakes| check::tell(&name, &mistakes))?;
    let fail = |text: String| {
        print_error(&text);
        launcher_status::FAILED
    };
    on_its_server(place, &mut config).map_err(|error| fail(error.to_string()))?;
    let target = config
        .target_in(database, &environment(place))
        .map_err(|error| check::tell(&name, &[Mistake { place: "connect".into(), text: error.to_string() }]))?;
    Ok((config, target))
}
