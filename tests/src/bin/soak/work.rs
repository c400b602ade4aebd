//! Tasks for every database at a steady rate, and databases that come, do a little work and go.
//!
//! A task's first words are committed before it works (a killed attempt stays in the ledger) and take a lock that its
//! backend holds until it is through: an attempt that meets an earlier one finds the lock taken. Its last words say that
//! the work was done. An atomic task does all of that in the one transaction that also records its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use postgres::Client;
use serde_json::json;
use tests::database::quote_ident;
use tests::{Database, Server};

use crate::graph;
use crate::world::World;

const LEDGER: &str = "CREATE TABLE public.ledger (task bigint, attempt int, pid int DEFAULT pg_backend_pid(), alone bool, \
    at timestamptz DEFAULT clock_timestamp()); CREATE TABLE public.work (task bigint, attempt int, \
    pid int DEFAULT pg_backend_pid(), at timestamptz DEFAULT clock_timestamp()); \
    CREATE TABLE public.tick (job text, at text, pid int DEFAULT pg_backend_pid()); \
    GRANT ALL ON public.ledger, public.work, public.tick TO PUBLIC";

const FIRST: &str = "INSERT INTO public.ledger (task, attempt, alone) SELECT id, attempt, pg_try_advisory_lock(77, id::int) \
    FROM public.task WHERE id = current_setting('pg_task.id')::bigint";
const LAST: &str = "INSERT INTO public.work (task, attempt) SELECT id, attempt FROM public.task WHERE id = current_setting('pg_task.id')::bigint;\
    SELECT pg_advisory_unlock(77, current_setting('pg_task.id')::int)";

/// Jobs, made by the queue's own user: an atomic one and a plain one, and one that always fails. Rows of a job have max 0,
/// so that a backlog of others goes before them; `plain` has more, and goes before it.
const JOBS: &str = "INSERT INTO mill.job (name, input, schedule_interval, atomic, retry_period, crash_wait, max) VALUES \
    ('exact', 'INSERT INTO public.tick VALUES (current_setting(''mill.job''), current_setting(''mill.at''))', '1 s', true, '0.5 s', '0.5 s', 0), \
    ('plain', 'INSERT INTO public.tick VALUES (current_setting(''mill.job''), current_setting(''mill.at''))', '1.5 s', false, '0.5 s', '0.5 s', 9), \
    ('failing', 'SELECT 1 / 0', '3 s', false, '1 s', '1 s', 0)";

/// How long a database that has come may wait for its table and for its tasks; time without a server does not count.
const PASSING_TIMEOUT: Duration = Duration::from_secs(120);
const PASSING_TASKS: i64 = 5;

/// What became of databases that came and went.
#[derive(Debug, Default)]
pub struct Passed {
    pub served: AtomicUsize,
    pub unserved: AtomicUsize,
    /// Dropped only by force.
    pub forced: AtomicUsize,
}

#[derive(Debug)]
pub struct Work {
    stop: Arc<AtomicBool>,
    inserters: Vec<JoinHandle<Vec<i64>>>,
    passing: JoinHandle<()>,
    passed: Arc<Passed>,
}

/// Which tasks the server has acknowledged, by database, and what became of the passing databases.
#[derive(Debug)]
pub struct Inserted {
    pub tasks: Vec<Vec<i64>>,
    pub passed: Arc<Passed>,
}

impl Work {
    pub fn begin(world: &'static World, rate: f64) -> Work {
        let stop = Arc::new(AtomicBool::new(false));
        let pause = Duration::from_secs_f64(world.databases.len() as f64 / rate);
        let inserters = world.databases.iter().map(|database| {
            database.run(LEDGER);
            database.connect().batch_execute(JOBS).expect("the user of a queue makes jobs");
            graph::declare(database);
            let stop = stop.clone();
            thread::spawn(move || insert(database, pause, &stop))
        });
        let inserters = inserters.collect();
        let passed = Arc::<Passed>::default();
        let (ended, told) = (stop.clone(), passed.clone());
        let passing = thread::spawn(move || come_and_go(world, &ended, &told));
        Work { stop, inserters, passing, passed }
    }

    /// No more tasks; which ones there are.
    pub fn end(self, world: &World) -> Inserted {
        self.stop.store(true, SeqCst);
        let tasks = self.inserters.into_iter().map(|thread| thread.join().expect("an inserter lives")).collect();
        self.passing.join().expect("who makes databases lives");
        for database in world.databases.iter() {
            database.run("UPDATE mill.job SET scheduled = false WHERE flow IS NULL");
            graph::stop(database);
        }
        Inserted { tasks, passed: self.passed }
    }
}

