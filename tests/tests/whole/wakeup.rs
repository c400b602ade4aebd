//! Sleep and wake-up: an insert is seen at once, by whomever and whenever, and nobody pays for it under load.

use std::thread;
use std::time::{Duration, Instant};

use tests::database::quote_ident;
use tests::{Cluster, Database, Supervisor, sized};

use crate::asking::{all, all_are, linger, one, one_with, running, wait_until_asleep};

/// Inserts one task and gives how long after its insert it started, by the server's clock.
fn latency_ms(mill: &Supervisor<'_>, database: &Database) -> f64 {
    let id = database.insert_with("SELECT 1", "group = 'measured'");
    mill.finished(database, id);
    one_with(database, "SELECT extract(epoch FROM start - plan)::float8 * 1000 FROM public.task WHERE id = $1", &[&id])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn an_insert_two_seconds_after_a_burst_starts_at_once_also_while_another_group_works() {
    let database = Cluster::shared().database();
    // only the bell can be this quick
    let mill = Supervisor::of(&database).row_key("sleep", "60 s").start();
    for long in [false, true] {
        if long {
            let id = database.insert_with("SELECT pg_sleep(3600)", "group = 'an hour'");
            running(&mill, &database, id);
        }
        database.run(
            "INSERT INTO public.task (input, \"group\") SELECT 'SELECT 1', 'burst ' || i % 5 FROM generate_series(1, 50) AS i",
        );
        mill.wait("the burst is over").within(Duration::from_secs(30)).until(|| {
            one::<i64>(&database, "SELECT count(*) FROM public.task WHERE \"group\" LIKE 'burst%' AND state <> 'DONE'")
                == 0
        });
        let measured: Vec<f64> = (0..sized(3, 20))
            .map(|_| {
                linger(Duration::from_secs(2), "the two seconds of the test's name");
                latency_ms(&mill, &database)
            })
            .collect();
        println!("from insert to start, ms, another group works {long}: {measured:.1?}");
        assert!(median(measured.clone()) < 500.0, "{measured:?}");
    }
}

#[test]
fn whoever_may_insert_wakes_the_scheduler_and_a_change_of_plan_does_too() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("sleep", "60 s").start();
    let name = format!("{}_inserter", database.name());
    let role = quote_ident(&name);
    database.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT INSERT ON public.task TO {role}; GRANT USAGE ON SEQUENCE public.task_id_seq TO {role}"
    ));
    wait_until_asleep(&mill, &database);
    let mut inserter = database.server().try_connect(&name, database.name()).expect("it may log in");
    inserter.batch_execute("INSERT INTO public.task (input) VALUES ('SELECT 1')").expect("it may insert");
    all_are(&mill, &database, "state = 'DONE'", 5);
    drop(inserter);

    // rows that were far away, stopped, or behind others
    let far = database.insert_with("SELECT 1", "plan = now() + interval '1 day'");
    let stopped = database.insert_with("SELECT 1", "state = 'STOP'");
    wait_until_asleep(&mill, &database);
    database.connect().batch_execute(&format!("UPDATE public.task SET plan = now() WHERE id = {far}")).expect("update");
    mill.wait("it is done").within(Duration::from_secs(5)).until(|| database.finished(far));
    wait_until_asleep(&mill, &database);
    database
        .connect()
        .batch_execute(&format!("UPDATE public.task SET state = 'PLAN' WHERE id = {stopped}"))
        .expect("update");
    mill.wait("it is done").within(Duration::from_secs(5)).until(|| database.finished(stopped));
    drop(mill);
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn a_future_plan_starts_on_time_and_not_before() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("sleep", "60 s").start();
    for tenths in [30, 5, 12, 20] {
        database.insert_with("SELECT 1", &format!("plan = now() + {tenths} * interval '100 ms', group = 'g{tenths}'"));
    }
    all_are(&mill, &database, "state = 'DONE'", 20);
    let late: Vec<f64> =
        all(&database, "SELECT extract(epoch FROM start - plan)::float8 * 1000 FROM public.task ORDER BY plan");
    println!("from plan to start, ms: {late:.1?}");
    assert!(late.iter().all(|ms| *ms >= 0.0) && median(late.clone()) < 500.0, "{late:?}");
}

