//! Processes as /proc shows them: who is whose child, and what `ps -o args` would say.
//! Called by `supervisor`, and by tests that follow a pid.

use std::fs;
use std::path::Path;

/// One process at the moment of looking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// The title: arguments joined by blanks, as `ps -o args` shows them.
    pub title: String,
    /// Dead, and not yet reaped.
    pub zombie: bool,
    /// What descriptor 2 is, such as `pipe:[1234]`; empty if it cannot be seen.
    pub stderr: String,
}

/// All processes that can be seen.
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(find).collect()
}

/// One process, if it is there (a zombie is).
pub fn find(pid: i32) -> Option<Process> {
    let folder = Path::new("/proc").join(pid.to_string());
    let stat = fs::read(folder.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // "pid (name) state ppid ..", and the name may hold blanks and brackets
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let title = fs::read(folder.join("cmdline")).unwrap_or_default();
    let title = String::from_utf8_lossy(&title).replace('\0', " ").trim_end().to_owned();
    let stderr = fs::read_link(folder.join("fd/2")).map(|link| link.to_string_lossy().into_owned()).unwrap_or_default();
    Some(Process { pid, parent, title, zombie: matches!(state, "Z" | "X"), stderr })
}

/// Is there a process of that pid which is not a zombie?
pub fn is_alive(pid: i32) -> bool {
    find(pid).is_some_and(|process| !process.zombie)
}

/// Descendants of `root`, and everybody else who writes to `stderr`: a child that lost
/// its parents is no longer a descendant, but it still has the log it was born with.
pub fn family(root: i32, stderr: &str) -> Vec<Process> {
    let mut rest = all();
    let mut found: Vec<Process> = Vec::new();
    loop {
        let (more, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|process| {
            process.pid != root
                && (process.stderr == stderr
                    || process.parent == root
                    || found.iter().any(|parent| parent.pid == process.parent))
        });
        if more.is_empty() {
            return found;
        }
        found.extend(more);
        rest = others;
    }
}

/// Memory of its own that a process has in use: what it shares with its parent since the fork does not count.
pub fn memory_kib(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How many descriptors a process has open.
pub fn descriptors(pid: i32) -> Option<usize> {
    fs::read_dir(format!("/proc/{pid}/fd")).ok().map(Iterator::count)
}
