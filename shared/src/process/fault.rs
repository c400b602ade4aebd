//! Named fault points: where a test may stop, kill or break a process between two steps.
//!
//! Only with the cargo feature `fault`; otherwise `point` is nothing. `PGMILL_FAULT=worker.before_accept:hang` acts
//! at every hit, `scheduler.after_take:kill@3` at the third hit of any process under one launcher (hits are counted
//! in memory that all of them share).

/// Every point, in the order of a task's life.
pub const POINTS: [&str; 26] = [
    "launcher.before_fork",
    "launcher.after_fork",
    "launcher.after_transfer",
    "scheduler.before_accept",
    "scheduler.after_take",
    "scheduler.before_fire",
    "scheduler.after_backfill",
    "scheduler.before_fork",
    "scheduler.after_fork",
    "scheduler.after_transfer",
    "worker.before_accept",
    "worker.after_accept",
    "worker.before_noting",
    "worker.before_begin",
    "scheduler.before_begins",
    "scheduler.after_begins",
    "worker.after_begin",
    "worker.before_finish",
    "worker.before_commit",
    "worker.after_commit",
    "worker.after_finish",
    "worker.after_result",
    "scheduler.before_recording",
    "scheduler.before_settle",
    "launcher.before_answer",
    "upgrade.before_commit",
];

#[cfg(not(feature = "fault"))]
mod imp {
    pub fn attach() {}
    pub fn point(_: &str) {}
}

#[cfg(feature = "fault")]
mod imp {
    use super::POINTS;
    use crate::sys::map::Words;
    use nix::sys::signal::{Signal, raise};
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering::SeqCst;

    struct FaultPlan {
        point: usize,
        action: String,
        at: Option<u64>,
    }

    static PLANS: OnceLock<(Vec<FaultPlan>, Words)> = OnceLock::new();

    /// By the launcher, once, before its first fork.
    pub fn attach() {
        let Ok(text) = std::env::var("PGMILL_FAULT") else { return };
        let plans = text.split(',').filter(|item| !item.is_empty()).filter_map(parse).collect();
        if let Ok(hits) = Words::create("pgmill-faults", POINTS.len()) {
            let _ = PLANS.set((plans, hits));
        }
        crate::warning!("fault points are armed; this is a test build", plan = text);
    }

    fn parse(item: &str) -> Option<FaultPlan> {
        let (name, action) = item.split_once(':')?;
        let (action, at) = match action.split_once('@') {
            Some((action, number)) => (action, Some(number.parse().ok()?)),
            None => (action, None),
        };
        let point = POINTS.iter().position(|point| *point == name)?;
        Some(FaultPlan { point, action: action.to_owned(), at })
    }

    pub fn point(name: &str) {
        let Some((plans, hits)) = PLANS.get() else { return };
        let Some(index) = POINTS.iter().position(|point| *point == name) else {
            panic!("fault point {name} is not in the list");
        };
        let hit = hits.at(index).fetch_add(1, SeqCst) + 1;
        for plan in plans.iter().filter(|plan| plan.point == index && plan.at.is_none_or(|at| at == hit)) {
            crate::warning!("fault", point = name, action = plan.action);
            match plan.action.as_str() {
                "kill" => drop(raise(Signal::SIGKILL)),
                "hang" => loop {
                    std::thread::park();
                },
                // Until somebody lets it go on.
                "stop" => drop(raise(Signal::SIGSTOP)),
                "panic" => panic!("fault point {name}"),
                _ => {}
            }
        }
    }
}

pub use imp::{attach, point};
