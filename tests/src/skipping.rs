//! Tests whose tool cannot be had. Each prints one line that `scripts/test` counts; with `PGMILL_NO_SKIP=1` it fails.

use std::io::{Write, stderr};

/// Says that a test is left out, and why. The line goes past the capture of the test runner.
#[track_caller]
pub fn skip(what: &str, why: &str) {
    let line = format!("SKIPPED: {what}, because {why}");
    assert!(std::env::var("PGMILL_NO_SKIP").as_deref() != Ok("1"), "{line} (PGMILL_NO_SKIP=1)");
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}
