//! An operator's working directory: a folder with a config file in it, where the launcher's binary is
//! run to its end. For commands, and for starts that are to be refused; whoever goes on
//! running is a `Supervisor`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::binary;
use crate::eventually::wait;
use crate::guardian::Guardian;
use crate::launch::set_environment;
use crate::log::Log;
use crate::server_programs::ServerUser;

const TIMEOUT: Duration = Duration::from_secs(30);

/// How a run of the binary ended, and what it said.
#[derive(Debug, Clone)]
pub struct Ended {
    /// `None`: a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Both streams, for what must stand in neither.
    pub fn all(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }
}

#[derive(Debug)]
pub struct Workdir {
    guardian: Guardian,
    environment: Vec<(String, String)>,
}

impl Workdir {
    pub fn new() -> Workdir {
        let guardian = Guardian::start(&ServerUser::own_self(), "");
        let folder = guardian.home().to_string_lossy().into_owned();
        let environment = vec![("HOME".to_owned(), folder.clone()), ("RUNTIME_DIRECTORY".to_owned(), folder)];
        Workdir { guardian, environment }
    }

    pub fn home(&self) -> &Path {
        self.guardian.home()
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Puts a file into it that only its owner may read.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        self.write_mode(name, text, 0o600)
    }

    pub fn write_mode(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.home().join(name);
        fs::write(&path, text).expect("write a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mode of a file");
        path
    }

    /// Runs the binary here, and waits until it has ended.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(binary::launcher());
        command.args(arguments);
        self.finish(command)
    }

    /// Runs another binary than the usual one, with arguments.
    #[track_caller]
    pub fn run_program(&self, program: &Path, arguments: &[&str]) -> Ended {
        let mut command = Command::new(program);
        command.args(arguments);
        self.finish(command)
    }

    /// Runs any program here, in its environment.
    #[track_caller]
    pub fn finish(&self, mut command: Command) -> Ended {
        set_environment(&mut command, &self.environment);
        command.current_dir(self.home()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        let stdout = Log::read(child.stdout.take().expect("piped"));
        let stderr = Log::read(child.stderr.take().expect("piped"));
        let ended = wait("it has ended")
            .within(TIMEOUT)
            .attempt(|| child.try_wait().expect("wait").filter(|_| stdout.is_closed() && stderr.is_closed()));
        let Some(status) = ended else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{command:?} did not end:\n{}\n{}", stdout.tail(60), stderr.tail(60));
        };
        Ended { code: status.code(), stdout: stdout.lines().join("\n"), stderr: stderr.lines().join("\n") }
    }
}

impl Default for Workdir {
    fn default() -> Self {
        Workdir::new()
    }
}
