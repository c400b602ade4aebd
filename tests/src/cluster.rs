//! A temporary PostgreSQL cluster: private socket folder, fsync off, gone when its
//! guardian sees the test process go.
//!
//! [`Cluster::shared`] is one per test binary, for tests that need a database only.
//! [`Cluster::start`] and [`Cluster::configure`] give a cluster of its own to a test
//! that restarts it, counts its connections or needs settings.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::{Client, Config, NoTls};

use crate::database::Database;
use crate::eventually::wait;
use crate::guardian::{Guardian, shell_quote};
use crate::process;
use crate::server_programs::{ServerUser, bin, make_data_folder};
use crate::small_disk::SmallDisk;

/// The superuser of every test cluster, trusted on the socket.
pub const SUPERUSER: &str = "postgres";

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Sessions are ended with a word (57P01), data is written.
    Fast,
    /// As in a crash; the next start recovers.
    Immediate,
}

/// Where a server is found.
#[derive(Debug, Clone)]
pub struct Server {
    /// The folder of its socket.
    pub socket_folder: PathBuf,
    pub port: u16,
}

impl Server {
    /// A session of the superuser; panics if there is none to be had.
    pub fn connect(&self, database: &str) -> Client {
        self.try_connect(SUPERUSER, database).unwrap_or_else(|error| panic!("connect to database {database}: {error}"))
    }

    /// A session over the socket, where everybody is trusted.
    pub fn try_connect(&self, user: &str, database: &str) -> Result<Client, postgres::Error> {
        Config::new()
            .host_path(&self.socket_folder)
            .port(self.port)
            .user(user)
            .dbname(database)
            .application_name("tests")
            .connect(NoTls)
    }

    /// Conninfo over the socket.
    pub fn conninfo(&self, user: &str) -> String {
        let host = self.socket_folder.to_string_lossy();
        format!("host={} port={} user={}", conninfo_quote(&host), self.port, conninfo_quote(user))
    }

    /// Conninfo over TCP, where a password is asked for by SCRAM (or as `hba` says).
    pub fn conninfo_tcp(&self, user: &str, password: &str) -> String {
        format!("host=127.0.0.1 port={} user={} password={}", self.port, conninfo_quote(user), conninfo_quote(password))
    }
}

/// A value of a conninfo string, quoted.
pub fn conninfo_quote(value: &str) -> String {
    format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
}

/// What a cluster of its own is to be like.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Options {
    tcp: bool,
    hba: Vec<String>,
    settings: Vec<(String, String)>,
    disk: Option<PathBuf>,
    wal_elsewhere: bool,
}

impl Options {
    /// The data folder is on this disk, the server's socket and log are not.
    pub fn on(mut self, disk: &SmallDisk) -> Self {
        self.disk = Some(disk.folder().to_owned());
        self
    }

    /// The write-ahead log is not on the disk of the data: a full one is an error (53100), and the server goes on.
    pub fn wal_elsewhere(mut self) -> Self {
        self.wal_elsewhere = true;
        self
    }

    /// Listens on 127.0.0.1 too.
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Listens on 127.0.0.1 if told so.
    pub(crate) fn tcp_if(mut self, tcp: bool) -> Self {
        self.tcp = tcp;
        self
    }

    /// Does it listen on 127.0.0.1?
    pub(crate) fn listens(&self) -> bool {
        self.tcp
    }

    /// A line for pg_hba.conf, before the usual ones (trust on the socket, SCRAM on TCP).
    pub fn hba(mut self, line: &str) -> Self {
        self.hba.push(line.to_owned());
        self
    }

    /// A setting for postgresql.conf, unquoted.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// 200 unless told.
    pub fn max_connections(self, count: u32) -> Self {
        self.setting("max_connections", &count.to_string())
    }

    /// Makes and starts it.
    pub fn start(self) -> Cluster {
        Cluster::with(&self)
    }
}

/// A running (or stopped) cluster.
#[derive(Debug)]
pub struct Cluster {
    server: Server,
    data: PathBuf,
    guardian: Mutex<Guardian>,
    /// Databases made so far: names are never used twice.
    databases: AtomicUsize,
}

