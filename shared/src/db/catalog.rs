//! The catalog `mill`: its text, put together from parts, one per subject, in the order in which they build on each other.
//!
//! Whoever installs it runs the whole text in one transaction. Every part is a file of plain statements; placeholders
//! stand for what all programs must agree on (lock keys), so that it is written down once.

use super::identifier::literal;
use super::{lock_key, statement};

/// A later part may name what an earlier one has made.
const PARTS: [&str; 7] = [
    include_str!("../../sql/catalog/parts/meta.sql"),
    include_str!("../../sql/catalog/parts/calendar.sql"),
    include_str!("../../sql/catalog/parts/job.sql"),
    include_str!("../../sql/catalog/parts/run.sql"),
    include_str!("../../sql/catalog/parts/schedule.sql"),
    include_str!("../../sql/catalog/parts/job_face.sql"),
    include_str!("../../sql/catalog/parts/why.sql"),
];

/// What a row of a job carries as its error when a person has stopped it; triggers know it by that.
const CANCELLED: &str = "ERROR:  task cancelled";

/// Nothing in the schema is for everybody.
const CLOSING: &str = "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA mill FROM PUBLIC;";

/// The statements that make the catalog of this version.
pub fn text(version: &str) -> String {
    let names = [
        ("{version}", literal(version)),
        ("{queue_key}", lock_key::QUEUE.to_string()),
        ("{bell_key}", lock_key::BELL.to_string()),
        ("{cancelled_text}", literal(CANCELLED)),
        ("{no_slot_key}", lock_key::NO_SLOT.to_string()),
        ("{no_connection_key}", lock_key::NO_CONNECTION.to_string()),
    ];
    let names = names.map(|(name, value)| (name.to_owned(), value));
    let parts: Vec<String> = PARTS.iter().map(|part| statement::fill(part, &names)).collect();
    format!("{}\n{CLOSING}", parts.join("\n"))
}
