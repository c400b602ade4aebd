//! A guardian: a shell that owns a temporary folder and outlives the test process.
//!
//! It runs the commands it is sent, one after the other, and when its pipe closes, by a
//! drop or because the test process is gone (kill -9 included), it speaks its last
//! words, which end what lives in the folder, and removes the folder. Statics are never
//! dropped, and a parent-death signal follows the thread that spawned: the pipe is
//! the one thing that always tells. Called by `cluster` and `supervisor`.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::server_programs::ServerUser;

/// SIGPIPE is ignored: an answer to a test that died must not end the guardian too.
/// The folder may still be written to for a moment by those who were just killed.
const SCRIPT: &str = r#"
trap '' PIPE
home=$1
while IFS= read -r line; do
    eval "$line"
    echo "$?" 2>/dev/null
done
eval "$2"
tries=0
while rm -rf "$home" 2>/dev/null; [ -e "$home" ] && [ "$tries" -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
"#;

/// A folder and the process that will remove it.
#[derive(Debug)]
pub struct Guardian {
    home: PathBuf,
    shell: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Guardian {
    /// Makes a new folder and its guardian. `last_words` is shell; `$home` is the folder.
    pub fn start(user: &ServerUser, last_words: &str) -> Guardian {
        let home = new_folder();
        // the server's user and ours both walk in, whatever the umask
        fs::set_permissions(&home, Permissions::from_mode(0o755)).expect("mode of a new folder");
        user.own(&home);
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT, "guardian"])
            .arg(&home)
            .arg(last_words)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // a Ctrl-C meant for the tests must not end the one who cleans up after them
            .process_group(0);
        user.become_it(&mut command);
        let mut shell = command.spawn().expect("start a guardian (sh)");
        let commands = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("guardian's stdout is piped"));
        Guardian { home, shell, commands, answers }
    }

    /// The folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The guardian's own pid.
    pub fn pid(&self) -> u32 {
        self.shell.id()
    }

    /// Runs one line of shell and gives its exit status. Because commands and last
    /// words are one queue, a server that is just being started is stopped as well.
    pub fn run(&mut self, line: &str) -> i32 {
        assert!(!line.contains('\n'), "one line at a time: {line:?}");
        let commands = self.commands.as_mut().expect("guardian is still there");
        writeln!(commands, "{line}").expect("write to the guardian");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("read the guardian's answer");
        answer.trim().parse().unwrap_or_else(|_| panic!("guardian answered {answer:?} to {line:?}"))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.shell.wait();
    }
}

/// A folder nobody has, with a short path: a socket's path has at most 107 bytes.
fn new_folder() -> PathBuf {
    let temp = std::env::temp_dir();
    // root's TMPDIR is often closed to the user that runs the server
    let fits = temp.as_os_str().len() <= 40 && !nix::unistd::geteuid().is_root();
    let base = if fits { temp } else { PathBuf::from("/tmp") };
    loop {
        let folder = base.join(format!("pgmill-{:08x}", rand::random::<u32>()));
        match fs::create_dir(&folder) {
            Ok(()) => return folder,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("make the folder {}: {error}", folder.display()),
        }
    }
}

/// A word of shell, quoted.
pub fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
