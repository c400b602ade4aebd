//! `--embedded`: a private server from nothing, supervised, adopted, and stopped last.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::process::is_alive;
use tests::{Server, Signal, Supervisor};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The queue of an embedded server.
struct Queue {
    folder: PathBuf,
}

impl Queue {
    fn of(supervisor: &Supervisor<'_>) -> Queue {
        Queue { folder: supervisor.embedded_folder() }
    }

    fn server(&self) -> Server {
        Server { socket_folder: self.folder.clone(), port: 5432 }
    }

    fn insert(&self, input: &str) -> i64 {
        let sql = "INSERT INTO public.task (input) VALUES ($1) RETURNING id";
        self.server().connect("postgres").query_one(sql, &[&input]).expect("insert a task").get(0)
    }

    /// State and output; none while the server is away.
    fn query(&self, id: i64) -> Option<(String, Option<String>)> {
        let mut client = self.server().try_connect("postgres", "postgres").ok()?;
        let row = client.query_one("SELECT state::text, output FROM public.task WHERE id = $1", &[&id]).ok()?;
        Some((row.get(0), row.get(1)))
    }

    fn is_done(&self, id: i64, output: &str) -> bool {
        self.query(id).is_some_and(|found| found == ("DONE".to_owned(), Some(output.to_owned())))
    }

    /// One task from INSERT to result.
    #[track_caller]
    fn works(&self, supervisor: &Supervisor<'_>) {
        let id = self.insert("SELECT 6 * 7");
        supervisor.wait("the task is done").within(TIMEOUT).until(|| self.is_done(id, "42"));
    }

    fn postmaster(&self) -> Option<i32> {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }
}

/// Another launcher on a folder that is there already.
fn start_on(folder: &Path) -> Supervisor<'static> {
    Supervisor::bare().without_config().arg("--embedded").arg(&folder.to_string_lossy()).start()
}

fn process_group(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is alive");
    let fields = stat.rsplit(')').next().expect("fields after the name");
    fields.split_whitespace().nth(2).and_then(|group| group.parse().ok()).expect("a process group")
}

#[test]
fn from_an_empty_folder_to_a_result_and_the_server_is_stopped_last() {
    // what is meant for another server does not concern this one
    let supervisor = Supervisor::bare()
        .embedded()
        .env("PGUSER", "somebody")
        .env("PGHOST", "/nowhere")
        .env("PGHOSTADDR", "192.0.2.1")
        .env("PGDATABASE", "something")
        .env("PGSSLMODE", "require")
        .start();
    let queue = Queue::of(&supervisor);
    queue.works(&supervisor);
    let folder = queue.folder.to_string_lossy().into_owned();
    let asked = supervisor.command(&["status", "--embedded", &folder]);
    assert_eq!(asked.status.code(), Some(0), "{asked:?}");

    let postmaster = queue.postmaster().expect("the server runs");
    let id = queue.insert("SELECT pg_sleep(1), 'finished'");
    supervisor.eventually("the task runs", || queue.query(id).is_some_and(|(state, _)| state == "WORK"));
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.wait_exit(TIMEOUT).code(), Some(0));
    supervisor.wait_gone(Duration::from_secs(5));
    assert!(!is_alive(postmaster), "the server is stopped with its launcher");
    assert_eq!(queue.postmaster(), None, "and in order");
    assert!(!queue.folder.join("mill.sock").exists());

    let again = start_on(&queue.folder);
    assert!(!again.log_contains("adopted=true"));
    let (state, output) = queue.query(id).expect("the row is there");
    assert_eq!(state, "DONE", "the running task could write its end before the server was stopped");
    assert!(output.is_some_and(|output| output.contains("finished")));
    queue.works(&again);
}

