//! The table while it is served: repaired by a session beside the service, its column defaults kept, its size measured, and old
//! rows deleted.

use super::defaults;
use super::make::{self, Measured, QueueStatements};
use super::table_repair::{self, Repaired};
use crate::command::{Command, Opening, Refused, SessionName, query, query_on, refusable};
use crate::limits::{MEASURE_PERIOD, REPAIR_TIMEOUT};
use crate::turn::Turn;
use shared::db::back_off::BackOff;
use shared::db::db_error::DbError;
use std::rc::Rc;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub enum TableAnswer {
    /// Whether the column defaults are as the config wants them.
    Aligned(bool),
    Measured(Measured),
    Repaired(Repaired),
}

#[derive(Debug)]
pub struct Upkeep {
    repair_at: Option<Instant>,
    repair_pause: BackOff,
    /// The session that repairs is open, or being opened.
    repairing: bool,
    measure_at: Instant,
}

impl Upkeep {
    pub fn new(now: Instant) -> Upkeep {
        let repair_pause = BackOff::new(FIRST_PAUSE, LONGEST_PAUSE);
        Upkeep { repair_at: None, repair_pause, repairing: false, measure_at: now }
    }

    /// The queue is served. `lacks`: something of the table is missing.
    pub fn begin(&mut self, lacks: bool, now: Instant) {
        self.measure_at = now;
        self.repair_at = lacks.then_some(now);
    }

    /// The queue's session is gone, and the other one with it.
    pub fn forget(&mut self) {
        (self.repair_at, self.repairing) = (None, false);
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.repair_at.filter(|_| !self.repairing)
    }

    /// Opens the session that repairs, when it is due.
    pub fn turn(&mut self, turn: &Turn<'_>) -> Option<Command<TableAnswer>> {
        let idle = turn.session.state.working() && !turn.stop.asked();
        self.deadline().filter(|at| idle && turn.now >= *at)?;
        (self.repair_at, self.repairing) = (None, true);
        let target = turn.session.home.target(&turn.base.order.target);
        Some(Opening::beside(SessionName::Repair, target))
    }

    /// That session is up.
    pub fn repair(&self, turn: &Turn<'_>) -> Command<TableAnswer> {
        let (queue, defaults) = (turn.base.queue.clone(), turn.base.order.defaults.clone());
        query_on(SessionName::Repair, "repairing the table", REPAIR_TIMEOUT, move |client| async move {
            Ok(TableAnswer::Repaired(table_repair::repair(&client, &queue, &defaults).await?))
        })
    }

    /// It is lost. The queue is served without the repair.
    pub fn repair_lost(&mut self, db_error: DbError, turn: &Turn<'_>) -> Vec<Command<TableAnswer>> {
        let repaired = Repaired { later: Some(db_error.text), ..Repaired::default() };
        self.answered(TableAnswer::Repaired(repaired), turn)
    }

    pub fn answered(&mut self, answer: TableAnswer, turn: &Turn<'_>) -> Vec<Command<TableAnswer>> {
        match answer {
            TableAnswer::Aligned(true) => Vec::new(),
            TableAnswer::Aligned(false) => {
                self.repair_at = Some(turn.now);
                Vec::new()
            }
            TableAnswer::Repaired(repaired) => {
                self.repairing = false;
                self.repaired(repaired, turn).into_iter().collect()
            }
            TableAnswer::Measured(Measured { rows, bytes, deleted }) => {
                turn.base.slot_status().set_size(rows.max(0) as u64, bytes.max(0) as u64);
                if deleted == 0 {
                    return Vec::new();
                }
                shared::info!("old tasks deleted", queue = turn.label(), tasks = deleted);
                // There may be more: a small batch at a time.
                self.measure_at = turn.now;
                vec![Command::PollAt(turn.now + Duration::from_millis(turn.base.settings.sleep_ms))]
            }
        }
    }

    /// What is left for later is reported once, and tried again ever more seldom.
    fn repaired(&mut self, repaired: Repaired, turn: &Turn<'_>) -> Option<Command<TableAnswer>> {
        let Repaired { done, later, failed } = repaired;
        for why in failed {
            shared::warning!("table served with a defect", queue = turn.label(), why = why);
        }
        let steps = done.join(", ");
        match later {
            Some(why) => {
                if self.repair_pause.fresh() || !done.is_empty() {
                    let queue = turn.label();
                    shared::info!(
                        "table not repaired completely; retrying later",
                        queue = queue,
                        done = steps,
                        why = why
                    );
                }
                self.repair_at = Some(self.repair_pause.next(turn.now));
            }
            None => {
                self.repair_pause.succeeded();
                if !done.is_empty() {
                    shared::info!("table repaired", queue = turn.label(), steps = steps);
                }
            }
        }
        // Before the triggers were there no inserter may have notified.
        (!done.is_empty()).then_some(Command::PollAt(turn.now))
    }

    /// A reload has changed what the columns fall back to; without a session the next one sees to it.
    pub fn align(&self, turn: &Turn<'_>) -> Option<Command<TableAnswer>> {
        turn.statements()?;
        let (queue, defaults) = (turn.base.queue.clone(), turn.base.order.defaults.clone());
        Some(query("changing column defaults", move |client| async move {
            Ok(TableAnswer::Aligned(defaults::align(&client, &queue, &defaults).await?))
        }))
    }

    /// Once in a while, behind a pass.
    pub fn measure(&mut self, statements: &Rc<QueueStatements>, turn: &Turn<'_>) -> Option<Command<TableAnswer>> {
        if turn.now < self.measure_at {
            return None;
        }
        self.measure_at = turn.now + MEASURE_PERIOD;
        let (statements, keep_ms) = (statements.clone(), turn.base.settings.keep_ms);
        Some(refusable(Refused::Chore, "measuring the table", move |client| async move {
            Ok(TableAnswer::Measured(make::chores(&client, &statements, keep_ms).await?))
        }))
    }
}
