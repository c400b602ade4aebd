//! Scenarios of the shared region with real processes, real forks and real kill -9.
//!
//! A program of its own, because a process with threads is never forked, and the test runner has threads. The tests
//! in `tests/region.rs` run it as `region_storm SCENARIO [SIZE]`. It prints one line of JSON and exits 0; whatever is
//! not as it should be is a panic, told on stderr. If it dies, its whole family dies with it.
#![forbid(unsafe_code)]

mod cells;
mod interrupted;
mod kill_storm;
mod marks;
mod orphans;
mod refusals;
mod signals;
mod top;

use serde_json::Value;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scenario = arguments.first().map_or("", String::as_str);
    let size = arguments.get(1).map_or(1, |text| text.parse().expect("the size is a number"));
    marks::register();
    let result: Value = match scenario {
        "kill_storm" => kill_storm::run(size),
        "every_step_interrupted" => interrupted::run(size),
        "all_acknowledge_at_once" => signals::all_acknowledge_at_once(size),
        "signal_pipe_of_a_grandchild" => signals::signal_pipe_of_a_grandchild(),
        "killed_before_accept" => cells::killed_before_accept(size),
        "late_child" => cells::late_child(size),
        "wrong_ticket" => cells::wrong_ticket(),
        "panicking_child" => refusals::panicking_child(),
        "thread" => refusals::thread(),
        "parent_killed" => orphans::run(size),
        other => panic!("there is no scenario {other:?}"),
    };
    println!("{result}");
}
