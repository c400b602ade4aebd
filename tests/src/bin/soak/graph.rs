//! A graph in every database: a timer of four seconds, a fan-out, a join, a job that always fails and the alarm that this
//! raises, a job without input, and one that waits for its own time before. Whatever is struck, each job of each logical
//! time comes to its end once: by the tokens, by the statistics, and by a ledger that the jobs write.

use tests::Database;

/// Every atomic node writes its line in the transaction that also ends it; the others write before they work. The lock
/// shows whether another attempt of the same job and time is still at it.
fn input(name: &str, atomic: bool) -> String {
    let key = format!("78, hashtext('{name} ' || mill.at())");
    let lock = if atomic { "pg_try_advisory_xact_lock" } else { "pg_try_advisory_lock" };
    let line = format!("INSERT INTO public.node (job, at, alone) SELECT '{name}', mill.at(), {lock}({key})");
    let work = if name == "broken" { "SELECT 1 / 0" } else { "SELECT pg_sleep(random() * 0.2)" };
    match atomic {
        true => format!("{line};{work}"),
        false => format!("BEGIN;{line};COMMIT;{work};SELECT pg_advisory_unlock({key})"),
    }
}

const LEDGER: &str = "CREATE TABLE public.node (job text, at timestamptz, alone bool, pid int DEFAULT pg_backend_pid(), \
    moment timestamptz DEFAULT clock_timestamp()); GRANT ALL ON public.node TO PUBLIC";

/// Name, atomic, max_retries. Cancelling a session fails a run: but for `broken`, which fails at once
/// and for good, every job is tried until it succeeds.
const NODES: [(&str, bool, &str); 7] = [
    ("load", true, "-1"),
    ("left", true, "-1"),
    ("right", false, "-1"),
    ("broken", false, "0"),
    ("join", true, "-1"),
    ("alarm", true, "-1"),
    ("chain", true, "-1"),
];

/// Declares it, as the queue's own user.
pub fn declare(database: &Database) {
    database.run(LEDGER);
    let mut sql = "BEGIN; INSERT INTO mill.flow (name, \"window\") VALUES ('storm', 8); \
        INSERT INTO mill.job (flow, name, input) VALUES ('storm', 'empty', NULL);"
        .to_owned();
    for (name, atomic, retries) in NODES {
        sql += &format!(
            "INSERT INTO mill.job (flow, name, input, atomic, live, max_retries, retry_period, crash_wait) \
             VALUES ('storm', '{name}', $in${}$in$, {atomic}, '{}', {retries}, '0.2 s', '0.2 s');",
            input(name, atomic),
            if atomic { "0" } else { "1 minute" },
        );
    }
    sql += "INSERT INTO mill.timer (name, flow, period, catchup) VALUES ('beat', 'storm', '4 s', 'earliest'); \
        INSERT INTO mill.edge (job, from_timer) VALUES ('load', 'beat'); \
        INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('left', 'load', 'success'), ('right', 'load', 'success'), \
            ('broken', 'load', 'success'), ('empty', 'load', 'success'), ('join', 'left', 'success'), ('join', 'right', 'success'), \
            ('join', 'empty', 'success'), ('join', 'broken', 'done'), ('alarm', 'broken', 'failure'), ('chain', 'join', 'success'); \
        INSERT INTO mill.edge (job, from_job, shift, first) VALUES ('chain', 'chain', '4 s', true); COMMIT";
    database.connect().batch_execute(&sql).expect("the user of a queue draws a graph");
}

/// The timer fires no more; what it has fired goes on to its end, a range that is being filled too.
pub fn stop(database: &Database) {
    database.run("UPDATE mill.timer SET stop = clock_timestamp()");
}

/// What is not in the task table, as a number: times that are yet to be filled in, and runs of the graph that are yet to be put
/// into the queue or to be brought to their end.
pub const UNFILLED: &str = "(SELECT count(*) FROM mill.backfill WHERE finished IS NULL) \
     + (SELECT count(*) FROM mill_private.run r JOIN mill.job j ON j.id = r.job WHERE j.flow IS NOT NULL AND r.outcome IS NULL)";

/// How many logical times there were.
pub const TIMES: &str = "SELECT count(DISTINCT at) FROM public.node";

/// Every time from the first to the last of the timer, with every job that must have run for it; how many lines each has
/// written; how often each job has come to its end.
const DUE: &str = "WITH due AS (SELECT j.id, j.name, j.atomic, j.input IS NOT NULL AS writes, g.at \
        FROM mill.timer t CROSS JOIN LATERAL generate_series(t.start, t.last, t.period) AS g (at) CROSS JOIN mill.job j \
        WHERE t.name = 'beat' AND j.flow = 'storm'), \
    done AS (SELECT n.job, n.at, count(*) AS lines FROM public.node n GROUP BY 1, 2), \
    ended AS (SELECT d.name, d.n AS due, CASE d.name WHEN 'broken' THEN s.total_failures ELSE s.total_successes END AS n \
        FROM (SELECT id, name, count(*) AS n FROM due GROUP BY 1, 2) d JOIN mill.job_stat s ON s.job = d.id) ";

/// Times of jobs that did not come, or whose work is not there. `broken` is not tried again, so a session that we cancelled or
/// ended before it wrote its line leaves none.
pub fn lost() -> String {
    format!(
        "{DUE} SELECT concat_ws(' ', 'graph:', d.name, 'for', d.at, 'activated', coalesce(k.activations, 0), 'times, wrote', \
             coalesce(b.lines, 0), 'lines;', mill.why(d.name, d.at)) \
         FROM due d LEFT JOIN mill.token k ON k.job = d.id AND k.at = d.at LEFT JOIN done b ON b.job = d.name AND b.at = d.at \
         WHERE k.activations IS NULL OR k.activations < 1 OR k.waiting <> '{{}}' \
            OR d.writes AND b.lines IS NULL AND NOT (d.name = 'broken' AND EXISTS (SELECT FROM public.task t \
                WHERE t.job = d.id AND t.at = d.at AND t.state = 'FAIL' AND t.error NOT LIKE '%division by zero%')) \
         UNION ALL SELECT format('graph: %s ended %s times, but was due for %s', name, n, due) FROM ended WHERE n < due"
    )
}

/// Times of jobs that came twice, or that nobody has fired.
pub fn doubled() -> String {
    format!(
        "{DUE} SELECT concat_ws(' ', 'graph:', d.name, 'for', d.at, 'activated', k.activations, 'times, wrote', b.lines, 'lines') \
         FROM due d JOIN mill.token k ON k.job = d.id AND k.at = d.at LEFT JOIN done b ON b.job = d.name AND b.at = d.at \
         WHERE k.activations > 1 OR d.atomic AND b.lines > 1 \
         UNION ALL SELECT format('graph: %s ran for %s, which nobody fired', b.job, b.at) FROM done b \
         WHERE NOT EXISTS (SELECT FROM due d WHERE d.name = b.job AND d.at = b.at) \
         UNION ALL SELECT format('graph: %s ended %s times, but was due for %s', name, n, due) FROM ended WHERE n > due"
    )
}

/// Attempts of one job and time that met, and a time of `chain` before the one that it waits for.
pub const OVERLAPPING: &str = "SELECT concat_ws(' ', 'graph:', job, 'for', at, 'at', moment) FROM public.node WHERE NOT alone \
    UNION ALL SELECT format('graph: chain for %s at %s, before the time before', c.at, c.moment) FROM ( \
        SELECT n.at, n.moment, lag(n.moment) OVER (ORDER BY n.at) AS before FROM public.node n WHERE n.job = 'chain') c \
    WHERE c.moment < c.before";
