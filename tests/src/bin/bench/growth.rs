//! How the cost of a task grows with what waits, with and without a long transaction held open elsewhere.

use crate::report::{Bound, Line};
use crate::rig::Rig;
use crate::works::{backlog, fill};

pub fn measure(rig: &Rig) -> Vec<Line> {
    let mut lines = Vec::new();
    for (shape, groups) in [("one group", 1), ("groups of 100", 100)] {
        for pinned in [false, true] {
            let mut best: f64 = 0.0;
            for waiting in [10_000_i64, 100_000, 1_000_000] {
                let rate = one(rig, waiting.max(40_000), groups, pinned);
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
    let database = rig.queue();
    let max = if per_group == 1 { 7 } else { 0 };
    let group = if per_group == 1 { "'group'".to_owned() } else { format!("'group ' || n / {per_group}") };
    fill(
        &database,
        &format!("SELECT {group}, 'SELECT 1', interval '1 hour', {max} FROM generate_series(1, {waiting}) AS n"),
    );
    let mut elsewhere = database.connect_superuser();
    if pinned {
        let begun = elsewhere.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class");
        begun.expect("hold a transaction open");
    }
    backlog(&database)
}
