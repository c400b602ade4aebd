//! The budget of connections, and how many may connect at once: both are kept in the region for all processes of a launcher.

use crate::limits::{CONNECT_PERMIT_PAUSE, LONGEST_CONNECT_PERMIT_PAUSE};
use crate::wire::{ConnectError, Session};
use shared::conninfo::Target;
use shared::region::{ConnectPermit, ConnectionPermit, Region, server_key};
use std::thread;
use std::time::Instant;

/// Within the budget of connections, and not with too many others at once.
pub(crate) fn connect_within_budget(
    region: &Region,
    target: &Target,
    parameters: &[(&str, &str)],
    deadline: Instant,
) -> Result<Session, ConnectError> {
    let (connection_permit, connect_permit) = wait_for_permit(region, target, deadline)?;
    let session = Session::connect(target, parameters, deadline);
    match &session {
        Ok(_) => connect_permit.widen(),
        Err(error) if error.is_away() => connect_permit.narrow(),
        Err(_) => {}
    }
    session.map(|mut session| {
        session.set_connection_permit(Some(connection_permit));
        session
    })
}

fn wait_for_permit(
    region: &Region,
    target: &Target,
    deadline: Instant,
) -> Result<(ConnectionPermit, ConnectPermit), ConnectError> {
    let server = server_key(target);
    let mut pause = CONNECT_PERMIT_PAUSE;
    let mut connection_permit = None;
    loop {
        connection_permit = connection_permit.or_else(|| region.take_connection_permit());
        if connection_permit.is_some()
            && let Some(connect_permit) = region.take_connect_permit(server)
        {
            return connection_permit
                .map(|connection_permit| (connection_permit, connect_permit))
                .ok_or(ConnectError::NoConnectionPermit);
        }
        if Instant::now() >= deadline {
            return Err(ConnectError::NoConnectionPermit);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_CONNECT_PERMIT_PAUSE);
    }
}
