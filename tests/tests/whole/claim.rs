//! What is taken, in what order, how many at once, and what is not.

use postgres::types::ToSql;
use postgres::{Row, Transaction};
use shared::db::statement::{Queue, Rows};
use std::time::{Duration, Instant};

use tests::{Cluster, Supervisor, sized, steadily};

use crate::queries::{all, all_are, most_at_once, one, one_with, running, state};

#[test]
fn groups_that_share_a_hash_do_not_wait_for_each_other() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let pair = "SELECT ARRAY[min(g), max(g)] FROM (SELECT 'g' || i AS g FROM generate_series(1, 400000) AS i) AS s \
                GROUP BY hashtext(g) HAVING count(*) > 1 LIMIT 1";
    let pair: Vec<String> = one(&database, pair);
    let ids: Vec<i64> =
        pair.iter().map(|group| database.insert_with("SELECT pg_sleep(600)", &format!("group = '{group}'"))).collect();
    for id in ids {
        running(&mill, &database, id);
    }
    let hashes: i64 = one(&database, "SELECT count(DISTINCT hash) FROM public.task");
    assert_eq!(hashes, 1, "they do share it");

    // nor do a group and a remote that read the same when written together
    let plain = database.insert_with("SELECT pg_sleep(600)", "group = 'ab'");
    running(&mill, &database, plain);
    let remote = database.insert_with("SELECT 1", "group = 'a', remote = 'b'");
    assert_eq!(mill.finished(&database, remote)["state"], "FAIL");
    assert_eq!(state(&database, plain), "WORK");
}

#[test]
fn max_is_how_many_others_of_the_group_may_run_and_each_row_has_its_own() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    database.run(
        "INSERT INTO public.task (input, \"group\", max) \
         SELECT 'SELECT pg_sleep(0.5)', 'm' || m, m FROM generate_series(0, 2) AS m, generate_series(1, 4)",
    );
    all_are(&mill, &database, "state = 'DONE'", 40);
    for max in 0..3 {
        assert_eq!(most_at_once(&database, &format!("max = {max}")), max + 1, "max = {max}");
    }

    let generous = database.insert_with("SELECT pg_sleep(600)", "group = 'own', max = 3");
    running(&mill, &database, generous);
    let strict = database.insert_with("SELECT 1", "group = 'own', max = 0");
    let beside = database.insert_with("SELECT 1", "group = 'own', max = 1");
    mill.finished(&database, beside);
    steadily("the strict one waits", Duration::from_millis(500), || state(&database, strict) == "PLAN");
}

#[test]
fn free_capacity_comes_first_then_priority_then_the_order_of_arrival() {
    let database = Cluster::shared().database();
    // one process at a time, so that the order is seen
    let mill = Supervisor::of(&database).queue_key("run", 1).start();
    let blocker = database.insert("SELECT pg_sleep(600)");
    let backend = running(&mill, &database, blocker);
    database.run(
        "INSERT INTO public.task (input, data, \"group\", max, priority) VALUES \
         ('SELECT 1', 'last', 'a', 0, 0), ('SELECT 1', 'third', 'b', 0, 5), ('SELECT 1', 'second', 'c', 3, 0), \
         ('SELECT 1', 'first', 'd', 3, 1), ('SELECT 1', 'fourth', 'e', 0, 5)",
    );
    database.run(&format!("SELECT pg_cancel_backend({backend})"));
    all_are(&mill, &database, "state IN ('DONE', 'FAIL')", 15);
    let order: Vec<String> = all(&database, "SELECT data FROM public.task WHERE data IS NOT NULL ORDER BY start");
    assert_eq!(order, ["first", "second", "third", "fourth", "last"]);
}