impl Cluster {
    /// The cluster of this test binary, with TCP; never restart it.
    pub fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Cluster::configure().tcp().start())
    }

    /// A cluster of its own, as usual.
    pub fn start() -> Cluster {
        Cluster::configure().start()
    }

    /// A cluster of its own, unusual.
    pub fn configure() -> Options {
        Options::default()
    }

    fn with(options: &Options) -> Cluster {
        let user = ServerUser::find();
        let last_words = format!("{} || kill_postmaster", pg_ctl("stop", "-m immediate"));
        let mut guardian = Guardian::start(&user, &last_words);
        // if pg_ctl cannot (it is slow, or the pid file is damaged), the hard way
        guardian.run(r#"kill_postmaster() { [ -s "$home/data/postmaster.pid" ] && kill -9 "$(head -n 1 "$home/data/postmaster.pid")"; }"#);
        let home = guardian.home().to_owned();
        let data = home.join("data");
        match &options.disk {
            None => make_data_folder(&user, &data),
            Some(disk) => {
                make_data_folder(&user, &disk.join("data"));
                symlink(disk.join("data"), &data).expect("the data are on a disk of their own");
            }
        }
        if options.wal_elsewhere {
            let log = r#"mv "$home/data/pg_wal" "$home/pg_wal" && ln -s "$home/pg_wal" "$home/data/pg_wal""#;
            assert_eq!(guardian.run(log), 0, "the write-ahead log cannot be moved");
        }
        write_hba(&data, options);
        let template = fs::read_to_string(data.join("postgresql.conf")).expect("initdb's settings");
        // the port was free a moment ago; somebody else may have been quicker
        for attempt in 1.. {
            let port = free_port();
            let settings = settings(options, &home, port);
            fs::write(data.join("postgresql.conf"), template.clone() + &settings).expect("write settings");
            if guardian.run(&pg_ctl("start", "")) == 0 {
                return Cluster {
                    server: Server { socket_folder: home, port },
                    data,
                    guardian: Mutex::new(guardian),
                    databases: AtomicUsize::new(0),
                };
            }
            let log = fs::read_to_string(home.join("server.log")).unwrap_or_default();
            let taken = log.contains("Address already in use");
            assert!(taken && attempt < 5, "the test cluster does not start:\n{log}");
        }
        unreachable!("the loop returns or panics")
    }

    /// A stand-by of a running cluster, with a port of its own; it follows until it is promoted.
    pub fn standby_of(primary: &Cluster, tcp: bool) -> Cluster {
        let user = ServerUser::find();
        let last_words = format!("{} || kill_postmaster", pg_ctl("stop", "-m immediate"));
        let mut guardian = Guardian::start(&user, &last_words);
        guardian.run(r#"kill_postmaster() { [ -s "$home/data/postmaster.pid" ] && kill -9 "$(head -n 1 "$home/data/postmaster.pid")"; }"#);
        let home = guardian.home().to_owned();
        let standby = Cluster {
            server: Server { socket_folder: home.clone(), port: free_port() },
            data: home.join("data"),
            guardian: Mutex::new(guardian),
            databases: AtomicUsize::new(0),
        };
        standby.follow(primary, &Options { tcp, ..Options::default() });
        standby
    }

    /// Fills its empty folder with a base backup of another cluster and starts it as a stand-by of that one.
    pub(crate) fn follow(&self, primary: &Cluster, options: &Options) {
        let program = shell_quote(&bin().join("pg_basebackup").to_string_lossy());
        let from = shell_quote(&primary.home().to_string_lossy());
        let backup = format!(
            r#"{program} -D "$home/data" -R -X stream -c fast -h {from} -p {} -U {SUPERUSER} >"$home/backup.log" 2>&1"#,
            primary.server.port
        );
        let status = self.guard().run(&backup);
        let log = || fs::read_to_string(self.home().join("backup.log")).unwrap_or_default();
        assert_eq!(status, 0, "no base backup:\n{}", log());
        self.append_settings(&settings(options, self.home(), self.server.port));
        self.start_again();
    }

    /// Removes the data of a server that is stopped.
    pub(crate) fn remove_data(&self) {
        assert_eq!(self.postmaster(), None, "the server of this data folder is running");
        assert_eq!(self.guard().run(r#"rm -rf "$home/data""#), 0, "cannot remove the data folder");
    }

    /// Lines for the end of postgresql.conf, where the last one of a name counts. [`Self::reload`] makes a running server read them.
    pub(crate) fn append_settings(&self, lines: &str) {
        let path = self.data.join("postgresql.conf");
        let before = fs::read_to_string(&path).expect("the settings of the server");
        fs::write(path, before + lines).expect("write settings");
    }

    /// Does it listen on 127.0.0.1?
    pub(crate) fn listens(&self) -> bool {
        let text = fs::read_to_string(self.data.join("postgresql.conf")).unwrap_or_default();
        text.lines().rfind(|line| line.starts_with("listen_addresses")).is_some_and(|line| line.contains("127.0.0.1"))
    }

    /// Lets a running server read its settings.
    pub fn reload(&self) {
        self.pg_ctl("reload", "");
    }

    /// Ends all processes of the server at once, as the loss of its machine would: no backend reacts to the end of another.
    pub fn kill9(&self) {
        let postmaster = self.postmaster().expect("the server is running");
        let tell = |pid: i32, signal: Signal| match kill(Pid::from_raw(pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => panic!("send {signal} to {pid}: {error}"),
        };
        // a postmaster that stands still neither forks nor sees its children end
        tell(postmaster, Signal::SIGSTOP);
        let mut pids: Vec<i32> =
            process::all().into_iter().filter(|one| one.parent == postmaster).map(|one| one.pid).collect();
        pids.push(postmaster);
        pids.iter().for_each(|pid| tell(*pid, Signal::SIGKILL));
        wait("the server's processes are gone").until(|| !pids.iter().any(|pid| process::is_alive(*pid)));
        // the number in these files may be another process's by the time of the next start
        self.guard().run(r#"rm -f "$home/data/postmaster.pid" "$home"/.s.PGSQL.*"#);
    }

    /// Makes a stand-by a server of its own.
    pub fn promote(&self) {
        self.pg_ctl("promote", "");
    }

    /// Puts other lines into pg_hba.conf, before the usual ones, and lets the server read them.
    pub fn set_hba(&self, lines: &[&str]) {
        let hba = lines.iter().map(|line| (*line).to_owned()).collect();
        write_hba(&self.data, &Options { hba, ..Options::default() });
        self.pg_ctl("reload", "");
    }

    /// Where it is found.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A session of the superuser.
    pub fn connect(&self, database: &str) -> Client {
        self.server.connect(database)
    }

    /// A fresh database for one test, owned by a role without special rights, and a
    /// login for the launcher that is a member of that role.
    pub fn database(&self) -> Database {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        Database::make(&self.server, &format!("t{number}"), &format!("t{number}_owner"))
    }

    /// The same under names of the test's choice (quotes, blanks, upper case).
    pub fn database_named(&self, name: &str, owner: &str) -> Database {
        Database::make(&self.server, name, owner)
    }

    /// Pid of the postmaster; `None` while it is stopped.
    pub fn postmaster(&self) -> Option<i32> {
        let file = fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }

    /// Stops the server; the data stays.
    pub fn stop(&self, mode: ShutdownMode) {
        let mode = match mode {
            ShutdownMode::Fast => "-m fast",
            ShutdownMode::Immediate => "-m immediate",
        };
        self.pg_ctl("stop", mode);
    }

    /// Has the server ended, by itself too?
    pub fn is_down(&self) -> bool {
        self.postmaster().is_none_or(|pid| process::find(pid).is_none_or(|found| found.zombie))
    }

    /// Starts it after a stop.
    pub fn start_again(&self) {
        self.pg_ctl("start", "");
    }

    /// Stop and start.
    pub fn restart(&self, mode: ShutdownMode) {
        self.stop(mode);
        self.start_again();
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.server.socket_folder.join("server.log")).unwrap_or_default()
    }

    /// The folder of everything: socket, data, log.
    pub fn home(&self) -> &Path {
        &self.server.socket_folder
    }

    /// Pid of the process that cleans up.
    pub fn guardian(&self) -> u32 {
        self.guard().pid()
    }

    fn pg_ctl(&self, verb: &str, more: &str) {
        let status = self.guard().run(&pg_ctl(verb, more));
        assert_eq!(status, 0, "pg_ctl {verb} {more} failed:\n{}", self.log());
    }

    fn guard(&self) -> MutexGuard<'_, Guardian> {
        self.guardian.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line for the guardian's shell.
fn pg_ctl(verb: &str, more: &str) -> String {
    let program = shell_quote(&bin().join("pg_ctl").to_string_lossy());
    format!(
        r#"{program} {verb} {more} -w -t 60 -s -D "$home/data" -l "$home/server.log" </dev/null >>"$home/pg_ctl.log" 2>&1"#
    )
}

fn write_hba(data: &Path, options: &Options) {
    let mut lines = options.hba.clone();
    lines.extend(
        [
            "local all,replication all trust",
            "host all,replication all 127.0.0.1/32 scram-sha-256",
            "host all,replication all ::1/128 scram-sha-256",
        ]
        .map(str::to_owned),
    );
    fs::write(data.join("pg_hba.conf"), lines.join("\n") + "\n").expect("write pg_hba.conf");
}

fn settings(options: &Options, home: &Path, port: u16) -> String {
    let home = home.display();
    let listen = if options.tcp { "127.0.0.1" } else { "" };
    let mut text = format!(
        "
listen_addresses = '{listen}'
port = {port}
unix_socket_directories = '{home}'
fsync = off
full_page_writes = off
max_connections = 200
shared_buffers = 32MB
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d %a '
"
    );
    for (name, value) in &options.settings {
        text += &format!("{name} = '{}'\n", value.replace('\'', "''"));
    }
    text
}

/// A port nobody listens on. Clusters without TCP have one too: it names the socket, and
/// a program that only guesses 5432 finds nothing.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a free port").port()
}
