//! Which launcher of a name is the active one.

pub mod leader_state;
pub mod leadership;
