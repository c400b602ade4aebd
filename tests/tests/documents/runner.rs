//! Runs the blocks of one document. They share a server, a folder and a launcher.
//!
//! `sql run` goes to psql, `console run` to a shell, `json file=NAME` into the folder. The words of an info string:
//!
//! - `as=ROLE`, `db=DATABASE`: who runs the SQL and where (the user of the queue in its database unless told);
//! - `until`: the block is repeated until it prints what the document shows;
//! - `vary=WORD`: in lines of the output that begin with this word every number may differ;
//! - `launcher`: the only command of the block starts the launcher; the shown output is its log.
//!
//! With PGMILL_SHOW_BLOCKS=1 the output of every block is printed, for the authors of documents (`-- --nocapture`).
//!
//! The block that follows a `sql run` block with `text output` is its output. In a `console run` block the output
//! is under each command.

use std::cell::RefCell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tests::cluster::conninfo_quote;
use tests::server_programs::bin;
use tests::{Cluster, Supervisor, binary, wait};

use crate::block::Block;
use crate::output::is_alike;

const REPEAT_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Runner {
    /// Before the cluster: fields are dropped in order.
    launcher: Option<Supervisor<'static>>,
    cluster: Option<Cluster>,
    folder: PathBuf,
    user: String,
    database: String,
    environment: Vec<(String, String)>,
    /// Texts of the document, and what replaces them here.
    names: Vec<(String, String)>,
    /// Blocks that did not do what the document shows.
    failures: RefCell<Vec<String>>,
}

impl Runner {
    /// As after `scripts/run`: the launcher's own server in `./mill-data`.
    pub fn embedded() -> Runner {
        let launcher = Supervisor::bare().embedded().start();
        let folder = launcher.home().to_owned();
        let socket = launcher.embedded_folder().display().to_string();
        let mut runner = Runner::new(folder.clone(), "postgres", "postgres");
        runner
            .environment
            .extend([("PGHOST".to_owned(), socket), ("RUNTIME_DIRECTORY".to_owned(), folder.display().to_string())]);
        runner.launcher = Some(launcher);
        runner
    }

    /// An empty server.
    pub fn server() -> Runner {
        let cluster = Cluster::configure().tcp().start();
        let folder = cluster.home().join("work");
        std::fs::create_dir(&folder).expect("make the folder of the document");
        let mut runner = Runner::new(folder.clone(), "app_tasks", "app");
        let (home, port) = (cluster.home().display().to_string(), cluster.server().port.to_string());
        runner.environment.extend([
            ("HOME".to_owned(), folder.display().to_string()),
            ("RUNTIME_DIRECTORY".to_owned(), folder.display().to_string()),
            ("PGHOST".to_owned(), home),
            ("PGPORT".to_owned(), port.clone()),
        ]);
        runner.names.extend([
            ("host=db.example port=5432".to_owned(), format!("host=127.0.0.1 port={port}")),
            ("db.example:5432".to_owned(), format!("127.0.0.1:{port}")),
        ]);
        runner.cluster = Some(cluster);
        runner
    }

    /// A server with the roles of docs/install.md, and a launcher that serves the database `app`.
    pub fn served() -> Runner {
        let mut runner = Runner::configured();
        runner.start_launcher(&["--config".to_owned(), "mill.json".to_owned()]);
        runner
    }

    /// The same without a launcher.
    pub fn configured() -> Runner {
        let runner = Runner::prepared();
        let connect = runner.cluster().server().conninfo("mill");
        let config = json!({
            "connect": connect, "max_workers": 16, "json": [{"data": "app", "user": "app_tasks"}],
        });
        std::fs::write(runner.folder.join("mill.json"), config.to_string()).expect("write the config");
        runner
    }

    /// The same roles and database; the document brings the config.
    pub fn prepared() -> Runner {
        let runner = Runner::server();
        for statement in [
            "CREATE ROLE app_tasks LOGIN",
            "CREATE ROLE mill LOGIN",
            "GRANT app_tasks TO mill",
            "CREATE DATABASE app OWNER app_tasks",
        ] {
            runner.administer("postgres", statement);
        }
        runner
    }

