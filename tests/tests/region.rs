//! The shared region with real processes. Each test runs one scenario of the program `region_storm` (a process with
//! threads is never forked, and this one has threads), and looks at its exit status and its line of JSON.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tests::log::Log;
use tests::sized;

/// Far above what any scenario needs: it is for hangs only.
const DEADLINE: Duration = Duration::from_secs(300);

/// Starts a scenario: the program, what it says, and its errors.
fn start(scenario: &str, size: u64) -> (Child, Log, Log) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_region_storm"))
        .args([scenario, &size.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("region_storm can be started");
    let said = Log::read(program.stdout.take().expect("a pipe"));
    let errors = Log::read(program.stderr.take().expect("a pipe"));
    (program, said, errors)
}

/// Runs a scenario to its end; what it printed.
#[track_caller]
fn run(scenario: &str, size: u64) -> Value {
    let (mut program, said, errors) = start(scenario, size);
    let ended = tests::wait("the scenario has ended").within(DEADLINE).attempt(|| program.try_wait().ok().flatten());
    if ended.is_none() {
        let _ = program.kill();
        let _ = program.wait();
    }
    // Every process of the family holds these pipes: their end says that none is left.
    tests::wait("the whole family is gone")
        .telling(|| errors.tail(40))
        .until(|| said.is_closed() && errors.is_closed());
    let Some(status) = ended else { panic!("{scenario} hung for {DEADLINE:?}\n{}", errors.tail(40)) };
    assert!(status.success(), "{scenario}: {status}\n{}", errors.tail(40));
    println!("{scenario}: {}", said.tail(1));
    serde_json::from_str(&said.tail(1)).unwrap_or_else(|error| panic!("{scenario} said {:?}: {error}", said.lines()))
}

#[test]
fn after_a_storm_of_kills_the_region_says_exactly_what_is_alive() {
    let kills = sized(1_000, 10_000);
    let result = run("kill_storm", kills);
    assert!(result["kills"].as_u64() >= Some(kills), "{result}");
    assert!(result["sub_parents_killed"].as_u64() >= Some(kills / 200), "a storm without dead sub-parents: {result}");
}

#[test]
fn a_storm_whose_top_is_killed_is_over_within_a_second() {
    let mut slowest = Duration::ZERO;
    for _ in 0..sized(10, 100) {
        let (mut program, _said, errors) = start("kill_storm", 1_000_000);
        tests::wait("the storm has begun").telling(|| errors.tail(40)).until(|| errors.contains("the storm has begun"));
        let killed_at = Instant::now();
        program.kill().expect("the top can be killed");
        program.wait().expect("the top can be reaped");
        tests::wait("the whole family is gone").telling(|| errors.tail(40)).until(|| errors.is_closed());
        slowest = slowest.max(killed_at.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "the family outlived its top by {slowest:?}");
    println!("killed top: the last was gone after {slowest:?}");
}

#[test]
fn a_death_between_any_two_steps_of_a_start_leaves_nothing_behind() {
    run("every_step_interrupted", sized(3, 50));
}

#[test]
fn two_hundred_answers_in_one_moment_are_all_seen() {
    run("all_acknowledge_at_once", 200);
}

#[test]
fn a_child_killed_before_it_read_its_parameters_leaves_no_byte_of_them() {
    run("killed_before_accept", sized(5, 100));
}

#[test]
fn a_late_child_runs_nothing_and_the_next_one_has_its_own_parameters() {
    run("late_child", sized(5, 100));
}

#[test]
fn a_wrong_generation_or_a_damaged_cell_runs_nothing() {
    let result = run("wrong_ticket", 1);
    assert_eq!(result["refused"], 5);
}

#[test]
fn a_panicking_child_leaves_the_things_of_its_parent_alone() {
    run("panicking_child", 1);
}

#[test]
fn a_process_with_a_thread_is_not_forked() {
    run("thread", 1);
}

#[test]
fn a_killed_parent_takes_its_children_and_grandchildren_with_it() {
    run("parent_killed", sized(5, 50));
}

/// A default action set behind signal-hook's back: it believes that its handler still stands, and does not set it again.
#[test]
fn a_grandchild_hears_a_signal_that_its_parent_had_given_up() {
    run("signal_pipe_of_a_grandchild", 1);
}
