//! Messages: start, stop and restart by SQL, while the sender's transaction is still open, and by the operator's
//! command. What is asked is done when the answer comes, and nobody without the right to it is heard.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use postgres::{Client, Config, NoTls};
use serde_json::{Value, json};
use tests::database::quote_ident;
use tests::{Cluster, Database, Signal, Supervisor, steadily};

use crate::ledger;
use crate::queries::{one, running, state};

/// How soon a message is done: two seconds for a scheduler that does not want to go, and some for a slow machine.
const SOON: Duration = Duration::from_secs(5);

/// Sends a message as the queue's user; what `mill` answers.
#[track_caller]
pub fn say(client: &mut Client, sql: &str) -> bool {
    let row = client.query_one(&format!("SELECT mill.{sql}"), &[]);
    row.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
}

/// The state of the n-th row in `status`.
pub fn row_state(mill: &Supervisor<'_>, index: usize) -> Option<String> {
    mill.status()?["databases"][index]["state"].as_str().map(str::to_owned)
}

/// The one scheduler there is.
#[track_caller]
pub fn scheduler(mill: &Supervisor<'_>) -> i32 {
    mill.eventually("there is one scheduler", || match mill.schedulers().as_slice() {
        [one] => Some(one.pid),
        _ => None,
    })
}

/// The scheduler's session waits for a lock of this kind, and everybody can see it.
pub fn waits_for_lock(database: &Database, kind: &str) -> bool {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pg_work %' \
               AND wait_event_type = 'Lock' AND wait_event = $1 AND datname = $2";
    database.query(sql, &[&kind, &database.name()]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 1)
}

#[test]
fn stop_start_and_restart_do_what_they_say_and_may_be_said_again() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let mut owner = database.connect();
    let first = scheduler(&mill);
    assert!(say(&mut owner, "stop()"));
    // true means done
    assert_eq!((mill.schedulers().len(), row_state(&mill, 0).as_deref()), (0, Some("DISABLED")));
    ledger::slots_held_by(&mill, &["launcher"]);
    let id = database.insert("SELECT 1");
    assert!(say(&mut owner, "stop()"), "stopping what is stopped is a success");
    steadily("nothing runs", Duration::from_millis(300), || state(&database, id) == "PLAN");
    assert!(say(&mut owner, "start()"));
    assert_eq!(row_state(&mill, 0).as_deref(), Some("STARTED"));
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    let second = scheduler(&mill);
    assert_ne!(first, second);
    for _ in 0..20 {
        assert!(say(&mut owner, "start()"));
    }
    assert_eq!(scheduler(&mill), second, "twenty starts change nothing");
    assert!(say(&mut owner, "restart()"));
    assert_ne!(scheduler(&mill), second);
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    // nothing of all that is left in the server
    mill.eventually("no answer is left", || {
        one::<i64>(
            &database,
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint & 255 >= 32 \
             AND classid::bigint >> 16 = 27993 AND objid = 0",
        ) == 0
    });
}

/// Restarts inside a transaction, lets `end` end it, and looks that nothing ran before and everything after.
#[track_caller]
fn waits_until(end: &[&str]) {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 50).start();
    let old = scheduler(&mill);
    let mut owner = database.connect();
    owner.batch_execute("BEGIN; SAVEPOINT a").expect("begin");
    assert!(say(&mut owner, "restart()"));
    let new = scheduler(&mill);
    assert_ne!(new, old, "the old one is gone at once");
    mill.eventually("the new one is seen waiting", || waits_for_lock(&database, "advisory"));
    let id = database.insert("SELECT 1");
    steadily("it runs nothing meanwhile", Duration::from_millis(500), || state(&database, id) == "PLAN");
    let why = mill.status().expect("status")["databases"][0]["why"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("transaction")), "{why}");
    for statement in end {
        owner.batch_execute(statement).expect("end");
    }
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
    assert_eq!(scheduler(&mill), new, "it is the one that waited");
}

