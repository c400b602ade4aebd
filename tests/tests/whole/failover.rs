//! Failover under load, one round with each kind of standby and one with an old primary that comes back. `scripts/soak failover`
//! runs many.

use std::process::Command;

use tests::sized;

#[test]
fn a_primary_that_dies_under_load_costs_no_task_and_runs_none_twice_at_once() {
    let rounds = sized("1", "5");
    let arguments = ["failover", rounds, "synchronous", "asynchronous", "split"];
    // its exit status is the verdict, its table the reason
    let output = Command::new(env!("CARGO_BIN_EXE_soak")).args(arguments).output().expect("the soak runs");
    let table = String::from_utf8_lossy(&output.stdout);
    println!("{table}");
    assert!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(table.contains("all held"), "{table}");
}
