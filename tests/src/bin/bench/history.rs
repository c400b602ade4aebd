//! How long mill.run takes to answer with 100,000 jobs and 1,000,000 runs, for the owner of the catalog and for a role that sees
//! half of them.

use crate::report::{Bound, Line, median};
use crate::rig::Rig;
use std::time::Instant;
use tests::Database;

const JOBS: i64 = 100_000;
const RUNS: i64 = 1_000_000;
const REPEATS: usize = 9;
const BOUND_MS: f64 = 50.0;

const QUERIES: [(&str, &str); 5] = [
    ("the latest 20 of all", "SELECT * FROM mill.run ORDER BY id DESC LIMIT 20"),
    ("the runs of one job", "SELECT * FROM mill.run WHERE job = 4242"),
    ("failed since an hour", "SELECT * FROM mill.run WHERE state = 'failed' AND stop > now() - interval '1 hour'"),
    (
        "joined with mill.job by id",
        "SELECT r.* FROM mill.run r JOIN mill.job j ON j.id = r.job WHERE j.name = 'job 4242'",
    ),
    (
        "joined with mill.job by name",
        "SELECT r.* FROM mill.run r JOIN mill.job j ON j.name = r.name WHERE j.name = 'job 4242'",
    ),
];

pub fn measure(rig: &Rig) -> Vec<Line> {
    let database = rig.queue(None);
    let member = format!("{}_member", database.owner());
    database.run(&format!(
        "CREATE ROLE {member} LOGIN; GRANT INSERT ON public.task TO {member}; SELECT mill.grant('{member}', 'use')"
    ));
    fill(&database, &member);
    let mut lines = Vec::new();
    for (who, login) in [("the owner of the catalog", database.owner()), ("a member", member.as_str())] {
        let mut client = database.server().try_connect(login, database.name()).expect("connect");
        for (what, query) in QUERIES {
            client.query(query, &[]).expect("an answer");
            let times: Vec<f64> = (0..REPEATS)
                .map(|_| {
                    let began = Instant::now();
                    client.query(query, &[]).expect("an answer");
                    began.elapsed().as_secs_f64() * 1000.0
                })
                .collect();
            let what = format!("{what}, as {who}");
            eprintln!("   {what}: {:.1} ms", median(&times));
            lines.push(Line::single("history", &what, "ms", median(&times), Bound::AtMost(BOUND_MS)));
        }
    }
    database.run(&format!("DROP OWNED BY {member}; DROP ROLE {member}"));
    lines
}

/// One run a second, every hundredth failed; every other job is the member's.
fn fill(database: &Database, member: &str) {
    let owner = database.owner();
    database.run(&format!(
        "SET session_replication_role = replica; \
         INSERT INTO mill.job (id, name, queue, owner, input) SELECT i, 'job ' || i, 'public.task', \
           CASE WHEN i % 2 = 0 THEN '{member}' ELSE '{owner}' END, 'SELECT 1' FROM generate_series(1, {JOBS}) AS i; \
         INSERT INTO mill_private.job_state (job, queue, scheduled) SELECT id, 'public.task'::regclass, true FROM mill.job; \
         INSERT INTO mill_private.run (job, owner, queue, at, due, ordered, task, start, stop, outcome, definition) \
         SELECT j.id, j.owner, 'public.task'::regclass, now(), now(), false, i, now() - i * interval '1 s', \
           now() - i * interval '1 s', CASE WHEN i % 100 = 7 THEN 'failed' ELSE 'succeeded' END, 'SELECT 1' \
           FROM generate_series({RUNS}::bigint, 1, -1) AS i JOIN mill.job j ON j.id = 1 + i * 7919 % {JOBS}"
    ));
    database.run("VACUUM ANALYZE mill.job");
    database.run("VACUUM ANALYZE mill_private.run");
}
