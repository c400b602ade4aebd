//! Claimed rows, compared with what this scheduler knows: rows that nobody runs are found and settled.

use super::attempts::{AttemptAnswer, Attempts, UnfinishedQuery};
use super::leftovers::Unfinished;
use crate::base::Base;
use crate::command::{Command, Purpose, Refused, refusable};
use crate::limits::SWEEP_PERIOD;
use crate::table::make;
use crate::turn::Turn;
use std::time::{Duration, Instant};

impl Attempts {
    /// Claimed rows are to be read as soon as no pass is in flight.
    pub fn find_unfinished(&mut self, purpose: Purpose) {
        self.purpose.sweep |= purpose.sweep;
        self.purpose.adopt |= purpose.adopt;
        if self.unfinished == UnfinishedQuery::None {
            self.unfinished = UnfinishedQuery::Wanted;
        }
    }

    /// The query was refused.
    pub(super) fn find_unfinished_again(&mut self, purpose: Purpose) {
        self.unfinished = UnfinishedQuery::None;
        self.find_unfinished(purpose);
    }

    /// No such query is wanted or in flight.
    pub fn knows_unfinished(&self) -> bool {
        self.unfinished == UnfinishedQuery::None
    }

    /// Attempts of an earlier session are to be settled before anything is claimed.
    pub fn settles_first(&self) -> bool {
        self.table.settles_first(self.first_of_session)
    }

    /// Once in a while all claimed rows are read.
    pub fn sweep_if_due(&mut self, turn: &Turn<'_>) {
        if turn.session.state.working() && turn.now >= self.next_sweep {
            self.sweep_later(turn.base, turn.now);
            self.find_unfinished(Purpose { sweep: true, adopt: false });
        }
    }

    /// Often enough that two reads come within a minute.
    pub fn sweep_later(&mut self, base: &Base, now: Instant) {
        self.next_sweep = now + SWEEP_PERIOD.min(Duration::from_millis(base.settings.reset_ms));
    }

    /// Sends the query if it is wanted. Not while a pass is in flight.
    pub fn read_unfinished(&mut self, turn: &Turn<'_>) -> Option<Command<AttemptAnswer>> {
        if self.unfinished != UnfinishedQuery::Wanted {
            return None;
        }
        let statements = turn.writing()?.clone();
        self.unfinished = UnfinishedQuery::InFlight;
        let purpose = std::mem::take(&mut self.purpose);
        Some(refusable(Refused::Unfinished(purpose), "unfinished tasks", move |client| async move {
            Ok(AttemptAnswer::Unfinished { claimed: make::unfinished(&client, &statements).await?, purpose })
        }))
    }

    pub(super) fn unfinished_found(
        &mut self,
        claimed: Vec<Unfinished>,
        purpose: Purpose,
        turn: &Turn<'_>,
    ) -> Vec<Command<AttemptAnswer>> {
        let again = self.purpose != Purpose::default();
        self.unfinished = if again { UnfinishedQuery::Wanted } else { UnfinishedQuery::None };
        let mut commands = Vec::new();
        if purpose.sweep {
            commands = self.sweep(&claimed, turn);
        }
        if purpose.adopt {
            self.adopt(claimed, turn.base, turn.now);
        }
        commands
    }

    /// Rows that were claimed and that no worker of ours runs.
    pub fn adopt(&mut self, unfinished: Vec<Unfinished>, base: &Base, now: Instant) {
        for Unfinished { task, attempt, backend } in unfinished {
            if !self.table.knows(task, attempt, backend) {
                shared::info!("unfinished task found", queue = base.label, task = task);
                self.table.orphaned(task, attempt, now);
            }
        }
    }

    /// Claimed rows that nobody runs, for whatever reason, and ends that were refused.
    fn sweep(&mut self, claimed: &[Unfinished], turn: &Turn<'_>) -> Vec<Command<AttemptAnswer>> {
        let commands = self.rewrite(claimed, turn);
        let table = &self.table;
        let holds = |task, attempt| table.holds(task, attempt);
        for (task, attempt) in self.leftovers.judge(claimed, holds, |backend| table.at_backend(backend)) {
            shared::info!("unfinished task found", queue = turn.label(), task = task);
            self.table.orphaned(task, attempt, turn.now);
        }
        commands
    }
}
