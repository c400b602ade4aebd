//! The name of an attempt within one scheduler process.

/// Never used twice. The task's number will not do: a user may plan a finished task again while the worker that was started
/// for it is still at others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptId(pub u64);
