//! The server process: started as our child, or found alive and adopted.
//!
//! The server does not end with the launcher: a restarted launcher finds it by the pid file in
//! `DIR/data`, provided that the process with that pid is a postgres working in that very folder.
//! A pid file without such a process is left to the server, which knows how to judge it.
//!
//! What can go wrong: an adopted server's pid could pass to another process; therefore its start
//! time is remembered and compared before every signal. An exit status is known of a child only.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::error::EmbeddedError;
use super::folder::{DataFolder, PORT, read_small};
use super::programs::{Programs, clean_environment};
use super::server_log::ServerLog;
use super::supervision::Condition;
use super::system_user::SystemUser;

#[derive(Debug)]
pub struct PostgresServer {
    pid: Pid,
    process: ServerProcess,
    log: ServerLog,
}

#[derive(Debug)]
enum ServerProcess {
    Child(Child),
    Adopted { started: String },
    Gone { status: String },
}

impl PostgresServer {
    /// Starts the server; it is not yet ready when this returns.
    pub fn spawn(folder: &DataFolder, programs: &Programs, user: &SystemUser) -> Result<PostgresServer, EmbeddedError> {
        let log = ServerLog::open(folder, user)?;
        let mut command = Command::new(&programs.postgres);
        command.arg("-D").arg(folder.data());
        for setting in settings(folder) {
            command.arg("-c").arg(setting);
        }
        command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.writer()?)
            .stderr(log.writer()?)
            .process_group(0);
        clean_environment(&mut command);
        user.assume(&mut command);
        let failed = |source| EmbeddedError::Spawn { program: programs.postgres.clone(), source };
        let child = command.spawn().map_err(failed)?;
        let raw = i32::try_from(child.id()).map_err(|error| failed(io::Error::other(error)))?;
        Ok(PostgresServer { pid: Pid::from_raw(raw), process: ServerProcess::Child(child), log })
    }

    /// The server that is alive in `DIR/data`, if there is one.
    pub fn find_alive(folder: &DataFolder, user: &SystemUser) -> Result<Option<PostgresServer>, EmbeddedError> {
        let data = folder.data();
        let Some(found) = PidFile::read(&data) else {
            return Ok(None);
        };
        let Some(started) = start_time(found.pid) else {
            return Ok(None);
        };
        if !is_server_of(found.pid, &data) {
            return Ok(None);
        }
        Ok(Some(PostgresServer {
            pid: found.pid,
            process: ServerProcess::Adopted { started },
            log: ServerLog::join(folder, user)?,
        }))
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub fn is_adopted(&self) -> bool {
        matches!(self.process, ServerProcess::Adopted { .. })
    }

    pub fn log(&self) -> &ServerLog {
        &self.log
    }

    /// How it ended, once `observe` has returned `Gone`.
    pub fn status(&self) -> &str {
        match &self.process {
            ServerProcess::Child(_) | ServerProcess::Adopted { .. } => "alive",
            ServerProcess::Gone { status } => status,
        }
    }

    /// Looks at the process and its pid file, without waiting.
    pub fn observe(&mut self, folder: &DataFolder) -> Condition {
        let ended = match &mut self.process {
            ServerProcess::Child(child) => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(status.to_string()),
                // Reaped by someone else in this process: it is gone all the same.
                Err(error) => Some(format!("exit status unknown: {error}")),
            },
            ServerProcess::Adopted { started } if start_time(self.pid).as_ref() == Some(started) => None,
            ServerProcess::Adopted { .. } => Some("exit status unknown: adopted".to_owned()),
            ServerProcess::Gone { .. } => return Condition::Gone,
        };
        if let Some(status) = ended {
            self.process = ServerProcess::Gone { status };
            return Condition::Gone;
        }
        match PidFile::read(&folder.data()) {
            Some(file) if file.pid == self.pid && file.ready && file.is_ours(folder) => Condition::Accepting,
            Some(_) | None => Condition::NotReady,
        }
    }

    /// Where a ready server listens, if that is not our socket: someone else started it.
    pub fn strange_address(&self, folder: &DataFolder) -> Option<String> {
        let file = PidFile::read(&folder.data())?;
        (file.pid == self.pid && file.ready && !file.is_ours(folder)).then(|| {
            let (socket, port) = (&file.socket_folder, &file.port);
            format!("socket folder {socket:?}, port {port:?}")
        })
    }

    /// Sends a signal to the server itself, if it is still the same process.
    pub fn signal(&mut self, folder: &DataFolder, signal: Signal) {
        match self.observe(folder) {
            Condition::Gone => {}
            Condition::NotReady | Condition::Accepting => {
                // It may end in this moment, which is what the signal is for.
                let _gone = kill(self.pid, signal);
            }
        }
    }
}

