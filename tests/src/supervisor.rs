//! The real launcher under test: started with a config of its own, watched through its
//! log, its exit status and /proc, and gone, with all its processes, at the end.
//!
//! `Supervisor::of(&database).start()` serves that database as its careful operator
//! would; every other way to start it is a method of [`Launch`].

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::database::Database;
use crate::eventually::{Outcome, Wait, wait};
use crate::guardian::Guardian;
use crate::launch::{EMBEDDED_FOLDER, Launch, set_environment, write_private};
use crate::log::Log;
use crate::process::{self, Process};
use crate::terminal::Terminal;

/// A launcher that was started.
#[derive(Debug)]
pub struct Supervisor<'d> {
    pub(crate) pid: i32,
    pub(crate) child: Mutex<Child>,
    pub(crate) program: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) config: Option<PathBuf>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) stderr: String,
    pub(crate) log: Log,
    /// The log's pipe while nobody is to read it.
    pub(crate) unread: Mutex<Option<ChildStderr>>,
    pub(crate) terminal: Mutex<Option<Terminal>>,
    pub(crate) databases: Vec<&'d Database>,
    /// Last, so that it cleans up after everything else is closed.
    pub(crate) guardian: Mutex<Guardian>,
}

impl<'d> Supervisor<'d> {
    /// Serves this database: its login, its owner as the queue's user, one row.
    pub fn of(database: &'d Database) -> Launch<'d> {
        Supervisor::bare().and(database)
    }

    /// Serves nothing yet.
    pub fn bare() -> Launch<'d> {
        Launch::default()
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its folder: config, control socket, HOME.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Its config file; rewrite it with [`Supervisor::rewrite_config`].
    pub fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Where `--embedded` has its server.
    pub fn embedded_folder(&self) -> PathBuf {
        self.home.join(EMBEDDED_FOLDER)
    }

    /// Puts another text into the config file (then send SIGHUP).
    pub fn rewrite_config(&self, text: &str) {
        write_private(self.config.as_ref().expect("it has a config file"), text);
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Begins to read the log after [`Launch::stalled_log`].
    pub fn read_log(&self) {
        let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.log.feed(unread.expect("its log was not read so far"));
    }

    pub fn log_contains(&self, text: &str) -> bool {
        self.log.contains(text)
    }

    /// Runs a subcommand beside it, with its config and environment: `command(&["status"])`.
    pub fn command(&self, arguments: &[&str]) -> Output {
        self.command_into(arguments, Stdio::piped())
    }

    /// The same with another standard output, such as a full disk.
    pub fn command_into(&self, arguments: &[&str], stdout: impl Into<Stdio>) -> Output {
        let mut command = Command::new(&self.program);
        set_environment(&mut command, &self.environment);
        command.env_remove("PGMILL_FAULT").args(arguments);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        command.current_dir(&self.home).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        command.output().expect("run a subcommand of the launcher")
    }

    /// What `status --json` prints, whether it serves or not; `None` if there is no launcher.
    pub fn status(&self) -> Option<Value> {
        let output = self.command(&["status", "--json"]);
        if output.stdout.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("status is no JSON: {error}\n{text}")))
    }

    /// Waits until it has said `ready`; fails at once if it ended instead.
    #[track_caller]
    pub fn wait_ready(&self) {
        let ended = self.wait("it is ready").within(Duration::from_secs(60)).until(|| {
            let ready = self.log.lines().iter().any(|line| says_ready(line));
            if ready { Some(None) } else { self.exit_status().map(Some) }
        });
        if let Some(status) = ended {
            panic!("it ended before it was ready: {status}\n{}", self.describe());
        }
    }

    /// All its processes but the launcher itself, orphans and zombies included.
    pub fn children(&self) -> Vec<Process> {
        process::family(self.pid, &self.stderr)
    }

    /// Living schedulers.
    pub fn schedulers(&self) -> Vec<Process> {
        self.titled("pgmill: scheduler ")
    }

    /// Living workers.
    pub fn workers(&self) -> Vec<Process> {
        self.titled("pgmill: worker ")
    }

