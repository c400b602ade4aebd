//! The soak: everything at once, for as long as one likes, and the audit at the end.
//!
//! `soak [minutes] [tasks per second] [folder for logs]`: a server of its own, four databases, two launchers of one name (one leads, one
//! stands by), tasks of a millisecond to two seconds, plain and atomic, jobs, and a graph, that write an append-only ledger;
//! databases that come and go; and faults: kill -9 of workers, schedulers and launchers, processes frozen, sessions cancelled and
//! terminated, the server restarted as in a crash, the server away for up to two minutes, almost all connections taken away, launchers whose clock is an hour or five years off. The
//! last third is calm: load and databases go on, nothing is killed, and memory and descriptors must stay flat. At the
//! end a table says what was done and what was found; the exit status says whether all held.
//!
//! `soak failover [rounds] [synchronous] [asynchronous] [split]`: a primary that is killed under load and a stand-by that is promoted, again and again (`failover`).
//!
//! `world` is server and launchers, `work` inserts tasks, `graph` draws a graph, `faults` breaks things, `audit` adds up,
//! `chronicle` keeps the logs.
#![forbid(unsafe_code)]

mod audit;
mod chronicle;
mod failover;
mod faults;
mod graph;
mod work;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use audit::Sizes;
use chronicle::Chronicle;
use failover::Kind;
use faults::Faults;
use work::Work;
use world::World;

const MINUTES: f64 = 60.0;
const RATE: f64 = 50.0;

/// Of each kind, synchronous and asynchronous.
const ROUNDS: u32 = 10;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == "failover").is_some() {
        let rounds = arguments.next().map_or(Some(ROUNDS), |text| text.parse().ok());
        let kinds: Option<Vec<Kind>> = arguments.map(|name| Kind::named(&name)).collect();
        let (Some(rounds), Some(mut kinds)) = (rounds, kinds) else { return usage() };
        if kinds.is_empty() {
            kinds = Kind::ALL.to_vec();
        }
        return if failover::run(rounds, &kinds) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut number = |otherwise: f64| match arguments.next().map(|text| text.parse::<f64>()) {
        None => Some(otherwise),
        Some(Ok(number)) if number > 0.0 => Some(number),
        Some(_) => None,
    };
    let (Some(minutes), Some(rate)) = (number(MINUTES), number(RATE)) else {
        return usage();
    };
    let chronicle = Chronicle::in_folder(arguments.next().map(PathBuf::from));
    let length = Duration::from_secs_f64(minutes * 60.0);
    // It lives as long as the program: threads work on it. Guardians clean up behind us.
    let world: &'static World = Box::leak(Box::new(World::make(chronicle)));
    let work = Work::begin(world, rate);
    let storm = length * 2 / 3;
    let mut faults = Faults::new(world, storm);
    let began = Instant::now();
    while began.elapsed() < storm {
        faults.strike(began.elapsed().as_secs_f64() / storm.as_secs_f64());
    }
    faults.end();
    // What a killed launcher's successor needs to be as large as it will be.
    world.settle();
    let before = Sizes::of(world);
    let (calm, mut most) = (Instant::now(), before);
    while calm.elapsed() < length - storm {
        tests::steadily("a pause between two measurements", Duration::from_millis(500), || true);
        most = most.larger(Sizes::of(world));
    }
    let inserted = work.end(world);
    let sound = audit::close(world, &faults, &inserted, before, most);
    world.with_launchers(|launchers| launchers.iter().for_each(|launcher| world.chronicle.keep(launcher)));
    world.databases.iter().for_each(|database| world.chronicle.keep_runs(database));
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: soak [minutes] [tasks per second] [folder for logs]\n       soak failover [rounds] [synchronous] [asynchronous] [split]"
    );
    ExitCode::from(2)
}
