//! The storm: sub-parents (in the schedulers' role) start children as fast as they can, children live for moments,
//! and everybody but the top is killed at random moments, by the top, by its parent or by itself. Afterwards the
//! region must say exactly what is alive.

use crate::marks::{self, Mark};
use crate::top::{self, POINTS, Top, die, kill_below, order};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};
use serde_json::{Value, json};
use shared::process::exit_code::ExitCode;
use shared::process::order::Start;
use shared::process::spawn::Spawner;
use shared::region::{ProcessKind, Region, Ticket};
use shared::sys::signal::{self, SignalPipe};
use shared::sys::wait::Child;
use std::time::{Duration, Instant};

/// Fewer than the family would like: `reserve` must also come back empty-handed.
const SLOTS: u32 = 24;
const SUB_PARENTS: usize = 4;
const LEAVES: usize = 2;
const CHILDREN: usize = 6;
/// After so many kills it says so, for the test that kills the top itself.
const BEGUN: u64 = 20;
/// No kill for so long: the slots have leaked away, or somebody hangs.
const STALLED: Duration = Duration::from_secs(15);

type Young = Vec<(Child, Ticket)>;

pub fn run(kills: u64) -> Value {
    let began = Instant::now();
    let top = Top::open(SLOTS);
    let descriptors = open_descriptors();
    let mut sub_parents: Young = Vec::new();
    let mut leaves: Young = Vec::new();
    let mut ends = 0;
    let mut progress = (0, Instant::now());
    while marks::get(Mark::Kills) < kills {
        start_missing(&top, &mut sub_parents, SUB_PARENTS, ProcessKind::Scheduler, sub_parent);
        start_missing(&top, &mut leaves, LEAVES, ProcessKind::Worker, leaf);
        pass_time(800);
        kill_somebody(&top, &sub_parents, &leaves);
        ends += look_after(&top, &mut sub_parents, &mut leaves);
        let sent = marks::get(Mark::Kills);
        if progress.0 < BEGUN && sent >= BEGUN {
            eprintln!("the storm has begun");
        }
        if sent > progress.0 {
            progress = (sent, Instant::now());
        }
        assert!(progress.1.elapsed() < STALLED, "nobody was killed for {STALLED:?}; {}", top.tell());
    }
    let storm_ms = began.elapsed().as_millis() as u64;

    marks::set(Mark::Hold, 1);
    tests::wait("used slots are exactly the living processes").telling(|| top.tell()).until(|| {
        look_after(&top, &mut sub_parents, &mut leaves);
        let mut alive: Vec<i32> = top::descendants().iter().map(|process| process.pid).collect();
        let mut held: Vec<i32> = top.region.slots().holders().iter().map(|holder| holder.pid.as_raw()).collect();
        alive.push(getpid().as_raw());
        alive.sort_unstable();
        held.sort_unstable();
        leaves.is_empty() && alive.len() == 1 + sub_parents.len() && held == alive && top.region.cells_in_use() == 0
    });
    sub_parents.iter().for_each(|(child, _)| child.signal(Signal::SIGKILL));
    drop(sub_parents);
    top.expect_nothing_left();
    assert_eq!(open_descriptors(), descriptors, "starting children costs descriptors");
    top.close();
    assert_eq!(marks::get(Mark::Mixed), 0, "children ran with what was not theirs");
    assert_eq!(marks::get(Mark::SpawnsFailed), 0, "spawns failed");
    json!({
        "kills": marks::get(Mark::Kills),
        "sub_parents_killed": marks::get(Mark::SubParentsKilled),
        "spawned": marks::get(Mark::Spawned),
        "accepted": marks::get(Mark::Accepted),
        "stale": marks::get(Mark::Stale),
        "reaped_by_top": ends,
        "storm_ms": storm_ms,
        "total_ms": began.elapsed().as_millis() as u64,
    })
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

fn start_missing(top: &Top, young: &mut Young, wanted: usize, kind: ProcessKind, entry: fn(Start) -> ExitCode) {
    while young.len() < wanted {
        let Some(slot) = top.region.slots().reserve() else { return };
        marks::add(Mark::Spawned);
        young.push(top.spawner.spawn(slot, kind, "child", &order(slot), entry).expect("a child of the top"));
    }
}

/// Sub-parents seldom enough that they get work done, anybody else as it comes.
fn kill_somebody(top: &Top, sub_parents: &Young, leaves: &Young) {
    let pick = |young: &Young| young.get(rand::random_range(0..young.len().max(1))).map(|(child, _)| child.pid());
    let parents: Vec<Pid> = sub_parents.iter().map(|(child, _)| child.pid()).chain([getpid()]).collect();
    match rand::random_range(0..10) {
        0 => {
            if let Some(pid) = pick(sub_parents) {
                kill_below(pid, &parents);
                marks::add(Mark::SubParentsKilled);
            }
        }
        1 | 2 => pick(leaves).into_iter().for_each(|pid| kill_below(pid, &parents)),
        _ => {
            let below: Vec<Pid> = top.region.slots().holders().into_iter().map(|holder| holder.pid).collect();
            let victim = below[rand::random_range(0..below.len())];
            if !parents.contains(&victim) {
                kill_below(victim, &parents);
            }
        }
    }
}

/// Frees what was accepted, sweeps and reaps what ended: our children and the orphans.
fn look_after(top: &Top, sub_parents: &mut Young, leaves: &mut Young) -> usize {
    let ended = top.sweep_ended();
    for young in [sub_parents, leaves] {
        young.retain(|(child, _)| ended.iter().all(|(pid, _)| *pid != child.pid()));
        free_accepted(&top.region, young);
    }
    ended.len()
}

fn free_accepted(region: &Region, young: &Young) {
    for (_, ticket) in young.iter().filter(|(_, ticket)| region.accepted(*ticket)) {
        region.free(*ticket);
    }
}

fn sub_parent(start: Start) -> ExitCode {
    let mut signals = SignalPipe::open(&[Signal::SIGCHLD, Signal::SIGUSR2]).expect("a signal pipe");
    if !top::accept(&start) {
        return ExitCode::BadCell;
    }
    let spawner = Spawner::open(&start.region, start.slot, POINTS).expect("a spawner");
    let mut young: Young = Vec::new();
    loop {
        if marks::get(Mark::Hold) == 0 {
            start_one(&start.region, &spawner, &mut young);
            kill_one(&young);
            pass_time(400);
        } else {
            top::await_readable(&signals, Some(Duration::from_millis(20)));
            signals.received();
        }
        let (ended, living): (Young, Young) = young.into_iter().partition(|(child, _)| child.ended().is_some());
        for (child, _) in ended {
            start.region.sweep(child.pid());
            child.reap();
        }
        young = living;
        free_accepted(&start.region, &young);
    }
}

fn start_one(region: &Region, spawner: &Spawner, young: &mut Young) {
    if young.len() >= CHILDREN {
        return;
    }
    let Some(slot) = region.slots().reserve() else { return };
    if chance(10) {
        // A slot that was not needed after all.
        pass_time(100);
        region.slots().release(slot);
        return;
    }
    marks::add(Mark::Spawned);
    match spawner.spawn(slot, ProcessKind::Worker, "grandchild", &order(slot), leaf) {
        Ok(child) => young.push(child),
        Err(error) => {
            eprintln!("a sub-parent could not start a child: {error}");
            marks::add(Mark::SpawnsFailed);
        }
    }
}

fn kill_one(young: &Young) {
    if young.is_empty() || !chance(30) {
        return;
    }
    let (child, _) = &young[rand::random_range(0..young.len())];
    if child.ended().is_none() {
        marks::add(Mark::Kills);
        child.signal(Signal::SIGKILL);
    }
}

/// Lives for a moment; its life may end before or after it has its order.
fn leaf(start: Start) -> ExitCode {
    signal::open_to_defaults();
    pass_time(300);
    die_perhaps();
    if !top::accept(&start) {
        return ExitCode::BadCell;
    }
    die_perhaps();
    pass_time(3_000);
    ExitCode::Asked
}

fn die_perhaps() {
    if marks::get(Mark::Hold) == 0 && chance(10) {
        marks::add(Mark::Kills);
        die();
    }
}

/// True in so many of a hundred cases.
fn chance(of_hundred: u32) -> bool {
    rand::random_range(0..100) < of_hundred
}

/// Not a wait for anything: what a process does with its time, at random up to so many microseconds.
fn pass_time(at_most_us: u64) {
    std::thread::sleep(Duration::from_micros(rand::random_range(0..=at_most_us)));
}
