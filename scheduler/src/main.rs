//! The scheduler as a program of its own: what `versions/<version>/scheduler` holds.
//!
//! It accepts only a hand-over by descriptor from the scheduler process that it replaces; `--handshake` makes it say who
//! it is, and nothing else can be done with it.
#![forbid(unsafe_code)]

use shared::process::exit_code::ExitCode;
use shared::process::reexec::{self, TakeOverError};
use shared::sys::child_allocator::ChildAllocator;
use std::io::{self, Write};
use std::process::ExitCode as Status;

/// Workers take their memory from pages of their own.
#[global_allocator]
static ALLOCATOR: ChildAllocator = ChildAllocator;

fn main() -> Status {
    shared::sys::title::claim();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == reexec::ASK) && arguments.len() == 1 {
        // whoever has asked and gone away again is no reason to panic
        let _ = writeln!(io::stdout(), "{}", reexec::introduction());
        return Status::SUCCESS;
    }
    let code = match reexec::take_over(&arguments) {
        Ok((start, order)) => scheduler::run_reexecuted(start, order),
        Err(error @ TakeOverError::NotHandedDown) => {
            let _ = writeln!(io::stderr(), "{error}");
            return Status::FAILURE;
        }
        Err(error) => {
            shared::error!(
                "scheduler exits: cannot take over from the launcher's version",
                version = shared::VERSION,
                error = error
            );
            ExitCode::NoCode
        }
    };
    Status::from(u8::try_from(code.status()).unwrap_or(1))
}
