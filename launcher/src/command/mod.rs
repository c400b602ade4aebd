//! What the operator can say: one room per subcommand. These, and no other room, print.

pub mod check;
pub mod order;
pub mod serve;
pub mod status;

use crate::cli::Place;
use shared::config::{Config, Mistake};

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

/// A closed pipe ends nothing.
pub fn print(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub fn print_error(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