    /// A statement of the superuser, outside of the document.
    pub fn administer(&self, database: &str, statement: &str) {
        let mut superuser = self.cluster().connect(database);
        superuser.batch_execute(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    fn new(folder: PathBuf, user: &str, database: &str) -> Runner {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("the name of this host");
        Runner {
            launcher: None,
            cluster: None,
            folder,
            user: user.to_owned(),
            database: database.to_owned(),
            environment: Vec::new(),
            failures: RefCell::default(),
            names: vec![(" on web1 ".to_owned(), format!(" on {} ", host.trim()))],
        }
    }

    /// A text of the document, and what replaces it here.
    pub fn with(mut self, shown: &str, here: &str) -> Runner {
        // longer names first: one may contain another
        self.names.insert(0, (shown.to_owned(), here.to_owned()));
        self
    }

    /// A copy of a file of the repository, under the same path.
    pub fn file(self, path: &str) -> Runner {
        let target = self.folder.join(path);
        std::fs::create_dir_all(target.parent().expect("a folder")).expect("make a folder");
        std::fs::copy(crate::top().join(path), target).unwrap_or_else(|error| panic!("{path}: {error}"));
        self
    }

    /// A statement before the document begins, as psql runs it.
    pub fn shell_sql(&self, statement: &str) {
        let (succeeded, output) = self.shell(&psql(&self.user, &self.database), statement);
        assert!(succeeded, "{statement}: {output}");
    }

    /// The lines of a query's answer, once the launcher has created what it reads.
    pub fn ask(&self, sql: &str) -> Vec<String> {
        let command = psql(&self.user, &self.database).replace("psql ", "psql -A -t ");
        let answer = wait("the query succeeds").within(REPEAT_TIMEOUT).attempt(|| {
            let (_, output) = self.shell(&command, sql);
            (!output.starts_with("ERROR:")).then_some(output)
        });
        answer.unwrap_or_else(|| panic!("{sql} fails")).lines().map(str::to_owned).collect()
    }

    /// Shell commands run in a subfolder; the config is one level up.
    pub fn at(mut self, folder: &str) -> Runner {
        std::fs::create_dir_all(self.folder.join(folder)).expect("make a folder");
        self.names.push(("--config mill.json".to_owned(), format!("--config {}/mill.json", self.folder.display())));
        self.folder = self.folder.join(folder);
        self
    }

    /// The conninfo of this server without a user, for [`Runner::with`].
    pub fn socket(&self) -> String {
        let server = self.cluster().server();
        format!("host={} port={}", conninfo_quote(&server.socket_folder.to_string_lossy()), server.port)
    }

    fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("a runner with a server")
    }

    fn start_launcher(&mut self, arguments: &[String]) {
        assert!(self.launcher.is_none(), "the launcher is running already");
        let mut launch = Supervisor::bare().without_config();
        for argument in arguments {
            // its own folder is another one
            let path = self.folder.join(argument);
            launch = launch.arg(if path.exists() { path.to_str().expect("a path") } else { argument });
        }
        for (name, value) in &self.environment {
            if name == "HOME" || name == "RUNTIME_DIRECTORY" {
                launch = launch.env(name, value);
            }
        }
        self.launcher = Some(launch.start());
    }

    /// Runs every block of the document that is to be run, in order.
    pub fn run(mut self, blocks: &[Block]) {
        for (index, block) in blocks.iter().enumerate() {
            if let Some(name) = block.value("file") {
                let file = self.folder.join(name);
                std::fs::write(&file, self.here(&block.text)).expect("write a file of the document");
                // libpq uses no password file that others may read
                std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("mode of a file");
            }
            if !block.has("run") {
                continue;
            }
            match block.language.as_str() {
                "sql" => {
                    let output = blocks.get(index + 1).filter(|next| next.has("output"));
                    self.run_sql(block, output.map(|output| output.text.as_str()));
                }
                "console" => self.run_console(block),
                other => panic!("{block}: a block of `{other}` cannot be run"),
            }
        }
        let failures = self.failures.borrow();
        let launcher = self.launcher.as_ref().map(Supervisor::describe).unwrap_or_default();
        assert!(failures.is_empty(), "{} blocks differ\n\n{}\n{launcher}", failures.len(), failures.join("\n"));
    }

    fn run_sql(&self, block: &Block, shown: Option<&str>) {
        let user = block.value("as").unwrap_or(&self.user);
        let database = block.value("db").unwrap_or(&self.database);
        // a block that is repeated starts many programs, and what it waits for takes a moment
        let pause = if block.has("until") { "sleep 0.1; " } else { "" };
        let psql = format!("{pause}{}", psql(user, database));
        let sql = self.here(&block.text);
        self.compare(block, shown, || self.shell(&psql, &sql));
    }

    fn run_console(&mut self, block: &Block) {
        for (command, shown) in commands(&block.text) {
            if block.has("launcher") {
                let mut words = command.split_whitespace().map(str::to_owned);
                assert_eq!(words.next().as_deref(), Some("launcher"), "{block}");
                self.start_launcher(&words.collect::<Vec<_>>());
                let log = self.launcher.as_ref().expect("just started").log().clone();
                self.compare(block, shown.as_deref(), || (true, log.tail(usize::MAX)));
            } else {
                let command = format!("{{ {}\n}} 2>&1", self.here(&command));
                self.compare(block, shown.as_deref(), || self.shell(&command, ""));
            }
        }
    }

    /// Runs the block, again and again if it is to be repeated, and compares.
    fn compare(&self, block: &Block, shown: Option<&str>, run: impl Fn() -> (bool, String)) {
        let shown = shown.map(|shown| self.here(shown));
        let timeout = if block.has("until") || block.has("launcher") { REPEAT_TIMEOUT } else { Duration::ZERO };
        let mut last = String::new();
        let done = wait("the output is as shown").within(timeout).attempt(|| {
            let (succeeded, real) = run();
            let good = match &shown {
                Some(shown) => is_alike(shown, &real, block.value("vary")),
                None => succeeded && !real.lines().any(|line| line.starts_with("ERROR:")),
            };
            last = real;
            good
        });
        if std::env::var_os("PGMILL_SHOW_BLOCKS").is_some() {
            eprintln!("== {block}: {}\n{last}", block.first_line());
        }
        if done.is_none() {
            let shown = shown.unwrap_or_else(|| "(success)\n".to_owned());
            let first = block.first_line();
            let failure = format!("== {block}: {first}\n-- the document shows\n{shown}-- it prints\n{last}");
            self.failures.borrow_mut().push(failure);
        }
    }

    fn shell(&self, command: &str, input: &str) -> (bool, String) {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{path}", binary::launcher().parent().expect("a folder").display(), bin().display());
        let mut shell = Command::new("sh");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PG")) {
            shell.env_remove(name);
        }
        shell.args(["-c", command]).current_dir(&self.folder).env("PATH", path);
        shell.envs(self.environment.iter().map(|(name, value)| (name, value)));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = shell.spawn().expect("start a shell");
        let mut stdin = child.stdin.take().expect("a pipe");
        // a command that reads nothing may close it
        let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("wait for the shell");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A text of the document with the names of this run.
    fn here(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (shown, here)| text.replace(shown, here))
    }
}

/// A command for the shell that reads SQL.
fn psql(user: &str, database: &str) -> String {
    format!("psql -X -q -P pager=off -P footer=off -U '{user}' -d '{database}' 2>&1")
}

/// The commands of a console block, each with the output that stands under it.
fn commands(text: &str) -> Vec<(String, Option<String>)> {
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push((command.to_owned(), None));
        } else {
            let (command, output) = found.last_mut().unwrap_or_else(|| panic!("a command is expected: {line}"));
            if goes_on {
                command.push('\n');
                command.push_str(line);
            } else {
                let output = output.get_or_insert_default();
                output.push_str(line);
                output.push('\n');
                continue;
            }
        }
        goes_on = line.ends_with('\\');
    }
    found
}

#[test]
fn a_command_goes_on_behind_a_backslash_and_output_follows() {
    let found = commands("$ a\n1\n2\n$ b \\\n  c\n$ d\n");
    let texts: Vec<_> = found.iter().map(|(command, output)| (command.as_str(), output.as_deref())).collect();
    assert_eq!(texts, [("a", Some("1\n2\n")), ("b \\\n  c", None), ("d", None)]);
}
