//! The deltas of jobs: successes of runs are written beside the counters, so that runs of one job do not wait for each
//! other, and are entered later; what is under way is counted by its row. What people see is exact at every moment.

use std::time::Duration;

use postgres::Client;
use tests::{Cluster, Database, Signal, Supervisor, sized};

use crate::job_fixture::{self, insert, put_held, running, task_of};
use crate::queries::{all, one};

/// A queue that runs jobs, and nobody who serves it: what happens there is what a test does.
pub fn quiet(database: &Database) {
    let mill = Supervisor::of(database).start();
    job_fixture::open(&mill, database);
    mill.signal(Signal::SIGTERM);
    mill.wait_exit(Duration::from_secs(20));
}

/// A person who waits for nobody.
pub fn hasty(database: &Database) -> Client {
    let mut client = database.connect();
    client.batch_execute("SET lock_timeout = '3s'").expect("SET");
    client
}

#[track_caller]
pub fn activate(client: &mut Client, job: i32, minute: i64) -> i64 {
    activate_in(client, job, minute, "NULL")
}

/// With an epoch it is a run that edges or a person have begun.
#[track_caller]
pub fn activate_in(client: &mut Client, job: i32, minute: i64, epoch: &str) -> i64 {
    let sql = format!(
        "SELECT mill_private.order_run({job}, '2026-01-01Z'::timestamptz + {minute} * interval '1 min', mill.now(), held => true, epoch => {epoch})"
    );
    put_held(client, &sql)[0]
}

#[track_caller]
pub fn change(client: &mut Client, task: i64, columns: &str) {
    let changed = client.execute(&format!("UPDATE public.task SET {columns} WHERE id = {task}"), &[]);
    assert_eq!(changed.unwrap_or_else(|error| panic!("{columns}: {:?}", error.as_db_error())), 1, "{columns}");
}

pub const START: &str = "state = 'WORK', start = clock_timestamp()";

pub const SUCCESS: &str = "state = 'DONE', stop = clock_timestamp()";

pub const FAILURE: &str = "state = 'FAIL', stop = clock_timestamp(), error = 'ERROR:  no'";

pub fn left_over(database: &Database) -> (i64, i64) {
    (
        one(database, "SELECT count(*) FROM mill_private.job_delta"),
        one(database, "SELECT count(*) FROM mill_private.job_state"),
    )
}

#[test]
fn runs_of_one_job_end_without_waiting_for_each_other() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let job = insert(&database, "many", "input, \"max\"", "'SELECT pg_sleep(600)', 5");
    let mut client = hasty(&database);
    client.batch_execute(&format!("SELECT mill.run_job({job})")).expect("run_job");
    let (long, _, _) = running(&mill, &database, job);
    client.batch_execute("UPDATE mill.job SET input = 'SELECT 1'").expect("UPDATE");
    // a person ends the long one, and thinks it over before he commits
    let mut person = database.connect();
    let mut open = person.transaction().expect("BEGIN");
    open.batch_execute(&format!("UPDATE public.task SET {SUCCESS} WHERE id = {long}")).expect("UPDATE");
    let short: i64 = client.query_one(&format!("SELECT mill.run_job({job})"), &[]).expect("run_job").get(0);
    let short = task_of(&mill, &database, short);
    assert_eq!(mill.finished(&database, short)["state"], "DONE");
    assert_eq!(counters(&database, job), [2, 1, 0, 1, 0, 0, 1]);
    open.commit().expect("COMMIT");
    assert_eq!(counters(&database, job), [2, 2, 0, 0, 0, 0, 0]);
}

/// total_runs, total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes, running
#[track_caller]
fn counters(database: &Database, job: i32) -> [i64; 7] {
    let sql = format!(
        "SELECT ARRAY[total_runs, total_successes, total_failures, total_crashes, consecutive_failures, consecutive_crashes, running] \
         FROM mill.job_stat WHERE job = {job}"
    );
    one::<Vec<i64>>(database, &sql).try_into().expect("seven numbers")
}

/// The counters of one job, computed event by event.
#[derive(Default)]
struct ExpectedCounters {
    job: i32,
    counters: [i64; 7],
    waiting: Vec<i64>,
    /// With whether no other run has ended since it was taken: then it counts as one more crash in a row.
    taken: Vec<(i64, bool)>,
    /// Crashes in a row of runs that have ended.
    crashed: i64,
}

