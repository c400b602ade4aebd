//! `DIR/server.log`: what the server and initdb write, and its last lines for our own messages.
//!
//! Opened anew for every start of a program; one that has grown over the limit becomes
//! `server.log.old` then, so that at most two files remain. The server writes to the file itself, so
//! that no line is lost if the launcher dies.

use crate::limits::{SERVER_LOG_MAX_BYTES, SERVER_LOG_TAIL_BYTES, SERVER_LOG_TAIL_LINES};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::folder::{DataFolder, FolderError, open_own, system};
use super::system_user::SystemUser;

/// The log as one program found it when it was started.
#[derive(Debug)]
pub struct ServerLog {
    path: PathBuf,
    /// Where the lines of this program begin.
    begin: u64,
    file: File,
}

impl ServerLog {
    /// Opens the log for appending, after putting a large one aside.
    pub fn open(folder: &DataFolder, user: &SystemUser) -> Result<ServerLog, FolderError> {
        Self::open_within(folder, user, SERVER_LOG_MAX_BYTES)
    }

    /// Opens the log that a running program may be writing to, whatever its size.
    pub fn join(folder: &DataFolder, user: &SystemUser) -> Result<ServerLog, FolderError> {
        Self::open_within(folder, user, u64::MAX)
    }

    fn open_within(folder: &DataFolder, user: &SystemUser, limit_bytes: u64) -> Result<ServerLog, FolderError> {
        let path = folder.log();
        let mut file = open_own(&path, user)?;
        let mut begin = length(&file, &path)?;
        if begin > limit_bytes {
            fs::rename(&path, path.with_extension("log.old")).map_err(system("cannot rename", &path))?;
            file = open_own(&path, user)?;
            begin = length(&file, &path)?;
        }
        Ok(ServerLog { path, begin, file })
    }

    /// A descriptor for a program to write to.
    pub fn writer(&self) -> Result<File, FolderError> {
        self.file.try_clone().map_err(system("cannot duplicate the descriptor of", &self.path))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last lines since `open`, joined into one; what cannot be read is an empty text.
    pub fn tail(&self) -> String {
        let mut bytes = Vec::new();
        let read = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(&self.path)
            .and_then(|mut file| {
                let end = file.metadata()?.len();
                let from = end.saturating_sub(SERVER_LOG_TAIL_BYTES).max(self.begin);
                file.seek(SeekFrom::Start(from))?;
                file.take(SERVER_LOG_TAIL_BYTES).read_to_end(&mut bytes)
            });
        match read {
            Ok(_) => last_lines(&String::from_utf8_lossy(&bytes)),
            Err(_) => String::new(),
        }
    }
}

fn length(file: &File, path: &Path) -> Result<u64, FolderError> {
    let metadata = file.metadata().map_err(system("cannot stat", path))?;
    Ok(metadata.len())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let skipped = lines.len().saturating_sub(SERVER_LOG_TAIL_LINES);
    let last: Vec<&str> = lines.into_iter().skip(skipped).collect();
    last.join(" | ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::tests::TempDir;
    use super::*;
    use std::io::Write;

    #[test]
    fn a_large_log_is_put_aside_once_and_the_tail_holds_only_what_came_since() {
        let temp = TempDir::make("log");
        let folder = DataFolder::resolve(temp.path()).unwrap();
        let user = SystemUser::choose(temp.path(), folder.owner().unwrap()).unwrap();

        let log = ServerLog::open_within(&folder, &user, 20).unwrap();
        log.writer().unwrap().write_all(b"short\n").unwrap();
        let log = ServerLog::open_within(&folder, &user, 20).unwrap();
        assert_eq!(log.tail(), "");
        let mut writer = log.writer().unwrap();
        for n in 1..=20 {
            writeln!(writer, "line {n}").unwrap();
        }
        assert!(log.tail().starts_with("line 13 | "), "{}", log.tail());
        assert!(log.tail().ends_with(" | line 20"), "{}", log.tail());

        let log = ServerLog::open_within(&folder, &user, 20).unwrap();
        assert_eq!(fs::metadata(log.path()).unwrap().len(), 0);
        let old = fs::read_to_string(log.path().with_extension("log.old")).unwrap();
        assert!(old.starts_with("short\nline 1\n"), "{old}");
    }
}
