//! The benchmarks: pgmill's own work and its reference, one after the other in every round.
//!
//! The machine is shared and noisy, so a figure counts only as a ratio to something that was measured beside it. Each
//! benchmark has a work and a reference (mostly pgbench); a round runs both, and the result is the median of the
//! rounds' ratios with their spread. `rig` is the server and what runs on it, `works` are the benchmarks, `graphs` those
//! of timers and graphs, `idle` the one that measures rest, `costs` what one task costs, `history` how long mill.run takes to
//! answer, `peers` what others need for the same work, `against` an older launcher beside this one, `report` the table and the
//! file. Started by `scripts/bench`, which builds everything first.
#![forbid(unsafe_code)]

mod against;
mod costs;
mod graphs;
mod growth;
mod history;
mod idle;
mod peers;
mod report;
mod rig;
mod works;

use report::{Bound, Line};
use rig::Rig;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What is asked on the command line.
struct Asked {
    names: Vec<String>,
    rounds: usize,
    peers: bool,
    out: String,
    /// The older launcher program.
    against: Option<PathBuf>,
}

fn main() -> ExitCode {
    let asked = match read_arguments() {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("bench: {why}");
            return ExitCode::from(2);
        }
    };
    let rig = Rig::start();
    println!("{}", rig.describe());
    let (written, short) = match &asked.against {
        Some(old) => compare(&rig, &asked, old),
        None => measure_all(&rig, &asked),
    };
    if let Err(error) = written {
        eprintln!("bench: cannot write {}: {error}", asked.out);
        return ExitCode::FAILURE;
    }
    println!("written to {}", asked.out);
    if short.is_empty() {
        println!("nothing falls short");
        ExitCode::SUCCESS
    } else {
        println!("falls short: {}", short.join(", "));
        ExitCode::FAILURE
    }
}

/// Whether the file could be written, and the names of what falls short.
type Outcome = (std::io::Result<()>, Vec<String>);

fn compare(rig: &Rig, asked: &Asked, old: &Path) -> Outcome {
    let comparisons = against::measure(rig, old, &asked.names, asked.rounds);
    against::print(&comparisons);
    let written = against::write(&asked.out, &rig.describe(), old, &comparisons);
    let short = comparisons.iter().filter(|one| one.falls_short()).map(|one| one.name.to_owned());
    (written, short.collect())
}

fn measure_all(rig: &Rig, asked: &Asked) -> Outcome {
    let mut lines = Vec::new();
    let named = |known: &str| asked.names.iter().any(|name| name.eq_ignore_ascii_case(known));
    let wanted = |known: &str| asked.names.is_empty() || named(known);
    for bench in works::ALL {
        if wanted(bench.name) || bench.also.iter().any(|also| wanted(also.name)) {
            eprintln!("{}: {}", bench.name, bench.what);
            let measured = measure(rig, bench, asked.rounds);
            measured.iter().for_each(|line| eprintln!("   {} {}", line.name, line.brief()));
            lines.extend(measured.into_iter().filter(|line| wanted(&line.name)));
        }
    }
    if wanted("P8") {
        lines.extend([10, 100].into_iter().flat_map(|count| idle::measure(rig, count)));
    }
    lines.extend(costs::measure(rig, wanted));
    // Not part of the everyday run: it takes a while.
    if named("growth") {
        lines.extend(growth::measure(rig));
    }
    if named("history") {
        lines.extend(history::measure(rig));
    }
    if asked.peers {
        lines.extend(peers::measure(rig, asked.rounds));
    }
    report::print(&lines);
    let short = lines.iter().filter(|line| line.falls_short()).map(|line| line.name.clone()).collect();
    (report::write(&asked.out, &rig.describe(), &lines), short)
}

/// One work beside its references, round by round. Which of them comes first changes with every round.
fn measure(rig: &Rig, bench: &works::Bench, rounds: usize) -> Vec<Line> {
    // Per figure: the work's values and those of its reference.
    let mut values = vec![(Vec::new(), Vec::new()); 1 + bench.also.len()];
    let mut state = (bench.prepare)(rig, None);
    for round in 0..rounds {
        let mut work = 0.0;
        if round % 2 == 0 {
            work = (bench.work)(rig, &mut state);
        }
        let own = (bench.reference)(rig, &mut state);
        let others: Vec<f64> =
            bench.also.iter().map(|also| also.reference.map_or(own, |reference| reference(rig, &mut state))).collect();
        if round % 2 != 0 {
            work = (bench.work)(rig, &mut state);
        }
        let figures = bench.also.iter().map(|also| (also.figure)(&state, work));
        let told = std::iter::once((work, own)).chain(figures.zip(others));
        for ((works, references), (work, reference)) in values.iter_mut().zip(told) {
            works.push(work);
            references.push(reference);
            eprintln!("   round {}: {work:.1} beside {reference:.1}", round + 1);
        }
    }
    let own = (bench.name, bench.what, bench.bound);
    let heads = std::iter::once(own).chain(bench.also.iter().map(|also| (also.name, also.what, also.bound)));
    heads
        .zip(values)
        .map(|((name, what, bound), (work, reference))| {
            let ratios = work.iter().zip(&reference).map(|(work, reference)| bound.ratio(*work, *reference)).collect();
            Line::new(name, what, bench.unit, work, reference, ratios, bound)
        })
        .collect()
}

fn read_arguments() -> Result<Asked, String> {
    let mut asked = Asked { names: Vec::new(), rounds: 3, peers: false, out: "bench.json".to_owned(), against: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--peers" => asked.peers = true,
            "--rounds" => {
                let value = arguments.next().ok_or("--rounds needs a number")?;
                asked.rounds = value.parse().ok().filter(|rounds| *rounds > 0).ok_or("--rounds needs a number")?;
            }
            "--out" => asked.out = arguments.next().ok_or("--out needs a file")?,
            "--against" => {
                let old = PathBuf::from(arguments.next().ok_or("--against needs a launcher program")?);
                asked.against = Some(old.canonicalize().map_err(|error| format!("{}: {error}", old.display()))?);
            }
            name if known(name) => asked.names.push(name.to_owned()),
            other => return Err(format!("{other} is no benchmark; there are {}", names().join(", "))),
        }
    }
    let alone = |name: &&String| ["growth", "history"].iter().any(|known| name.eq_ignore_ascii_case(known));
    if asked.against.is_some() && (asked.peers || asked.names.iter().any(|name| alone(&name))) {
        return Err("growth, history and --peers are not measured with --against".to_owned());
    }
    Ok(asked)
}

fn names() -> Vec<&'static str> {
    let known =
        |bench: &'static works::Bench| std::iter::once(bench.name).chain(bench.also.iter().map(|also| also.name));
    works::ALL.iter().flat_map(known).chain(["P8", "growth", "history"]).collect()
}

fn known(name: &str) -> bool {
    names().iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Nothing to compare with: the bound is the figure itself.
fn alone(_: &Rig, _: &mut works::State) -> f64 {
    1.0
}

/// A bound that no reference is needed for.
const fn at_least(bound: f64) -> Bound {
    Bound::AtLeast(bound)
}
