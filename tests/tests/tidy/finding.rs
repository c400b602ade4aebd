//! What a check has found, and whether it counts.

use crate::allowed::{Allowed, BASELINE};

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Names the finding in `allowed.rs`.
    pub key: String,
    /// A sentence that goes on after the key.
    pub says: String,
}

impl Finding {
    pub fn new(key: impl Into<String>, says: impl Into<String>) -> Finding {
        Finding { key: key.into(), says: says.into() }
    }
}

/// Fails with one line per finding that the baseline does not allow, and per entry of the baseline that nothing needs.
#[track_caller]
pub fn judge(check: &str, findings: &[Finding]) {
    let lines = judged(check, findings, BASELINE);
    assert!(lines.is_empty(), "{check}:\n  {}\n", lines.join("\n  "));
}

fn judged(check: &str, findings: &[Finding], baseline: &[Allowed]) -> Vec<String> {
    let allowed = || baseline.iter().filter(|allowed| allowed.check == check);
    let counts = |finding: &&Finding| !allowed().any(|allowed| allowed.key == finding.key);
    let unneeded = allowed().filter(|allowed| !findings.iter().any(|finding| finding.key == allowed.key));
    let wrong = findings.iter().filter(counts).map(|finding| format!("{} {}", finding.key, finding.says));
    let stale = unneeded
        .map(|allowed| format!("{} is in order: remove its entry ({}) from allowed.rs", allowed.key, allowed.reason));
    wrong.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::{Allowed, Finding, judged};

    const BASELINE: &[Allowed] = &[Allowed { check: "c", key: "a", reason: "until it goes" }];

    #[test]
    fn an_allowed_finding_does_not_count() {
        assert!(judged("c", &[Finding::new("a", "is long")], BASELINE).is_empty());
    }

    #[test]
    fn another_finding_counts() {
        let found = judged("c", &[Finding::new("a", "is long"), Finding::new("b", "is long")], BASELINE);
        assert_eq!(found, ["b is long"]);
    }

    #[test]
    fn an_entry_that_nothing_needs_counts() {
        assert_eq!(judged("c", &[], BASELINE), ["a is in order: remove its entry (until it goes) from allowed.rs"]);
        assert!(judged("another", &[], BASELINE).is_empty());
    }
}
