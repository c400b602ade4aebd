//! The control socket and what `status` tells: slots and who holds them, rows, and why
//! something waits.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::workdir::Ended;
use tests::{Cluster, Signal, Supervisor, Workdir, eventually, steadily};

const NO_LAUNCHER: Option<i32> = Some(3);

fn holders(status: &Value) -> &Vec<Value> {
    status["slots"]["holders"].as_array().expect("holders are an array")
}

#[test]
fn status_without_a_launcher_is_one_sentence() {
    let workdir = Workdir::new();
    let path = workdir.write("mill.json", r#"{"connect":"host=/tmp","json":[{"data":"a"}]}"#);
    let config = path.to_string_lossy();
    let embedded = workdir.home().join("none").to_string_lossy().into_owned();
    for arguments in [
        &["status", "--config", &config][..],
        &["status", "--json", "--config", &config],
        &["status"],
        &["status", "--embedded", &embedded],
    ] {
        let ended = workdir.run(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (NO_LAUNCHER, ""), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        assert!(ended.stderr.starts_with("no launcher answers on ") && ended.stderr.contains("mill.sock"), "{ended:?}");
    }
}

#[test]
fn waiting_for_a_launcher_that_never_comes_ends_after_its_time() {
    let workdir = Workdir::new();
    let began = Instant::now();
    let ended = workdir.run(&["status", "--wait", "1"]);
    let took = began.elapsed();
    assert_eq!(ended.code, NO_LAUNCHER, "{ended:?}");
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn waiting_ends_when_the_launcher_is_ready() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).launch();
    let output = supervisor.command(&["status", "--wait", "30"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.lines().next().is_some_and(|line| line.ends_with(": ready (1 of 1 queue served)")), "{text}");
    assert!(text.contains(&format!("{} public.task", database.name())) && text.contains("STARTED"), "{text}");
    // ready means ready: the table is there
    database.insert("SELECT 1");
}

#[test]
fn status_as_json_has_slots_with_holders_and_databases() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).key("max_workers", 7).start();
    let status = supervisor.status().expect("it answers");
    assert_eq!(status["slots"]["limit"], 7);
    assert_eq!(status["slots"]["used"], 2);
    let kinds: Vec<&Value> = holders(&status).iter().map(|holder| &holder["kind"]).collect();
    assert_eq!(kinds, ["launcher", "scheduler"], "{status}");
    assert_eq!(holders(&status)[0]["pid"], supervisor.pid());
    assert_eq!(holders(&status)[1]["pid"], supervisor.schedulers()[0].pid);
    let databases = status["databases"].as_array().expect("databases are an array");
    assert_eq!(databases.len(), 1);
    let row = &databases[0];
    assert_eq!((&row["data"], &row["user"]), (&json!(database.name()), &json!(database.owner())));
    assert_eq!((&row["schema"], &row["table"]), (&json!("public"), &json!("task")));
    assert_eq!((&row["state"], &row["running"], &row["why"]), (&json!("STARTED"), &json!(0), &Value::Null));
}

#[test]
fn a_running_task_is_seen_with_its_id_and_backend() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let id = database.insert("SELECT pg_sleep(60)");
    let (status, holder) = supervisor.eventually("the task has a holder", || {
        let status = supervisor.status()?;
        let holder = holders(&status).iter().find(|holder| holder["task"] == id)?.clone();
        Some((status, holder))
    });
    let row = database.task(id).expect("it is there");
    assert_eq!(holder["backend"], row["pid"], "{holder} {row}");
    assert_eq!((&holder["kind"], &holder["attempt"]), (&json!("worker"), &row["attempt"]));
    assert_eq!(holder["pid"], supervisor.workers()[0].pid);
    assert_eq!((&status["databases"][0]["running"], &status["slots"]["used"]), (&json!(1), &json!(3)));
    let text = String::from_utf8_lossy(&supervisor.command(&["status"]).stdout).into_owned();
    assert!(text.contains(&format!("task {id} ")) && text.contains("running 1"), "{text}");

    database.run(&format!("SELECT pg_cancel_backend({})", row["pid"]));
    supervisor.finished(&database, id);
    supervisor.eventually("its slot is free again", || {
        supervisor.status().is_some_and(|status| status["slots"]["used"] == 2)
    });
}

