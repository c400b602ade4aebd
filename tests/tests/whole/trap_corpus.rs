//! One trap after the other: armed on `evil.task`, walked over by everybody, and looked at afterwards. Each has a stage of
//! its own, so that none hides another.

use std::time::Duration;

use tests::Supervisor;

use crate::queries::one;
use crate::trap_calls::{Swept, sweep};
use crate::trap_stage::{CatalogOf, Stage};

/// How a trap is laid. `EVIL` in `arm` is the quoted name of its role.
#[derive(Debug, Clone, Copy)]
pub struct Trap {
    pub name: &'static str,
    /// Run by evil.
    pub arm: &'static str,
    /// What only a superuser can prepare for it.
    prepare: &'static str,
    /// The queue goes on with it.
    serves: bool,
    /// Evil itself falls for it when it writes to its table.
    fires: bool,
    /// Armed while the queue is served, because the next start would undo it.
    late: bool,
}

pub const fn trap(name: &'static str, arm: &'static str) -> Trap {
    Trap { name, arm, prepare: "", serves: true, fires: true, late: false }
}

impl Trap {
    /// Its own queue need not go on.
    pub const fn unserved(self) -> Trap {
        Trap { serves: false, ..self }
    }

    /// It is for others alone.
    pub const fn for_others(self) -> Trap {
        Trap { fires: false, ..self }
    }

    pub const fn late(self) -> Trap {
        Trap { late: true, ..self }
    }

    pub const fn prepared_by_superuser(self, prepare: &'static str) -> Trap {
        Trap { prepare, ..self }
    }
}

/// Jobs in both queues, edges from one to the other and back; `once` is asked for by hand.
const JOBS: &str = "BEGIN;
    INSERT INTO mill.flow (name, parallel) VALUES ('f', 8);
    INSERT INTO mill.job (name, input, queue, flow) VALUES
        ('home', 'INSERT INTO public.ran VALUES (''home'')', 'public.task', 'f'),
        ('spy', 'SELECT 1', 'evil.task', 'f'), ('back', 'INSERT INTO public.ran VALUES (''back'')', 'public.task', 'f'),
        ('fails', 'SELECT 1 / 0', 'evil.task', 'f'), ('alarm', 'INSERT INTO public.ran VALUES (''alarm'')', 'public.task', 'f'),
        ('node', NULL, 'evil.task', 'f'), ('last', 'INSERT INTO public.ran VALUES (''last'')', 'public.task', 'f'),
        ('once', 'INSERT INTO evil.ran VALUES (''once'')', 'evil.task', NULL);
    INSERT INTO mill.job (name, input, queue, schedule_interval, crash_wait, retry_period) VALUES
        ('often', 'SELECT 1', 'evil.task', '1 s', '1 s', '1 s'),
        ('tick', 'INSERT INTO public.ran VALUES (''tick'')', 'public.task', '1 s', '1 s', '1 s');
    INSERT INTO mill.timer (name, start, period) VALUES ('clock', '2100-01-01', '1 day');
    INSERT INTO mill.edge (job, from_timer) VALUES ('home', 'clock');
    INSERT INTO mill.edge (job, from_job) VALUES ('spy', 'home'), ('back', 'spy'), ('fails', 'home'), ('node', 'home'), ('last', 'node');
    INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('alarm', 'fails', 'failure');
    COMMIT";

/// What evil does to its own table anyway: nothing of it may harm anybody.
const POKE: &str = "INSERT INTO evil.task (input, plan) VALUES ('SELECT 1', now() + interval '1 day');
    UPDATE evil.task SET priority = priority + 1, reason = 'none' WHERE input = 'SELECT 1' AND state = 'PLAN' AND plan > now();
    DO 'BEGIN PERFORM id, state::text FROM evil.task WHERE id > 0; END'";

