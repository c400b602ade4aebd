//! All attempts of the queue as a component: what their events and answers lead to.
//!
//! `attempt_table` holds them. Workers are started in `assign`; `begin`, `record`, `batch_return` and `settle_rows` ask the
//! database about many or one; `unfinished` compares the table with the claimed rows.

use super::attempt_id::AttemptId;
use super::attempt_table::AttemptTable;
use super::leftovers::{Leftovers, Unfinished};
use super::refused_end::Rewritten;
use super::remote_search::RemoteSearches;
use super::settle::Settlement;
use crate::base::Base;
use crate::command::{Command, Purpose, Refused};
use crate::limits::{GATHERING_SHARE, LONGEST_GATHERING};
use crate::pool::connection_pool::ConnectionPool;
use crate::turn::Turn;
use shared::process::spawn::Spawner;
use shared::region::SlotHandle;
use std::rc::Rc;
use std::time::{Duration, Instant};
use worker::TaskStatements;

/// What the database answers about attempts.
#[derive(Debug)]
pub enum AttemptAnswer {
    /// Of the workers that wanted to begin: whose tasks have.
    Begun {
        asked: Vec<AttemptId>,
        begun: Vec<i64>,
    },
    /// Whose results have been recorded.
    Recorded(Vec<i64>),
    /// Of the tasks that were to go back from batches: those that another transaction has locked.
    Returned(Vec<(i64, i32)>),
    Settled {
        run: AttemptId,
        task: i64,
        settlement: Settlement,
    },
    Unfinished {
        claimed: Vec<Unfinished>,
        purpose: Purpose,
    },
    /// What became of a row whose end was refused.
    Rewritten {
        run: AttemptId,
        task: i64,
        what: Rewritten,
    },
    Done,
}

/// The query for claimed and unfinished rows. It is never in flight together with a pass: a row that the pass has claimed and
/// not yet reported would be taken for that of a dead worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfinishedQuery {
    None,
    Wanted,
    InFlight,
}

/// Whether workers begin at present.
#[derive(Clone, Copy, Debug)]
pub struct StartHealth {
    /// That they do not was reported.
    pub reported: bool,
    /// None has failed of late.
    pub fresh: bool,
}

#[derive(Debug)]
pub struct Attempts {
    pub table: AttemptTable,
    /// The statements of workers, in the form that this session allows.
    pub(super) statements: Rc<TaskStatements>,
    /// How long plain tasks take, in the mean.
    pub(super) mean: Duration,
    /// When some were last forked.
    pub(super) forked: Option<Instant>,
    /// Results that need a worker of their own get one then.
    pub(super) next_retry: Option<Instant>,
    /// Sessions on remotes that dead workers have left.
    pub remotes: RemoteSearches,
    pub(super) leftovers: Leftovers,
    pub(super) unfinished: UnfinishedQuery,
    pub(super) purpose: Purpose,
    /// When claimed rows are looked for that nobody runs.
    pub(super) next_sweep: Instant,
    /// The first attempt of this session.
    pub(super) first_of_session: AttemptId,
    /// Slots came free.
    freed: bool,
}

impl Attempts {
    pub fn new(base: &Base, now: Instant) -> Attempts {
        let lazy_commit = !base.settings.synchronous_commit;
        Attempts {
            table: AttemptTable::new(&base.start.region),
            statements: Rc::new(TaskStatements::new(base.queue.clone(), lazy_commit, None)),
            mean: Duration::ZERO,
            forked: None,
            next_retry: None,
            remotes: RemoteSearches::default(),
            leftovers: Leftovers::default(),
            unfinished: UnfinishedQuery::None,
            purpose: Purpose::default(),
            next_sweep: now,
            first_of_session: AttemptId::default(),
            freed: false,
        }
    }

    /// Another session serves the queue from now on, and holds another number. `moved`: on a server that has not the data of the
    /// former one; what was begun there is looked at again.
    pub fn settle_in(&mut self, moved: bool, proof: i64, pool: &mut ConnectionPool, turn: &Turn<'_>) {
        if moved {
            self.table.mark_strays();
            // Connections that workers have left are on the other server.
            pool.outdate(turn.now);
        }
        if let Some(home) = turn.session.home.server() {
            let (reserved, dropped) = self.table.drop_others_than(&home.name, turn.now);
            for (slot, backend) in reserved {
                self.free_slot(slot, turn.base);
                pool.unreserve(backend);
            }
            for task in dropped {
                shared::info!("result dropped: its task ran on another server", queue = turn.label(), task = task);
            }
        }
        let lazy_commit = !turn.base.settings.synchronous_commit;
        self.statements = Rc::new(TaskStatements::new(turn.base.queue.clone(), lazy_commit, Some(proof)));
        self.first_of_session = self.table.next_id();
    }