#[test]
fn a_restart_acts_at_once_and_the_new_scheduler_waits_for_the_commit() {
    waits_until(&["COMMIT"]);
}

#[test]
fn a_restart_that_is_rolled_back_was_a_restart_all_the_same() {
    waits_until(&["ROLLBACK"]);
}

#[test]
fn a_restart_that_a_savepoint_takes_back_is_waited_for_no_longer() {
    // the transaction is still open
    waits_until(&["ROLLBACK TO a"]);
}

#[test]
fn a_released_savepoint_keeps_the_message_until_the_commit() {
    waits_until(&["RELEASE a", "COMMIT"]);
}

#[test]
fn a_prepared_transaction_is_waited_for_until_it_is_committed() {
    let cluster = Cluster::configure().setting("max_prepared_transactions", "5").start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).queue_key("sleep", 50).start();
    let mut owner = database.connect();
    owner.batch_execute("BEGIN").expect("begin");
    assert!(say(&mut owner, "restart()"));
    owner.batch_execute("PREPARE TRANSACTION 'p'").expect("prepare");
    drop(owner);
    mill.eventually("the new one is seen waiting", || waits_for_lock(&database, "advisory"));
    let id = database.insert("SELECT 1");
    steadily("it runs nothing meanwhile", Duration::from_millis(700), || state(&database, id) == "PLAN");
    // even if the one that waits is killed
    let waiting = scheduler(&mill);
    mill.kill9(waiting);
    mill.wait("another one waits")
        .within(SOON)
        .until(|| mill.schedulers().iter().any(|one| one.pid != waiting) && waits_for_lock(&database, "advisory"));
    assert_eq!(state(&database, id), "PLAN");
    database.connect().batch_execute("COMMIT PREPARED 'p'").expect("commit");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
}

#[test]
fn a_sender_that_is_killed_lets_the_waiting_scheduler_go_on() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 50).start();
    let mut owner = database.connect();
    owner.batch_execute("BEGIN").expect("begin");
    let pid: i32 = owner.query_one("SELECT pg_backend_pid()", &[]).expect("pid").get(0);
    assert!(say(&mut owner, "restart()"));
    mill.eventually("the new one is seen waiting", || waits_for_lock(&database, "advisory"));
    database.query("SELECT pg_terminate_backend($1)", &[&pid]).expect("end it");
    let id = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
}

#[test]
fn a_second_restart_ends_the_one_that_waits_and_is_waited_for_instead() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", 50).start();
    let (mut first, mut second) = (database.connect(), database.connect());
    first.batch_execute("BEGIN").expect("begin");
    assert!(say(&mut first, "restart()"));
    let waiting = scheduler(&mill);
    second.batch_execute("BEGIN").expect("begin");
    assert!(say(&mut second, "restart()"));
    assert_ne!(scheduler(&mill), waiting);
    // a start changes nothing of it
    assert!(say(&mut database.connect(), "start()"));
    let id = database.insert("SELECT 1");
    first.batch_execute("COMMIT").expect("commit");
    steadily("it waits for the second", Duration::from_millis(500), || state(&database, id) == "PLAN");
    second.batch_execute("COMMIT").expect("commit");
    assert_eq!(mill.finished(&database, id)["state"], "DONE");
}

#[test]
fn without_a_launcher_the_answer_is_false_at_once() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).start();
    mill.signal(Signal::SIGTERM);
    mill.wait_exit(Duration::from_secs(10));
    let mut owner = database.connect();
    let began = Instant::now();
    for message in ["start()", "stop()", "restart()"] {
        assert!(!say(&mut owner, message));
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn a_launcher_that_does_not_listen_makes_it_false_after_five_seconds() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).start();
    mill.signal(Signal::SIGSTOP);
    let began = Instant::now();
    let answer = say(&mut database.connect(), "stop()");
    let took = began.elapsed();
    mill.signal(Signal::SIGCONT);
    assert!(!answer);
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(8), "{took:?}");
}

