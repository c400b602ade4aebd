//! The log line of a task that has failed.

use crate::log::{self, Level, LogValue};
use crate::region::{EndState, Region, TaskResult};

/// Logs a failed task, unless this launcher has logged many just now: those are counted. `job`: whose run it was.
pub fn log(region: &Region, queue: &str, result: &TaskResult<'_>, job: Option<&[u8]>) {
    if result.state != EndState::Fail {
        return;
    }
    let Some(unlogged) = region.count_failure() else { return };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (job, error) = (job.map(text), first_line(result.error.as_deref().unwrap_or_default()));
    let reason = result.reason;
    let mut pairs = vec![("queue", LogValue::Text(&queue)), ("task", LogValue::Bare(&result.key.task))];
    pairs.extend(job.as_ref().map(|job| ("job", LogValue::Bare(job))));
    pairs.extend(reason.as_ref().map(|reason| ("reason", LogValue::Text(reason))));
    pairs.push(("error", LogValue::Text(&error)));
    if unlogged > 0 {
        pairs.push(("not_logged", LogValue::Bare(&unlogged)));
    }
    log::line(Level::Info, if job.is_some() { "job failed" } else { "task failed" }, &pairs);
}

/// The lines behind the first contain the text of the task.
fn first_line(error: &[u8]) -> String {
    let line = error.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).into_owned()
}
