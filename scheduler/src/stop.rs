//! How the scheduler ends: asked to, or by itself.

use crate::attempt::attempts::Attempts;
use crate::base::Base;
use shared::log::Level;
use shared::process::exit_code::ExitCode;
use shared::process::stopping::{self, StopEvent, Stopping};
use shared::region::Phase;
use std::time::Instant;

#[derive(Debug)]
pub struct SchedulerStop {
    pub state: Stopping,
    /// It exits at once.
    pub exit: Option<ExitCode>,
    /// How it exits once it has stopped, if nobody asked it to.
    pub exit_when_stopped: Option<ExitCode>,
}

impl SchedulerStop {
    pub fn new() -> SchedulerStop {
        SchedulerStop { state: Stopping::No, exit: None, exit_when_stopped: None }
    }

    pub fn event(&mut self, event: StopEvent, attempts: &mut Attempts, base: &Base) {
        let step = stopping::step(self.state, event);
        if step.next == self.state {
            return;
        }
        self.state = step.next;
        let how = if step.cancel_tasks { "cancelling tasks" } else { "finishing tasks" };
        // If the launcher does not lead any more, it logs that once for all.
        let level = if base.start.region.leads() { Level::Info } else { Level::Debug };
        let tasks = attempts.table.active();
        shared::log_line!(level, "scheduler is stopping", queue = base.label, how = how, tasks = tasks);
        base.slot_status().set_phase(Phase::Stopping);
        if step.cancel_tasks {
            attempts.table.cancel_all(Instant::now());
        } else {
            attempts.table.finish_all();
        }
    }

    /// The code to exit with, if the scheduler has stopped. `settled`: nothing is left to be done. `stranded`: without a server
    /// nothing can be done; the next start will.
    pub fn finished(&self, settled: bool, stranded: bool) -> Option<ExitCode> {
        if self.exit.is_some() || !self.state.asked() {
            return self.exit;
        }
        (settled || stranded || self.state.over(Instant::now()))
            .then_some(self.exit_when_stopped.unwrap_or(ExitCode::Asked))
    }
}
