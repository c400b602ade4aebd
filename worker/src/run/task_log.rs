//! The answers of a task's input that do not go into its row: notices are logged, an output over its limit is cancelled.

use super::watchdog::Watchdog;
use crate::limits::LOGGED_NOTICES;
use crate::result::format::Watch;
use crate::wire::ServerError;

pub(super) struct TaskLog<'a> {
    task: i64,
    notices: usize,
    /// The SQLSTATE of the last error.
    pub(super) code: Option<Vec<u8>>,
    /// The server itself reports a statement timeout: the role's, or one that the task has set.
    pub(super) said_timeout: bool,
    watchdog: &'a Watchdog,
}

impl TaskLog<'_> {
    pub(super) fn new(task: i64, watchdog: &Watchdog) -> TaskLog<'_> {
        TaskLog { task, notices: 0, code: None, said_timeout: false, watchdog }
    }
}

impl Watch for TaskLog<'_> {
    fn overflowed(&mut self) {
        self.watchdog.overflowed();
    }

    fn failed(&mut self, error: &ServerError) {
        self.code = Some(error.code().unwrap_or_default().to_vec());
        self.said_timeout |= is_statement_timeout(error);
    }

    fn noticed(&mut self, notice: ServerError) {
        self.notices += 1;
        match self.notices {
            1..LOGGED_NOTICES => shared::info!("notice", task = self.task, text = notice),
            LOGGED_NOTICES => {
                shared::info!("notice; further ones of this task are not logged", task = self.task, text = notice)
            }
            _ => {}
        }
    }
}

/// The server's own limit has ended a statement.
pub(super) fn is_statement_timeout(error: &ServerError) -> bool {
    let words = b"statement timeout";
    error.message().is_some_and(|text| text.windows(words.len()).any(|part| part == words))
}
