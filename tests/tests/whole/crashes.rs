//! Tasks that kill their worker or their server process: they wait ever longer, and after twenty deaths in a row they fail.
//! Stops, restarts and lost servers do not count.

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Cluster, Database, ShutdownMode, Signal, Supervisor, eventually, steadily};

/// Longer than any test.
const LONG: &str = "SELECT pg_sleep(300)";

/// Waits until its input runs, and gives its backend.
#[track_caller]
fn running(mill: &Supervisor<'_>, database: &Database, id: i64) -> i32 {
    let sql = "SELECT t.pid FROM public.task t JOIN pg_stat_activity a ON a.pid = t.pid AND a.state = 'active' \
               WHERE t.id = $1 AND t.state = 'WORK' AND a.query LIKE '%pg_sleep%'";
    mill.wait("the task runs")
        .within(Duration::from_secs(30))
        .until(|| database.query(sql, &[&id])?.first().map(|row| row.get(0)))
}

/// Waits until the task runs, and kills its worker.
#[track_caller]
fn kill(mill: &Supervisor<'_>, database: &Database, id: i64) {
    running(mill, database, id);
    let attempt = database.task(id).expect("it is there")["attempt"].clone();
    let title = format!(" #{id}");
    let worker =
        mill.eventually("it has a worker", || mill.workers().into_iter().find(|one| one.title.ends_with(&title)));
    mill.kill9(worker.pid);
    mill.eventually("its row is settled", || {
        database.task(id).is_some_and(|row| row["state"] != "WORK" || row["attempt"] != attempt)
    });
}

fn crashes(database: &Database, id: i64) -> Value {
    database.task(id).map(|row| row["crashes"].clone()).unwrap_or_default()
}

/// Seconds from now to the task's plan.
fn wait(database: &Database, id: i64) -> f64 {
    let sql = "SELECT extract(epoch FROM plan - now())::float8 FROM public.task WHERE id = $1";
    database.query(sql, &[&id]).map_or(f64::NAN, |rows| rows[0].get(0))
}

fn why(database: &Database, id: i64) -> String {
    eventually("the server answers", || database.query("SELECT mill.why($1::bigint)", &[&id])).remove(0).get(0)
}

/// Lets it be tried again at once, as if so many deaths had been before.
fn hurry(database: &Database, id: i64, crashes: i32) {
    database.run(&format!("UPDATE public.task SET plan = now(), crashes = {crashes} WHERE id = {id}"));
}

#[test]
fn a_task_whose_worker_is_killed_each_time_is_not_tried_without_pause() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert(LONG);
    let began = Instant::now();
    steadily("it is killed wherever it is", Duration::from_secs(4), || {
        if database.task(id).is_some_and(|row| row["state"] == "WORK") {
            mill.workers().iter().for_each(|worker| mill.kill9(worker.pid));
        }
        true
    });
    let attempts = database.task(id).expect("it is there")["attempt"].as_i64().unwrap_or_default();
    assert!((3..=4).contains(&attempts), "{attempts} attempts in {:?}", began.elapsed());
}

#[test]
fn waits_double_from_the_second_death_on_and_why_tells_so_and_other_tasks_of_the_group_go_on() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert(LONG);
    kill(&mill, &database, id);
    assert_eq!(crashes(&database, id), 1);
    kill(&mill, &database, id);
    let (row, left) = (database.task(id).expect("it is there"), wait(&database, id));
    assert_eq!((&row["state"], &row["crashes"]), (&"PLAN".into(), &2.into()), "{row}");
    assert!((0.0..=1.0).contains(&left), "{left} s");
    hurry(&database, id, 5);
    kill(&mill, &database, id);
    assert_eq!(crashes(&database, id), 6);
    let left = wait(&database, id);
    assert!((15.0..=16.0).contains(&left), "{left} s");
    assert!(why(&database, id).contains("the last 6 attempts killed"), "{}", why(&database, id));
    let other = database.insert("SELECT 1");
    assert_eq!(mill.finished(&database, other)["state"], "DONE", "the group is not blocked");
    for (before, seconds) in [(9, 256.0), (10, 300.0), (15, 300.0)] {
        hurry(&database, id, before);
        kill(&mill, &database, id);
        let left = wait(&database, id);
        assert!((seconds - 3.0..=seconds).contains(&left), "{left} s after {} deaths", before + 1);
    }
    assert!(mill.log_contains("worker killed by signal 9 (SIGKILL)"));
    // The count is in the row.
    drop(mill);
    assert_eq!(crashes(&database, id), 16);
    let mill = Supervisor::of(&database).start();
    hurry(&database, id, 16);
    kill(&mill, &database, id);
    assert_eq!(crashes(&database, id), 17);
}

#[test]
fn the_twentieth_death_in_a_row_is_the_end_and_a_repeating_task_repeats_on_its_own_grid() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert_with(LONG, "repeat = '1 hour', active = '2 days', plan = CURRENT_DATE");
    let plain = database.insert_with(LONG, "group = 'plain', delete = true");
    running(&mill, &database, id);
    kill(&mill, &database, id);
    kill(&mill, &database, id);
    let moved = "SELECT at = CURRENT_DATE AND plan > now() - interval '1 minute' FROM public.task WHERE id = $1";
    let rows = database.query(moved, &[&id]).expect("the query");
    assert!(rows[0].get::<_, bool>(0), "its own plan is kept");
    running(&mill, &database, id);
    database.run(&format!("UPDATE public.task SET crashes = 19 WHERE id = {id}"));
    database.run(&format!("UPDATE public.task SET crashes = 19 WHERE id = {plain}"));
    kill(&mill, &database, id);
    kill(&mill, &database, plain);
    for id in [id, plain] {
        let row = mill.finished(&database, id);
        assert_eq!((&row["state"], &row["reason"], &row["crashes"]), (&"FAIL".into(), &"crashed".into(), &0.into()));
        let error = row["error"].as_str().unwrap_or_default();
        assert_eq!(error, "ERROR:  task crashed: worker killed by signal 9 (SIGKILL), 20 times in a row");
    }
    let next = "SELECT plan = date_trunc('hour', plan) AND plan > now() AND at IS NULL AND crashes = 0 \
                FROM public.task WHERE parent = $1";
    let rows = database.query(next, &[&id]).expect("the query");
    assert_eq!((rows.len(), rows[0].get::<_, Option<bool>>(0)), (1, Some(true)), "{:#?}", database.tasks());
}

