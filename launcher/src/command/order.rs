//! `launcher start`, `stop` and `restart DATABASE`: the running launcher carries the order out and reports the result.

use super::status::{no_launcher, put};
use super::{config_name, print, print_error, print_mistakes, read_config};
use crate::cli::ConfigPlace;
use serde_json::{Value, json};
use shared::process::exit_code::launcher_status;

pub fn run(place: &ConfigPlace, command: &str, database: &str) -> u8 {
    let config = match read_config(place) {
        Ok(config) => config,
        Err(mistakes) => return print_mistakes(&config_name(place), &mistakes),
    };
    let answer = match put(&config.control, &json!({"command": command, "database": database})) {
        Ok(answer) => answer,
        Err(error) => return no_launcher(place, &config.control, &error),
    };
    let text = |key: &str| answer.get(key).and_then(Value::as_str);
    if answer.get("done") == Some(&Value::Bool(true)) {
        print(&format!("{database}: {}", past(command)));
        return launcher_status::ORDERLY;
    }
    let why = text("why").or(text("error")).unwrap_or("the launcher gave no reason");
    print_error(&format!("{database}: not {}: {why}", past(command)));
    launcher_status::FAILED
}

fn past(command: &str) -> &'static str {
    match command {
        "start" => "started",
        "stop" => "stopped",
        _ => "restarted",
    }
}
