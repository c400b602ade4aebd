//! How a launcher under test is started: its config, its environment, its terminal.
//!
//! Begun by `Supervisor::of` or `Supervisor::bare`, ended by [`Launch::start`] or
//! [`Launch::launch`]. Every launcher has a folder of its own with config and control
//! socket, and a guardian that ends what is left of it when the test process is gone.

use std::fs::{self, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde_json::{Map, Value, json};

use crate::binary;
use crate::database::Database;
use crate::guardian::{Guardian, shell_quote};
use crate::log::Log;
use crate::server_programs::ServerUser;
use crate::supervisor::Supervisor;
use crate::terminal::Terminal;

/// The folder of `--embedded`, in the home of its supervisor.
pub(crate) const EMBEDDED_FOLDER: &str = "mill-data";

/// What the guardian does when the test is gone: everybody who holds the log's pipe as
/// stderr is one of ours and ends (again, if one was just being born); then a server
/// that the launcher may have made for itself.
const LAST_WORDS: &str = r#"
found=$log
while [ -n "$found" ]; do
    found=
    for link in /proc/[0-9]*/fd/2; do
        if [ "$(readlink "$link")" = "$log" ]; then
            pid=${link#/proc/}
            kill -9 "${pid%%/*}" && found=yes
        fi
    done
done
for file in "$home"/*/postmaster.pid "$home"/*/*/postmaster.pid; do
    [ -s "$file" ] && kill -QUIT "$(head -n 1 "$file")"
done
"#;

/// PGMILL_LEND and PGMILL_BATCH, on or off: every queue so; for running the same tests in each of these ways.
fn asked_for(variable: &str) -> Option<bool> {
    match std::env::var(variable).as_deref() {
        Ok("on") => Some(true),
        Ok("off") => Some(false),
        _ => None,
    }
}

#[derive(Default)]
enum ConfigFile {
    #[default]
    Object,
    Text(String),
    None,
}

/// What becomes of the log.
#[derive(Default)]
enum LogReader {
    #[default]
    Reading,
    /// There, and reads nothing.
    Stalled,
    /// Gone: the pipe is closed.
    Closed,
}

/// How a supervisor is to be started.
#[derive(Default)]
#[must_use]
pub struct Launch<'d> {
    databases: Vec<&'d Database>,
    keys: Map<String, Value>,
    queues: Vec<Value>,
    file: ConfigFile,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    embedded: bool,
    terminal: bool,
    namespace: Option<String>,
    wrapper: Vec<String>,
    user: Option<u32>,
    reader: LogReader,
    program: Option<PathBuf>,
}

impl std::fmt::Debug for Launch<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Launch({:?}, {:?})", self.keys, self.queues)
    }
}

impl<'d> Launch<'d> {
    /// Serves one more database, and prints its tasks when a wait is in vain.
    pub fn and(mut self, database: &'d Database) -> Self {
        self.databases.push(database);
        let mut queue = json!({"data": database.name(), "user": database.owner()});
        for (variable, key) in [("PGMILL_LEND", "pool"), ("PGMILL_BATCH", "batch")] {
            if let Some(asked) = asked_for(variable) {
                queue[key] = asked.into();
            }
        }
        self.queues.push(queue);
        self
    }

    /// A key of the config object, such as `max_workers`.
    pub fn key(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.keys.insert(name.to_owned(), value.into());
        self
    }

    /// A key of every queue of the config so far, such as `sleep` or `schema`.
    pub fn queue_key(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        for queue in &mut self.queues {
            queue[name] = value.clone();
        }
        self
    }

    /// One more queue of the config.
    pub fn queue(mut self, queue: Value) -> Self {
        self.queues.push(queue);
        self
    }

    /// This config file, to the letter, instead of a generated one.
    pub fn config_text(mut self, text: &str) -> Self {
        self.file = ConfigFile::Text(text.to_owned());
        self
    }

    /// No config file: the first database's server and login by the PG* environment.
    pub fn without_config(mut self) -> Self {
        self.file = ConfigFile::None;
        self
    }

    /// `--embedded`: a server of its own, in [`Supervisor::embedded_folder`].
    pub fn embedded(mut self) -> Self {
        self.file = ConfigFile::None;
        self.embedded = true;
        self
    }

    /// A fault point, as in `worker.before_accept:hang`; several are joined.
    pub fn fault(mut self, point: &str) -> Self {
        match self.environment.iter_mut().find(|(name, _)| name == "PGMILL_FAULT") {
            Some((_, points)) => *points += &format!(",{point}"),
            None => self.environment.push(("PGMILL_FAULT".into(), point.into())),
        }
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Another binary than the usual one.
    pub fn program(mut self, program: PathBuf) -> Self {
        self.program = Some(program);
        self
    }

    /// On a host of its own: in a network namespace that the test has made.
    pub fn in_namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self
    }

    /// Started by another program, which becomes it: `["prlimit", "--nofile=20:20"]`.
    pub fn wrapped(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// As another user, to whom its folder belongs then; only root can start it so.
    pub fn as_user(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }

    /// On a terminal of its own, for [`Supervisor::press_ctrl_c`].
    pub fn in_terminal(mut self) -> Self {
        self.terminal = true;
        self
    }

    /// Nobody reads its log until [`Supervisor::read_log`]; then use [`Launch::launch`].
    pub fn stalled_log(mut self) -> Self {
        self.reader = LogReader::Stalled;
        self
    }

    /// The pipe of its log is closed on the other side; use [`Launch::launch`].
    pub fn closed_log(mut self) -> Self {
        self.reader = LogReader::Closed;
        self
    }

    /// Starts it and waits until it says that it is ready.
    pub fn start(self) -> Supervisor<'d> {
        let supervisor = self.launch();
        supervisor.wait_ready();
        supervisor
    }