impl ExpectedCounters {
    fn add(&mut self, changes: [i64; 6]) {
        for (number, change) in self.counters.iter_mut().zip(changes) {
            *number += change;
        }
        self.counters[5] = self.crashed + self.taken.iter().filter(|(_, since)| *since).count() as i64;
        self.counters[6] = self.taken.len() as i64;
    }

    /// The oldest one is at work no more, and has come to its end: what began before it counts for itself.
    fn end(&mut self, crashed: i64) {
        self.taken.remove(0);
        self.taken.iter_mut().for_each(|(_, since)| *since = false);
        self.crashed = crashed;
    }

    /// Does what the throw of the dice says, and enters it.
    fn act(&mut self, client: &mut Client, dice: u64, minute: i64) {
        let end = self.taken.first().map(|(task, _)| *task);
        match (dice % 10, end) {
            (0..=3, _) | (_, None) => {
                let task = self.waiting.pop().unwrap_or_else(|| activate(client, self.job, minute));
                change(client, task, "state = 'TAKE'");
                self.taken.push((task, true));
                self.add([1, 0, 0, 1, 0, 0]);
            }
            (4..=6, Some(task)) => {
                change(client, task, &format!("{START}, held = false"));
                change(client, task, SUCCESS);
                self.end(0);
                self.add([0, 1, 0, -1, -self.counters[4], 0]);
            }
            (7, Some(task)) => {
                change(client, task, FAILURE);
                self.end(0);
                self.add([0, 0, 1, -1, 1, 0]);
            }
            (8, Some(task)) if dice % 20 == 8 => {
                change(client, task, &format!("{FAILURE}, reason = 'crashed'"));
                self.end(self.crashed + 1);
                self.add([0; 6]);
            }
            (8, Some(task)) => {
                change(client, task, &format!("{FAILURE}, reason = 'interrupted'"));
                self.taken.remove(0);
                self.add([-1, 0, 0, -1, 0, 0]);
            }
            (_, Some(task)) => {
                change(client, task, "state = 'PLAN', held = true");
                self.taken.remove(0);
                self.waiting.push(task);
                self.add([-1, 0, 0, -1, 0, 0]);
            }
        }
    }
}

#[test]
fn what_people_see_of_a_job_is_exact_before_and_after_its_deltas_are_applied() {
    let database = Cluster::shared().database();
    quiet(&database);
    let mut jobs: Vec<ExpectedCounters> = ["one", "two", "three"]
        .map(|name| ExpectedCounters {
            job: insert(&database, name, "input", "'SELECT 1'"),
            ..ExpectedCounters::default()
        })
        .into();
    // somebody replicates them: that stands in nobody's way
    database
        .run("CREATE PUBLICATION counters FOR TABLE mill_private.job_state, mill_private.job_delta, mill_private.run");
    let mut client = hasty(&database);
    let seen = "SELECT s::text FROM mill.job_stat s ORDER BY s.job";
    // the same without what is under way, which is in no counter
    let ended = "SELECT n::text FROM mill_private.job_counters n ORDER BY n.job";
    // without a random source: a failure can be looked at again
    let mut dice: u64 = 42;
    for step in 0..sized(300, 3000) {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let throw = dice >> 33;
        let job = &mut jobs[(throw % 3) as usize];
        job.act(&mut client, throw / 3, step);
        let job = &jobs[(throw % 3) as usize];
        assert_eq!(counters(&database, job.job), job.counters, "job {} at step {step}", job.job);
        if (throw / 7).is_multiple_of(5) {
            let before: Vec<String> = all(&database, seen);
            let entered: Vec<String> = all(&database, ended);
            client.batch_execute("SELECT mill_private.apply_all_deltas()").expect("fold_all");
            assert_eq!(one::<i64>(&database, "SELECT count(*) FROM mill_private.job_delta"), 0);
            assert_eq!(all::<String>(&database, seen), before, "at step {step}");
            assert_eq!(
                all::<String>(&database, "SELECT b::text FROM mill_private.job_state b ORDER BY b.job"),
                entered
            );
        }
    }
    let wrong: i64 = one(
        &database,
        "SELECT count(*) FROM mill.job_stat s, LATERAL (
             SELECT sum(r.stop - r.start) FILTER (WHERE t.state = 'DONE') AS lasted, max(t.stop) FILTER (WHERE t.state = 'DONE') AS stop
               FROM public.task t JOIN mill_private.run r ON r.id = t.run WHERE t.job = s.job) AS t
          WHERE s.total_duration <> t.lasted OR s.last_successful_finish NOT BETWEEN t.stop AND t.stop + interval '5 s'
             OR s.last_finish < s.last_successful_finish",
    );
    assert_eq!(wrong, 0);
    assert_eq!(all::<String>(&database, "SELECT problem FROM mill.fsck() WHERE queue IS NULL"), Vec::<String>::new());
}

