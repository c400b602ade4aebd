//! Tasks on another server: a second real cluster, over TCP with SCRAM, and over TLS.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Cluster, Proxy, Supervisor, steadily};

use crate::ledger;
use crate::remote_server::{
    PASSWORD, conninfo, conninfo_at, far_cluster, far_database, is_there, no_password, remote, run, why, working,
};

#[test]
fn a_task_runs_on_its_remote_and_is_recorded_at_home() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let mill = Supervisor::of(&home).start();
    let there = remote(&format!("{} application_name=mine options='-c work_mem=7777kB'", conninfo(&far)));
    let asked = "SELECT current_database() AS d, current_user AS u, current_setting('application_name') AS a, \
                 current_setting('work_mem') AS w, current_setting('pg_task.schema') || current_setting('pg_task.table') \
                 || current_setting('pg_task.group') AS g, pg_backend_pid() AS p";
    let row = run(&mill, &home, asked, &format!("{there}, group = 'there', header = false"));
    let fields: Vec<&str> = row["output"].as_str().expect("output").split('\t').collect();
    assert_eq!(
        fields[..5],
        [far.name(), far.owner(), "pg_task public task there", "7777kB", "publictaskthere"],
        "{row}"
    );
    assert_eq!(row["pid"].to_string(), fields[5], "the row names the backend there");
    let failed = run(&mill, &home, "SELECT 1;SELECT 1/0", &there);
    assert_eq!((&failed["state"], &failed["output"]), (&"FAIL".into(), &"1".into()));
    assert_eq!(failed["error"], "ERROR:  division by zero\nSTATEMENT:  SELECT 1;SELECT 1/0");
    let open = run(&mill, &home, "CREATE TABLE made (x int);BEGIN;INSERT INTO made VALUES (1)", &there);
    assert_eq!(open["state"], "DONE", "{open}");
    let made = far.query("SELECT count(*) FROM made", &[]).expect("there");
    assert_eq!(made[0].get::<_, i64>(0), 1, "what it left open was committed");
    no_password(&mill, &home);
    ledger::slots_held_by(&mill, &["launcher", "scheduler"]);
    assert!(far.sessions().is_empty(), "{:?}", far.sessions());
}

#[test]
fn a_remote_that_may_not_be_used_fails_with_a_reason_and_nothing_of_our_host_is_used() {
    let cluster = Cluster::configure().tcp().hba("host all trusted 127.0.0.1/32 trust").start();
    let home = cluster.database();
    home.run("CREATE ROLE trusted LOGIN");
    let port = cluster.server().port.to_string();
    let folder = cluster.home().display().to_string();
    let mill =
        Supervisor::of(&home).env("PGPASSWORD", "s3cret environment").env("PGPASSFILE", "/nonexistent/s3cret").start();
    std::fs::write(mill.home().join(".pgpass"), "*:*:*:*:s3cret file\n").expect("a password file");
    let tcp = format!("host=127.0.0.1 port={port}");
    for (text, words) in [
        ("nobody".to_owned(), "neither a conninfo nor the name of an entry"),
        (String::new(), "neither a conninfo nor the name of an entry"),
        ("host=x user".to_owned(), "no \"=\" after the word"),
        ("hots=x user=a password=s3cret".to_owned(), "did you mean \"host\"?"),
        ("user=trusted password=x".to_owned(), "remote has no host"),
        (format!("{tcp} password=x"), "remote has no user"),
        (format!("{tcp} user=trusted"), "remote has no password"),
        (format!("{tcp} user=trusted dbname=postgres password=x"), "did not ask for the password"),
        (format!("host={folder} port={port} user=postgres password=x"), "may not use a Unix socket"),
        (format!("{tcp} user=trusted password=x service=y"), "may not use service"),
        (format!("{tcp} user=trusted password=x passfile=/etc/passwd"), "may not use passfile"),
        (format!("{tcp} user=trusted password=x sslrootcert=/etc/passwd"), "may not use a file as sslrootcert"),
        (format!("{tcp} user=trusted password=x sslcert=/etc/passwd"), "may not use sslcert"),
        (format!("{tcp} user=trusted password=x sslmode=verify-full"), "remote has no sslrootcert"),
        (format!("{tcp} user=trusted password=x port=99999"), "want a number from 1 to 65535"),
        (format!("{tcp} user=trusted password=x sslmode=require"), "does not offer TLS"),
        (format!("{tcp} user={} dbname=postgres password=wrong", home.owner()), "password authentication failed"),
        ("host=127.0.0.1 port=1 user=a password=b".to_owned(), "Connection refused"),
        ("host=nowhere.invalid user=a password=b".to_owned(), "could not look up nowhere.invalid"),
        ("postgresql://a:s3cret@[::1/x".to_owned(), "not a valid URI"),
        ("x=".repeat(5000), "remote has 10000 bytes"),
    ] {
        let row = run(&mill, &home, "SELECT 1", &remote(&text));
        let error = row["error"].as_str().expect("an error");
        assert_eq!((&row["state"], &row["output"]), (&"FAIL".into(), &"".into()), "{text}");
        assert!(error.contains(words), "{text}: {error}");
        assert!(error.starts_with("ERROR:  ") || error.starts_with("FATAL:  "), "{error}");
        assert!(!error.contains("STATEMENT"), "nothing was sent: {error}");
    }
    no_password(&mill, &home);
}