    /// Starts it, and does not wait for anything.
    pub fn launch(self) -> Supervisor<'d> {
        let faulty = self.environment.iter().any(|(name, _)| name == "PGMILL_FAULT");
        let usual = if faulty { binary::launcher_with_faults() } else { binary::launcher() };
        let program = self.program.clone().unwrap_or_else(|| usual.to_owned());
        let mut guardian = Guardian::start(&ServerUser::own_self(), LAST_WORDS);
        let home = guardian.home().to_owned();
        let config = self.write_config(&home);
        let program =
            self.user.map_or_else(|| program.clone(), |uid| give_away(&home, config.as_deref(), &program, uid));
        let program = program.as_path();

        let (terminal, mut command) = if self.terminal {
            let (terminal, command) = Terminal::open(program);
            (Some(terminal), command)
        } else {
            let mut command = match &self.namespace {
                // becomes the launcher: the pid stays
                Some(name) => {
                    let mut command = Command::new("ip");
                    command.args(["netns", "exec", name]).arg(program);
                    command
                }
                None => self.wrap(program),
            };
            // a Ctrl-C meant for the tests is none for it
            command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
            (None, command)
        };
        let environment = self.environment(&home);
        set_environment(&mut command, &environment);
        if let Some(config) = &config {
            command.arg("--config").arg(config);
        }
        if self.embedded {
            command.arg("--embedded").arg(home.join(EMBEDDED_FOLDER));
        }
        command.args(&self.arguments).current_dir(&home).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start the launcher");
        // closes our copies of the terminal, so that its end can be seen
        drop(command);

        let stderr = child.stderr.take().expect("the log is piped");
        let link = fs::read_link(format!("/proc/self/fd/{}", stderr.as_raw_fd()));
        let link = link.expect("our end of the log").to_string_lossy().into_owned();
        guardian.run(&format!("log={}", shell_quote(&link)));
        let log = Log::default();
        let unread = match self.reader {
            LogReader::Reading => {
                log.feed(stderr);
                None
            }
            LogReader::Stalled => Some(stderr),
            LogReader::Closed => None,
        };
        Supervisor {
            pid: i32::try_from(child.id()).expect("a pid is an int"),
            child: Mutex::new(child),
            program: program.to_owned(),
            home,
            config,
            environment,
            stderr: link,
            log,
            unread: Mutex::new(unread),
            terminal: Mutex::new(terminal),
            databases: self.databases,
            guardian: Mutex::new(guardian),
        }
    }

    /// The command that becomes the launcher.
    fn wrap(&self, program: &Path) -> Command {
        let mut words = self.wrapper.clone();
        if let Some(uid) = self.user {
            words.extend([
                "setpriv".to_owned(),
                format!("--reuid={uid}"),
                format!("--regid={uid}"),
                "--clear-groups".to_owned(),
            ]);
        }
        let mut words = words.into_iter();
        match words.next() {
            None => Command::new(program),
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(program);
                command
            }
        }
    }

    fn write_config(&self, home: &Path) -> Option<PathBuf> {
        let text = match &self.file {
            ConfigFile::None => return None,
            ConfigFile::Text(text) => text.clone(),
            ConfigFile::Object => {
                let mut object = Map::new();
                let name = home.file_name().map(|name| name.to_string_lossy().into_owned());
                object.insert("name".into(), json!(name));
                object.insert("control".into(), json!("mill.sock"));
                if let Some(first) = self.databases.first() {
                    let connect = first.server().conninfo(first.login());
                    object.insert("connect".into(), json!(connect));
                }
                object.insert("json".into(), json!(self.queues));
                object.extend(self.keys.clone());
                serde_json::to_string_pretty(&object).expect("JSON")
            }
        };
        let path = home.join("mill.json");
        write_private(&path, &text);
        Some(path)
    }

    fn environment(&self, home: &Path) -> Vec<(String, String)> {
        let folder = home.to_string_lossy().into_owned();
        // no password file of the person who runs the tests, and a control socket here
        let mut environment = vec![("HOME".to_owned(), folder.clone())];
        if matches!(self.file, ConfigFile::None) {
            environment.push(("RUNTIME_DIRECTORY".to_owned(), folder));
            if let Some(first) = self.databases.first() {
                let server = first.server();
                let socket_folder = server.socket_folder.to_string_lossy().into_owned();
                environment.push(("PGHOST".to_owned(), socket_folder));
                environment.push(("PGPORT".to_owned(), server.port.to_string()));
                environment.push(("PGUSER".to_owned(), first.login().to_owned()));
            }
        }
        environment.extend(self.environment.iter().cloned());
        environment
    }
}

/// Folder and config for another user, with a copy of the program, which that user may not reach where it was built.
fn give_away(home: &Path, config: Option<&Path>, program: &Path, uid: u32) -> PathBuf {
    let copy = home.join("launcher");
    fs::copy(program, &copy).expect("copy the program");
    for path in [Some(home), config, Some(copy.as_path())].into_iter().flatten() {
        std::os::unix::fs::chown(path, Some(uid), Some(uid)).expect("give a file away");
    }
    copy
}

/// Nothing of what the person who runs the tests has set for PostgreSQL or for us.
pub(crate) fn set_environment(command: &mut Command, environment: &[(String, String)]) {
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if shown.starts_with("PG") || shown == "RUNTIME_DIRECTORY" {
            command.env_remove(&name);
        }
    }
    command.envs(environment.iter().cloned());
}

pub(crate) fn write_private(path: &Path, text: &str) {
    fs::write(path, text).expect("write a config file");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("mode of a config file");
}