    fn titled(&self, start: &str) -> Vec<Process> {
        let mut children = self.children();
        children.retain(|child| !child.zombie && child.title.starts_with(start));
        children
    }

    /// Sends the launcher a signal.
    pub fn signal(&self, signal: Signal) {
        send(self.pid, signal);
    }

    /// Ends one of its processes by force.
    pub fn kill9(&self, pid: i32) {
        let ours = pid == self.pid || self.children().iter().any(|child| child.pid == pid);
        assert!(ours, "{pid} is none of the supervisor's processes");
        send(pid, Signal::SIGKILL);
    }

    /// Presses Ctrl-C on its terminal.
    pub fn press_ctrl_c(&self) {
        let mut terminal = self.terminal.lock().unwrap_or_else(PoisonError::into_inner);
        terminal.as_mut().expect("it was started in_terminal").press_ctrl_c();
    }

    /// How the launcher ended, if it has.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.child_guard().try_wait().expect("wait for the launcher")
    }

    /// Waits until the launcher has ended.
    #[track_caller]
    pub fn wait_exit(&self, timeout: Duration) -> ExitStatus {
        self.wait("the launcher has ended").within(timeout).until(|| self.exit_status())
    }

    /// Waits until none of its processes is left, launcher included.
    #[track_caller]
    pub fn wait_gone(&self, timeout: Duration) {
        self.wait("all its processes are gone")
            .within(timeout)
            .until(|| self.exit_status().is_some() && self.children().is_empty());
    }

    /// A wait that tells rows, processes and the last log lines if it is in vain.
    pub fn wait<'a>(&'a self, what: &'a str) -> Wait<'a> {
        wait(what).telling(|| self.describe())
    }

    /// The same with the usual deadline.
    #[track_caller]
    pub fn eventually<T: Outcome>(&self, what: &str, probe: impl FnMut() -> T) -> T::Value {
        self.wait(what).until(probe)
    }

    /// Waits until a task has come to a final state, and gives its row.
    #[track_caller]
    pub fn finished(&self, database: &Database, id: i64) -> Value {
        self.eventually("the task is finished", || database.finished(id))
    }

    /// Everything there is to be seen, for a message.
    pub fn describe(&self) -> String {
        let rows: String = self.databases.iter().map(|database| database.describe() + "\n").collect();
        let processes: String = self
            .children()
            .iter()
            .map(|child| {
                let zombie = if child.zombie { " (zombie)" } else { "" };
                format!("{} of {}: {}{zombie}\n", child.pid, child.parent, child.title)
            })
            .collect();
        let launcher = match self.exit_status() {
            Some(status) => format!("ended, {status}"),
            None => format!("pid {}", self.pid),
        };
        format!(
            "{rows}-- launcher {launcher}\n-- processes\n{processes}-- last lines of the log\n{}\n",
            self.log.tail(60)
        )
    }

    fn child_guard(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("-- log of the failed test's launcher\n{}", self.log.tail(60));
        }
        // a launcher that was killed and one that leaves children behind: both end here
        {
            let mut child = self.child_guard();
            let _ = child.kill();
            let _ = child.wait();
        }
        let gone = wait("its processes are gone").within(Duration::from_secs(5)).attempt(|| {
            let children = self.children();
            for child in children.iter().filter(|child| !child.zombie) {
                let _ = kill(Pid::from_raw(child.pid), Signal::SIGKILL);
            }
            children.is_empty()
        });
        if gone.is_none() {
            eprintln!("processes of a test's launcher are left: {:?}", self.children());
        }
        let guardian = self.guardian.get_mut().unwrap_or_else(PoisonError::into_inner);
        guardian.run("log=");
    }
}

/// Is this the line, in either form of the log? Programs of earlier commits, which benchmarks start, log `ready` alone.
fn says_ready(line: &str) -> bool {
    let forms = ["] launcher ready", r#""message":"launcher ready""#, "] ready", r#""message":"ready""#];
    forms.iter().any(|form| line.contains(form))
}

/// A process that has just gone is no error: tests race with ends all the time.
fn send(pid: i32, signal: Signal) {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => panic!("send {signal} to {pid}: {error}"),
    }
}
