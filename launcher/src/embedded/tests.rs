//! A private server on real PostgreSQL programs: made, adopted, restarted, refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use super::programs::{ProgramSearch, Programs};
use super::{Embedded, EmbeddedError, ServerEvent, StopMode};

/// A folder that any user may pass, removed at the end together with a server left in it.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn make(name: &str) -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/tmp/pgmill-{name}-{}-{number}", Pid::this()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The DIR of a server in it.
    fn dir(&self) -> PathBuf {
        self.0.join("server")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Ok(text) = fs::read_to_string(self.dir().join("data/postmaster.pid")) {
            let pid: Option<i32> = text.lines().next().and_then(|line| line.parse().ok());
            let cwd = pid.and_then(|pid| fs::read_link(format!("/proc/{pid}/cwd")).ok());
            if let (Some(pid), Some(cwd)) = (pid, cwd)
                && cwd == self.dir().join("data")
            {
                let _gone = kill(Pid::from_raw(pid), Signal::SIGQUIT);
                eventually("the server of a failed test ends", || !is_there(pid));
            }
        }
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// Makes a program. Another process writes it: a descriptor of ours could slip into a child that
/// another test is just forking, and a file open for writing cannot be run.
pub fn write_script(path: &Path, text: &str) {
    let status = Command::new("sh")
        .args(["-c", "printf %s \"$2\" > \"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .arg(text)
        .status()
        .unwrap();
    assert!(status.success());
}

fn is_there(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The only place that sleeps.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn stop(embedded: &mut Embedded) {
    embedded.stop(StopMode::Fast);
    eventually("the server has stopped", || embedded.stopped());
}

fn accepts(dir: &Path) -> bool {
    UnixStream::connect(dir.join(".s.PGSQL.5432")).is_ok()
}

fn ask(embedded: &Embedded, sql: &str) -> String {
    let psql = embedded.programs.postgres.with_file_name("psql");
    let output = Command::new(psql)
        .args(["-X", "-A", "-t", "-c", sql])
        .arg(embedded.conninfo())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{sql}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn refusal(dir: &Path) -> String {
    Embedded::start(dir).unwrap_err().to_string()
}

#[test]
fn a_server_is_made_started_asked_and_stopped_and_starts_again() {
    let temp = TempDir::make("made");
    let dir = temp.dir();
    let mut embedded = Embedded::start(&dir).unwrap();
    assert!(!embedded.adopted());
    assert_eq!(embedded.check(Instant::now()), None);
    let settings = "select concat_ws(' ', current_user, current_database(), \
         '<' || current_setting('listen_addresses') || '>', \
         current_setting('max_connections'), current_setting('server_encoding'), \
         current_setting('logging_collector'))";
    assert_eq!(ask(&embedded, settings), "postgres postgres <> 100 UTF8 off");

    assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
    assert_ne!(fs::metadata(&dir).unwrap().uid(), 0);
    assert!(!dir.join("data.new").exists());
    let pid = embedded.pid().unwrap();
    assert_eq!(nix::unistd::getpgid(Some(pid)), Ok(pid));
    stop(&mut embedded);
    assert!(!accepts(&dir));
    assert_eq!(embedded.check(Instant::now()), None);

    let mut embedded = Embedded::start(&dir).unwrap();
    assert!(!embedded.adopted());
    stop(&mut embedded);
}

#[test]
fn a_live_server_is_adopted_by_the_next_start_and_stopped_by_it() {
    let temp = TempDir::make("adopt it's");
    let dir = temp.dir();
    let mut first = Embedded::start(&dir).unwrap();
    let pid = first.pid();
    let mut second = Embedded::start(&dir).unwrap();
    assert!(second.adopted());
    assert_eq!(second.pid(), pid);
    assert_eq!(ask(&second, "select 1"), "1");
    assert_eq!(second.check(Instant::now()), None);

    second.stop(StopMode::Immediate);
    eventually("the adopted server has stopped", || second.stopped());
    let now = Instant::now();
    let died = first.check(now);
    assert!(matches!(&died, Some(ServerEvent::Died { .. })), "the starter sees it as well: {died:?}");
}

#[test]
fn a_killed_server_is_restarted_by_check_after_its_rest() {
    let temp = TempDir::make("killed");
    let dir = temp.dir();
    let mut embedded = Embedded::start(&dir).unwrap();
    let killed = embedded.pid().unwrap();
    kill(killed, Signal::SIGKILL).unwrap();
    let mut now = Instant::now();
    let mut event = None;
    eventually("the death is seen", || {
        event = embedded.check(now);
        event.is_some()
    });
    let expected = ServerEvent::Died { pid: killed, status: "signal: 9 (SIGKILL)".to_owned() };
    assert_eq!(event, Some(expected));
    assert_eq!(embedded.pid(), None);
    assert_eq!(embedded.check(now), None);
    assert_eq!(embedded.check_again_in(now), Duration::from_secs(1));

    let mut restarted = None;
    eventually("the server is restarted", || {
        // The test sets the time: a pause is over as soon as it says so.
        now += embedded.check_again_in(now).min(Duration::from_secs(30));
        match embedded.check(now) {
            Some(ServerEvent::Restarted { pid }) => restarted = Some(pid),
            // Sessions of the killed server may still be there at the first attempt.
            Some(ServerEvent::StartFailed { .. }) | None => {}
            Some(other) => panic!("{other:?}"),
        }
        restarted.is_some()
    });
    assert_ne!(restarted, Some(killed));
    assert_eq!(restarted, embedded.pid());
    assert_eq!(ask(&embedded, "select 1"), "1");
    stop(&mut embedded);
}

fn write_pid_file(dir: &Path, pid: Pid) {
    let path = dir.join("data/postmaster.pid");
    let text = format!("{pid}\n{}/data\n1\n5432\n", dir.display());
    fs::write(&path, text).unwrap();
    let owner = fs::metadata(dir).unwrap();
    std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

#[test]
fn a_stale_pid_file_and_an_unfinished_cluster_are_no_hindrance() {
    let temp = TempDir::make("stale");
    let dir = temp.dir();
    fs::create_dir(&dir).unwrap();
    let mut first = Embedded::start(&dir).unwrap();
    stop(&mut first);
    // Another process has the pid by now, one that the server's user may not even signal.
    if geteuid().is_root() {
        write_pid_file(&dir, Pid::this());
        let mut again = Embedded::start(&dir).unwrap();
        assert!(!again.adopted());
        stop(&mut again);
    }
    // The server was killed a moment ago; its own processes may still be there.
    let mut killed = Embedded::start(&dir).unwrap();
    kill(killed.pid().unwrap(), Signal::SIGKILL).unwrap();
    eventually("it is dead", || killed.check(Instant::now()).is_some());
    let mut next = Embedded::start(&dir).unwrap();
    assert!(!next.adopted());
    stop(&mut next);
    // As a launcher left it that was killed during initdb.
    fs::rename(dir.join("data"), dir.join("data.new")).unwrap();
    fs::remove_file(dir.join("data.new/PG_VERSION")).unwrap();
    let mut fresh = Embedded::start(&dir).unwrap();
    assert!(!dir.join("data.new").exists());
    stop(&mut fresh);
}

#[test]
fn an_interrupted_initdb_leaves_nothing() {
    let temp = TempDir::make("interrupted");
    let dir = temp.dir();
    let mut called_off = || dir.join("data.new/global").exists();
    let error = Embedded::start_unless(&dir, &mut called_off).unwrap_err();
    assert!(matches!(error, EmbeddedError::CalledOff), "{error}");
    assert!(!dir.join("data.new").exists());
    assert!(!dir.join("data").exists());

    // One that is killed by someone else: its last lines are in the error.
    let real = Programs::find(&ProgramSearch::of_this_process(), None).unwrap();
    let programs = temp.path().join("programs");
    fs::create_dir(&programs).unwrap();
    symlink(&real.postgres, programs.join("postgres")).unwrap();
    let script = "#!/bin/sh\nmkdir data.new\necho half made\nkill -9 $$\n";
    write_script(&programs.join("initdb"), script);
    let environment =
        ProgramSearch { search_path: Some(programs.into_os_string()), versioned: Vec::new(), fixed: Vec::new() };
    // While another test forks, its child holds our script open for writing for a moment, and it cannot be run.
    let mut tries = (0..100).map(|_| Embedded::start_in(&dir, &environment, &mut || false).unwrap_err());
    let error = tries.find(|error| !error.in_full().contains("busy")).unwrap();
    let text = error.to_string();
    assert!(text.contains("SIGKILL") && text.contains("half made"), "{}", error.in_full());
    assert!(!dir.join("data.new").exists());
    assert!(!dir.join("data").exists());
}

#[test]
fn a_server_that_cannot_start_is_told_with_its_own_words() {
    let temp = TempDir::make("broken");
    let dir = temp.dir();
    let mut embedded = Embedded::start(&dir).unwrap();
    stop(&mut embedded);
    let conf = dir.join("data/postgresql.conf");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, format!("{text}\nno_such_setting = 1\n")).unwrap();
    let text = refusal(&dir);
    assert!(text.contains("no_such_setting"), "{text}");
}

#[test]
fn a_folder_too_long_for_a_socket_is_refused() {
    let temp = TempDir::make("long");
    let dir = temp.path().join("x".repeat(100));
    let text = refusal(&dir);
    assert!(text.contains("may have at most 93"), "{text}");
    assert!(!dir.exists());
}

#[test]
fn a_parent_the_servers_user_may_not_pass_is_named() {
    if !geteuid().is_root() {
        return;
    }
    let temp = TempDir::make("closed");
    let closed = temp.path().join("closed");
    fs::create_dir_all(closed.join("inner")).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let dir = closed.join("inner/server");
    let text = refusal(&dir);
    let named = format!("may not enter the folder {};", closed.display());
    assert!(text.contains(&named), "{text}");
    assert!(!dir.exists());
}

#[test]
fn folders_with_things_of_others_are_refused_and_left_as_they_are() {
    let temp = TempDir::make("foreign");
    let dir = temp.dir();
    fs::create_dir_all(dir.join("data")).unwrap();
    fs::write(dir.join("data/letter"), "dear").unwrap();
    let text = refusal(&dir);
    assert!(text.contains("not a data folder of PostgreSQL"), "{text}");
    assert_eq!(fs::read_to_string(dir.join("data/letter")).unwrap(), "dear");

    fs::remove_dir_all(dir.join("data")).unwrap();
    fs::write(dir.join("letter"), "dear").unwrap();
    let before = fs::metadata(&dir).unwrap();
    let text = refusal(&dir);
    let expected =
        if geteuid().is_root() { "belongs to root and is not empty" } else { "is accessible to other users" };
    assert!(text.contains(expected), "{text}");
    let after = fs::metadata(&dir).unwrap();
    assert_eq!((before.uid(), before.mode()), (after.uid(), after.mode()));

    fs::remove_file(dir.join("letter")).unwrap();
    fs::create_dir_all(dir.join("data/global")).unwrap();
    fs::write(dir.join("data/PG_VERSION"), "9.6\n").unwrap();
    fs::write(dir.join("data/global/pg_control"), "").unwrap();
    let text = refusal(&dir);
    assert!(text.contains("created by PostgreSQL 9.6"), "{text}");
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(refusal(&file).contains("not a folder"));
    assert!(refusal(&temp.path().join("a,b")).contains("connection string"));
}