#[test]
fn a_group_that_has_something_running_has_less_free_capacity() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("run", 3).start();
    for _ in 0..2 {
        let id = database.insert_with("SELECT pg_sleep(600)", "group = 'busy', max = 5");
        running(&mill, &database, id);
    }
    let blocker = database.insert_with("SELECT pg_sleep(600)", "group = 'blocker'");
    let backend = running(&mill, &database, blocker);
    database.run(
        "INSERT INTO public.task (input, data, \"group\", max) VALUES ('SELECT 1', 'busy', 'busy', 4), \
         ('SELECT 1', 'idle', 'idle', 3)",
    );
    database.run(&format!("SELECT pg_cancel_backend({backend})"));
    let finished = "SELECT count(*) FROM public.task WHERE data IS NOT NULL AND state = 'DONE'";
    mill.eventually("both are done", || one::<i64>(&database, finished) == 2);
    let order: Vec<String> = all(&database, "SELECT data FROM public.task WHERE data IS NOT NULL ORDER BY start");
    assert_eq!(order, ["idle", "busy"], "3 - 0 free places are more than 4 - 2");
}

#[test]
fn a_finished_task_starts_its_successor_at_once() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("sleep", "60 s").start();
    let began = Instant::now();
    database.run("INSERT INTO public.task (input) SELECT 'SELECT 1' FROM generate_series(1, 100)");
    all_are(&mill, &database, "state = 'DONE'", 60);
    println!("100 tasks of one group, one after the other: {:?}", began.elapsed());
    assert_eq!(most_at_once(&database, "true"), 1);
}

#[test]
fn run_caps_what_runs_at_once_and_limit_what_is_claimed_at_once() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).queue_key("run", 2).queue_key("limit", 1).start();
    database.run(
        "INSERT INTO public.task (input, \"group\") SELECT 'SELECT pg_sleep(0.3)', 'g' || i FROM generate_series(1, 8) AS i",
    );
    all_are(&mill, &database, "state = 'DONE'", 30);
    assert_eq!(most_at_once(&database, "true"), 2);
}

#[test]
fn a_long_backlog_of_one_group_does_not_hide_another() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    // the head of the long group never ends: nothing behind it can start
    let head = database.insert_with("SELECT pg_sleep(600)", "group = 'long'");
    running(&mill, &database, head);
    let count = sized(5_000, 50_000);
    database.run(&format!(
        "INSERT INTO public.task (input, \"group\", priority) SELECT 'SELECT 1', 'long', 1 FROM generate_series(1, {count})"
    ));
    let ids: Vec<i64> = (0..5).map(|i| database.insert_with("SELECT 1", &format!("group = 'short{i}'"))).collect();
    for id in ids {
        mill.finished(&database, id);
        let late: f64 = one_with(
            &database,
            "SELECT extract(epoch FROM start - plan)::float8 FROM public.task WHERE id = $1",
            &[&id],
        );
        assert!(late < 3.0, "it waited {late} s behind the long group");
    }
}

#[test]
fn a_task_not_started_in_time_is_gone_and_a_repeating_one_gets_its_next_time() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let late = database.insert_with("SELECT 1", "plan = now() - interval '2 hours'");
    let repeating =
        database.insert_with("SELECT 1", "plan = now() - interval '2.5 hours', repeat = '1 hour', data = 'again'");
    let pausing = database.insert_with("SELECT 1", "plan = now() - interval '2 hours', max = -1, group = 'p'");
    let row = mill.finished(&database, late);
    assert_eq!((&row["state"], &row["error"]), (&"GONE".into(), &"ERROR:  task not active".into()));
    assert_eq!((&row["output"], &row["reason"]), (&serde_json::Value::Null, &"expired".into()));
    assert!(row["start"].is_string() && row["start"] == row["stop"]);
    assert_eq!(mill.finished(&database, repeating)["state"], "GONE");
    let next: bool = one_with(
        &database,
        "SELECT n.plan = p.plan + interval '3 hours' AND n.state = 'PLAN' AND n.data = 'again' AND n.start IS NULL \
         AND n.error IS NULL FROM public.task p JOIN public.task n ON n.parent = p.id WHERE p.id = $1",
        &[&repeating],
    );
    assert!(next, "the repetition is the next one that is not missed");
    assert_eq!(mill.finished(&database, pausing)["state"], "DONE", "a negative max does not expire");
}