    /// What is due on every turn of the loop.
    pub fn turn(&mut self, spawner: &Spawner, pool: &ConnectionPool, turn: &Turn<'_>) -> Vec<Command<AttemptAnswer>> {
        self.retry_records(spawner, turn);
        self.close_slow_batches(turn);
        let mut commands: Vec<Command<AttemptAnswer>> = self.return_batches(turn).into_iter().collect();
        let questions = self.table.pass(turn.now);
        commands.extend(self.settle(questions, pool, turn));
        commands
    }

    /// Its worker was started by an earlier session, and knows an old number: that it cannot begin tells nothing of this one.
    pub fn is_of_this_session(&self, run: AttemptId) -> bool {
        run >= self.first_of_session
    }

    /// The session is gone, and every answer with it.
    pub fn session_lost(&mut self, now: Instant) {
        self.unfinished = UnfinishedQuery::None;
        self.purpose = Purpose::default();
        self.table.session_lost(now);
        self.remotes.all_unmarked();
    }

    pub fn answered(
        &mut self,
        answer: AttemptAnswer,
        starts: StartHealth,
        turn: &Turn<'_>,
    ) -> Vec<Command<AttemptAnswer>> {
        match answer {
            AttemptAnswer::Done => Vec::new(),
            AttemptAnswer::Begun { asked, begun } => {
                self.begun(&asked, &begun, turn);
                Vec::new()
            }
            AttemptAnswer::Recorded(written) => {
                self.recorded(&written, turn);
                // A group that was full may take another task now.
                vec![Command::PollAt(turn.now)]
            }
            AttemptAnswer::Returned(locked) => {
                let some = self.table.returned(&locked, turn.now);
                some.then_some(Command::PollAt(turn.now)).into_iter().collect()
            }
            AttemptAnswer::Settled { run, task, settlement } => self.settled((run, task), settlement, starts, turn),
            AttemptAnswer::Unfinished { claimed, purpose } => self.unfinished_found(claimed, purpose, turn),
            AttemptAnswer::Rewritten { run, task, what } => {
                self.rewritten((run, task), what, turn).into_iter().collect()
            }
        }
    }

    /// A query was refused, and the session lives: it is sent again later.
    pub fn refused(&mut self, what: &Refused, now: Instant) {
        match what {
            Refused::Pass | Refused::Results => self.table.records_unanswered(now),
            Refused::Begins => self.table.begins_unanswered(now),
            Refused::Settlement(run) => {
                // A refusal that lasts must not keep other tasks from being claimed.
                self.table.settle_answered(*run);
                self.table.unsettled(*run, now);
            }
            Refused::Returns => self.table.returns_unanswered(now),
            Refused::Unfinished(purpose) => self.find_unfinished_again(*purpose),
            Refused::Termination(_) | Refused::Chore => {}
        }
    }

    pub fn deadline(&self, base: &Base, working: bool) -> Option<Instant> {
        let reset = Duration::from_millis(base.settings.reset_ms);
        let retry = self.next_retry.filter(|_| working && self.table.has_retries());
        let returns = if working { self.table.return_deadline() } else { None };
        let sweep = working.then_some(self.next_sweep);
        [self.table.deadline(), retry, returns, sweep, self.remotes.deadline(reset)].into_iter().flatten().min()
    }

    /// How long it is worth while to wait for more ends: not at all if no worker runs whose end is recorded here.
    pub fn gathering(&self) -> Duration {
        let gathered = (self.mean / GATHERING_SHARE).min(LONGEST_GATHERING);
        if self.table.reporting() == 0 { Duration::ZERO } else { gathered }
    }

    pub(super) fn free_slot(&mut self, slot: SlotHandle, base: &Base) {
        base.start.region.slots().release(slot);
        self.freed = true;
    }

    /// Slots came free since this was asked last.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }
}
