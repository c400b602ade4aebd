//! Which server a session is on, and the proof that two sessions are on the same one.
//!
//! After a failover two servers of one origin may accept connections at the same time. So each session of a scheduler draws
//! a random number and holds it as an advisory lock. Another session of the queue tries to share that lock before anything
//! runs on it: if it gets the lock, the scheduler's session is not on this server, or is gone. The test is an item of a
//! SELECT that fails with a conversion error, so that the server skips all statements behind it in the same write.
//!
//! A role may take such a lock itself. On a server where the scheduler is not, that lets a worker pass only if the same
//! number is held there too, and the number is random.

pub use super::lock_key::halves;

use super::db_error::{DbError, DbErrorKind};
use super::lock_key;
use super::statement::{NAME_SERVER, NAME_SERVER_BRIEFLY};
use serde::{Deserialize, Serialize};
use std::fmt;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// What the server complains of when a session is not where its scheduler is.
const ELSEWHERE: &str = "pgmill: this session is not on the server of its scheduler";
/// What to do about two servers.
const FENCE: &str = "stop or fence the server that is not the primary, or take its host out of connect";
const INVALID_TEXT: &[u8] = b"22P02";

/// A server process tree, as it names itself, and where it was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerName {
    pub place: String,
    /// System identifier and timeline, unless the server does not tell them.
    pub system: Option<String>,
    pub timeline: Option<String>,
    /// When it was started, in UTC, with microseconds.
    pub started: String,
}

impl ServerName {
    /// From the row of `NAME_SERVER`.
    pub fn new(place: String, [system, timeline, started]: [Option<String>; 3]) -> ServerName {
        ServerName { place, system, timeline, started: started.unwrap_or_default() }
    }

    /// Whether what was committed there is here too: the same process tree, or the same data after a restart. Two copies that
    /// were promoted apart have one timeline, so a restart counts only at the same place.
    pub fn has_the_data_of(&self, other: &ServerName) -> bool {
        let same_history = self.system == other.system && self.timeline == other.timeline;
        same_history && (self.started == other.started || self.system.is_some() && self.place == other.place)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        let started = self.started.split('.').next().unwrap_or_default();
        match (&self.system, &self.timeline) {
            (Some(system), Some(timeline)) => {
                let timeline = u32::from_str_radix(timeline, 16).unwrap_or_default();
                write!(f, " (system {system}, timeline {timeline}, started {started} UTC)")
            }
            (Some(system), None) => write!(f, " (system {system}, a standby, started {started} UTC)"),
            (None, _) => write!(f, " (started {started} UTC)"),
        }
    }
}

/// The server of a queue's scheduler, for its workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeServer {
    /// The lock that the scheduler's session holds there.
    pub proof: i64,
    pub name: ServerName,
}

/// A number that nobody can guess. It is the key of a lock in two halves, which is not one of our other locks.
pub fn draw_proof() -> i64 {
    loop {
        let proof: i64 = rand::random();
        if proof != 0 && !lock_key::is_ours(halves(proof).0) {
            return proof;
        }
    }
}

/// An item of a SELECT that fails unless another session on this server holds the number. The lock is given back at the end
/// of the transaction.
pub fn proof_item(proof: i64) -> String {
    let (high, low) = halves(proof);
    format!(
        "CAST(CASE WHEN pg_catalog.pg_try_advisory_xact_lock_shared({high}, {low}) THEN '{ELSEWHERE}' ELSE '1' END \
         AS pg_catalog.int4)"
    )
}

/// Whether a refusal is that of `proof_item`, whatever language the server speaks.
pub fn is_elsewhere(code: Option<&[u8]>, message: Option<&[u8]>) -> bool {
    let names = |message: &[u8]| message.windows(ELSEWHERE.len()).any(|part| part == ELSEWHERE.as_bytes());
    code == Some(INVALID_TEXT) && message.is_some_and(names)
}

/// Two sessions of ours that should be on one server.
pub fn apart(who: &str, here: &ServerName, there: &str) -> String {
    format!("{who} is connected to server {here}, but {there}; {FENCE}")
}

pub fn is_apart(text: &str) -> bool {
    text.ends_with(FENCE)
}

/// The name of the server on the other side of this client.
pub async fn name_server(client: &Client, place: String) -> Result<ServerName, DbError> {
    let row = match client.query_one(&super::statement::bare(NAME_SERVER), &[]).await {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            client.query_one(&super::statement::bare(NAME_SERVER_BRIEFLY), &[]).await
        }
        row => row,
    };
    let row = row.map_err(|error| DbError::of(&error))?;
    Ok(ServerName::new(place, ["system", "timeline", "started"].map(|column| row.get(column))))
}

/// Fails unless the number is held on this server.
pub async fn prove(client: &Client, proof: i64) -> Result<(), DbError> {
    match client.batch_execute(&format!("SELECT {}", proof_item(proof))).await {
        Ok(()) => Ok(()),
        Err(error) => {
            let refusal = error.as_db_error();
            let message = refusal.map(|refusal| refusal.message().as_bytes());
            if is_elsewhere(refusal.map(|refusal| refusal.code().code().as_bytes()), message) {
                let text = "this session is not on the server of its scheduler, or the scheduler's session has ended";
                return Err(DbError { kind: DbErrorKind::Passing, text: text.to_owned() });
            }
            Err(DbError::of(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(place: &str, system: Option<&str>, timeline: &str, started: &str) -> ServerName {
        let timeline = system.map(|_| timeline.to_owned());
        ServerName::new(place.to_owned(), [system.map(str::to_owned), timeline, Some(started.to_owned())])
    }

    #[test]
    fn data_are_known_again_after_a_restart_and_not_after_a_promotion() {
        let before = name("a", Some("7"), "00000001", "2026-01-01 00:00:00.5");
        assert!(before.has_the_data_of(&before));
        assert!(name("a", Some("7"), "00000001", "2026-01-02 00:00:00").has_the_data_of(&before), "restarted");
        assert!(!name("a", Some("7"), "00000002", "2026-01-02 00:00:00").has_the_data_of(&before), "promoted");
        assert!(!name("b", Some("7"), "00000001", "2026-01-02 00:00:00").has_the_data_of(&before), "a copy");
        assert!(!name("a", Some("8"), "00000001", "2026-01-01 00:00:00.5").has_the_data_of(&before));
        let silent = name("a", None, "", "2026-01-01 00:00:00.5");
        assert!(silent.has_the_data_of(&silent));
        assert!(!name("a", None, "", "2026-01-02 00:00:00").has_the_data_of(&silent));
    }

    #[test]
    fn a_server_is_named_by_its_place_its_system_and_its_start() {
        let text = name("b:5433", Some("7"), "0000000A", "2026-01-01 00:00:00.512000").to_string();
        assert_eq!(text, "b:5433 (system 7, timeline 10, started 2026-01-01 00:00:00 UTC)");
        assert_eq!(name("b", None, "", "2026-01-01 00:00:00.5").to_string(), "b (started 2026-01-01 00:00:00 UTC)");
    }

    #[test]
    fn the_refusal_of_a_proof_is_told_from_others() {
        let text = format!("ungültige Eingabesyntax für Typ integer: »{ELSEWHERE}«");
        assert!(is_elsewhere(Some(b"22P02"), Some(text.as_bytes())));
        assert!(!is_elsewhere(Some(b"22P02"), Some(b"invalid input syntax for type integer: \"x\"")));
        assert!(!is_elsewhere(Some(b"42501"), Some(text.as_bytes())) && !is_elsewhere(None, None));
    }
}