#[test]
fn an_expired_row_whose_repetition_is_refused_does_not_hold_the_queue_up() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    database.run("ALTER TABLE public.task ADD tag text UNIQUE");
    let sad = database.insert_with("SELECT 1", "plan = now() - interval '2 hours', repeat = '1 hour', tag = 'x'");
    let plain = database.insert_with("SELECT 1", "plan = now() - interval '2 hours'");
    let other = database.insert_with("SELECT 1", "group = 'other'");
    assert_eq!(mill.finished(&database, other)["state"], "DONE");
    assert_eq!(mill.finished(&database, plain)["error"], "ERROR:  task not active");
    let row = mill.finished(&database, sad);
    let error = row["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("ERROR:  task not active\n") && error.contains("duplicate key"), "{error}");
    assert_eq!((&row["state"], &row["reason"]), (&"FAIL".into(), &"completion".into()));
}

#[test]
fn without_a_free_slot_a_row_stays_planned_and_starts_when_one_comes_free() {
    let database = Cluster::shared().database();
    // one slot for the launcher, one for the scheduler, two for tasks
    let mill = Supervisor::of(&database).key("max_workers", 4).start();
    let groups = "INSERT INTO public.task (input, \"group\") SELECT 'SELECT pg_sleep(1)', 'g' || i FROM generate_series(1, 5) AS i";
    database.run(groups);
    mill.eventually("two run", || one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'WORK'") == 2);
    let waiting: i64 = one(&database, "SELECT count(*) FROM public.task WHERE state = 'PLAN' AND attempt = 0");
    assert_eq!(waiting, 3, "the others were not even claimed");
    all_are(&mill, &database, "state = 'DONE' AND attempt = 1", 20);
    assert_eq!(most_at_once(&database, "true"), 2);
}

#[test]
fn a_queue_that_waits_for_another_queues_slot_gets_it_soon() {
    let cluster = Cluster::shared();
    let (busy, starved) = (cluster.database(), cluster.database());
    // the starved queue has nothing but its poll, and that is a minute long
    let mill = Supervisor::of(&busy).and(&starved).queue_key("idle", 0).key("max_workers", 4);
    busy.run(&format!("GRANT {} TO {}", starved.owner(), busy.login()));
    let mill = mill.start();
    let blocker = busy.insert("SELECT pg_sleep(600)");
    let backend = running(&mill, &busy, blocker);
    let id = starved.insert("SELECT 1");
    steadily("there is no slot for it", Duration::from_secs(3), || state(&starved, id) == "PLAN");
    busy.run(&format!("SELECT pg_cancel_backend({backend})"));
    mill.wait("it has run").within(Duration::from_secs(5)).until(|| starved.finished(id));
}

#[test]
fn a_queue_with_a_long_backlog_leaves_a_slot_to_one_that_has_none() {
    let cluster = Cluster::shared();
    let (busy, starved) = (cluster.database(), cluster.database());
    let mill = Supervisor::of(&busy).and(&starved).key("max_workers", 6);
    busy.run(&format!("GRANT {} TO {}", starved.owner(), busy.login()));
    let mill = mill.start();
    busy.run(
        "INSERT INTO public.task (input, \"max\") SELECT 'SELECT pg_sleep(0.05)', 100 FROM generate_series(1, 3000)",
    );
    mill.eventually("all slots are taken", || mill.workers().len() >= 3);
    for _ in 0..5 {
        let id = starved.insert("SELECT 1");
        mill.wait("it has its turn").within(Duration::from_secs(10)).until(|| starved.finished(id));
    }
    assert!(one::<i64>(&busy, "SELECT count(*) FROM public.task WHERE state = 'PLAN'") > 0, "there was a backlog");
}

/// A statement that was planned when the table was empty reads all of it once there is something in it, and the server
/// compiles what it thinks expensive. A quarter of a second for each look, and a long queue was served at five tasks
/// per second.
#[test]
fn no_statement_about_the_queue_is_compiled_or_reads_the_whole_table() {
    let cluster = Cluster::configure()
        .setting("session_preload_libraries", "auto_explain")
        .setting("auto_explain.log_min_duration", "0")
        .setting("auto_explain.log_analyze", "on")
        .setting("jit_above_cost", "0")
        .start();
    let database = cluster.database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    database.run("INSERT INTO public.task (input) SELECT 'SELECT 1' FROM generate_series(1, 5)");
    all_are(&mill, &database, "state = 'DONE'", 6);
    let log = cluster.log();
    let plans: Vec<&str> =
        log.split(" LOG:  duration: ").filter(|plan| plan.contains("WHEN true THEN 'TAKE'")).collect();
    assert!(!plans.is_empty(), "the server has explained its takes");
    for plan in plans {
        assert!(!plan.contains("JIT:") && !plan.contains("Seq Scan on task"), "{plan}");
    }
}

/// Rows that steps of a plan have read, as the server explains it.
fn rows_read(plan: &str) -> impl Iterator<Item = u64> {
    plan.split("(actual ").skip(1).filter_map(|step| {
        let number = |name: &str| {
            let text = step.split_once(name)?.1;
            text.split(|sign: char| !sign.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        Some((number("rows=")? + number("Removed by Filter: ").unwrap_or_default()) * number("loops=")?)
    })
}

/// Statistics know nothing of rows that have just come: those of the table say that all tasks are done, so the server thinks that
/// the few that wait are quickly sorted. Half a second for each take, until somebody analyzed the table.
#[test]
fn no_claim_reads_all_that_wait_whatever_the_statistics_say() {
    let cluster = Cluster::configure()
        .setting("session_preload_libraries", "auto_explain")
        .setting("auto_explain.log_min_duration", "0")
        .setting("auto_explain.log_analyze", "on")
        .start();
    for (batch, columns) in [(false, "interval '0'"), (false, "interval '1 hour'"), (true, "interval '1 hour'")] {
        let database = cluster.database();
        let mill = Supervisor::of(&database).queue_key("batch", batch).start();
        database.run(&format!(
            "ALTER TABLE public.task SET (autovacuum_enabled = off); \
             INSERT INTO public.task (input, state) SELECT 'SELECT 0', 'DONE' FROM generate_series(1, 3000); \
             ANALYZE public.task; \
             INSERT INTO public.task (input, live, \"max\") SELECT 'SELECT 1', {columns}, 3 FROM generate_series(1, 3000)"
        ));
        mill.wait("some are done").within(Duration::from_secs(60)).until(|| {
            one::<i64>(&database, "SELECT count(*) FROM public.task WHERE state = 'DONE' AND input = 'SELECT 1'") > 300
        });
    }
    let log = cluster.log();
    let takes: Vec<&str> = log.split(" LOG:  duration: ").filter(|plan| plan.contains("SKIP LOCKED")).collect();
    for kind in ["near AS MATERIALIZED", "t.hash >= pg_catalog.hashtext", "WHEN true THEN 'TAKE'"] {
        assert!(takes.iter().any(|plan| plan.contains(kind)), "no take was explained that says {kind}");
    }
    for plan in takes {
        let most = rows_read(plan).max().unwrap_or_default();
        assert!(most <= 1000, "{most} rows read in one step:\n{plan}");
    }
}

#[test]
fn no_claim_or_end_reads_the_whole_table_however_small_it_was_when_that_was_planned() {
    let cluster = Cluster::configure()
        .setting("session_preload_libraries", "auto_explain")
        .setting("auto_explain.log_min_duration", "0")
        .setting("auto_explain.log_analyze", "on")
        .start();
    for (batch, live) in [(false, "interval '0'"), (true, "interval '1 hour'")] {
        let database = cluster.database();
        let mill = Supervisor::of(&database).queue_key("batch", batch).start();
        let ended = || one::<i64>(&database, "SELECT count(*) FROM public.task WHERE output IS NOT NULL");
        database.run(&format!(
            "ALTER TABLE public.task SET (autovacuum_enabled = off); \
             INSERT INTO public.task (input, state) SELECT 'SELECT 0', 'DONE' FROM generate_series(1, 100); ANALYZE public.task; \
             INSERT INTO public.task (input, live, \"max\") SELECT 'SELECT 1 FROM pg_sleep(0.005)', {live}, 3 FROM generate_series(1, 400)"
        ));
        mill.wait("some have ended").within(Duration::from_secs(60)).until(|| ended() > 50);
        database.run("INSERT INTO public.task (input, state) SELECT 'SELECT 0', 'DONE' FROM generate_series(1, 20000)");
        mill.wait("all have ended").within(Duration::from_secs(60)).until(|| ended() == 400);
    }
    let log = cluster.log();
    let of_many = log.split(" LOG:  duration: ").filter(|plan| plan.contains("unnest($") && plan.contains("task"));
    let of_many: Vec<&str> = of_many.collect();
    for kind in ["AS (SELECT * FROM unnest(", "AS (SELECT e.* FROM", "LEFT JOIN \"public\".\"task\""] {
        assert!(of_many.iter().any(|plan| plan.contains(kind)), "nothing was explained that says {kind}");
    }
    for plan in of_many {
        let most = rows_read(plan).max().unwrap_or_default();
        assert!(most <= 5000, "{most} rows read in one step:\n{plan}");
    }
}

/// Replaces the rows of the table by random ones of the group `only`; `odd` is the share of unusual ones.
fn random_rows(seed: i32, odd: f64) -> String {
    format!(
        "SET LOCAL session_replication_role = replica; SELECT setseed({seed} / 1000.0); TRUNCATE public.task RESTART IDENTITY; \
         INSERT INTO public.task (input, state, attempt, pid, \"group\", \"max\", priority, plan, active, live, start, held) \
         SELECT 'SELECT 1', CASE WHEN r < 0.2 THEN 'WORK' WHEN r < 0.3 THEN 'DONE' ELSE 'PLAN' END::public.state, \
                (r * 3)::int, CASE WHEN r < 0.2 THEN 1000 + i END, CASE WHEN random() < {odd} THEN 'other' ELSE 'only' END, \
                (random() * random() * 9)::int, (random() * 2)::int, \
                now() - CASE WHEN random() < {odd} / 3 THEN interval '2 hours' ELSE interval '1 min' END, interval '1 hour', \
                CASE WHEN random() < {odd} / 3 THEN interval '1 hour' ELSE '0' END, now(), random() < {odd} \
           FROM (SELECT i, random() AS r FROM generate_series(1, 5 + {seed} % 20) AS i) AS s; \
         SET LOCAL session_replication_role = origin"
    )
}

/// Running tasks that are deleted or stopped count in their group.
fn delete_and_stop_some(work: &mut Transaction<'_>, running: &[i64]) {
    work.execute("DELETE FROM public.task WHERE id = ANY ($1) AND id % 4 = 0", &[&running]).expect("delete some");
    work.execute("UPDATE public.task SET state = 'STOP' WHERE id = ANY ($1) AND id % 4 = 1", &[&running])
        .expect("stop some");
}

fn claimed(rows: &[Row]) -> Vec<(i64, Option<i32>)> {
    let claim = |row: &Row| Some((row.get::<_, Option<i64>>("id")?, row.get::<_, Option<i32>>("backend")));
    rows.iter().filter_map(claim).collect()
}

/// The claim of the most frequent case is another statement. It may report that it is not exact. Otherwise it claims what
/// `claim_heads` would have claimed behind the same ends.
#[test]
fn the_claim_of_the_only_group_claims_what_the_claim_of_all_groups_would() {
    let database = Cluster::shared().database();
    let mill = Supervisor::of(&database).start();
    let id = database.insert("SELECT 1");
    mill.finished(&database, id);
    drop(mill);
    let queue = Queue { schema: "public".to_owned(), table: "task".to_owned() };
    let mut client = database.connect_superuser();
    let finish = client.prepare(&queue.fill_end(Rows::ManyUnlocked)).expect("the ends");
    let groups = client.prepare(&queue.fill_claim_heads()).expect("claim_heads");
    let only = client.prepare(&queue.fill_claim_one_group()).expect("claim_one_group");
    let (mut exact, mut vague) = (0, 0);
    for seed in 0..sized(80, 800) {
        let mut work = client.transaction().expect("begin");
        // one table in two has only the one group and nothing odd in it
        let odd = if seed % 2 == 0 { 0.0 } else { 0.15 };
        work.batch_execute(&random_rows(seed, odd)).expect("rows");
        let rows =
            work.query("SELECT id, attempt FROM public.task WHERE state = 'WORK' ORDER BY id", &[]).expect("what runs");
        let all: Vec<(i64, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let (ended, still) = all.split_at(all.len() / 2);
        // some of them are run no more, some are not in the attempt that ended
        let ends: (Vec<i64>, Vec<i32>) =
            ended.iter().map(|(id, attempt)| (*id, attempt + i32::from(id % 7 == 0))).unzip();
        let failed: Vec<bool> = ended.iter().map(|(id, _)| id % 3 == 0).collect();
        let texts: Vec<Option<&str>> = ended.iter().map(|_| None).collect();
        let still: Vec<i64> = still.iter().map(|(id, _)| *id).collect();
        let foreign = work.query("SELECT FROM public.task WHERE id = ANY ($1) AND \"group\" <> 'only'", &[&still]);
        if !foreign.expect("whose they are").is_empty() {
            continue;
        }
        delete_and_stop_some(&mut work, &still);
        let count = 1 + seed % 8;
        let pool: Vec<i32> = (1..=count).collect();
        let (names, remotes): (Vec<&[u8]>, Vec<Option<&[u8]>>) =
            still.iter().map(|_| (b"only".as_slice(), None)).unzip();
        let (count, none): (i64, Vec<i32>) = (i64::from(count), Vec::new());

        let mut trial = work.savepoint("trial").expect("a savepoint");
        let times: Vec<Option<i64>> = ended.iter().map(|_| None).collect();
        let values: [&(dyn ToSql + Sync); 9] =
            [&ends.0, &ends.1, &failed, &texts, &texts, &texts, &times, &times, &false];
        let written = trial.query(&finish, &values).expect("the ends");
        let written: Vec<i64> = written.iter().map(|row| row.get("id")).collect();
        let values: [&(dyn ToSql + Sync); 13] =
            [&count, &still, &none, &i32::MIN, &1000, &count, &pool, &65536, &still, &names, &remotes, &false, &false];
        let wanted = claimed(&trial.query(&groups, &values).expect("the claim of all groups"));
        trial.rollback().expect("back");

        let values: [&(dyn ToSql + Sync); 10] =
            [&ends.0, &ends.1, &failed, &texts, &texts, &count, &still, &"only", &pool, &65536];
        let rows = work.query(&only, &values).expect("the claim of one group");
        let taken = claimed(&rows);
        let mut also: Vec<i64> = rows[0].get("written");
        also.sort_unstable();
        assert_eq!(also, sorted(written), "seed {seed}");
        if rows[0].get("exact") {
            exact += 1;
            assert_eq!(taken, wanted, "seed {seed}, {count} of them");
        } else {
            vague += 1;
            assert!(taken.is_empty(), "seed {seed}");
            assert!(odd > 0.0, "seed {seed}: nothing was odd in it");
        }
        work.rollback().expect("back");
    }
    assert!(exact > 20 && vague > 5, "{exact} exact, {vague} not");
}

fn sorted(mut ids: Vec<i64>) -> Vec<i64> {
    ids.sort_unstable();
    ids
}
