//! Workers of a dead scheduler become children of the launcher: their slots are swept, then they are reaped.

use crate::limits::REAP_MAX;
use nix::unistd::Pid;
use shared::region::Region;
use shared::sys::wait;

/// `known`: a scheduler or the embedded server, which are reaped by their owners.
pub fn reap_orphans(region: &Region, known: impl Fn(Pid) -> bool) {
    for _ in 0..REAP_MAX {
        let Some((pid, end)) = wait::any_ended() else { return };
        if known(pid) {
            // waitid would return this one again and again.
            return;
        }
        let slots = region.sweep(pid);
        shared::debug!("orphan ended", pid = pid, end = end, slots = slots);
        wait::reap(pid);
    }
}
