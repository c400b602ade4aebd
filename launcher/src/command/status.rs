//! `launcher status`: asks the running launcher over its control socket.

use super::{config_name, print, print_error, print_mistakes, read_config};
use crate::cli::ConfigPlace;
use crate::limits::{COMMAND_TIMEOUT, STATUS_PERIOD};
use crate::status::status_report::as_text;
use serde_json::Value;
use shared::process::exit_code::launcher_status;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub fn run(place: &ConfigPlace, json: bool, wait: Option<u64>) -> u8 {
    let config = match read_config(place) {
        Ok(config) => config,
        Err(mistakes) => return print_mistakes(&config_name(place), &mistakes),
    };
    let until = Instant::now() + Duration::from_secs(wait.unwrap_or(0));
    loop {
        let answer = ask(&config.control);
        let ready = answer.as_ref().is_ok_and(|status| is_ready(status, wait.is_some()));
        if ready || wait.is_none() || Instant::now() >= until {
            return tell(place, &config.control, answer, json);
        }
        std::thread::sleep(STATUS_PERIOD);
    }
}

/// `settled`: no queue is just starting, either.
fn is_ready(status: &Value, settled: bool) -> bool {
    let starting = status.pointer("/queues/starting").and_then(Value::as_u64).unwrap_or_default();
    status.get("ready") == Some(&Value::Bool(true)) && (!settled || starting == 0)
}

fn tell(place: &ConfigPlace, socket: &Path, answer: Result<Value, std::io::Error>, json: bool) -> u8 {
    match answer {
        Ok(status) => {
            print(&if json { status.to_string() } else { as_text(&status) });
            if is_ready(&status, false) { launcher_status::ORDERLY } else { launcher_status::NOT_SERVING }
        }
        Err(error) => no_launcher(place, socket, &error),
    }
}

/// One sentence.
pub fn no_launcher(place: &ConfigPlace, socket: &Path, error: &std::io::Error) -> u8 {
    let advice = match (error.kind(), &place.config, &place.embedded) {
        (ErrorKind::PermissionDenied, ..) => "run the command as the user of the launcher, or as root".to_owned(),
        (_, None, Some(dir)) => format!("start one: launcher --embedded {}", dir.display()),
        (_, Some(path), Some(dir)) => {
            format!("start one: launcher --config {} --embedded {}", path.display(), dir.display())
        }
        (_, Some(path), None) => format!("start one: launcher --config {}", path.display()),
        (_, None, None) => "start one, or name its config (--config) or its folder (--embedded)".to_owned(),
    };
    print_error(&format!("no launcher answers on {}: {error}; {advice}", socket.display()));
    launcher_status::NO_LAUNCHER
}

pub(super) fn ask(socket: &Path) -> std::io::Result<Value> {
    put(socket, &serde_json::json!({"command": "status"}))
}

/// Puts a question to the running launcher.
pub fn put(socket: &Path, question: &Value) -> std::io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(COMMAND_TIMEOUT))?;
    stream.set_write_timeout(Some(COMMAND_TIMEOUT))?;
    let mut line = String::new();
    let question = format!("{question}\n");
    let answered = stream.write_all(question.as_bytes()).and_then(|()| BufReader::new(stream).read_line(&mut line));
    match answered {
        Ok(0) => return Err(turned_away()),
        // It closed the connection with our request unread: that is how it refuses another user.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
            return Err(turned_away());
        }
        answered => answered?,
    };
    serde_json::from_str(&line).map_err(std::io::Error::other)
}

fn turned_away() -> std::io::Error {
    std::io::Error::new(ErrorKind::PermissionDenied, "the launcher refused the connection")
}