#[test]
fn a_row_that_waits_says_why() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database)
        .queue(json!({"data": "there_is_no_such_database", "user": database.owner()}))
        .queue(json!({"data": database.name(), "user": database.owner(), "table": "off", "enabled": false}))
        .start();
    let status = supervisor.status().expect("it answers");
    let why: Vec<&str> = (0..3).map(|row| status["databases"][row]["why"].as_str().unwrap_or_default()).collect();
    assert_eq!(why[0], "");
    assert!(why[1].contains("does not exist") && why[1].contains("CREATE DATABASE"), "{why:?}");
    assert!(why[2].contains("enabled"), "{why:?}");
    let text = String::from_utf8_lossy(&supervisor.command(&["status"]).stdout).into_owned();
    assert!(text.contains("because: ") && text.contains("does not exist"), "{text}");
}

#[test]
fn when_all_slots_are_in_use_a_task_waits_and_runs_later() {
    let database = Cluster::shared().database();
    // launcher, scheduler, and one worker
    let supervisor = Supervisor::of(&database).key("max_workers", 3).queue_key("sleep", 100).start();
    let wait = "SELECT pg_advisory_lock(7); SELECT pg_advisory_unlock(7)";
    let mut gate = database.connect();
    gate.batch_execute("SELECT pg_advisory_lock(7)").expect("close the gate");
    let first = database.insert_with(wait, "group = 'one'");
    supervisor.eventually("the first runs", || database.task(first).is_some_and(|row| row["state"] == "WORK"));
    let second = database.insert_with(wait, "group = 'two'");
    steadily("the second waits", Duration::from_millis(600), || {
        database.task(second).is_some_and(|row| row["state"] == "PLAN")
    });
    let status = supervisor.status().expect("it answers");
    assert_eq!((&status["slots"]["used"], &status["slots"]["limit"]), (&json!(3), &json!(3)));
    assert_eq!(supervisor.workers().len(), 1);
    gate.batch_execute("SELECT pg_advisory_unlock(7)").expect("open the gate");
    assert_eq!(supervisor.finished(&database, first)["state"], "DONE");
    assert_eq!(supervisor.finished(&database, second)["state"], "DONE");
}

#[test]
fn a_row_without_a_slot_says_so_and_the_others_work() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database)
        .key("max_workers", 3)
        .queue(json!({"data": database.name(), "user": database.owner(), "table": "second"}))
        .start();
    let status = supervisor.status().expect("it answers");
    let why = status["databases"][1]["why"].as_str().unwrap_or_default();
    assert!(why.contains("max_workers"), "{status}");
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
}

#[test]
fn the_socket_is_its_owners_alone_and_another_user_is_turned_away() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let socket = supervisor.home().join("mill.sock");
    let mode = fs::metadata(&socket).expect("the socket is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    if !nix::unistd::geteuid().is_root() {
        return; // only root can ask as somebody else
    }
    // a folder that everybody can reach, and a binary in it
    let workdir = Workdir::new().env("RUNTIME_DIRECTORY", &supervisor.home().to_string_lossy());
    let binary = workdir.home().join("launcher");
    fs::copy(tests::binary::launcher(), &binary).expect("copy the binary");
    let ask_as_nobody = || -> Ended {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).args(["status", "--json"]);
        workdir.finish(command)
    };
    let refused = ask_as_nobody();
    assert_eq!((refused.code, refused.stdout.as_str()), (NO_LAUNCHER, ""), "{refused:?}");
    assert!(refused.stderr.contains("Permission denied") && refused.stderr.contains("as root"), "{refused:?}");

    // even where the file's mode would let him in
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("open the socket");
    let refused = ask_as_nobody();
    assert_eq!((refused.code, refused.stdout.as_str()), (NO_LAUNCHER, ""), "{refused:?}");
    assert!(refused.stderr.contains("refused the connection") && refused.stderr.contains("as root"), "{refused:?}");
    supervisor.eventually("it is logged", || {
        supervisor.log().lines().iter().any(|line| line.contains("refused a connection") && line.contains("uid=65534"))
    });
    assert!(supervisor.status().is_some(), "its owner is still answered");
}