/// A session that keeps what the server warns of.
fn with_warnings(database: &Database, user: &str) -> (Client, mpsc::Receiver<String>) {
    let (sender, receiver) = mpsc::channel();
    let server = database.server();
    let client = Config::new()
        .host_path(&server.socket_folder)
        .port(server.port)
        .user(user)
        .dbname(database.name())
        .application_name("tests")
        .notice_callback(move |notice| {
            let _ = sender.send(format!("{}: {}", notice.severity(), notice.message()));
        })
        .connect(NoTls)
        .expect("connect");
    (client, receiver)
}

#[test]
fn only_those_with_a_right_to_it_are_heard() {
    let database = Cluster::shared().database();
    let name = database.name();
    let (stranger, operator, operators) =
        (format!("{name}_stranger"), format!("{name}_operator"), format!("{name}_operators"));
    database.run(&format!(
        "CREATE ROLE {stranger} LOGIN; CREATE ROLE {operators}; CREATE ROLE {operator} LOGIN IN ROLE {operators}"
    ));
    let mill = Supervisor::of(&database).key("operators", operators.clone()).start();
    database.run(&format!(
        "GRANT USAGE ON SCHEMA mill, mill_private TO {stranger}, {operator}; \
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA mill, mill_private TO {stranger}, {operator}"
    ));
    let before = scheduler(&mill);
    let (mut client, warnings) = with_warnings(&database, &stranger);
    assert!(!say(&mut client, "stop()"));
    let warned: Vec<String> = warnings.try_iter().collect();
    assert!(warned.len() == 1 && warned[0].starts_with("WARNING: ") && warned[0].contains(&stranger), "{warned:?}");
    // SET ROLE gives nobody a right that his login has not
    database.run(&format!("GRANT {} TO {stranger}", quote_ident(database.owner())));
    database.run(&format!("REVOKE {} FROM {stranger}", quote_ident(database.owner())));
    assert_eq!(scheduler(&mill), before);
    mill.eventually("it is logged", || mill.log_contains("message refused"));
    // a bare lock with the right key is a message too, and is judged the same
    let target: u32 = one(&database, &format!("SELECT oid FROM pg_database WHERE datname = '{name}'"));
    let (mut client, _) = with_warnings(&database, &stranger);
    client.batch_execute(&format!("SELECT pg_advisory_lock({}, {target})", 0x6D69_0011)).expect("lock");
    steadily("the scheduler stays", Duration::from_millis(700), || mill.schedulers().len() == 1);
    drop(client);

    let (mut client, warnings) = with_warnings(&database, &operator);
    assert!(say(&mut client, "restart()"));
    assert_eq!(warnings.try_iter().count(), 0);
    assert!(say(&mut database.connect(), "restart()"), "the owner");
    assert!(say(&mut database.connect_superuser(), "restart()"), "the superuser");
    // who has no right to the functions at all
    database.run(&format!("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA mill FROM {operator}"));
    client.batch_execute("SELECT mill.stop()").expect_err("permission denied");
    drop(client);
    drop(mill);
    database.run(&format!("DROP OWNED BY {stranger}, {operator}; DROP ROLE {stranger}, {operator}, {operators}"));
}