/// Settings that override the files in `data`; all others are the operator's to set there.
fn settings(folder: &DataFolder) -> Vec<String> {
    let socket_folder = folder.text().replace('"', "\"\"");
    vec![
        "listen_addresses=".to_owned(),
        format!("unix_socket_directories=\"{socket_folder}\""),
        format!("port={PORT}"),
        "log_destination=stderr".to_owned(),
        "logging_collector=off".to_owned(),
    ]
}

/// The lines of `postmaster.pid` that matter here.
#[derive(Debug, PartialEq, Eq)]
struct PidFile {
    pid: Pid,
    port: String,
    socket_folder: String,
    ready: bool,
}

impl PidFile {
    fn read(data: &Path) -> Option<PidFile> {
        PidFile::parse(&read_small(&data.join("postmaster.pid")).ok()?)
    }

    fn is_ours(&self, folder: &DataFolder) -> bool {
        self.port == PORT.to_string() && self.socket_folder == folder.text()
    }

    /// pid, data folder, start time, port, socket folder, address, memory key, status.
    fn parse(text: &str) -> Option<PidFile> {
        let lines: Vec<&str> = text.lines().collect();
        let line = |index: usize| lines.get(index).map_or("", |line| line.trim_end());
        // A stand-alone backend writes its pid with a minus.
        let pid: i32 = line(0).parse().ok().filter(|pid| *pid > 1)?;
        Some(PidFile {
            pid: Pid::from_raw(pid),
            port: line(3).to_owned(),
            socket_folder: line(4).to_owned(),
            ready: matches!(line(7), "ready" | "standby"),
        })
    }
}

/// Is this process a postgres at work in `data`?
fn is_server_of(pid: Pid, data: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let is_postgres = fs::read_link(process.join("exe")).is_ok_and(|program| {
        let name = program.file_name().unwrap_or_default();
        // An upgrade of the package replaces the file under a running server.
        name == "postgres" || name == "postgres (deleted)"
    });
    let works_there = match (fs::metadata(process.join("cwd")), fs::metadata(data)) {
        (Ok(cwd), Ok(data)) => (cwd.dev(), cwd.ino()) == (data.dev(), data.ino()),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    };
    is_postgres && works_there
}

/// The kernel's start time of a process that is alive; a zombie is not.
fn start_time(pid: Pid) -> Option<String> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_start_time(stat: &str) -> Option<String> {
    // The name may hold blanks and parentheses; what follows the last one is regular.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    match fields.next()? {
        "Z" | "X" => None,
        // Of the line's fields, state is the third and the start time the twenty-second.
        _alive => fields.nth(18).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_pid_file_is_ready_only_by_its_eighth_line() {
        let text = "4242\n/d/data\n1700000000\n5432\n/d\n\n  1 2\nready   \n";
        let file = PidFile::parse(text).unwrap();
        assert_eq!(file.pid, Pid::from_raw(4242));
        assert_eq!((file.port.as_str(), file.socket_folder.as_str()), ("5432", "/d"));
        assert!(file.ready);
        let starting = text.replace("ready   ", "starting");
        assert!(!PidFile::parse(&starting).unwrap().ready);
        assert!(!PidFile::parse("4242\n/d/data\n").unwrap().ready);
        for nonsense in ["", "-17\n", "0\n", "1\n", "x\n"] {
            assert_eq!(PidFile::parse(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_start_time_is_read_past_an_odd_name_and_a_zombie_has_none() {
        let tail = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let line = |state: &str| format!("9 (a) b) {state} {tail}");
        assert_eq!(parse_start_time(&line("S")).as_deref(), Some("777"));
        assert_eq!(parse_start_time(&line("Z")), None);
        assert!(start_time(Pid::this()).is_some());
    }
}
