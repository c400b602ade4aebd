//! How what became of a task gets into its row, and how a worker gets its next tasks.
//!
//! `statements` writes: begins, ends with their consequences, and the claim of the next tasks, each in a transaction of ours
//! (`transaction`). `recorder` sends an end until the server has it, in the form and at the moment that `record_retry` (pure)
//! decides. `to_parent` leaves a short result to the scheduler instead. `next`, `pace` (pure) and `scan_start` are about
//! claims: how many, from where on.

mod arrays;
mod next;
mod pace;
mod record_retry;
mod recorder;
mod scan_start;
mod statements;
mod to_parent;
mod transaction;

pub(crate) use next::{Claimant, NextClaim, RemoteClaimant};
pub(crate) use pace::Pace;
pub(crate) use record_retry::RecordForm;
pub(crate) use recorder::{Interrupts, Recorder, Try, refusal_of};
pub(crate) use scan_start::{ScanPosition, ScanStart};
pub use statements::TaskStatements;
pub(crate) use statements::{Consequences, Recorded, RecordedEnds, code, server_start};
pub(crate) use to_parent::leave_to_parent;