#[test]
fn a_run_that_edges_have_begun_is_counted_by_its_row_until_it_ends() {
    let database = Cluster::shared().database();
    quiet(&database);
    let job = insert(&database, "node", "input", "'SELECT 1'");
    let mut client = hasty(&database);
    let status = format!("SELECT status FROM mill.job_status WHERE job = {job}");
    let mut minute = 0;
    let mut begin = |client: &mut Client| {
        minute += 1;
        activate_in(client, job, minute, "0")
    };
    let first = begin(&mut client);
    assert_eq!(counters(&database, job), [0; 7]);
    change(&mut client, first, "state = 'TAKE'");
    assert_eq!((counters(&database, job), left_over(&database).0), ([1, 0, 0, 1, 0, 1, 1], 0));
    assert_eq!(one::<String>(&database, &status), "Running");
    change(&mut client, first, "state = 'PLAN', held = true");
    assert_eq!(counters(&database, job), [0; 7], "given back");
    let steps = [
        (SUCCESS.to_owned(), [1, 1, 0, 0, 0, 0, 0]),
        (FAILURE.to_owned(), [2, 1, 1, 0, 1, 0, 0]),
        (format!("{FAILURE}, reason = 'interrupted'"), [2, 1, 1, 0, 1, 0, 0]),
        (format!("{FAILURE}, reason = 'crashed'"), [3, 1, 1, 1, 1, 1, 0]),
        (format!("{FAILURE}, reason = 'crashed'"), [4, 1, 1, 2, 1, 2, 0]),
        ("state = 'STOP'".to_owned(), [5, 1, 2, 2, 2, 0, 0]),
        (SUCCESS.to_owned(), [6, 2, 2, 2, 0, 0, 0]),
    ];
    let mut before = [0; 7];
    for (end, expected) in steps {
        let task = begin(&mut client);
        change(&mut client, task, &format!("{START}, held = false"));
        let [runs, successes, failures, crashes, failed, crashed, _] = before;
        let at_work = [runs + 1, successes, failures, crashes + 1, failed, crashed + 1, 1];
        assert_eq!(counters(&database, job), at_work, "before {end}");
        change(&mut client, task, &end);
        assert_eq!(counters(&database, job), expected, "after {end}");
        client.batch_execute("SELECT mill_private.apply_all_deltas()").expect("fold_all");
        assert_eq!(counters(&database, job), expected, "entered after {end}");
        before = expected;
    }
    let gone = begin(&mut client);
    change(&mut client, gone, &format!("{START}, held = false"));
    client.batch_execute(&format!("DELETE FROM public.task WHERE id = {gone}")).expect("DELETE");
    assert_eq!(counters(&database, job), [7, 2, 3, 2, 1, 0, 0], "deleted is cancelled");
    let wrong: i64 = one(
        &database,
        "SELECT count(*) FROM mill.job_stat s, LATERAL (
             SELECT max(t.start) AS start, sum(r.stop - r.start) FILTER (WHERE t.state = 'DONE') AS lasted
               FROM mill_private.run r LEFT JOIN public.task t ON t.run = r.id WHERE r.job = s.job) AS t
          WHERE s.total_duration <> t.lasted OR s.last_start NOT BETWEEN t.start - interval '1 s' AND t.start + interval '5 s'",
    );
    assert_eq!(wrong, 0);
    assert_eq!(all::<String>(&database, "SELECT problem FROM mill.fsck() WHERE queue IS NULL"), Vec::<String>::new());
    // its owner calls the table by another name, which nobody has noticed yet
    database.run("ALTER TABLE public.task RENAME TO elsewhere");
    assert_eq!(counters(&database, job), [7, 2, 3, 2, 1, 0, 0]);
}