#[test]
fn a_database_is_stopped_and_restarted_from_another_one() {
    let cluster = Cluster::shared();
    let (here, there) = (cluster.database(), cluster.database());
    let mill = Supervisor::of(&here).and(&there).queue_key("sleep", 50).queue(json!({
        "data": there.name(), "user": there.owner(), "table": "second"
    }));
    here.run(&format!("GRANT {} TO {}", quote_ident(there.owner()), quote_ident(here.login())));
    let mill = mill.start();
    assert_eq!(mill.schedulers().len(), 3);
    let mut root = here.connect_superuser();
    let name = there.name();
    assert!(say(&mut root, &format!("stop('{name}')")));
    assert_eq!(mill.schedulers().len(), 1, "all rows of the other database");
    assert!(say(&mut root, &format!("start('{name}')")));
    assert_eq!(mill.schedulers().len(), 3);
    let old: Vec<i32> = mill.schedulers().iter().map(|one| one.pid).collect();
    root.batch_execute("BEGIN").expect("begin");
    assert!(say(&mut root, &format!("restart('{name}')")));
    // nobody in there can wait for a lock of this database: they are started afterwards, and keep their slots
    assert_eq!(mill.schedulers().len(), 1);
    let states: Vec<Option<String>> = (0..3).map(|index| row_state(&mill, index)).collect();
    assert_eq!(states, ["STARTED", "ALLOCATED", "ALLOCATED"].map(|state| Some(state.to_owned())));
    let id = there.insert("SELECT 1");
    steadily("nothing runs there", Duration::from_millis(500), || state(&there, id) == "PLAN");
    root.batch_execute("COMMIT").expect("commit");
    assert_eq!(mill.finished(&there, id)["state"], "DONE");
    mill.eventually("both are back", || {
        mill.schedulers().len() == 3 && mill.schedulers().iter().filter(|one| old.contains(&one.pid)).count() == 1
    });
    // the owner of one database has no right to the other
    assert!(!say(&mut here.connect(), &format!("stop('{name}')")));
    assert!(!say(&mut root, "stop('there is none')"));
    assert_eq!(mill.schedulers().len(), 3);
}

#[test]
fn the_sixty_fifth_message_of_a_transaction_is_refused() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let (mut client, warnings) = with_warnings(&database, database.owner());
    client.batch_execute("BEGIN").expect("begin");
    for _ in 0..64 {
        assert!(say(&mut client, "start()"));
    }
    assert!(!say(&mut client, "start()"));
    assert!(warnings.try_iter().any(|warning| warning.contains("64 messages")));
    client.batch_execute("COMMIT").expect("commit");
    assert!(say(&mut client, "start()"));
    drop(mill);
}

#[test]
fn a_task_that_does_not_let_itself_be_cancelled_is_ended_and_runs_again_later() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let mill = Supervisor::of(&database).queue_key("sleep", 50).start();
    let stubborn = "BEGIN;INSERT INTO ledger SELECT pg_backend_pid(), pg_try_advisory_lock(4711);COMMIT;\
                    SET client_connection_check_interval = 0;\
                    DO $$BEGIN WHILE (SELECT count(*) = 1 FROM ledger) LOOP BEGIN PERFORM pg_sleep(1); \
                    EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END$$";
    let id = database.insert(stubborn);
    let backend = ledger::running(&mill, &database, id);
    let began = Instant::now();
    assert!(say(&mut database.connect(), "stop()"));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(mill.children().len(), 0);
    mill.wait("its session is gone").within(SOON).until(|| !ledger::is_connected(&database, backend));
    assert!(say(&mut database.connect(), "start()"));
    assert_eq!(ledger::ended(&mill, &database, id, 2)["attempt"], 2);
}

#[test]
fn a_scheduler_that_does_not_hear_is_killed_within_two_seconds_and_nobody_waits_for_it() {
    let cluster = Cluster::shared();
    let (deaf, other) = (cluster.database(), cluster.database());
    deaf.run(&format!("GRANT {} TO {}", quote_ident(other.owner()), quote_ident(deaf.login())));
    let mill = Supervisor::of(&deaf).and(&other).queue_key("sleep", 50).start();
    let title = format!("pgmill: scheduler {} ", deaf.name());
    let pid = mill.schedulers().into_iter().find(|one| one.title.starts_with(&title)).expect("it runs").pid;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGSTOP).expect("stop it");
    let mut owner = deaf.connect();
    let asked = std::thread::spawn(move || {
        let began = Instant::now();
        (say(&mut owner, "restart()"), began.elapsed())
    });
    // meanwhile the other database is served as ever
    let id = other.insert("SELECT 1");
    mill.finished(&other, id);
    assert!(say(&mut other.connect(), "start()"));
    let (answer, took) = asked.join().expect("asked");
    assert!(answer, "{}", mill.describe());
    assert!(took >= Duration::from_secs(1) && took < SOON, "{took:?}");
    let id = deaf.insert("SELECT 1");
    assert_eq!(mill.finished(&deaf, id)["state"], "DONE");
}

