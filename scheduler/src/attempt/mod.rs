//! Attempts: from the claim of a row to its recorded end, whatever dies on the way.

pub mod attempt_id;
pub mod attempt_state;
pub mod attempt_table;
pub mod attempts;
pub mod batch_return;
pub mod begin;
pub mod death;
pub mod leftovers;
pub mod record;
pub mod refused_end;
pub mod remote_outcome;
pub mod remote_search;
pub mod settle;