/// Springs the trap on a catalog of that owner. What went wrong, a sentence each.
pub fn spring(trap: &Trap, catalog: CatalogOf) -> Vec<String> {
    let stage = Stage::new(catalog);
    let (_, evil, _) = stage.idents();
    if !trap.prepare.is_empty() {
        stage.database.run(&trap.prepare.replace("EVIL", &evil));
    }
    let arm = || stage.say(&stage.evil, &trap.arm.replace("EVIL", &evil));
    let mut walk = Walk { stage: &stage, trap, faults: Vec::new() };
    if !trap.serves {
        // Then the catalog may no longer know the table.
        let mill = stage.serve();
        walk.declare();
        drop(mill);
    }
    if !trap.late {
        arm();
    }
    let mill = stage.launch();
    if let Err(why) = known(&stage, &mill, trap.serves) {
        return vec![why];
    }
    if trap.late {
        arm();
    }
    let poked = stage.session(&stage.evil).batch_execute(POKE);
    if trap.fires {
        assert!(poked.is_ok(), "{}: evil cannot use its own table: {poked:?}", trap.name);
        assert!(one::<i64>(&stage.database, "SELECT count(*) FROM evil.caught") > 0, "{} is no trap", trap.name);
    }
    walk.run_jobs(&mill);
    let _ = stage.forge_end(
        one(&stage.database, "SELECT COALESCE(min(id), 1) FROM mill.job WHERE name = 'tick'"),
        1,
        "FAIL",
    );
    walk.call_everything();
    walk.resume_jobs(&mill);
    // What is for nobody but the catalog's owner may leave jobs in any state, so nothing is waited for afterwards.
    let catalogs_owner = walk.call_as_owners();
    drop(mill);
    let _ = attempt(&stage, &catalogs_owner, "BEGIN; SELECT mill.uninstall(); COMMIT");
    let mut faults = walk.faults;
    faults.extend(stage.faults());
    faults
}

/// The way over one trap, and the faults so far.
struct Walk<'s> {
    stage: &'s Stage,
    trap: &'s Trap,
    faults: Vec<String>,
}

impl Walk<'_> {
    fn expect(&mut self, what: &str, said: Result<(), String>) {
        self.faults.extend(said.err().map(|why| format!("{what}: {why}")));
    }

    /// Jobs of the application, of evil and of a member.
    fn declare(&mut self) {
        let stage = self.stage;
        let job = |name: &str| {
            format!(
                "INSERT INTO mill.job (name, input, queue, schedule_interval, crash_wait, retry_period) \
                 VALUES ('{name}', 'INSERT INTO evil.ran VALUES (''{name}'')', 'evil.task', '1 s', '1 s', '1 s')"
            )
        };
        self.expect("the application's jobs", attempt(stage, stage.database.owner(), JOBS));
        self.expect("the job of evil", attempt(stage, &stage.evil, &job("own")));
        self.expect("the job of the member", attempt(stage, &stage.member, &job("members")));
    }

    /// Runs of both queues, as far as evil's is served.
    fn run_jobs(&mut self, mill: &Supervisor<'_>) {
        let stage = self.stage;
        let app = stage.database.owner();
        if self.trap.serves {
            self.declare();
        }
        let fire = "SELECT mill.fire('clock', date_trunc('day', now()))";
        self.expect("the timer is fired", attempt(stage, app, fire));
        let once = attempt(stage, app, "SELECT mill.run_job((SELECT id FROM mill.job WHERE name = 'once'))");
        if self.trap.serves {
            self.expect("a run by hand", once);
        }
        self.expect("the public queue", served(stage, mill, "public", &["home", "tick"]));
        if self.trap.serves {
            self.expect("the queue of evil", served(stage, mill, "evil", &["own", "members", "once"]));
            let edges = served(stage, mill, "public", &["back", "alarm", "last"]);
            self.expect("edges from one queue to the other and back", edges);
        }
    }

    /// Every function of the catalog, called by three roles.
    fn call_everything(&mut self) {
        let stage = self.stage;
        let (member, app) = (stage.member.as_str(), stage.database.owner());
        for (role, like) in [(member, member), (app, app), ("postgres", member)] {
            let Swept { faults: more, done, refused } = sweep(stage, role, like);
            self.faults.extend(more);
            if done < 20 {
                self.faults.push(format!("{role}: only {done} calls were done; refused were {refused:#?}"));
            }
        }
    }

    fn resume_jobs(&mut self, mill: &Supervisor<'_>) {
        let stage = self.stage;
        let again = "DELETE FROM public.ran; SELECT mill.resume(flow => 'f'); SELECT mill.alter_job(id, scheduled => true) FROM mill.job WHERE name = 'tick'";
        self.expect("jobs are resumed", attempt(stage, stage.database.owner(), again));
        self.expect("the public queue goes on", served(stage, mill, "public", &["tick"]));
        if self.trap.serves {
            let record = attempt(stage, &stage.evil, "DELETE FROM evil.ran WHERE job <> 'once'");
            self.expect("evil's record", record);
            self.expect("the queue of evil goes on", served(stage, mill, "evil", &["own"]));
            let times: i64 = one(&stage.database, "SELECT count(*) FROM evil.ran WHERE job = 'once'");
            if times != 1 {
                self.faults.push(format!("a run that was asked for once ran {times} times"));
            }
        }
    }

    /// The same calls as the catalog's owner and as a superuser. The owner's name.
    fn call_as_owners(&mut self) -> String {
        let owner = "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'mill'";
        let owner: String = one(&self.stage.database, owner);
        self.faults.extend(sweep(self.stage, &owner, &owner).faults);
        if owner != "postgres" {
            self.faults.extend(sweep(self.stage, "postgres", "postgres").faults);
        }
        owner
    }
}