#[test]
fn an_entry_of_the_config_needs_no_password_in_the_row_and_changes_at_reload() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let other = far_database(far_cluster());
    let mill = Supervisor::of(&home).key("remotes", json!({"reporting": conninfo(&far)})).start();
    let named = "remote = 'reporting'";
    assert_eq!(run(&mill, &home, "SELECT current_database()", named)["output"], far.name());
    let unknown = run(&mill, &home, "SELECT 1", "remote = 'billing'");
    assert!(unknown["error"].as_str().expect("an error").contains("neither a conninfo nor the name"), "{unknown}");
    let text = std::fs::read_to_string(mill.config().expect("a config")).expect("its text");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config["remotes"] = json!({"reporting": conninfo(&other), "billing": conninfo(&far)});
    mill.rewrite_config(&config.to_string());
    mill.signal(tests::Signal::SIGHUP);
    mill.eventually("the new entries count", || {
        run(&mill, &home, "SELECT current_database()", named)["output"] == other.name()
    });
    assert_eq!(run(&mill, &home, "SELECT current_database()", "remote = 'billing'")["output"], far.name());
    no_password(&mill, &home);
}

#[test]
fn an_entry_may_use_files_and_tls_that_a_row_may_not() {
    let far_cluster = Cluster::configure()
        .tcp()
        .hba("hostssl all all 127.0.0.1/32 scram-sha-256")
        .hba("hostnossl all all 127.0.0.1/32 reject")
        .start();
    let workdir = tests::Workdir::new();
    tests::certificates::authority(workdir.home(), "root", "root");
    tests::certificates::signed(workdir.home(), "named", "x", "root", "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
    tests::certificates::serve(&far_cluster, workdir.home(), "named", "root");
    let (home, far) = (Cluster::shared().database(), far_database(&far_cluster));
    let root = workdir.home().join("root.crt").display().to_string();
    let passfile = workdir.write("passwords", &format!("*:*:*:*:{PASSWORD}\n"));
    let port = far.server().port;
    let entry = format!(
        "host=localhost port={port} dbname={} user={} passfile={} sslmode=verify-full sslrootcert={root} \
         channel_binding=require",
        far.name(),
        far.owner(),
        passfile.display()
    );
    let mill = Supervisor::of(&home).key("remotes", json!({"safe": entry})).start();
    let asked = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(run(&mill, &home, asked, "remote = 'safe'")["output"], "t");
    assert_eq!(run(&mill, &home, asked, &remote(&conninfo(&far)))["output"], "t", "preferred, so encrypted");
    let system = format!("{} host=localhost sslmode=verify-full sslrootcert=system", conninfo(&far));
    let row = run(&mill, &home, asked, &remote(&system));
    assert!(row["error"].as_str().expect("an error").contains("could not encrypt the connection"), "{row}");
    // a cancel and a time limit go the same way
    let row = run(&mill, &home, "SELECT pg_sleep(60)", "remote = 'safe', timeout = '300 ms'");
    assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"timeout".into()), "{row}");
    // whoever must end what a dead worker left goes that way, too
    ledger::open(&far);
    let id = home.insert_with(&ledger::input(), "remote = 'safe'");
    working(&mill, &home, &far, id);
    mill.kill9(mill.workers()[0].pid);
    let row = mill.finished(&home, id);
    assert_eq!((&row["state"], &row["attempt"]), (&"DONE".into(), &2.into()));
    assert_eq!(ledger::entries(&far).iter().map(|(_, alone)| *alone).collect::<Vec<_>>(), [true, true]);
    no_password(&mill, &home);
}

