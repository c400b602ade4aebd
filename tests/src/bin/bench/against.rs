//! Two launcher programs against each other: an older one and that of this build, on the same server in the same run.
//!
//! A round measures one program, the other, the reference, the other, and the first again; the next round begins with the other
//! program. A program's figure is the mean of its two. So both ratios of a round have the same reference, and a machine that
//! becomes slower or faster meanwhile does so for both programs. The result is the median of the rounds' new / old. A rate may
//! fall to 0.95 of the old one; a latency, or P8's memory, may rise to 1.05.
//!
//! Each program has databases of its own, since it makes the catalog of its own version. Where a benchmark's reference is
//! pgmill's other work (P5, P6, P7, P10), the old program does it.

use crate::idle;
use crate::report::{Bound, median};
use crate::rig::Rig;
use crate::works::{ALL, Bench, State};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;

/// What is compared unless benchmarks are named.
const USUAL: [&str; 7] = ["P1", "P1b", "P2", "P2own", "P3", "P4", "P10"];
/// The least part of a rate, and the largest multiple of a latency or of memory.
const LEAST_RATE: f64 = 0.95;
const MOST: f64 = 1.05;
/// Sleeping databases for P8.
const SLEEPING: usize = 10;

/// One figure of both programs, round by round.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub name: &'static str,
    what: String,
    unit: &'static str,
    old: Vec<f64>,
    new: Vec<f64>,
    reference: Vec<f64>,
    bound: Bound,
}

/// Compares the named benchmarks, or the usual ones.
pub fn measure(rig: &Rig, old: &Path, names: &[String], rounds: usize) -> Vec<Comparison> {
    let wanted = |known: &str| match names {
        [] => USUAL.contains(&known),
        names => names.iter().any(|name| name.eq_ignore_ascii_case(known)),
    };
    let mut found = Vec::new();
    for bench in ALL {
        if wanted(bench.name) || bench.also.iter().any(|also| wanted(also.name)) {
            eprintln!("{}: {}", bench.name, bench.what);
            found.extend(one(rig, old, bench, rounds).into_iter().filter(|comparison| wanted(comparison.name)));
        }
    }
    if wanted("P8") {
        eprintln!("P8: memory, {SLEEPING} databases");
        found.extend(memory(rig, old, rounds));
    }
    found
}

/// One benchmark with all its figures.
fn one(rig: &Rig, old: &Path, bench: &Bench, rounds: usize) -> Vec<Comparison> {
    let mut found = empty(bench);
    let mut states = [Some(old), None].map(|program| (bench.prepare)(rig, program));
    for round in 0..rounds {
        let (first, second) = (round % 2, 1 - round % 2);
        let mut figures = [vec![0.0; found.len()], vec![0.0; found.len()]];
        let mut add = |program: usize, states: &mut [State; 2]| {
            for (sum, figure) in figures[program].iter_mut().zip(work(rig, bench, &mut states[program])) {
                *sum += figure / 2.0;
            }
        };
        add(first, &mut states);
        add(second, &mut states);
        let references = references(rig, bench, &mut states[0]);
        add(second, &mut states);
        add(first, &mut states);
        let [old, new] = figures;
        for (((comparison, old), new), reference) in found.iter_mut().zip(old).zip(new).zip(references) {
            eprintln!("   round {}: {} old {old:.2}, new {new:.2} beside {reference:.2}", round + 1, comparison.name);
            comparison.push(old, new, reference);
        }
    }
    found
}

/// The benchmark's own figure and those that the same work has besides.
fn work(rig: &Rig, bench: &Bench, state: &mut State) -> Vec<f64> {
    let own = (bench.work)(rig, state);
    let others = bench.also.iter().map(|also| (also.figure)(state, own));
    std::iter::once(own).chain(others).collect()
}

fn references(rig: &Rig, bench: &Bench, state: &mut State) -> Vec<f64> {
    let own = (bench.reference)(rig, state);
    let others = bench.also.iter().map(|also| also.reference.map_or(own, |reference| reference(rig, state)));
    std::iter::once(own).chain(others.collect::<Vec<_>>()).collect()
}

fn empty(bench: &Bench) -> Vec<Comparison> {
    let own = (bench.name, bench.what, bench.bound);
    let others = bench.also.iter().map(|also| (also.name, also.what, also.bound));
    let comparison = |(name, what, bound): (&'static str, &str, Bound)| {
        let bound = if matches!(bound, Bound::AtMost(_)) { Bound::AtMost(MOST) } else { Bound::AtLeast(LEAST_RATE) };
        Comparison::new(name, what, bench.unit, bound)
    };
    std::iter::once(own).chain(others).map(comparison).collect()
}

