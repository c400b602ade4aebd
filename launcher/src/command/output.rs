//! What commands write, and what becomes of the exit status if that fails.
//!
//! A program that reads `status` from a file on a full disk must not take an empty file for an answer. A reader that
//! has closed its end, such as `head`, has what it wants: that is no error, and the rest is not written.

use shared::process::exit_code::launcher_status;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// The first failure of a write to stdout. Nothing is written after it.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

pub fn print(text: &str) {
    if FAILURE.get().is_none() {
        let mut stdout = io::stdout().lock();
        note(writeln!(stdout, "{text}").and_then(|()| stdout.flush()));
    }
}

pub fn print_error(text: &str) {
    // Without stderr the exit status is all that is left.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Help, version and mistakes of usage, as clap writes them.
pub fn print_usage(text: &clap::Error) -> u8 {
    let written = text.print();
    if !text.use_stderr() {
        note(written.and_then(|()| io::stdout().flush()));
    }
    settled(u8::try_from(text.exit_code()).unwrap_or(launcher_status::FAILED))
}

/// The exit status of a command that ends with this one.
pub fn settled(status: u8) -> u8 {
    match FAILURE.get().filter(|error| error.kind() != ErrorKind::BrokenPipe) {
        None => status,
        Some(error) => {
            print_error(&format!("cannot write the output: {error}"));
            launcher_status::FAILED
        }
    }
}

fn note(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = FAILURE.set(error);
    }
}