#[test]
fn an_atomic_task_cannot_be_remote() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let mill = Supervisor::of(&home).start();
    let row = run(&mill, &home, "SELECT 1", &format!("{}, atomic = true", remote(&conninfo(&far))));
    let error = row["error"].as_str().expect("an error");
    assert!(error.starts_with("ERROR:  an atomic task cannot be remote"), "{error}");
    assert!(!error.contains("STATEMENT"), "{error}");
}

#[test]
fn copy_of_100_000_rows_from_a_remote_is_complete() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let mill = Supervisor::of(&home).start();
    let input = "COPY (SELECT n, md5(n::text) FROM generate_series(1, 100000) n) TO STDOUT";
    let row = run(&mill, &home, input, &remote(&conninfo(&far)));
    assert_eq!(row["state"], "DONE");
    let sql = "SELECT output = (SELECT string_agg(n || E'\\t' || md5(n::text) || E'\\n', '' ORDER BY n) \
               FROM generate_series(1, 100000) n) FROM public.task WHERE id = $1";
    assert!(home.query(sql, &[&row["id"].as_i64()]).expect("there")[0].get::<_, bool>(0));
}

#[test]
fn a_worker_keeps_its_remote_session_for_its_group_and_leaks_nothing() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let mill = Supervisor::of(&home).key("remotes", json!({"a": conninfo(&far)})).start();
    // one transaction, so that all are there when the first is taken
    let there = conninfo(&far).replace('\'', "''");
    home.run(&format!(
        "INSERT INTO public.task (input, \"group\", remote, count, timeout) VALUES \
         ('SET statement_timeout = 12345; SET search_path = nowhere; CREATE TEMP TABLE t (); SELECT 1;SET ROLE NONE; \
           SELECT pg_advisory_lock(5); PREPARE p AS SELECT 1; SELECT pg_backend_pid()', 'r', '{there}', 9, '5 s'), \
         ('SELECT pg_backend_pid(), current_setting(''statement_timeout''), current_setting(''search_path''), \
           to_regclass(''pg_temp.t'') IS NULL, (SELECT count(*) FROM pg_locks WHERE locktype = ''advisory'' AND pid = pg_backend_pid()), \
           (SELECT count(*) FROM pg_prepared_statements), current_setting(''pg_task.id'')', 'r', '{there}', 9, '0'), \
         ('SELECT current_setting(''pg_task.id'')', 'r', 'a', 9, '0'), \
         ('SELECT current_database()', 'r', NULL, 9, '0')"
    ));
    let rows: Vec<Value> = (1..=4).map(|id| mill.finished(&home, id)).collect();
    let second: Vec<&str> =
        rows[1]["output"].as_str().expect("output").lines().last().expect("a row").split('\t').collect();
    assert_eq!(rows[0]["pid"].to_string(), second[0], "one session for both: {rows:?}");
    assert_eq!(second[1..], ["0", "\"$user\", public", "t", "0", "0", "2"], "as new");
    assert_ne!(rows[2]["pid"], rows[0]["pid"], "another remote, though the same server, is another group");
    assert_eq!(rows[3]["output"], home.name(), "a task without a remote runs at home");
    // a time limit is each task's own
    home.run(&format!(
        "INSERT INTO public.task (input, \"group\", remote, count, timeout, save) VALUES \
         ('SET work_mem = ''4321kB''', 's', '{there}', 9, '300 ms', true), \
         ('SELECT pg_sleep(0.6); SELECT current_setting(''work_mem'')', 's', '{there}', 9, '0', false)"
    ));
    let saved = mill.finished(&home, 6);
    assert_eq!((&saved["state"], &saved["output"]), (&"DONE".into(), &"4321kB".into()), "{saved}");
    no_password(&mill, &home);
}

