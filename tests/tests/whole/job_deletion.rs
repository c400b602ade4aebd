//! Jobs that are deleted while runs of them start, end or order the next one: nothing of them is left.

use std::time::Duration;

use tests::{Cluster, Database, Supervisor, sized};

use crate::job_counters::{FAILURE, START, SUCCESS, activate, activate_in, change, hasty, left_over, quiet};
use crate::job_fixture::{self, insert};
use crate::queries::{all, one};

#[test]
fn a_job_that_is_deleted_while_a_run_of_it_starts_or_ends_leaves_nothing_behind() {
    let database = Cluster::shared().database();
    quiet(&database);
    let mut client = hasty(&database);
    let sequences =
        [("", START, Some(FAILURE)), ("", START, Some(SUCCESS)), (START, SUCCESS, None), (START, FAILURE, None)];
    for (epoch, (before, held, after)) in
        ["NULL", "0"].into_iter().flat_map(|epoch| sequences.map(|turn| (epoch, turn)))
    {
        let job = insert(&database, "short", "input", "'SELECT 1'");
        let task = activate_in(&mut client, job, 0, epoch);
        if !before.is_empty() {
            change(&mut client, task, before);
        }
        let mut other = database.connect();
        let mut open = other.transaction().expect("BEGIN");
        open.batch_execute(&format!("UPDATE public.task SET {held} WHERE id = {task}")).expect("UPDATE");
        client.batch_execute(&format!("SELECT mill.delete_job({job})")).expect("it waits for no run");
        open.commit().expect("COMMIT");
        if let Some(after) = after {
            change(&mut client, task, after);
        }
        client.batch_execute("SELECT mill_private.apply_all_deltas()").expect("fold_all");
        assert_eq!(left_over(&database), (0, 0), "{epoch}: {before}, {held}, {after:?}");
    }
    // the same while its deltas are being applied, and with nobody who would look again but a scheduler
    let job = insert(&database, "short", "input", "'SELECT 1'");
    let task = activate(&mut client, job, 0);
    change(&mut client, task, START);
    change(&mut client, task, SUCCESS);
    let mut other = database.connect();
    let mut open = other.transaction().expect("BEGIN");
    open.batch_execute("SELECT mill_private.apply_all_deltas()").expect("fold_all");
    client.batch_execute(&format!("SELECT mill.delete_job({job})")).expect("it does not wait for that either");
    open.commit().expect("COMMIT");
    let mill = Supervisor::of(&database).start();
    mill.eventually("nothing is left of it", || left_over(&database) == (0, 0));
}

/// Numbers, and runs that have not ended, of jobs that are not there.
fn left_of_deleted(database: &Database) -> (i64, i64) {
    (
        one(
            database,
            "SELECT (SELECT count(*) FROM mill_private.job_delta t WHERE NOT EXISTS (SELECT FROM mill.job j WHERE j.id = t.job)) \
                  + (SELECT count(*) FROM mill_private.job_state b WHERE NOT EXISTS (SELECT FROM mill.job j WHERE j.id = b.job))",
        ),
        one(
            database,
            "SELECT count(*) FROM mill_private.run r WHERE r.outcome IS NULL AND NOT EXISTS (SELECT FROM mill.job j WHERE j.id = r.job)",
        ),
    )
}

/// The end of a run that fails has locked the counters and has ordered the next try; the DELETE sees neither, and does
/// not wait.
#[test]
fn a_job_that_is_deleted_while_its_run_orders_the_next_one_has_no_further_run() {
    let database = Cluster::shared().database();
    quiet(&database);
    let mut client = hasty(&database);
    for end in [FAILURE, "state = 'FAIL', stop = clock_timestamp(), reason = 'crashed', error = 'ERROR:  no'"] {
        let job =
            insert(&database, "tried", "input, max_retries, retry_period, crash_wait", "'SELECT 1', -1, '0', '0'");
        let task = activate_in(&mut client, job, 0, "NULL");
        change(&mut client, task, START);
        let mut other = database.connect();
        let mut open = other.transaction().expect("BEGIN");
        open.batch_execute(&format!("UPDATE public.task SET {end} WHERE id = {task}")).expect("UPDATE");
        client.batch_execute(&format!("SELECT mill.delete_job({job})")).expect("it waits for no run");
        open.commit().expect("COMMIT");
        client.batch_execute("SELECT mill_private.apply_all_deltas()").expect("fold_all");
        assert_eq!(left_of_deleted(&database), (0, 0), "{end}");
        let ended: Vec<String> =
            all(&database, &format!("SELECT outcome FROM mill_private.run WHERE job = {job} ORDER BY id"));
        assert_eq!(ended.len(), 2, "{ended:?}");
        assert_eq!(ended[1], "cancelled");
    }
}

