//! What the processes of a scenario count together: one shared word per mark. They stand outside the region under
//! test, and children inherit the map by the fork.

use shared::sys::map::Words;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;

#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// kill -9 sent, to others or to oneself.
    Kills,
    SubParentsKilled,
    Spawned,
    /// Children that took their own order out of their cell.
    Accepted,
    /// Children whose ticket was stale.
    Stale,
    /// Children that took an order which was not theirs, or no whole one. Always a bug.
    Mixed,
    SpawnsFailed,
    /// Set: nobody starts or kills anything any more.
    Hold,
    /// The step that a process has come to.
    Reached,
    /// A step, or a pid, that one process tells another.
    Told,
}

const COUNT: usize = Mark::Told as usize + 1;

static MARKS: OnceLock<Words> = OnceLock::new();

/// By the first process, before its first fork.
pub fn register() {
    MARKS.get_or_init(|| Words::create("marks", COUNT).expect("a few words of memory"));
}

pub fn add(mark: Mark) {
    marks().at(mark as usize).fetch_add(1, SeqCst);
}

pub fn set(mark: Mark, value: u64) {
    marks().at(mark as usize).store(value, SeqCst);
}

pub fn get(mark: Mark) -> u64 {
    marks().at(mark as usize).load(SeqCst)
}

fn marks() -> &'static Words {
    MARKS.get().expect("marks are registered first")
}
