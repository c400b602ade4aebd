//! From an older version of the catalog to this one: which steps, and the one transaction that takes them.
//!
//! Steps are numbered and forward only; a test compares what they lead to with a fresh installation. The transaction
//! begins with restart(), so that the schedulers of the old version are gone and new ones wait for its end; then it takes
//! the lock of every queue, so that even without a launcher to answer nobody serves one meanwhile. Two upgraders at once
//! wait for each other, and the second finds it done. A failure changes nothing but for labels of enums.

use super::db_error::DbError;
use super::identifier::{literal, quoted};
use super::{catalog, lock_key, statement};
use crate::VERSION;
use crate::limits::{LOCK_TIMEOUT, UPGRADE_TRIES};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// One step. `before` is committed first: labels of enums cannot be used in the transaction that adds them.
#[derive(Debug)]
pub struct Migration {
    pub from: &'static str,
    pub to: &'static str,
    pub before: &'static str,
    pub text: &'static str,
}

/// In their order, oldest first. No version has been released yet, so there is nothing to come from.
pub const MIGRATIONS: &[Migration] = &[
    #[cfg(feature = "next")]
    Migration {
        from: env!("CARGO_PKG_VERSION"),
        to: "0.2.0-alpha",
        before: "",
        text: include_str!("../../sql/catalog/migrations/next/0001_taste.sql"),
    },
    #[cfg(feature = "next")]
    Migration {
        from: "0.2.0-alpha",
        to: VERSION,
        before: include_str!("../../sql/catalog/migrations/next/0001_before_taste.sql"),
        text: include_str!("../../sql/catalog/migrations/next/0002_novelty.sql"),
    },
];

const BEGIN_UPGRADE: &str = include_str!("../../sql/catalog/begin_upgrade.sql");

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgraded {
    From(String),
    /// It had this version already.
    Already,
}

/// The steps from a version to this one; None: there is no way.
pub fn path(from: &str) -> Option<Vec<&'static Migration>> {
    walk(MIGRATIONS, from, VERSION)
}

fn walk<'a>(steps: &'a [Migration], from: &str, to: &str) -> Option<Vec<&'a Migration>> {
    let mut found = Vec::new();
    let mut at = from;
    for step in steps {
        if step.from == at {
            found.push(step);
            at = step.to;
        }
    }
    (at == to).then_some(found)
}

/// Upgrades the catalog of the client's database. `restart`: with a word to the launcher first.
pub async fn upgrade(client: &Client, restart: bool) -> Result<Upgraded, DbError> {
    let found = catalog::read_trusted(client).await?;
    if !found.get::<_, bool>("marked") {
        return Err(DbError::standing("the catalog mill does not exist; run: launcher install"));
    }
    if !found.get::<_, bool>("ours") {
        let (owner, me) = (quoted(found.get("owner")), quoted(found.get("me")));
        return Err(DbError::standing(format!("the catalog mill belongs to {owner}; run: GRANT {owner} TO {me}")));
    }
    // What is made belongs to the catalog's owner, not to the login that carries it: else nobody would trust the catalog any more.
    let owner = quoted(found.get("owner"));
    for attempt in 1.. {
        match attempt_once(client, &owner, restart).await {
            Err(error) if attempt < UPGRADE_TRIES && passes(&error) => {
                client.batch_execute("ROLLBACK").await.map_err(told)?;
            }
            Err(error) => {
                let hint =
                    if passes(&error) { "; a queue is still served, or another session locks the catalog" } else { "" };
                // The link is given up after an error, and the transaction with it.
                let db_error = told(error);
                return Err(DbError { text: format!("{}{hint}", db_error.text), ..db_error });
            }
            Ok(MigrationStep::Done(upgraded)) => return Ok(upgraded),
            Ok(MigrationStep::NoWay(version)) => {
                return Err(DbError::standing(no_migration(&version)));
            }
        }
    }
    unreachable!("the loop returns")
}

/// Why a catalog of this version cannot become one of ours.
pub fn no_migration(from: &str) -> String {
    if from == VERSION {
        format!("nothing to upgrade: {VERSION} is the version of this program")
    } else {
        format!("cannot upgrade from version {from}: this program has no migration from {from} to {VERSION}")
    }
}

enum MigrationStep {
    Done(Upgraded),
    NoWay(String),
}