#[test]
fn a_run_neither_starts_nor_ends_late_because_somebody_is_changing_its_job() {
    let database = Cluster::shared().database();
    quiet(&database);
    let mut client = hasty(&database);
    for changing in ["UPDATE mill.job SET priority = 1", "DELETE FROM mill.job"] {
        let job = insert(&database, "short", "input", "'SELECT 1'");
        let tasks = [0, 1].map(|minute| activate(&mut client, job, minute));
        change(&mut client, tasks[0], START);
        let mut other = database.connect();
        let mut open = other.transaction().expect("BEGIN");
        // a waiting run of a job that is being deleted is just being closed
        open.batch_execute(&format!("UPDATE public.task SET held = held WHERE id = {}; {changing}", tasks[1]))
            .expect("a change");
        change(&mut client, tasks[0], SUCCESS);
        open.rollback().expect("ROLLBACK");
        let mut open = other.transaction().expect("BEGIN");
        open.batch_execute("UPDATE mill.job SET priority = 2").expect("a change");
        change(&mut client, tasks[1], START);
        change(&mut client, tasks[1], SUCCESS);
        open.commit().expect("COMMIT");
        assert_eq!(counters(&database, job), [2, 2, 0, 0, 0, 0, 0]);
        client.batch_execute("DELETE FROM mill.job").expect("DELETE");
        assert_eq!(left_over(&database), (0, 0));
    }
}

#[test]
fn applying_deltas_never_waits() {
    let database = Cluster::shared().database();
    quiet(&database);
    let mut client = hasty(&database);
    let jobs = ["one", "two"].map(|name| insert(&database, name, "input", "'SELECT 1'"));
    for job in jobs {
        for minute in 0..3 {
            let task = activate(&mut client, job, minute);
            change(&mut client, task, START);
            change(&mut client, task, SUCCESS);
        }
    }
    let left = "SELECT array_agg(DISTINCT t.job) FROM mill_private.job_delta t";
    let mut other = database.connect();
    let mut open = other.transaction().expect("BEGIN");
    open.batch_execute(&format!("UPDATE mill.job SET priority = 1 WHERE id = {}", jobs[0])).expect("UPDATE");
    client
        .batch_execute("SET lock_timeout = '100ms'; SELECT mill_private.apply_all_deltas()")
        .expect("it waits for nobody");
    assert_eq!(one::<Vec<i32>>(&database, left), [jobs[0]]);
    open.rollback().expect("ROLLBACK");
    // and a run that fails, which enters what there is: others start and end meanwhile
    let (failing, other_run) = (activate(&mut client, jobs[0], 10), activate(&mut client, jobs[0], 11));
    change(&mut client, failing, START);
    let mut open = other.transaction().expect("BEGIN");
    open.batch_execute(&format!("UPDATE public.task SET {FAILURE} WHERE id = {failing}")).expect("UPDATE");
    client.batch_execute("SELECT mill_private.apply_all_deltas()").expect("it waits for nobody");
    change(&mut client, other_run, START);
    change(&mut client, other_run, SUCCESS);
    assert_eq!(counters(&database, jobs[0]), [5, 4, 0, 1, 0, 0, 1]);
    open.commit().expect("COMMIT");
    assert_eq!(counters(&database, jobs[0]), [5, 4, 1, 0, 0, 0, 0]);
    client.batch_execute("SELECT mill_private.apply_all_deltas()").expect("fold_all");
    assert_eq!(one::<Option<Vec<i32>>>(&database, left), None);
    assert_eq!(counters(&database, jobs[0]), [5, 4, 1, 0, 0, 0, 0]);
}

#[test]
fn the_scheduler_applies_the_deltas_of_a_busy_queue() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    job_fixture::open(&mill, &database);
    let job = insert(&database, "busy", "input, live, \"max\"", "'SELECT 1', '1 hour', 3");
    let mut client = database.connect();
    let mut runs: i64 = 0;
    // work goes on until some of it has been entered
    mill.wait("the counters follow").within(Duration::from_secs(30)).until(|| {
        client.batch_execute(&format!("SELECT mill.run_job({job}) FROM generate_series(1, 20)")).expect("run_job");
        runs += 20;
        one::<i64>(&database, &format!("SELECT total_successes FROM mill_private.job_state WHERE job = {job}")) > 20
    });
    mill.wait("all have run").within(Duration::from_secs(60)).until(|| counters(&database, job)[1] == runs);
    assert_eq!(counters(&database, job), [runs, runs, 0, 0, 0, 0, 0]);
    mill.wait("no delta is left").within(Duration::from_secs(60)).until(|| left_over(&database) == (0, 1));
}
