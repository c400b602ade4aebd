//! A short result that the worker leaves to its parent, which records many at once.

use crate::session::is_as_opened;
use crate::wire::{Session, TransactionStatus};
use shared::process::fault;
use shared::region::{Region, SlotHandle, TaskResult};

/// Leaves the result to the parent, and the session too. A result of a silent task, whose row may be deleted, or one from a
/// session in disorder is recorded by this worker: then the session comes back.
pub(crate) fn leave_to_parent(
    region: &Region,
    slot: SlotHandle,
    session: Session,
    result: &TaskResult<'_>,
) -> Option<Session> {
    let plain = !result.is_silent() && session.status() == TransactionStatus::Idle && is_as_opened(&session);
    if !plain || !region.leave_result(slot, result) {
        return Some(session);
    }
    fault::point("worker.after_result");
    session.close();
    None
}