#[test]
fn a_running_remote_task_is_cancelled_there_by_time_limit_stop_delete_and_users() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let mill = Supervisor::of(&home).start();
    let there = remote(&conninfo(&far));
    let row = run(&mill, &home, "SELECT pg_sleep(60)", &format!("{there}, timeout = '300 ms'"));
    let text = "ERROR:  canceling statement due to statement timeout\nSTATEMENT:  SELECT pg_sleep(60)";
    assert_eq!((&row["error"], &row["reason"]), (&text.into(), &"timeout".into()));
    // the watchdog's doing: the task has switched the server's own limit off
    let row =
        run(&mill, &home, "SET statement_timeout = 0;SELECT pg_sleep(60)", &format!("{there}, timeout = '300 ms'"));
    assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"timeout".into()), "{row}");
    for change in ["UPDATE public.task SET state = 'STOP' WHERE id =", "DELETE FROM public.task WHERE id ="] {
        let id = home.insert_with("SELECT pg_sleep(60)", &there);
        let pid = working(&mill, &home, &far, id);
        home.run(&format!("{change} {id}"));
        mill.eventually("its backend is gone", || !is_there(&far, pid));
        ledger::slots_held_by(&mill, &["launcher", "scheduler"]);
        assert!(home.task(id).is_none_or(|row| row["state"] == "STOP"));
    }
    for (call, words) in [("pg_cancel_backend", "user request"), ("pg_terminate_backend", "FATAL:  terminating")] {
        let id = home.insert_with("SELECT pg_sleep(60)", &there);
        let pid = working(&mill, &home, &far, id);
        far.run(&format!("SELECT {call}({pid})"));
        let row = mill.finished(&home, id);
        assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"cancelled".into()), "{row}");
        assert!(row["error"].as_str().expect("an error").contains(words), "{row}");
    }
}

#[test]
fn a_repeating_remote_task_repeats_after_success_and_after_a_connection_failure() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let mill = Supervisor::of(&home).start();
    for there in [conninfo(&far), "host=127.0.0.1 port=1 user=a password=b".to_owned()] {
        let row = run(&mill, &home, "SELECT 1", &format!("{}, repeat = '1 hour'", remote(&there)));
        let next = home.tasks().into_iter().find(|next| next["parent"] == row["id"]).expect("its repetition");
        assert_eq!((&next["state"], &next["remote"]), (&"PLAN".into(), &there.into()));
        assert_eq!(next["remote_session"], Value::Null);
    }
}

#[test]
fn a_shutdown_gives_remote_tasks_back_at_once() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let mill = Supervisor::of(&home).start();
    let id = home.insert_with("SELECT pg_sleep(60)", &remote(&conninfo(&far)));
    let pid = working(&mill, &home, &far, id);
    mill.signal(tests::Signal::SIGINT);
    assert!(mill.wait_exit(Duration::from_secs(10)).success());
    let row = home.task(id).expect("there");
    assert_eq!((&row["state"], &row["pid"]), (&"PLAN".into(), &Value::Null), "{row}");
    mill.eventually("its backend is gone", || !is_there(&far, pid));
}