fn attempt(stage: &Stage, role: &str, sql: &str) -> Result<(), String> {
    let mut client = stage.session(role);
    client.batch_execute("SET statement_timeout = '3s'").expect("SET");
    client.batch_execute(sql).map_err(|error| match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => error.to_string(),
    })
}

/// Does the catalog know the public queue, and the other one if it is served?
fn known(stage: &Stage, mill: &Supervisor<'_>, both: bool) -> Result<(), String> {
    let sql = format!(
        "SELECT count(*) >= {} FROM mill.queue q WHERE q.relid IN (to_regclass('public.task'), to_regclass('evil.task'))",
        1 + i32::from(both)
    );
    let came = mill.wait("known").within(Duration::from_secs(20)).attempt(|| one::<bool>(&stage.database, &sql));
    came.ok_or_else(|| format!("the catalog does not know the queues:\n{}", mill.log().tail(20)))
}

/// Have these jobs left a row in the record of a schema?
fn served(stage: &Stage, mill: &Supervisor<'_>, schema: &str, jobs: &[&str]) -> Result<(), String> {
    let names = jobs.iter().map(|job| (*job).to_owned()).collect::<Vec<_>>();
    let sql = format!(
        "SELECT ARRAY(SELECT j FROM unnest($1::text[]) AS j WHERE NOT EXISTS (SELECT FROM {schema}.ran r WHERE r.job = j))"
    );
    let mut missing = names.clone();
    let came = mill.wait("jobs have run").within(Duration::from_secs(10)).attempt(|| {
        missing = crate::queries::one_with(&stage.database, &sql, &[&names]);
        missing.is_empty()
    });
    came.ok_or_else(|| {
        println!("{missing:?} have not run:\n{}", mill.log().tail(30));
        format!("{missing:?} have not run")
    })
}

/// So many faults of a trap are printed.
const SHOWN: usize = 15;

/// All of these traps, in both kinds of catalogs if `both`; panics with what went wrong.
#[track_caller]
pub fn spring_all(traps: &[Trap], catalogs: &[CatalogOf]) {
    let mut report = String::new();
    for trap in traps {
        for catalog in catalogs {
            let faults = spring(trap, *catalog);
            if !faults.is_empty() {
                let shown = &faults[..faults.len().min(SHOWN)];
                report +=
                    &format!("{} ({catalog:?}), {} faults:\n    {}\n", trap.name, faults.len(), shown.join("\n    "));
            }
        }
    }
    assert!(report.is_empty(), "\n{report}");
}