#[test]
fn the_server_outlives_a_killed_launcher_is_adopted_and_started_again_when_it_dies() {
    let first = Supervisor::bare().embedded().start();
    let queue = Queue::of(&first);
    queue.works(&first);
    let postmaster = queue.postmaster().expect("the server runs");
    let running = queue.insert("SELECT pg_sleep(2), 'not lost'");
    first.eventually("the task runs", || queue.query(running).is_some_and(|(state, _)| state == "WORK"));
    first.kill9(first.pid());
    first.wait("only the server is left").within(Duration::from_secs(5)).until(|| {
        first.exit_status().is_some() && first.children().iter().all(|child| !child.title.starts_with("pgmill"))
    });
    assert!(is_alive(postmaster), "the server lives");

    let second = start_on(&queue.folder);
    assert!(second.log_contains("adopted=true"));
    assert_eq!(queue.postmaster(), Some(postmaster));
    queue.works(&second);
    second
        .wait("the interrupted task is done")
        .within(TIMEOUT)
        .until(|| queue.query(running).is_some_and(|(state, _)| state == "DONE"));

    let refused = second.command(&["--embedded", &queue.folder.to_string_lossy()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("pid {}", second.pid())), "{said}");

    nix::sys::signal::kill(nix::unistd::Pid::from_raw(postmaster), Signal::SIGKILL).expect("kill -9 the server");
    second.wait("the server is started again").within(TIMEOUT).until(|| {
        second.log_contains("embedded server restarted") && queue.postmaster().is_some_and(|pid| pid != postmaster)
    });
    second.wait("the queue is served").within(TIMEOUT).until(|| queue.query(running).is_some());
    queue.works(&second);
    // our own child this time
    let child = queue.postmaster().expect("it runs");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), Signal::SIGKILL).expect("kill -9 the server");
    second
        .wait("the server is started once more")
        .within(TIMEOUT)
        .until(|| queue.postmaster().is_some_and(|pid| pid != child) && queue.query(running).is_some());
    queue.works(&second);
    second.signal(Signal::SIGTERM);
    assert_eq!(second.wait_exit(TIMEOUT).code(), Some(0));
    second.wait_gone(Duration::from_secs(5));
    assert_eq!(queue.postmaster(), None);
}

#[test]
fn ctrl_c_reaches_the_launcher_alone_and_ends_everything_in_order() {
    let supervisor = Supervisor::bare().embedded().in_terminal().start();
    let queue = Queue::of(&supervisor);
    let postmaster = queue.postmaster().expect("the server runs");
    assert_eq!(process_group(postmaster), postmaster, "the server has a process group of its own");
    let id = queue.insert("SELECT pg_sleep(60)");
    supervisor.eventually("the task runs", || queue.query(id).is_some_and(|(state, _)| state == "WORK"));
    for child in supervisor.schedulers().iter().chain(&supervisor.workers()) {
        assert_ne!(process_group(child.pid), process_group(supervisor.pid()), "{}", child.title);
    }
    supervisor.press_ctrl_c();
    assert_eq!(supervisor.wait_exit(TIMEOUT).code(), Some(0));
    supervisor.wait_gone(Duration::from_secs(5));
    assert!(!is_alive(postmaster));
    let log = fs::read_to_string(queue.folder.join("server.log")).expect("the server's log");
    assert_eq!(log.matches("received fast shutdown request").count(), 1, "{log}");

    let again = start_on(&queue.folder);
    again.eventually("the task was planned again and runs anew", || {
        queue.query(id).is_some_and(|(state, _)| state == "WORK")
    });
    again.signal(Signal::SIGINT);
    assert_eq!(again.wait_exit(TIMEOUT).code(), Some(0));
}

#[test]
fn a_signal_while_the_server_is_being_made_ends_it_and_leaves_no_process() {
    let supervisor = Supervisor::bare().embedded().launch();
    supervisor.eventually("it has begun", || supervisor.log_contains("embedded server is starting"));
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.wait_exit(TIMEOUT).code(), Some(0));
    supervisor.wait_gone(Duration::from_secs(10));
    let queue = Queue::of(&supervisor);
    supervisor.eventually("no server is left", || queue.postmaster().is_none_or(|pid| !is_alive(pid)));
}
