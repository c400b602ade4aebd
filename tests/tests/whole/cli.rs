//! The command line: what it teaches, what it refuses, and with which words and exit codes.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use tests::workdir::Ended;
use tests::{Cluster, Signal, Supervisor, Workdir};

const BAD_CONFIG: Option<i32> = Some(78);
const SECRET: &str = "s3cr3t-w0rd";

/// Mistakes of every kind, and a password that nobody may see.
fn bad_config() -> String {
    format!(
        r#"{{
            "connect": "host=/tmp user=mill password={SECRET}",
            "max_wrokers": 5,
            "poll": "soon",
            "name": "one", "name": "two",
            "defaults": {{ "sleep": true, "password": "{SECRET}" }},
            "json": [
                {{ "data": "a", "sleeep": 1 }},
                {{ "data": 7 }},
                {{ "data": "b", "connect": "hots=x password={SECRET}" }},
                {{ "data": "c" }},
                {{ "data": "c", "sleep": 5 }}
            ]
        }}"#
    )
}

const BAD_PLACES: [(&str, &str); 10] = [
    ("max_wrokers", "max_workers"),
    ("poll", "is not a duration"),
    ("name", "appears twice"),
    ("defaults.sleep", "found true or false"),
    ("defaults.password", "belongs"),
    ("json[0].sleeep", "did you mean"),
    ("json[1].data", "want text"),
    ("json[2].connect", "hots"),
    ("json[3]", "json[4]"),
    ("json[4]", "json[3]"),
];

#[test]
fn help_of_every_command_teaches_by_examples_that_can_be_typed() {
    let workdir = Workdir::new();
    for arguments in
        [&["--help"][..], &["check", "--help"], &["status", "--help"], &["import", "--help"], &["sql", "--help"]]
    {
        let help = workdir.run(arguments);
        assert_eq!(help.code, Some(0), "{help:?}");
        let examples: Vec<&str> = help.stdout.lines().filter_map(|line| line.strip_prefix("  launcher")).collect();
        assert!(help.stdout.contains("Examples:") && examples.len() >= 2, "{arguments:?}:\n{}", help.stdout);
        for example in examples {
            // what follows two blanks is the explanation
            let typed = example.split("  ").next().unwrap_or_default();
            let mut words: Vec<&str> = typed.split_whitespace().collect();
            words.push("--help");
            let tried = workdir.run(&words);
            assert_eq!(tried.code, Some(0), "launcher {typed}: {tried:?}");
        }
    }
    let help = workdir.run(&["--help"]).stdout;
    for word in ["INSERT INTO task", "--config", "--embedded", "--log-level", "Exit status", "TERM"] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
}

