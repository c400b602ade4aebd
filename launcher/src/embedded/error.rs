//! Why a private server could not be made or started, each with what to do about it.

use crate::limits::{INITDB_TIMEOUT, SERVER_START_TIMEOUT};
use std::error::Error;
use std::io;
use std::path::PathBuf;

use nix::unistd::Pid;

use super::folder::FolderError;
use super::programs::ProgramsMissing;
use super::system_user::SystemUserError;

#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error(transparent)]
    DataFolder(#[from] FolderError),
    #[error(transparent)]
    Programs(#[from] ProgramsMissing),
    #[error(transparent)]
    SystemUser(#[from] SystemUserError),
    #[error("cannot start {program}")]
    Spawn { program: PathBuf, source: io::Error },
    #[error("{program} failed ({status}); {log} ends with: {tail}")]
    Initdb { program: PathBuf, status: String, log: PathBuf, tail: String },
    #[error("initdb did not finish within {} s", INITDB_TIMEOUT.as_secs())]
    InitdbLate,
    #[error("cannot wait for initdb")]
    InitdbWait(#[source] io::Error),
    #[error("cannot wait for the initdb of an earlier launcher")]
    InitdbLock(#[source] io::Error),
    #[error("the server ended while it was starting ({status}); {log} ends with: {tail}")]
    Ended { status: String, log: PathBuf, tail: String },
    #[error(
        "the server (pid {pid}) does not accept connections after {} s; it keeps running, and the next start \
         adopts it; {log} ends with: {tail}",
        SERVER_START_TIMEOUT.as_secs()
    )]
    Late { pid: Pid, log: PathBuf, tail: String },
    #[error("another program's server (pid {pid}) uses {data} ({address}); stop it")]
    Strange { pid: Pid, data: PathBuf, address: String },
    #[error("the start was cancelled")]
    CalledOff,
}

impl EmbeddedError {
    /// The error and what caused it, in one line, for a log or a terminal.
    pub fn in_full(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
