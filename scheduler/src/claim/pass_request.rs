//! What a pass is asked, and what it returns.

use super::claimed_rows::{ClaimedRow, GroupCursor};
use crate::attempt::group::Group;
use crate::jobs::job_table::{JobsAsk, Pulse};
use shared::region::TaskResult;
use std::rc::Rc;
use std::time::Duration;

/// What a pass is to do.
#[derive(Clone, Debug)]
pub struct PassRequest {
    /// As many slots are reserved.
    pub count: usize,
    /// The wake-up lock is armed from before: it is given back first.
    pub disarm: bool,
    /// If nothing is left that could start, arm the wake-up lock.
    pub arm: bool,
    /// Only claim: all the rest was read a moment ago.
    pub claim_only: bool,
    /// Results to be written in the transaction of the claim.
    pub ends: Option<Vec<TaskResult<'static>>>,
    pub cursor: GroupCursor,
    /// Signs for `mill.why` to be put up or taken down: lock kind, and whether it is to be there.
    pub signs: Vec<(i32, bool)>,
    /// Tasks that run, to see which their owners have stopped or deleted.
    pub running: Vec<(i64, i32)>,
    /// What is known of them, should their rows be gone.
    pub known: Vec<(i64, Rc<Group>)>,
    /// Backends of ours that run nothing at the moment.
    pub idle_backends: Vec<i32>,
    /// Those of them that plain tasks may be begun on.
    pub reserved: Vec<i32>,
    /// The group of all workers, each with a plain task, if no other had anything waiting a moment ago.
    pub only: Option<Rc<Group>>,
    /// Rows are handed by the fork to workers with connections of their own.
    pub by_fork: bool,
    /// Connections are pooled: the settings of new sessions have to be known, and were these when they were last read.
    pub pooled: bool,
    pub session_defaults: Option<i64>,
    /// Where the queue runs jobs.
    pub jobs: Option<JobsAsk>,
}

/// What a pass has found.
#[derive(Debug, Default)]
pub struct PassResult {
    pub claimed: Vec<ClaimedRow>,
    pub armed: bool,
    /// The wake-up lock could not be armed: an inserter's transaction is open.
    pub refused: bool,
    /// A row waits for the end of its own earlier attempt, which sends no notification.
    pub busy: bool,
    pub next_plan: Option<Duration>,
    pub cursor: GroupCursor,
    /// Running attempts that are wanted no more.
    pub unwanted: Vec<(i64, i32)>,
    /// The settings of new sessions, if they were read.
    pub session_defaults: Option<i64>,
    /// Of the results that were to be recorded: whose are.
    pub written: Option<Vec<i64>>,
    pub pulse: Option<Pulse>,
    /// Why nothing is known about jobs where something should be.
    pub jobs_failed: Option<String>,
}

impl PassResult {
    /// The group whose plain tasks were begun, if no other had anything waiting.
    pub fn only_group(&self) -> Option<Rc<Group>> {
        let only = &self.claimed.first()?.group;
        let alone = self.cursor.known && self.cursor.groups == 1 && only.plain_name().is_some();
        let plain = self.claimed.iter().all(|row| row.begun.is_some() && row.group == *only);
        (alone && plain).then(|| only.clone())
    }

    /// The server has written something.
    pub fn has_written(&self) -> bool {
        !self.claimed.is_empty() || self.written.is_some()
    }
}