#[test]
fn a_second_launcher_on_the_same_socket_is_refused_with_the_pid_of_the_first() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let second = supervisor.command(&[]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("pid {}", supervisor.pid())) && said.contains("mill.sock"), "{said}");
    let id = database.insert("SELECT 1");
    assert_eq!(supervisor.finished(&database, id)["state"], "DONE");
    assert!(supervisor.status().is_some());
}

#[test]
fn the_socket_of_a_dead_launcher_is_replaced_and_removed_at_the_end() {
    let database = Cluster::shared().database();
    let first = Supervisor::of(&database).start();
    let socket = first.home().join("mill.sock");
    first.kill9(first.pid());
    first.wait_gone(Duration::from_secs(5));
    assert!(fs::symlink_metadata(&socket).is_ok_and(|file| file.file_type().is_socket()), "it left its socket");
    let second = Supervisor::of(&database).key("control", socket.to_string_lossy().into_owned()).start();
    let status = second.status().expect("the new one answers on the old path");
    assert_eq!(status["pid"], second.pid());
    second.signal(Signal::SIGTERM);
    assert_eq!(second.wait_exit(Duration::from_secs(10)).code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn callers_who_say_nothing_do_not_keep_others_from_an_answer() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let socket = supervisor.home().join("mill.sock");
    let silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&socket).expect("connect")).collect();
    let began = Instant::now();
    assert!(supervisor.status().is_some());
    assert!(began.elapsed() < Duration::from_secs(3));
    drop(silent);
    eventually("it answers still", || supervisor.status());
}

#[test]
fn a_control_socket_that_was_deleted_comes_back_by_itself_and_at_a_hup() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let socket = supervisor.home().join("mill.sock");
    fs::remove_file(&socket).expect("delete the socket");
    supervisor.wait("it answers again").within(Duration::from_secs(5)).until(|| supervisor.status());
    let mode = fs::metadata(&socket).expect("the socket is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // right after a check by itself, which comes a second apart; a busy machine may be late for one of them
    let at_once = (0..5).any(|_| {
        fs::remove_file(&socket).expect("delete the socket");
        supervisor.wait("it comes back by itself").within(Duration::from_secs(5)).until(|| socket.exists());
        let began = Instant::now();
        fs::remove_file(&socket).expect("delete the socket");
        supervisor.signal(Signal::SIGHUP);
        supervisor.wait("it is there at once").within(Duration::from_secs(5)).until(|| socket.exists());
        began.elapsed() < Duration::from_millis(700)
    });
    assert!(at_once, "a HUP does not bring it back sooner");
    assert!(supervisor.status().is_some());
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.wait_exit(Duration::from_secs(10)).code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_socket_path_that_another_living_program_has_taken_is_left_to_it() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let socket = supervisor.home().join("mill.sock");
    fs::remove_file(&socket).expect("delete the socket");
    let other = UnixListener::bind(&socket).expect("another program listens there");
    supervisor.eventually("it is logged", || supervisor.log_contains("cannot be bound again"));
    let own = fs::metadata(&socket).map(|file| std::os::unix::fs::MetadataExt::ino(&file)).expect("it is there");
    steadily("the other keeps it", Duration::from_millis(2500), || {
        fs::metadata(&socket).is_ok_and(|file| std::os::unix::fs::MetadataExt::ino(&file) == own)
    });
    let said = supervisor.log().lines().iter().filter(|line| line.contains("cannot be bound again")).count();
    assert_eq!(said, 1, "{}", supervisor.describe());
    // its file stays, but nobody listens: that is the rest of a dead program
    drop(other);
    let status = supervisor.wait("it answers again").within(Duration::from_secs(5)).until(|| supervisor.status());
    assert_eq!(status["pid"], supervisor.pid());
}