fn memory(rig: &Rig, old: &Path, rounds: usize) -> [Comparison; 2] {
    let mut found = [
        Comparison::new("P8mem", "memory of a sleeping scheduler (PSS)", "MB", Bound::AtMost(MOST)),
        Comparison::new("P8work", "memory of an idle worker (PSS)", "MB", Bound::AtMost(MOST)),
    ];
    for _ in 0..rounds {
        let [old, new] = [Some(old), None].map(|program| idle::memory_mb(rig, program, SLEEPING));
        for (comparison, (old, new)) in found.iter_mut().zip(old.into_iter().zip(new)) {
            comparison.push(old, new, 1.0);
        }
    }
    found
}

impl Comparison {
    fn new(name: &'static str, what: &str, unit: &'static str, bound: Bound) -> Comparison {
        Comparison { name, what: what.to_owned(), unit, old: vec![], new: vec![], reference: vec![], bound }
    }

    fn push(&mut self, old: f64, new: f64, reference: f64) {
        self.old.push(old);
        self.new.push(new);
        self.reference.push(reference);
    }

    /// The median over the rounds of `values` / `divisors`, the least and the greatest.
    fn ratio(values: &[f64], divisors: &[f64]) -> [f64; 3] {
        let ratios: Vec<f64> = values.iter().zip(divisors).map(|(value, divisor)| value / divisor).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [median(&ratios), least, greatest]
    }

    fn new_to_old(&self) -> [f64; 3] {
        Comparison::ratio(&self.new, &self.old)
    }

    pub fn falls_short(&self) -> bool {
        self.bound.is_missed_by(self.new_to_old()[0])
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "what": self.what, "unit": self.unit,
            "old": self.old, "new": self.new, "reference": self.reference,
            "old_ratio": Comparison::ratio(&self.old, &self.reference)[0],
            "new_ratio": Comparison::ratio(&self.new, &self.reference)[0],
            "new_to_old": self.new_to_old()[0], "bound": self.bound.json(), "falls_short": self.falls_short(),
        })
    }
}

pub fn print(comparisons: &[Comparison]) {
    println!();
    println!(
        "{:<6} {:>12} {:>12} {:>10} {:>10} {:>8} {:>8} {:>16}  {:<12} what",
        "", "old", "new", "old ratio", "new ratio", "new/old", "bound", "spread", ""
    );
    for one in comparisons {
        let [ratio, least, greatest] = one.new_to_old();
        println!(
            "{:<6} {:>12.2} {:>12.2} {:>10.3} {:>10.3} {:>8.3} {:>8} {:>16}  {:<12} {} ({})",
            one.name,
            median(&one.old),
            median(&one.new),
            Comparison::ratio(&one.old, &one.reference)[0],
            Comparison::ratio(&one.new, &one.reference)[0],
            ratio,
            one.bound.text(),
            format!("{least:.3} .. {greatest:.3}"),
            if one.falls_short() { "FALLS SHORT" } else { "ok" },
            one.what,
            one.unit,
        );
    }
    println!();
}

pub fn write(path: &str, machine: &str, old: &Path, comparisons: &[Comparison]) -> io::Result<()> {
    let all: Vec<Value> = comparisons.iter().map(Comparison::json).collect();
    let text = json!({ "machine": machine, "against": old.display().to_string(), "comparisons": all });
    fs::write(path, serde_json::to_string_pretty(&text)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::{Bound, Comparison, LEAST_RATE, MOST};

    /// Rounds of (old, new, reference).
    fn comparison(bound: Bound, rounds: &[(f64, f64, f64)]) -> Comparison {
        let mut found = Comparison::new("P1", "", "", bound);
        rounds.iter().for_each(|(old, new, reference)| found.push(*old, *new, *reference));
        found
    }

    #[test]
    fn a_rate_falls_short_by_the_median_of_its_rounds() {
        let bound = Bound::AtLeast(LEAST_RATE);
        assert!(!comparison(bound, &[(100.0, 96.0, 50.0), (100.0, 10.0, 50.0), (200.0, 200.0, 50.0)]).falls_short());
        assert!(comparison(bound, &[(100.0, 94.0, 50.0), (100.0, 10.0, 50.0), (200.0, 200.0, 50.0)]).falls_short());
    }

    #[test]
    fn a_latency_falls_short_when_it_rises() {
        let bound = Bound::AtMost(MOST);
        assert!(!comparison(bound, &[(1.0, 1.04, 1.0)]).falls_short());
        assert!(comparison(bound, &[(1.0, 1.06, 1.0)]).falls_short());
    }

    #[test]
    fn a_figure_that_is_no_number_falls_short() {
        assert!(comparison(Bound::AtLeast(LEAST_RATE), &[(0.0, 0.0, 1.0)]).falls_short());
    }
}
