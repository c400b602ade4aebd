//! The budget of connections, and how many may connect at once: both are kept in the region for all processes of a launcher.

use crate::limits::{LONGEST_PERMIT_PAUSE, PERMIT_PAUSE};
use crate::wire::{ConnectError, Session};
use shared::conninfo::Target;
use shared::region::{Permit, Region, Seat, server_key};
use std::thread;
use std::time::Instant;

/// Within the budget of connections, and not with too many others at once.
pub(crate) fn connect_within_budget(
    region: &Region,
    target: &Target,
    parameters: &[(&str, &str)],
    deadline: Instant,
) -> Result<Session, ConnectError> {
    let (seat, permit) = wait_for_permit(region, target, deadline)?;
    let session = Session::connect(target, parameters, deadline);
    match &session {
        Ok(_) => permit.widen(),
        Err(error) if error.is_away() => permit.narrow(),
        Err(_) => {}
    }
    session.map(|mut session| {
        session.sit(Some(seat));
        session
    })
}

fn wait_for_permit(region: &Region, target: &Target, deadline: Instant) -> Result<(Seat, Permit), ConnectError> {
    let server = server_key(target);
    let mut pause = PERMIT_PAUSE;
    let mut seat = None;
    loop {
        seat = seat.or_else(|| region.take_seat());
        if seat.is_some()
            && let Some(permit) = region.take_permit(server)
        {
            return seat.map(|seat| (seat, permit)).ok_or(ConnectError::NoSeat);
        }
        if Instant::now() >= deadline {
            return Err(ConnectError::NoSeat);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PERMIT_PAUSE);
    }
}