async fn attempt_once(client: &Client, owner: &str, restart: bool) -> Result<MigrationStep, tokio_postgres::Error> {
    let version = version(client).await?;
    if version == VERSION {
        return Ok(MigrationStep::Done(Upgraded::Already));
    }
    let Some(steps) = path(&version) else { return Ok(MigrationStep::NoWay(version)) };
    for before in steps.iter().map(|step| step.before).filter(|before| !before.is_empty()) {
        // One message is one transaction.
        client
            .batch_execute(&format!(
                "SET LOCAL ROLE {owner}; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {}",
                catalog::filled(before)
            ))
            .await?;
    }
    let first = if restart { catalog::RESTART } else { "" };
    let begin = format!("BEGIN; {first} SET LOCAL ROLE {owner}; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'");
    client.batch_execute(&begin).await?;
    client.batch_execute(&format!("SELECT pg_catalog.pg_advisory_xact_lock({}, 0)", lock_key::INSTALL)).await?;
    let now = self::version(client).await?;
    if now != version {
        // Somebody was quicker: look again from the start.
        client.batch_execute("COMMIT").await?;
        let done = now == VERSION;
        return Ok(if done { MigrationStep::Done(Upgraded::Already) } else { MigrationStep::NoWay(now) });
    }
    client.query(&statement::bare(statement::HOLD_QUEUES), &[&lock_key::QUEUE]).await?;
    client.batch_execute("LOCK TABLE mill.meta IN ACCESS EXCLUSIVE MODE").await?;
    client.batch_execute(&changes(&steps)).await?;
    crate::process::fault::point("upgrade.before_commit");
    client.batch_execute("COMMIT").await?;
    Ok(MigrationStep::Done(Upgraded::From(version)))
}

/// Everything that changes: the steps, the version, and what everybody has come to be granted.
fn changes(steps: &[&Migration]) -> String {
    let steps: Vec<String> = steps.iter().map(|step| catalog::filled(step.text)).collect();
    format!(
        "{}\nUPDATE mill.meta SET version = {};\nSELECT mill_private.renew_grants();\n",
        steps.join("\n"),
        literal(VERSION)
    )
}

/// The whole upgrade from a version, to be run by hand; None: there is no way from there.
pub fn upgrade_text(from: &str) -> Option<String> {
    let steps = path(from).filter(|steps| !steps.is_empty())?;
    let before: String = steps.iter().map(|step| catalog::filled(step.before)).collect();
    let names = [
        ("from", literal(from)),
        ("restart", catalog::RESTART.to_owned()),
        ("lock_timeout", LOCK_TIMEOUT.to_owned()),
        ("install_key", lock_key::INSTALL.to_string()),
        ("queue_key", lock_key::QUEUE.to_string()),
    ];
    let begin = statement::fill(BEGIN_UPGRADE, &names);
    Some(format!("-- pgmill: the catalog mill from {from} to {VERSION}\n{before}\n{begin}\n{}COMMIT;", changes(&steps)))
}

async fn version(client: &Client) -> Result<String, tokio_postgres::Error> {
    Ok(client.query_one("SELECT version FROM mill.meta", &[]).await?.get(0))
}

fn told(error: tokio_postgres::Error) -> DbError {
    DbError::of(&error)
}

fn passes(error: &tokio_postgres::Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::LOCK_NOT_AVAILABLE) || code == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Migration; 3] = [
        Migration { from: "1", to: "2", before: "", text: "a" },
        Migration { from: "2", to: "4", before: "", text: "b" },
        Migration { from: "4", to: "5", before: "", text: "c" },
    ];

    #[test]
    fn every_older_version_finds_its_way_and_no_other_does() {
        let texts = |from, to| {
            walk(&STEPS, from, to).map(|steps| steps.iter().map(|step| step.text).collect::<Vec<_>>().concat())
        };
        assert_eq!(texts("1", "5").as_deref(), Some("abc"));
        assert_eq!(texts("4", "5").as_deref(), Some("c"));
        assert_eq!(texts("5", "5").as_deref(), Some(""));
        assert_eq!((texts("3", "5"), texts("5", "4"), texts("6", "5")), (None, None, None));
    }

    #[test]
    fn the_listed_steps_lead_to_this_version_one_after_the_other() {
        for pair in MIGRATIONS.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
        }
        assert!(MIGRATIONS.last().is_none_or(|last| last.to == VERSION));
    }
}