/// A person ends the last run, the job is deleted meanwhile, and the COMMIT wakes nobody.
#[test]
fn the_numbers_of_a_job_deleted_during_the_end_of_its_last_run_go_though_its_scheduler_sleeps() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", "1 hour").start();
    job_fixture::open(&mill, &database);
    let mut client = hasty(&database);
    for (epoch, end) in [("NULL", FAILURE), ("0", SUCCESS), ("NULL", SUCCESS)] {
        let job = insert(&database, "last", "input", "'SELECT 1'");
        let task = activate_in(&mut client, job, 0, epoch);
        change(&mut client, task, START);
        let mut other = database.connect();
        let mut open = other.transaction().expect("BEGIN");
        open.batch_execute(&format!("UPDATE public.task SET {end} WHERE id = {task}")).expect("UPDATE");
        client.batch_execute(&format!("SELECT mill.delete_job({job})")).expect("it waits for no run");
        open.commit().expect("COMMIT");
        mill.wait("nothing is left of it").within(Duration::from_secs(8)).until(|| left_over(&database) == (0, 0));
    }
}

#[test]
fn jobs_deleted_at_any_moment_of_the_ends_of_their_runs_leave_nothing_behind() {
    let database = Cluster::shared().database();
    quiet(&database);
    let mut client = hasty(&database);
    let (stop, folding) = (std::sync::atomic::AtomicBool::new(false), &database);
    std::thread::scope(|scope| {
        let folder = scope.spawn(|| {
            let mut folder = folding.connect();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                folder.batch_execute("SELECT mill_private.apply_all_deltas()").expect("fold_all");
            }
        });
        for round in 0..sized(150, 3000) {
            let job =
                insert(&database, &format!("short {round}"), "input, max_retries, retry_period", "'SELECT 1', -1, '0'");
            let tasks = [0, 1].map(|minute| activate_in(&mut client, job, minute, ["NULL", "0"][round as usize % 2]));
            tasks.iter().for_each(|task| change(&mut client, *task, START));
            let ends = tasks.map(|task| {
                let end = [SUCCESS, FAILURE][rand::random_range(0..2)];
                let pauses = [0, 1].map(|_| rand::random_range(0..3000) as f64 / 1e6);
                let mut ending = database.connect();
                scope.spawn(move || {
                    let sql = format!(
                        "SELECT pg_sleep({}); BEGIN; UPDATE public.task SET {end} WHERE id = {task}; SELECT pg_sleep({}); COMMIT",
                        pauses[0], pauses[1]
                    );
                    ending.batch_execute(&sql).expect("an end");
                })
            });
            let pauses = [0, 1].map(|_| rand::random_range(0..3000) as f64 / 1e6);
            let delete = format!(
                "SELECT pg_sleep({}); BEGIN; DELETE FROM mill.job WHERE id = {job}; SELECT pg_sleep({}); COMMIT",
                pauses[0], pauses[1]
            );
            client.batch_execute(&delete).expect("DELETE");
            ends.into_iter().for_each(|end| end.join().expect("an end"));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        folder.join().expect("it folds");
    });
    client.batch_execute("SELECT mill_private.apply_all_deltas()").expect("fold_all");
    assert_eq!(left_of_deleted(&database), (0, 0));
    assert_eq!(all::<String>(&database, "SELECT problem FROM mill.fsck() WHERE queue IS NULL"), Vec::<String>::new());
}