#[test]
fn version_is_one_line() {
    let said = Workdir::new().run(&["--version"]);
    assert_eq!(said.code, Some(0));
    assert_eq!(said.stdout, format!("launcher {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn an_unknown_option_or_command_is_a_mistake_of_usage() {
    let workdir = Workdir::new();
    for (arguments, hint) in
        [(&["--confg", "x"][..], "--config"), (&["stauts"], "status"), (&["status", "--wait", "soon"], "--wait")]
    {
        let refused = workdir.run(arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}: {refused:?}");
        assert!(refused.stdout.is_empty() && refused.stderr.contains(hint), "{refused:?}");
    }
}

#[test]
fn check_of_a_good_file_says_so_in_one_line() {
    let workdir = Workdir::new();
    let text = r#"{"connect":"host=/tmp user=mill","max_workers":7,"json":[{"data":"a"},{"data":"b"}]}"#;
    let path = workdir.write("mill.json", text);
    let checked = workdir.run(&["check", "--config", &path.to_string_lossy()]);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{checked:?}");
    assert_eq!(checked.stdout.lines().count(), 1);
    assert!(checked.stdout.contains("2 queues") && checked.stdout.contains('7'), "{checked:?}");
}

#[test]
fn the_example_of_a_config_file_is_good() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mill.example.json");
    let checked = Workdir::new().run(&["check", "--config", &example.to_string_lossy()]);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{checked:?}");
    // a row without a user would run its tasks as the launcher's login
    let text = std::fs::read_to_string(&example).expect("read the example");
    let config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for row in config["json"].as_array().expect("rows") {
        assert!(row["user"].is_string(), "{row} names no user");
    }
}

#[test]
fn check_tells_every_mistake_at_once_with_its_place_and_no_password() {
    let workdir = Workdir::new();
    let path = workdir.write("mill.json", &bad_config());
    let checked = workdir.run(&["check", "--config", &path.to_string_lossy()]);
    assert_eq!((checked.code, checked.stdout.as_str()), (BAD_CONFIG, ""), "{checked:?}");
    let lines: Vec<&str> = checked.stderr.lines().collect();
    for (place, word) in BAD_PLACES {
        let begin = format!("{}: {place}: ", path.display());
        let told = lines.iter().any(|line| line.starts_with(&begin) && line.contains(word));
        assert!(told, "no {begin}..{word} in\n{}", checked.stderr);
    }
    assert_eq!(lines.len(), BAD_PLACES.len(), "{}", checked.stderr);
    assert!(!checked.all().contains(SECRET), "{}", checked.stderr);
}

#[test]
fn a_launcher_with_a_bad_config_ends_with_the_same_mistakes() {
    let workdir = Workdir::new();
    let path = workdir.write("mill.json", &bad_config());
    for log in ["text", "json"] {
        let ended = workdir.run(&["--config", &path.to_string_lossy(), "--log", log]);
        assert_eq!(ended.code, BAD_CONFIG, "{ended:?}");
        for (place, word) in BAD_PLACES {
            let told = ended.stderr.lines().any(|line| line.contains(place) && line.contains(word));
            assert!(told, "no {place}..{word} in\n{}", ended.stderr);
        }
        assert_eq!(ended.stderr.lines().count(), BAD_PLACES.len(), "{}", ended.stderr);
        assert!(!ended.all().contains(SECRET), "{}", ended.stderr);
        assert!(!workdir.home().join("mill.sock").exists());
    }
}

#[test]
fn a_mistake_of_syntax_is_told_by_line_and_column() {
    let workdir = Workdir::new();
    let path = workdir.write("mill.json", "[\n  {\"data\": \"a\"},\n]\n");
    let config = path.to_string_lossy();
    for arguments in [&["check", "--config", &config][..], &["--config", &config], &["status", "--config", &config]] {
        let ended = workdir.run(arguments);
        assert_eq!(ended.code, BAD_CONFIG, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains("line 3 column 1") && ended.stderr.contains("trailing comma"), "{ended:?}");
    }
}

#[test]
fn a_config_file_that_cannot_be_read_is_named() {
    let workdir = Workdir::new();
    for arguments in [&["check", "--config", "nowhere.json"][..], &["--config", "nowhere.json"]] {
        let ended = workdir.run(arguments);
        assert_eq!(ended.code, BAD_CONFIG, "{ended:?}");
        assert!(ended.stderr.contains("nowhere.json") && ended.stderr.contains("No such file"), "{ended:?}");
    }
}

#[test]
fn no_workers_at_all_is_said_and_is_an_orderly_end() {
    let workdir = Workdir::new();
    let path = workdir.write("mill.json", r#"{"max_workers":0,"connect":"host=/tmp","json":[{"data":"a"}]}"#);
    let ended = workdir.run(&["--config", &path.to_string_lossy()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1);
    assert!(ended.stderr.contains("max_workers is 0"), "{ended:?}");
}

#[test]
fn a_password_that_others_may_read_is_warned_about() {
    let workdir = Workdir::new();
    let text = format!(r#"{{"max_workers":0,"connect":"host=/tmp password={SECRET}","json":[{{"data":"a"}}]}}"#);
    let warned = |mode: u32, arguments: &[&str]| -> Ended {
        let path = workdir.write_mode("mill.json", &text, mode);
        let mut arguments = arguments.to_vec();
        let path = path.to_string_lossy().into_owned();
        arguments.extend(["--config", &path]);
        workdir.run(&arguments)
    };
    for arguments in [&["check"][..], &[]] {
        let open = warned(0o644, arguments);
        assert_eq!(open.code, Some(0), "a warning is no mistake: {open:?}");
        assert!(open.stderr.contains("warning") && open.stderr.contains("chmod 600"), "{open:?}");
        assert!(!open.all().contains(SECRET));
        let closed = warned(0o600, arguments);
        assert!(!closed.stderr.contains("chmod"), "{closed:?}");
    }
}

#[test]
fn a_closed_stdout_ends_a_command_without_a_panic() {
    let workdir = Workdir::new();
    let mut command = Command::new("sh");
    command.args(["-c", r#""$0" --help >&-; "$0" check --config missing.json 2>&-; echo "code $?""#]);
    command.arg(tests::binary::launcher());
    let ended = workdir.finish(command);
    assert!(ended.stdout.contains("code 78"), "{ended:?}");
    assert!(!ended.all().contains("panic"), "{ended:?}");
}

#[test]
fn a_pipe_that_nobody_reads_ends_no_program_with_a_panic() {
    let workdir = Workdir::new();
    let (launcher, scheduler) = (tests::binary::launcher().to_owned(), tests::binary::scheduler());
    // 101 is a panic, a signal is no status at all
    for (program, arguments, code) in [
        (&launcher, vec!["--help"], 0),
        (&launcher, vec!["--version"], 0),
        (&launcher, vec!["check", "--config", "missing.json"], 78),
        (&scheduler, vec!["--handshake"], 0),
        (&scheduler, vec![], 1),
    ] {
        let (unread, pipe) = std::io::pipe().expect("a pipe");
        drop(unread);
        let mut command = Command::new(program);
        command.args(&arguments).current_dir(workdir.home());
        command.stdout(pipe.try_clone().expect("its other name")).stderr(pipe);
        let status = command.status().expect("it runs");
        assert_eq!(status.code(), Some(code), "{} {arguments:?}: {status}", program.display());
    }
}

#[test]
fn without_a_config_database_postgres_is_served_by_the_environment() {
    let cluster = Cluster::start();
    let mut client = cluster.connect("postgres");
    client
        .batch_execute(
            "CREATE ROLE alice LOGIN; GRANT CREATE ON DATABASE postgres TO alice; \
             GRANT CREATE, USAGE ON SCHEMA public TO alice",
        )
        .expect("a role that may make its table");
    let supervisor = Supervisor::bare()
        .without_config()
        .env("PGHOST", &cluster.home().to_string_lossy())
        .env("PGPORT", &cluster.server().port.to_string())
        .env("PGUSER", "alice")
        .start();
    let status = supervisor.status().expect("it answers");
    assert_eq!(status["databases"][0]["data"], "postgres");
    assert_eq!(status["databases"][0]["user"], "alice", "{status}");
    let mut alice = cluster.server().try_connect("alice", "postgres").expect("she may log in");
    let sql = "INSERT INTO public.task (input) VALUES ('SELECT current_user') RETURNING id";
    let id: i64 = alice.query_one(sql, &[]).expect("her table").get(0);
    let output: String = supervisor.eventually("her task is done", || {
        let sql = "SELECT output FROM public.task WHERE id = $1 AND state = 'DONE'";
        alice.query_opt(sql, &[&id]).expect("query").map(|row| row.get(0))
    });
    assert!(output.contains("alice"), "{output}");
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.wait_exit(std::time::Duration::from_secs(10)).code(), Some(0));
}

#[test]
fn a_bare_array_of_rows_is_a_config() {
    let database = Cluster::shared().database();
    let rows = json!([{"data": database.name(), "user": database.owner(), "sleep": 100}]);
    let server = database.server();
    let supervisor = Supervisor::bare()
        .config_text(&rows.to_string())
        .env("PGHOST", &server.socket_folder.to_string_lossy())
        .env("PGPORT", &server.port.to_string())
        .env("PGUSER", database.login())
        // where the launcher sits: its lock is then this test's own
        .env("PGDATABASE", database.name())
        .start();
    let id = database.insert("SELECT 6 * 7 AS answer");
    let row = supervisor.finished(&database, id);
    assert_eq!((row["state"].as_str(), row["output"].as_str()), (Some("DONE"), Some("42")));
}

#[test]
fn a_control_socket_that_is_talked_at_by_anything_goes_on_answering() {
    use rand::RngExt;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).start();
    let path = supervisor.home().join("mill.sock");
    let words = [
        &b"{\"command\":\"status\"}\n"[..],
        b"{\"command\":",
        b"{}\n",
        b"[[[[[[[[[[\n",
        b"\xff\xfe\n",
        b"\0\n",
        b"{\"command\":\"stop\"}\n",
    ];
    let mut random = rand::rng();
    let mut held = Vec::new();
    for _ in 0..tests::sized(200, 20_000) {
        let Ok(mut caller) = UnixStream::connect(&path) else { continue };
        caller.set_write_timeout(Some(std::time::Duration::from_secs(5))).expect("a time limit");
        let mut said: Vec<u8> =
            (0..random.random_range(0..3)).flat_map(|_| words[random.random_range(0..words.len())].to_vec()).collect();
        said.extend((0..random.random_range(0..5000)).map(|_| random.random::<u8>()));
        // it may hang up in the middle
        let _ = caller.write_all(&said);
        if held.len() < 60 {
            held.push(caller);
        }
    }
    drop(held);
    supervisor.eventually("it answers", || supervisor.status().is_some());
    let id = database.insert("SELECT 1");
    supervisor.finished(&database, id);
    assert_eq!(supervisor.exit_status(), None);
}