/// One of many kinds: short and long, plain and atomic, alone in its process or one of several.
fn task() -> String {
    let ms = match rand::random_range(0..100) {
        0..75 => rand::random_range(1..20),
        75..96 => rand::random_range(20..300),
        _ => rand::random_range(300..2000),
    };
    let sleep = format!("SELECT pg_sleep({ms} / 1000.0)");
    let atomic = rand::random_range(0..3) == 0;
    let input = match atomic {
        true => format!("{FIRST};{sleep};{LAST}"),
        false => format!("BEGIN;{FIRST};COMMIT;{sleep};{LAST}"),
    };
    let group = rand::random_range(0..8);
    let live = if group < 4 { "1 minute" } else { "0" };
    format!(
        "INSERT INTO public.task (input, \"group\", max, live, atomic, active, delete) \
         VALUES ($in${input}$in$, 'g{group}', {}, '{live}', {atomic}, '1 day', false) RETURNING id",
        rand::random_range(0..4),
    )
}

/// Until told to stop; an error is the weather: the session is opened again.
fn insert(database: &Database, pause: Duration, stop: &AtomicBool) -> Vec<i64> {
    let mut acknowledged = Vec::new();
    let mut client: Option<Client> = None;
    let mut next = Instant::now();
    while !stop.load(SeqCst) {
        next = (next + pause).max(Instant::now());
        sleep(next.saturating_duration_since(Instant::now()));
        if client.as_ref().is_none_or(Client::is_closed) {
            client = database.server().try_connect(database.owner(), database.name()).ok();
        }
        match client.as_mut().map(|client| client.query_one(&task(), &[])) {
            Some(Ok(row)) => acknowledged.push(row.get(0)),
            Some(Err(_)) | None => {
                client = None;
                sleep(Duration::from_millis(200));
            }
        }
    }
    acknowledged
}

fn come_and_go(world: &'static World, stop: &AtomicBool, passed: &Passed) {
    let owner = world.databases[0].owner();
    let server = world.cluster.server();
    for number in 0.. {
        if stop.load(SeqCst) {
            return;
        }
        let name = format!("passing{number}");
        let made = format!("CREATE DATABASE {} OWNER {}", quote_ident(&name), quote_ident(owner));
        if !insist(server, &made, stop) {
            return;
        }
        world.set_passing(vec![json!({"data": name, "user": owner, "sleep": 200, "close": "1 s"})]);
        let counter = if is_served(server, owner, &name) { &passed.served } else { &passed.unserved };
        counter.fetch_add(1, SeqCst);
        world.set_passing(Vec::new());
        drop_database(server, &name, passed);
        sleep(Duration::from_secs(1));
    }
}

/// Its table is made, and some tasks run.
fn is_served(server: &Server, owner: &str, name: &str) -> bool {
    const PAUSE: Duration = Duration::from_millis(200);
    let tasks = format!("INSERT INTO public.task (input) SELECT 'SELECT 1' FROM generate_series(1, {PASSING_TASKS})");
    let (mut inserted, mut waited) = (false, Duration::ZERO);
    while waited < PASSING_TIMEOUT {
        sleep(PAUSE);
        let Ok(mut client) = server.try_connect("postgres", name) else { continue };
        waited += PAUSE;
        let role = format!("SET ROLE {}", quote_ident(owner));
        if !inserted {
            inserted = client.batch_execute(&format!("{role};{tasks}")).is_ok();
            continue;
        }
        // the answer to the insert may have been lost, and then there are more
        let done = client.query_one("SELECT count(*) FROM public.task WHERE state = 'DONE'", &[]);
        if done.is_ok_and(|row| row.get::<_, i64>(0) >= PASSING_TASKS) {
            return true;
        }
    }
    false
}

/// As anybody would, then by force.
fn drop_database(server: &Server, name: &str, passed: &Passed) {
    let name = quote_ident(name);
    for attempt in 0..300 {
        let force = if attempt > 40 { " WITH (FORCE)" } else { "" };
        let sql = format!("DROP DATABASE IF EXISTS {name}{force}");
        let dropped = server.try_connect("postgres", "postgres").and_then(|mut client| client.batch_execute(&sql));
        if dropped.is_ok() {
            passed.forced.fetch_add(usize::from(attempt > 40), SeqCst);
            return;
        }
        sleep(Duration::from_millis(250));
    }
}

/// Until it works, or everything is over.
fn insist(server: &Server, sql: &str, stop: &AtomicBool) -> bool {
    while !stop.load(SeqCst) {
        let done = server.try_connect("postgres", "postgres").and_then(|mut client| client.batch_execute(sql));
        match done {
            Ok(()) => return true,
            // its answer was lost
            Err(error) if error.code().is_some_and(|code| code.code() == "42P04") => return true,
            Err(_) => sleep(Duration::from_millis(250)),
        }
    }
    false
}
