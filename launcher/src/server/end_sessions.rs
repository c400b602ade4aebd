//! Ends sessions of schedulers and workers through the server: those of processes that do not end by themselves.

use crate::loop_command::{LoopCommand, query};
use shared::db::db_error::DbError;
use shared::db::statement;

/// `user`: only sessions of this role are ended, because a pid may have been used again.
pub fn end_sessions(backends: Vec<i32>, user: String) -> LoopCommand<()> {
    query("ending sessions", move |client, signature| async move {
        shared::info!("sessions ended by pg_terminate_backend", user = user, backends = backends.len());
        let text = signature.sign(statement::END_BACKENDS);
        client.query_one(&text, &[&backends, &user]).await.map_err(|error| DbError::of(&error))?;
        Ok(())
    })
}