#[test]
fn the_operator_says_the_same_by_commands() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let before = scheduler(&mill);
    let told = |arguments: &[&str]| {
        let output = mill.command(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    };
    let name = database.name();
    assert_eq!(told(&["restart", name]), (Some(0), format!("{name}: restarted\n")));
    assert_ne!(scheduler(&mill), before);
    assert_eq!(told(&["stop", name]), (Some(0), format!("{name}: stopped\n")));
    assert_eq!(mill.schedulers().len(), 0);
    assert_eq!(told(&["stop", name]).0, Some(0));
    let text = String::from_utf8_lossy(&mill.command(&["status"]).stdout).into_owned();
    assert!(text.contains("DISABLED") && text.contains("because: stopped by a command"), "{text}");
    assert_eq!(told(&["start", name]), (Some(0), format!("{name}: started\n")));
    assert_eq!(told(&["start", name]).0, Some(0));
    let (code, said) = told(&["stop", "nowhere"]);
    assert!(code == Some(1) && said.contains("database \"nowhere\" does not exist"), "{said}");
    let (code, said) = told(&["stop", "template1"]);
    assert!(code == Some(1) && said.contains("no queue of its config serves"), "{said}");
    mill.signal(Signal::SIGTERM);
    mill.wait_exit(Duration::from_secs(10));
    assert_eq!(told(&["start", name]).0, Some(3));
}

#[test]
fn a_stop_lasts_over_a_reload_but_not_over_a_new_start_and_the_config_and_the_catalog_last() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    assert!(say(&mut database.connect(), "stop()"));
    let mark = mill.log().mark();
    mill.signal(Signal::SIGHUP);
    mill.eventually("the config is read", || {
        mill.log().since(mark).iter().any(|line| line.contains("config reloaded"))
    });
    steadily("it stays stopped", Duration::from_millis(500), || mill.schedulers().is_empty());
    drop(mill);
    let mill = Supervisor::of(&database).start();
    scheduler(&mill);
    drop(mill);

    let mill = Supervisor::of(&database).queue_key("enabled", false).start();
    assert_eq!((mill.schedulers().len(), row_state(&mill, 0).as_deref()), (0, Some("DISABLED")));
    assert!(say(&mut database.connect(), "start()"), "a message starts it for now");
    drop(mill);

    database.connect().batch_execute("UPDATE mill.meta SET enabled = false").expect("switch it off");
    let mill = Supervisor::of(&database).key("probe", "200 ms").start();
    mill.eventually("it is disabled", || row_state(&mill, 0).as_deref() == Some("DISABLED"));
    let why = mill.status().expect("status")["databases"][0]["why"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("mill.meta.enabled")), "{why}");
    let id = database.insert("SELECT 1");
    steadily("nothing runs", Duration::from_millis(500), || state(&database, id) == "PLAN");
    database.connect().batch_execute("UPDATE mill.meta SET enabled = true").expect("switch it on");
    assert_eq!(mill.finished(&database, id)["state"], "DONE", "a look every now and then finds it");
}

#[test]
fn a_message_while_a_task_runs_plans_it_again() {
    let database = Cluster::shared().database();
    ledger::open(&database);
    let mill = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert(&ledger::input());
    running(&mill, &database, id);
    ledger::running(&mill, &database, id);
    assert!(say(&mut database.connect(), "stop()"));
    let row: Value = database.task(id).expect("the row is there");
    assert_eq!((&row["state"], &row["pid"]), (&json!("PLAN"), &Value::Null), "{row}");
    assert!(say(&mut database.connect(), "start()"));
    assert_eq!(ledger::ended(&mill, &database, id, 2)["attempt"], 2);
}
