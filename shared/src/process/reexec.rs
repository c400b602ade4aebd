//! A scheduler hands its place down to the program of another version: same process, slot and parent, another code.
//!
//! The old code calls `exec_program`, which becomes the new program; its `main` calls `take_over`. Region, order and life
//! pipe go by descriptor number, everything else by plain arguments; the order travels in a memory file of its own,
//! because it holds a password and its cell has long been wiped. Both sides check the handshake number: the old one asks
//! the program first (`introduction`), the new one compares what it was given, the layout of the region, and whether
//! the slot is really its own. This room must stay understandable to other versions: whoever changes the arguments, an
//! order in a way that others cannot read, or the layout of the region raises the number.

use crate::VERSION;
use crate::log::{self, Level, LineFormat};
use crate::process::order::{SchedulerOrder, Start, encode};
use crate::region::{LAYOUT_VERSION, Region, Ticket};
use crate::sys::exec;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{Pid, getppid};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

/// How we talk to a program of another version, and how the region is laid out.
pub const HANDSHAKE: u64 = 1 << 32 | LAYOUT_VERSION;

/// The argument that makes a program introduce itself.
pub const ASK: &str = "--handshake";

/// What a scheduler program says when it is asked who it is.
pub fn introduction() -> String {
    format!("pgmill scheduler {VERSION} {HANDSHAKE}")
}

/// Version and handshake number of a program that has introduced itself.
pub fn introduced(text: &str) -> Option<(&str, u64)> {
    let (version, handshake) = text.trim().strip_prefix("pgmill scheduler ")?.split_once(' ')?;
    Some((version, handshake.parse().ok()?))
}

/// Whether a version can be the name of a folder and nothing else. It comes from a table that a user owns.
pub fn is_version(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'_'))
}

#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    #[error("this program is started by the launcher of pgmill, not by hand")]
    NotHandedDown,
    #[error("the handshake number is {theirs}, this program has {HANDSHAKE}")]
    Handshake { theirs: u64 },
    #[error("cannot take over the slot: {0}")]
    Descriptors(#[from] io::Error),
    #[error("the slot belongs to another process")]
    Slot,
    #[error("cannot read the order: {0}")]
    Order(#[from] serde_json::Error),
}

/// Becomes the program. Comes back only with the reason why not. The caller has given back what it held in the region
/// besides its slot.
pub fn exec_program(program: &Path, start: &Start, order: &SchedulerOrder) -> io::Error {
    let cell = match written(order) {
        Ok(cell) => cell,
        Err(error) => return error,
    };
    let (level, format) = log::in_force();
    let arguments = [
        ("--handshake-number", HANDSHAKE.to_string()),
        ("--region", start.region.as_fd().as_raw_fd().to_string()),
        ("--cell", cell.as_raw_fd().to_string()),
        ("--life", start.life.as_raw_fd().to_string()),
        ("--slot", start.slot.index().to_string()),
        ("--generation", start.slot.generation().to_string()),
        ("--parent", start.parent.as_raw().to_string()),
        ("--log-level", level.name().to_owned()),
        ("--log", if format == LineFormat::Json { "json" } else { "text" }.to_owned()),
    ];
    let mut words = vec!["pgmill: scheduler".to_owned()];
    words.extend(arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
    exec::become_program(program, &words, &[start.region.as_fd(), cell.as_fd(), start.life.as_fd()])
}

fn written(order: &SchedulerOrder) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("pgmill-order", MFdFlags::MFD_CLOEXEC).map_err(io::Error::from)?);
    let mut payload = encode(order);
    let done = file.write_all(&payload).and_then(|()| file.rewind());
    payload.fill(0);
    done.map(|()| file.into())
}

/// In the new program: everything that the old one had. Sets the log up as it was.
pub fn take_over(arguments: &[String]) -> Result<(Start, SchedulerOrder), TakeOverError> {
    let pairs: HashMap<&str, &str> =
        arguments.chunks(2).filter_map(|pair| Some((pair.first()?.as_str(), pair.get(1)?.as_str()))).collect();
    let number =
        |name: &str| pairs.get(name).and_then(|text| text.parse::<u64>().ok()).ok_or(TakeOverError::NotHandedDown);
    let theirs = number("--handshake-number")?;
    if theirs != HANDSHAKE {
        return Err(TakeOverError::Handshake { theirs });
    }
    let level = Level::ALL.into_iter().find(|level| pairs.get("--log-level") == Some(&level.name()));
    let format = if pairs.get("--log") == Some(&"json") { LineFormat::Json } else { LineFormat::Text };
    log::start(level.unwrap_or(Level::Info), format);
    log::never_wait();
    let numbers = ["--region", "--cell", "--life"].map(|name| number(name).map(|fd| fd as RawFd));
    let [region, cell, life] = numbers;
    let mut taken = exec::inherited(&[region?, cell?, life?])?.into_iter();
    let mut next = || taken.next().ok_or(TakeOverError::NotHandedDown);
    let (region, cell, life) = (Region::adopt(File::from(next()?))?, next()?, next()?);
    let slot = region.own_slot(number("--slot")? as u32, number("--generation")? as u32).ok_or(TakeOverError::Slot)?;
    let parent = Pid::from_raw(number("--parent")? as i32);
    if getppid() != parent {
        return Err(TakeOverError::Slot);
    }
    let mut payload = Vec::new();
    File::from(cell).read_to_end(&mut payload)?;
    let order: SchedulerOrder = serde_json::from_slice(&payload)?;
    payload.fill(0);
    if order.handshake != HANDSHAKE {
        return Err(TakeOverError::Handshake { theirs: order.handshake });
    }
    let ticket = Ticket { index: slot.index(), generation: 0 };
    Ok((Start { region, slot, ticket, parent, life }, order))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_introduces_itself_is_understood() {
        assert_eq!(introduced(&introduction()), Some((VERSION, HANDSHAKE)));
        assert_eq!(introduced("hello"), None);
    }

    #[test]
    fn a_version_is_never_a_way_out_of_its_folder() {
        for good in ["0.1.0", "1.2.3-beta.4+x86_64"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", ".", "..", "../../tmp/x", "1/../../x", "/1", "1 2", "1\0", "v1", &"1".repeat(65)] {
            assert!(!is_version(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_start_by_hand_is_refused() {
        assert!(matches!(take_over(&[]), Err(TakeOverError::NotHandedDown)));
        let wrong = ["--handshake-number".to_owned(), "7".to_owned()];
        assert!(matches!(take_over(&wrong), Err(TakeOverError::Handshake { theirs: 7 })));
    }
}
