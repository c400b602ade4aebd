//! Attempts: from the claim of a row to its recorded end, whatever dies on the way.

pub mod assign;
pub mod attempt_id;
pub mod attempt_state;
pub mod attempt_table;
pub mod attempts;
mod batch_return;
mod begin;
pub mod death;
pub mod ends;
pub mod group;
pub mod leftovers;
mod record;
pub mod refused_end;
mod refused_rows;
pub mod remote_search;
mod remote_settle;
pub mod settle;
mod settle_rows;
mod unfinished;
mod worker_ends;
