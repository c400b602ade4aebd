//! A server whose disk is full: tasks wait, results are kept, no task fails for it, and all is recorded soon after there is
//! space again. Which tasks have run is written to a file on another disk.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tests::{Cluster, Database, SmallDisk, Supervisor, eventually, steadily, wait};

use crate::queries::one;

/// How long it may take until everything is recorded once there is space.
const SOON: Duration = Duration::from_secs(10);
/// Longer than a few rounds of any retry.
const OUTAGE: Duration = Duration::from_secs(5);

/// A disk that is filled while it is looked at, and a server that has its data there.
struct Rig {
    disk: SmallDisk,
    cluster: Cluster,
}

impl Rig {
    /// `None`, and a line that says so, where nothing may be mounted.
    fn new(wal_on_it_too: bool) -> Option<Rig> {
        let Some(disk) = SmallDisk::mount(200) else {
            tests::skip("a full disk", "nothing may be mounted from here");
            return None;
        };
        let options = Cluster::configure().on(&disk).setting("autovacuum", "off").setting("max_wal_size", "32MB");
        let options = options.setting("min_wal_size", "32MB");
        let cluster = if wal_on_it_too { options.start() } else { options.wal_elsewhere().start() };
        Some(Rig { disk, cluster })
    }

    /// Every row version needs a new page, so that no statement of ours gets by on the room that pages have. The owner may
    /// write to the file on the other disk.
    fn prepare(&self, mill: &Supervisor<'_>, database: &Database) {
        mill.eventually("there is a table", || database.query("SELECT FROM public.task", &[]).is_some());
        database.run(&format!(
            "ALTER TABLE public.task SET (fillfactor = 100); GRANT pg_execute_server_program TO {}",
            tests::database::quote_ident(database.owner())
        ));
    }

    fn ledger(&self) -> PathBuf {
        self.cluster.home().join("ledger")
    }

    /// An input that says that it runs, sleeps, and has a result too large for the page of its row.
    fn input(&self, seconds: f32) -> String {
        format!(
            "COPY (SELECT pg_catalog.current_setting('pg_task.id')) TO PROGRAM 'cat >>{}'; SELECT pg_sleep({seconds}); \
             SELECT string_agg(md5(n::text || random()), '') FROM generate_series(1, 200) n",
            self.ledger().display()
        )
    }

    /// The ids that have run, in order, as often as they have.
    fn ran(&self) -> Vec<i64> {
        let text = fs::read_to_string(self.ledger()).unwrap_or_default();
        let mut ids: Vec<i64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        ids.sort_unstable();
        ids
    }

