//! The worker's sessions: how they are opened, what a task finds set in them, and how they are reset for the next task.

mod budget;
mod connector;
pub(crate) mod reset;
pub(crate) mod setup;
pub(crate) mod task_lock;

pub(crate) use budget::connect_within_budget;
pub(crate) use connector::{Connector, NotReopened, is_as_opened};
