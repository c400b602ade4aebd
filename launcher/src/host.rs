//! Who this launcher is, for operators and for launchers that stand by: its host and its process.
//!
//! The leader signs the statements of its session with it, in a comment. Every launcher with the same login may see
//! that session in pg_stat_activity, reads there who leads, and needs nothing installed for it.

use shared::db::statement::bare;
use std::time::{SystemTime, UNIX_EPOCH};

/// As in `uname -n`.
const NAME_FILE: &str = "/proc/sys/kernel/hostname";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    pub pid: u32,
}

impl Host {
    pub fn own() -> Host {
        let name = std::fs::read_to_string(NAME_FILE).unwrap_or_default();
        Host { name: harmless(&name), pid: std::process::id() }
    }

    /// The statement with our signature before it.
    pub fn signed(&self, statement: &str, since_ms: u64) -> String {
        format!("/* pgmill launcher on {} pid {} since {since_ms} */ {statement}", self.name, self.pid)
    }
}

/// Who sends a statement.
#[derive(Clone, Debug)]
pub struct Signature {
    pub host: Host,
    pub since_ms: u64,
}

impl Signature {
    pub fn sign(&self, text: &str) -> String {
        self.host.signed(&bare(text), self.since_ms)
    }
}

/// Milliseconds since 1970, for people to read.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Without characters that could end the comment around it.
fn harmless(name: &str) -> String {
    let kept: String =
        name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')).take(64).collect();
    if kept.is_empty() { "unknown".to_owned() } else { kept }
}

/// The leader, as a standby launcher sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderSeen {
    pub backend: i32,
    /// As the server writes it.
    pub began: Option<String>,
    pub address: Option<String>,
    pub host: Option<String>,
    pub pid: Option<i32>,
    pub since_ms: Option<i64>,
}

impl LeaderSeen {
    /// Its host and backend, in one phrase.
    pub fn whereabouts(&self) -> String {
        let host = self.host.as_deref().or(self.address.as_deref());
        let pid = self.pid.map(|pid| format!(" pid {pid}")).unwrap_or_default();
        match host {
            Some(host) => format!("on {host}{pid} (backend {})", self.backend),
            None => format!("with backend {}", self.backend),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_cannot_end_the_comment_that_it_stands_in() {
        assert_eq!(harmless("db-1.example\n"), "db-1.example");
        assert_eq!(harmless("x */ DROP TABLE y; /*"), "xDROPTABLEy");
        assert_eq!(harmless("\n"), "unknown");
        let host = Host { name: harmless("a b"), pid: 7 };
        assert_eq!(host.signed("SELECT 1", 12), "/* pgmill launcher on ab pid 7 since 12 */ SELECT 1");
    }

    #[test]
    fn what_may_not_be_seen_of_a_leader_is_left_out() {
        let unseen = LeaderSeen { backend: 5, ..LeaderSeen::default() };
        assert_eq!(unseen.whereabouts(), "with backend 5");
        let by_address = LeaderSeen { address: Some("10.0.0.2".into()), ..unseen.clone() };
        assert_eq!(by_address.whereabouts(), "on 10.0.0.2 (backend 5)");
        let whole = LeaderSeen { host: Some("b".into()), pid: Some(9), ..by_address };
        assert_eq!(whole.whereabouts(), "on b pid 9 (backend 5)");
    }
}