#[test]
fn a_silent_host_delays_nobody_and_fails_its_own_task_in_time() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let silent = Proxy::before(far.server().port);
    silent.play_dead(true);
    let mill = Supervisor::of(&home).key("max_workers", 6).start();
    let there = remote(&format!("{} connect_timeout=2", conninfo_at(&far, silent.port())));
    let began = Instant::now();
    let stuck = home.insert_with("SELECT 1", &format!("{there}, group = 'silent'"));
    mill.eventually("it connects", || home.task(stuck).is_some_and(|row| row["state"] == "WORK"));
    assert!(why(&home, stuck).starts_with("connecting to its remote since"), "{}", why(&home, stuck));
    for _ in 0..5 {
        let asked = Instant::now();
        let row = run(&mill, &home, "SELECT 1", "group = 'healthy'");
        assert_eq!(row["state"], "DONE");
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        assert!(mill.status().is_some());
    }
    let row = mill.finished(&home, stuck);
    assert!(row["error"].as_str().expect("an error").contains("could not log in to"), "{row}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // nor does it delay the end
    let id = home.insert_with("SELECT 1", &there.replace("connect_timeout=2", "connect_timeout=50"));
    mill.eventually("it connects", || home.task(id).is_some_and(|row| row["state"] == "WORK"));
    let asked = Instant::now();
    mill.signal(tests::Signal::SIGINT);
    assert!(mill.wait_exit(Duration::from_secs(10)).success());
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(home.task(id).expect("there")["state"], "PLAN");
}

#[test]
fn a_pid_of_a_remote_is_never_taken_for_one_of_our_own_server() {
    let (home, far) = (Cluster::shared().database(), far_database(far_cluster()));
    let mill = Supervisor::of(&home).start();
    let mut innocent = home.connect();
    let pid: i32 = innocent.query_one("SELECT pg_backend_pid()", &[]).expect("a session").get(0);
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|own| own.local_addr()).expect("a port").port();
    let there = conninfo_at(&far, gone).replace('\'', "''");
    // as a dead worker would have left it: the number is that of an innocent session here
    home.run(&format!(
        "SET session_replication_role = replica; \
         INSERT INTO public.task (input, remote, state, attempt, start, pid, remote_session) \
         VALUES ('SELECT 1', '{there}', 'WORK', 1, now() + interval '1 hour', {pid}, '0 1 1')"
    ));
    mill.kill9(mill.schedulers()[0].pid);
    mill.eventually("it is found", || why(&home, 1) == "remote not reachable, outcome unknown");
    steadily("nobody touches it", Duration::from_secs(1), || innocent.query_one("SELECT 1", &[]).is_ok());
    assert_eq!(home.task(1).expect("there")["state"], "WORK");
}

#[test]
fn too_many_entries_are_a_mistake_with_a_name() {
    let workdir = tests::Workdir::new();
    let entries: Vec<String> = (0..60)
        .map(|n| format!(r#""remote{n}": "host=db{n}.example user=app password=s3cret{}""#, "x".repeat(40)))
        .collect();
    let config = workdir
        .write("mill.json", &format!(r#"{{"remotes": {{{}}}, "json": [{{"data": "app"}}]}}"#, entries.join(",")));
    let ended = workdir.run(&["check", "--config", &config.display().to_string()]);
    assert_eq!(ended.code, Some(78), "{}", ended.all());
    assert!(
        ended.all().contains("remotes: parameters exceed the limit by ") && ended.all().contains("json[0]"),
        "{}",
        ended.all()
    );
    assert!(!ended.all().contains("s3cret"));
}
