//! Two minutes of the soak: everything at once, and the audit at the end. `scripts/soak` runs it for an hour. Its verdict
//! does not depend on how fast the machine is: what counts is what was done in the end, not when.

use std::process::Command;

use tests::sized;

#[test]
fn a_storm_of_faults_loses_doubles_overlaps_and_leaks_nothing() {
    let (minutes, rate) = (sized("2", "10"), sized("10", "50"));
    // its exit status is the verdict, its table the reason
    let output = Command::new(env!("CARGO_BIN_EXE_soak")).args([minutes, rate]).output().expect("the soak runs");
    let table = String::from_utf8_lossy(&output.stdout);
    println!("{table}");
    assert!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(table.contains("all held"), "{table}");
}