#[test]
fn no_wake_up_is_lost_between_sleeps_and_concurrent_inserters() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).row_key("sleep", "60 s").start();
    let (threads, each) = (4, sized(75, 1250));
    thread::scope(|scope| {
        for number in 0..threads {
            let database = &database;
            scope.spawn(move || {
                let mut client = database.connect();
                for _ in 0..each {
                    let sql = format!("INSERT INTO public.task (input, \"group\") VALUES ('SELECT 1', 'g{number}')");
                    client.batch_execute(&sql).expect("insert");
                    linger(Duration::from_millis(rand::random_range(0..200)), "inserts come at random moments");
                }
            });
        }
    });
    // a lost one would wait for the poll, a minute later
    mill.wait("all are done")
        .within(Duration::from_secs(20))
        .until(|| one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state <> 'DONE'") == 0);
    assert_eq!(one::<i64>(&database, "SELECT count(*) FROM public.task"), threads * each);
    // from the moment when it could have started: inserted, and the one before it over
    let worst: Vec<f64> = all(
        &database,
        "SELECT extract(epoch FROM start - greatest(plan, lag(stop) OVER (PARTITION BY \"group\" ORDER BY start)))::float8 * 1000 \
         FROM public.task ORDER BY 1 DESC LIMIT 5",
    );
    println!("the longest waits without a reason, ms: {worst:.0?}");
    assert!(worst[0] < 10_000.0, "{worst:?}");
}

#[test]
fn a_row_of_a_long_transaction_is_found_after_its_commit() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    for asleep in [false, true] {
        let mut client = database.connect();
        if asleep {
            wait_until_asleep(&mill, &database);
        } else {
            // the scheduler is awake when the row is inserted
            database.run("INSERT INTO public.task (input) SELECT 'SELECT 1' FROM generate_series(1, 20)");
        }
        let mut transaction = client.transaction().expect("begin");
        let row = transaction
            .query_one("INSERT INTO public.task (input, \"group\") VALUES ('SELECT 1', 'long') RETURNING id", &[]);
        let id: i64 = row.expect("insert").get(0);
        // meanwhile others are served
        for _ in 0..3 {
            let other = database.insert_with("SELECT 1", "group = 'other'");
            mill.finished(&database, other);
            linger(Duration::from_millis(300), "passes go by while the transaction is open");
        }
        transaction.commit().expect("commit");
        let began = Instant::now();
        mill.wait("the row of the long transaction is done")
            .within(Duration::from_secs(10))
            .until(|| database.finished(id));
        println!("done {:?} after the commit, scheduler asleep before: {asleep}", began.elapsed());
    }
}

/// A session that hears every ring of the queue, and what it has heard.
fn rings(client: &mut postgres::Client) -> usize {
    use postgres::fallible_iterator::FallibleIterator;
    client.batch_execute("SELECT 1").expect("alive");
    client.notifications().iter().count().expect("notifications")
}

#[test]
fn nobody_rings_while_the_scheduler_is_awake_and_seldom_while_nothing_can_start() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).key("max_workers", 6).start();
    let mut listener = database.connect_superuser();
    let channel: String = one(&database, "SELECT 'mill_' || 'public.task'::regclass::oid");
    listener.batch_execute(&format!("LISTEN {channel}")).expect("listen");
    let mut client = database.connect();
    let count = sized(200, 2000);

    // awake: there is always more to start than there are slots
    client
        .batch_execute("INSERT INTO public.task (input, \"group\") SELECT 'SELECT 1', 'work' || i % 50 FROM generate_series(1, 300) AS i")
        .expect("insert");
    mill.eventually("it works", || one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'DONE'") > 5);
    rings(&mut listener);
    let began = Instant::now();
    for i in 0..count {
        let sql = format!("INSERT INTO public.task (input, \"group\") VALUES ('SELECT 1', 'work{}')", i % 50);
        client.batch_execute(&sql).expect("insert");
    }
    let (took, heard) = (began.elapsed(), rings(&mut listener));
    println!("{heard} rings for {count} inserts in {took:?} under load");
    assert!(heard * 2 <= count, "{heard} rings for {count} inserts");

    // a full group: rings that lead to nothing become rare
    mill.wait("the work is over")
        .within(Duration::from_secs(60))
        .until(|| one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state <> 'DONE'") == 0);
    let head = database.insert_with("SELECT pg_sleep(3600)", "group = 'full'");
    running(&mill, &database, head);
    rings(&mut listener);
    let began = Instant::now();
    for _ in 0..count {
        client.batch_execute("INSERT INTO public.task (input, \"group\") VALUES ('SELECT 1', 'full')").expect("insert");
        linger(Duration::from_millis(5), "inserts come one by one, at a steady rate");
    }
    let heard = rings(&mut listener);
    println!("{heard} rings for {count} inserts in {:?} into a full group", began.elapsed());
    assert!(heard < 40, "{heard} rings");
}