#[test]
fn an_end_of_its_own_resets_the_count() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    for (input, columns, state) in [
        ("SELECT 1", "group = 'a'", "DONE"),
        ("SELECT 1/0", "group = 'b'", "FAIL"),
        ("SELECT 1", "group = 'c', count = 100, max = 1", "DONE"),
        ("SELECT 1", "group = 'd', atomic = true", "DONE"),
        ("SELECT 1", "group = 'e', max = -100", "DONE"),
    ] {
        let id = database.insert_with(LONG, columns);
        kill(&mill, &database, id);
        running(&mill, &database, id);
        database.run(&format!("UPDATE public.task SET input = '{input}' WHERE id = {id}"));
        database.run(&format!("SELECT pg_cancel_backend(pid) FROM public.task WHERE id = {id}"));
        mill.finished(&database, id);
        database.run(&format!("UPDATE public.task SET state = 'PLAN', crashes = 1, plan = now() WHERE id = {id}"));
        let row = mill
            .eventually("it has ended by itself", || database.finished(id).filter(|row| row["reason"] != "cancelled"));
        assert_eq!((&row["state"], &row["crashes"]), (&state.into(), &0.into()), "{columns}");
    }
}

#[test]
fn stops_restarts_and_deaths_of_others_do_not_count() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert(LONG);
    running(&mill, &database, id);
    let again = |mill: &Supervisor<'_>, what: &str, attempt: i64| {
        mill.wait("it runs again").within(Duration::from_secs(30)).until(|| {
            database.task(id).is_some_and(|row| row["state"] == "WORK" && row["attempt"].as_i64() > Some(attempt))
        });
        assert_eq!(crashes(&database, id), 0, "{what}");
    };
    let attempt = || database.task(id).and_then(|row| row["attempt"].as_i64()).unwrap_or_default();
    let before = attempt();
    mill.kill9(mill.schedulers()[0].pid);
    again(&mill, "the scheduler was killed", before);
    for (mode, what) in [(ShutdownMode::Fast, "fast"), (ShutdownMode::Immediate, "immediate")] {
        running(&mill, &database, id);
        let before = attempt();
        cluster.restart(mode);
        again(&mill, what, before);
    }
    running(&mill, &database, id);
    let before = attempt();
    database.run("SELECT mill.restart()");
    again(&mill, "the queue was restarted", before);
    running(&mill, &database, id);
    mill.signal(Signal::SIGINT);
    mill.wait_exit(Duration::from_secs(20));
    let before = attempt();
    drop(mill);
    let mill = Supervisor::of(&database).start();
    again(&mill, "the launcher was stopped", before - 1);
    running(&mill, &database, id);
    mill.signal(Signal::SIGQUIT);
    mill.wait_exit(Duration::from_secs(20));
    let before = attempt();
    drop(mill);
    let mill = Supervisor::of(&database).start();
    again(&mill, "the launcher was quit", before);
}

#[test]
fn a_server_process_that_dies_counts_for_its_own_task_alone() {
    let cluster = Cluster::start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).start();
    let culprit = database.insert_with(LONG, "group = 'culprit'");
    let bystander = database.insert_with(LONG, "group = 'bystander'");
    for death in 1..=2 {
        let pid = running(&mill, &database, culprit);
        running(&mill, &database, bystander);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGSEGV).expect("kill the server process");
        mill.wait("the server is back")
            .within(Duration::from_secs(30))
            .until(|| database.task(culprit).is_some_and(|row| row["crashes"] == death));
        mill.wait("both are planned or run again").within(Duration::from_secs(30)).until(|| {
            database.task(bystander).is_some_and(|row| row["state"] == "WORK" && row["attempt"] == death + 1)
        });
        assert_eq!(crashes(&database, bystander), 0);
    }
    mill.eventually("the log says how", || mill.log_contains("as by a crash of its server process"));
}

#[test]
fn of_a_batch_only_the_task_that_was_running_counts() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    database.run("CREATE TABLE public.poison (id bigint); GRANT ALL ON public.poison TO PUBLIC");
    let hold = "plan = now() + '1 s', count = 1000, group = 'g'";
    let ids: Vec<i64> = (0..30).map(|_| database.insert_with("SELECT 1", hold)).collect();
    let bad = database.insert_with(LONG, hold);
    let behind: Vec<i64> = (0..30).map(|_| database.insert_with("SELECT 1", hold)).collect();
    kill(&mill, &database, bad);
    let count = "SELECT count(*) FROM public.task WHERE state = 'DONE' AND crashes = 0";
    assert_eq!(crashes(&database, bad), 1);
    kill(&mill, &database, bad);
    assert_eq!(crashes(&database, bad), 2);
    database.run(&format!("DELETE FROM public.task WHERE id = {bad}"));
    let all = (ids.len() + behind.len()) as i64;
    mill.eventually("the others are done", || {
        database.query(count, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == all)
    });
}