    /// Inserts tasks, each in a group of its own or all in one.
    fn insert(&self, database: &Database, count: i32, seconds: f32, columns: &str, values: &str) -> Vec<i64> {
        let sql = format!(
            "INSERT INTO public.task (input, data, {columns}) SELECT $1, (SELECT string_agg(md5(n::text || m), '') \
             FROM generate_series(1, 40) m), {values} FROM generate_series(1, $2) n RETURNING id"
        );
        let rows = database.connect().query(&sql, &[&self.input(seconds), &count]).expect("insert");
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn fill(&self, database: &Database) {
        self.disk.fill();
        // A table that has some room left at its end has none after this; which statement fails does not matter.
        let mut client = database.connect_superuser();
        let full = "CREATE TABLE IF NOT EXISTS public.more (t text); INSERT INTO public.more SELECT repeat('x', 1000) \
                    FROM generate_series(1, 10000)";
        eventually("the server has no space", || {
            self.disk.fill();
            client.batch_execute(full).is_err()
        });
        self.disk.fill();
    }

    fn stays_full(&self) {
        steadily("the disk is full", OUTAGE, || {
            self.disk.fill();
            true
        });
    }

    /// Frees the disk; all is DONE soon, each having run once, and the log has not been flooded.
    fn recovers(&self, mill: &Supervisor<'_>, database: &Database, ids: &[i64], mark: usize) {
        let failed = "SELECT id, error FROM public.task WHERE state NOT IN ('PLAN', 'TAKE', 'WORK', 'DONE')";
        let bad: Vec<(i64, Option<String>)> =
            database.query(failed, &[]).unwrap_or_default().iter().map(|row| (row.get(0), row.get(1))).collect();
        assert!(bad.is_empty(), "{} failed while the disk was full: {:?}\n{}", bad.len(), bad[0], mill.describe());
        self.disk.free();
        self.all_done(mill, database, ids);
        assert_eq!(self.ran(), ids, "each has run once\n{}", mill.describe());
        said_little(mill, mark);
    }

    fn all_done(&self, mill: &Supervisor<'_>, database: &Database, ids: &[i64]) {
        let states = "SELECT count(*) FILTER (WHERE state = 'DONE'), count(*) FILTER (WHERE state = 'FAIL') \
                      FROM public.task WHERE id = ANY ($1)";
        let count = |of: usize| database.query(states, &[&ids]).map_or(0, |rows| rows[0].get::<_, i64>(of));
        let done = wait("all are recorded").within(SOON).attempt(|| count(0) == ids.len() as i64 || count(1) > 0);
        let (done_now, failed) = (count(0), count(1));
        assert!(
            done.is_some() && failed == 0,
            "{done_now} of {} DONE and {failed} FAIL after {SOON:?} with space; {} starts\n{}",
            ids.len(),
            self.ran().len(),
            mill.describe()
        );
    }
}

/// One line when it begins, one when it is over, one per minute; whatever is said at the same moment by another process
/// (the launcher has a session of its own) may double it.
fn said_little(mill: &Supervisor<'_>, mark: usize) {
    let lines = mill.log().since(mark);
    let warnings: Vec<&String> = lines
        .iter()
        .filter(|line| {
            let lower = line.to_lowercase();
            // What the server has told a session is not ours.
            let told = lower.contains(" notice task=");
            !told
                // An atomic task that cannot be committed says so once in a while.
                && !lower.contains("cannot commit it")
                && ["warning", "error", "queue waits", "served again", "no space"]
                    .iter()
                    .any(|word| lower.contains(word))
        })
        .collect();
    assert!(warnings.len() <= 4, "{} lines about one outage: {warnings:#?}", warnings.len());
}

#[test]
fn tasks_that_come_due_while_the_disk_is_full_run_once_when_it_is_not() {
    let Some(rig) = Rig::new(false) else { return };
    let database = rig.cluster.database();
    let mill = Supervisor::of(&database).key("max_workers", 8).start();
    rig.prepare(&mill, &database);
    let ids = rig.insert(&database, 40, 0.0, "\"group\", plan", "'g' || n, now() + interval '3 s'");
    let mark = mill.log().mark();
    rig.fill(&database);
    rig.stays_full();
    rig.recovers(&mill, &database, &ids, mark);
}

#[test]
fn results_that_come_while_the_disk_is_full_are_recorded_when_it_is_not() {
    let Some(rig) = Rig::new(false) else { return };
    let database = rig.cluster.database();
    let mill = Supervisor::of(&database).key("max_workers", 16).start();
    rig.prepare(&mill, &database);
    let mark = mill.log().mark();
    let ids = rig.insert(&database, 8, 2.0, "\"group\"", "'g' || n");
    mill.eventually("all run", || rig.ran() == ids);
    rig.fill(&database);
    rig.stays_full();
    rig.recovers(&mill, &database, &ids, mark);
}

#[test]
fn an_end_that_waited_for_a_lock_is_recorded_once_there_is_space() {
    let Some(rig) = Rig::new(false) else { return };
    let database = rig.cluster.database();
    let mill = Supervisor::of(&database).key("max_workers", 16).start();
    rig.prepare(&mill, &database);
    let mark = mill.log().mark();
    let ids = rig.insert(&database, 4, 0.5, "\"group\"", "'g' || n");
    mill.eventually("all run", || rig.ran() == ids);
    let mut other = database.connect();
    let mut locks = other.transaction().expect("a transaction");
    locks.execute("SELECT FROM public.task FOR UPDATE", &[]).expect("lock them");
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    mill.eventually("an end waits for a lock", || one::<i64>(&database, waiting) > 0);
    rig.fill(&database);
    locks.rollback().expect("let go");
    rig.stays_full();
    rig.recovers(&mill, &database, &ids, mark);
}

#[test]
fn a_crowd_of_short_tasks_survives_a_full_disk() {
    let Some(rig) = Rig::new(false) else { return };
    let database = rig.cluster.database();
    let mill = Supervisor::of(&database).key("max_workers", 8).start();
    rig.prepare(&mill, &database);
    let mark = mill.log().mark();
    let mut ids = rig.insert(&database, 150, 0.02, "\"group\"", "'g' || n % 3");
    ids.extend(rig.insert(&database, 150, 0.01, "\"group\", count, max", "'live', 1000, 1"));
    mill.eventually("some have run", || rig.ran().len() > 20);
    rig.fill(&database);
    rig.stays_full();
    rig.disk.free();
    mill.wait("all are finished").within(Duration::from_secs(30)).until(|| {
        let open = "SELECT count(*) FROM public.task WHERE state IN ('PLAN', 'TAKE', 'WORK')";
        database.query(open, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 0)
    });
    rig.all_done(&mill, &database, &ids);
    assert_eq!(rig.ran(), ids, "each has run once");
    said_little(&mill, mark);
}

/// Pages have room for some records when the disk is full: some are written while others are refused.
#[test]
fn an_outage_in_which_some_writes_pass_is_told_once_and_jobs_go_on_after_it() {
    let Some(rig) = Rig::new(false) else { return };
    let database = rig.cluster.database();
    let mill = Supervisor::of(&database).key("max_workers", 16).start();
    rig.prepare(&mill, &database);
    crate::job_fixture::open(&mill, &database);
    let jobs = "INSERT INTO mill.job (name, input, schedule_interval, atomic) VALUES \
                ('often', 'SELECT repeat(md5(random()::text), 200)', '1 s', false), ('exact', 'SELECT 1', '1 s', true)";
    database.connect().batch_execute(jobs).expect("jobs");
    let runs = "SELECT count(*) FROM mill.run WHERE state = 'succeeded'";
    let count = |sql: &str| database.query(sql, &[]).map_or(0, |rows| rows[0].get::<_, i64>(0));
    mill.eventually("the jobs run", || count(runs) > 2);
    let mark = mill.log().mark();
    let mut ids = Vec::new();
    for values in ["'plain ' || n, '0', false", "'live ' || n, '1 min', false", "'atomic ' || n, '0', true"] {
        ids.extend(rig.insert(&database, 6, 1.0, "\"group\", live, atomic", values));
    }
    mill.eventually("some run", || rig.ran().len() > 10);
    rig.fill(&database);
    steadily("the disk is full", Duration::from_secs(10), || {
        rig.disk.fill();
        true
    });
    rig.disk.free();
    rig.all_done(&mill, &database, &ids);
    let before = count(runs);
    mill.eventually("the jobs go on", || count(runs) > before + 2);
    let failed = "SELECT count(*) FROM mill.run WHERE state NOT IN ('succeeded', 'running', 'put', 'ordered')";
    assert_eq!(count(failed), 0, "{}", mill.describe());
    let again = "SELECT count(*) FROM public.task WHERE job IS NULL AND NOT atomic AND attempt > 1 AND id = ANY ($1)";
    let again = database.query(again, &[&ids]).expect("the query")[0].get::<_, i64>(0);
    println!("{again} tasks were begun twice");
    let mut ran = rig.ran();
    ran.dedup();
    assert_eq!(ran, ids, "each has run");
    said_little(&mill, mark);
}

/// What runs while the server panics ends with it and runs again: nobody can keep its result.
#[test]
fn a_server_that_panics_for_lack_of_space_fails_no_task() {
    let Some(rig) = Rig::new(true) else { return };
    let database = rig.cluster.database();
    let mill = Supervisor::of(&database).key("max_workers", 8).start();
    rig.prepare(&mill, &database);
    let mark = mill.log().mark();
    let ids = rig.insert(&database, 20, 1.0, "\"group\"", "'g' || n % 8");
    mill.eventually("some run", || rig.ran().len() > 4);
    rig.disk.fill();
    wait("the server panics").within(Duration::from_secs(30)).telling(|| rig.cluster.log()).until(|| {
        rig.disk.fill();
        if let Ok(mut client) = rig.cluster.server().try_connect("postgres", "postgres") {
            let _ = client.batch_execute(
                "SELECT pg_switch_wal(); CREATE TEMP TABLE IF NOT EXISTS t (n int); \
                 SELECT pg_logical_emit_message(false, 'tests', repeat('x', 1000000))",
            );
        }
        rig.cluster.log().contains("PANIC")
    });
    steadily("the disk is full", OUTAGE, || {
        rig.disk.fill();
        true
    });
    rig.disk.free();
    if rig.cluster.is_down() {
        rig.cluster.start_again();
    }
    mill.wait("all are finished").within(Duration::from_secs(30)).until(|| {
        let open = "SELECT count(*) FROM public.task WHERE state IN ('PLAN', 'TAKE', 'WORK')";
        database.query(open, &[]).is_some_and(|rows| rows[0].get::<_, i64>(0) == 0)
    });
    rig.all_done(&mill, &database, &ids);
    let mut ran = rig.ran();
    ran.dedup();
    assert_eq!(ran, ids, "each has run");
    said_little(&mill, mark);
}
