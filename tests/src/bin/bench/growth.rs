//! How the cost of a task grows with what waits, with and without a long transaction held open elsewhere.

use crate::report::{Bound, Line};
use crate::rig::{Queue, Rig, done, number, stop, until_done};
use crate::works::{backlog, fill, serve};

/// A backlog that is gone before its middle can be measured is filled and emptied again and again, up to so many tasks.
const EMPTIED: i64 = 20_000;

pub fn measure(rig: &Rig) -> Vec<Line> {
    let mut lines = Vec::new();
    for (shape, groups) in [("one group", 1), ("groups of 100", 100)] {
        for pinned in [false, true] {
            let mut best: f64 = 0.0;
            for waiting in [1_000_i64, 10_000, 100_000, 1_000_000] {
                let rate = one(rig, waiting, groups, pinned);
                best = best.max(rate);
                let held = if pinned { ", a transaction open elsewhere" } else { "" };
                let what = format!("{waiting} waiting, {shape}{held}");
                lines.push(Line::new(
                    "growth",
                    &what,
                    "tasks/s",
                    vec![rate],
                    vec![best],
                    vec![rate / best],
                    Bound::None,
                ));
                eprintln!("   {what}: {rate:.0} tasks/s");
            }
        }
    }
    lines
}

fn one(rig: &Rig, waiting: i64, per_group: i64, pinned: bool) -> f64 {
    let database = rig.queue(None);
    let max = if per_group == 1 { 7 } else { 0 };
    let group = if per_group == 1 { "'group'".to_owned() } else { format!("'group ' || n / {per_group}") };
    let rows = format!("SELECT {group}, 'SELECT 1', interval '1 hour', {max} FROM generate_series(1, {waiting}) AS n");
    let mut elsewhere = database.connect_superuser();
    if pinned {
        let begun = elsewhere.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class");
        begun.expect("hold a transaction open");
    }
    if waiting <= EMPTIED {
        return emptied(&database, &rows, waiting);
    }
    fill(&database, &rows);
    backlog(&database, false)
}

/// Tasks per second while so many wait at first and none at last. What is done stays, with all that it leaves behind.
fn emptied(database: &Queue, rows: &str, waiting: i64) -> f64 {
    let launcher = serve(database, true);
    let mut seconds = 0.0;
    for _ in 0..EMPTIED / waiting {
        let before = done(database);
        let last = number(database, "SELECT COALESCE(max(id), 0) FROM public.task");
        fill(database, rows);
        until_done(database, before + waiting);
        let took = "SELECT extract(epoch FROM max(stop) - min(start)) FROM public.task WHERE id >";
        seconds += number(database, &format!("{took} {last}"));
    }
    stop(&launcher);
    (EMPTIED / waiting * waiting) as f64 / seconds
}
