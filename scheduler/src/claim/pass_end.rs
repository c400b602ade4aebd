//! The result of a pass: workers for the rows that it has claimed, and when the next one is due.

use super::claimed_rows::ClaimedRow;
use super::claims::{Claims, InFlight, show_running};
use super::pass_request::PassResult;
use super::poll_timer::{Passed, PollPace};
use crate::attempt::assign::NotStarted;
use crate::attempt::attempt_table::ClaimedTask;
use crate::attempt::attempts::Attempts;
use crate::jobs::job_table::Jobs;
use crate::pool::connection_pool::ConnectionPool;
use crate::turn::Turn;
use shared::process::fault;
use shared::process::spawn::Spawner;
use shared::region::SlotHandle;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What starts attempts.
pub struct Starters<'a> {
    pub attempts: &'a mut Attempts,
    pub pool: &'a mut ConnectionPool,
    pub jobs: &'a mut Jobs,
    pub spawner: &'a Spawner,
}

impl Claims {
    pub fn passed(&mut self, mut result: PassResult, mut starters: Starters<'_>, turn: &Turn<'_>) {
        let Some(mut pass) = self.pass.take() else { return };
        self.cursor = result.cursor;
        self.only = result.only_group().or_else(|| self.only.take().filter(|_| result.claimed.is_empty()));
        if let Some(written) = &result.written {
            // The claim has seen the room that they made.
            starters.attempts.recorded(written, turn.now);
        }
        self.plan_next(&result, &pass, starters.jobs, turn);
        fault::point("scheduler.after_take");
        show_running(turn);
        self.drop_unwanted(&result.unwanted, &mut starters, turn);
        let begun: Vec<i32> = result.claimed.iter().filter_map(ClaimedRow::begun_on).collect();
        for backend in std::mem::take(&mut pass.reserved).into_iter().filter(|backend| !begun.contains(backend)) {
            starters.pool.unreserve(backend);
        }
        if let Some(defaults) = result.session_defaults {
            starters.pool.set_session_defaults(defaults);
        }
        let mut failed = Vec::new();
        for row in std::mem::take(&mut result.claimed) {
            let wanted = !result.unwanted.contains(&(row.task, row.attempt));
            failed.extend(start(row, wanted, &mut pass.slots, &mut starters, turn));
        }
        self.pass = Some(pass);
        self.release(starters.pool, turn);
        self.not_started(failed, turn);
    }

    /// When the next pass is due, and of which kind it will be.
    fn plan_next(&mut self, result: &PassResult, pass: &InFlight, jobs: &mut Jobs, turn: &Turn<'_>) {
        let (base, now, asked) = (turn.base, turn.now, pass.slots.len());
        if let Some(why) = &result.jobs_failed {
            jobs.failed(why, turn.label(), now);
        }
        let due = result.pulse.and_then(|pulse| jobs.pulsed(pulse, asked, turn.label(), now));
        let pace = PollPace { sleep: Duration::from_millis(base.settings.sleep_ms), idle: base.settings.idle };
        let passed = Passed {
            now,
            full: asked > 0 && result.claimed.len() >= asked,
            room: base.start.region.slots().for_workers() > 0,
            found: !result.claimed.is_empty(),
            claim_only: pass.claim_only,
            armed: result.armed,
            refused: result.refused,
            busy: result.busy,
            next_plan: [result.next_plan, due].into_iter().flatten().min(),
        };
        self.timer.passed(passed, pace);
        if asked > 0 {
            self.backlog = passed.full;
        }
        if !pass.claim_only {
            // Planned rows are released when they are due, however much comes and goes.
            let planned = passed.next_plan.map(|plan| now + plan);
            self.next_full = planned.into_iter().fold(self.next_full, Instant::min);
        } else if !passed.found {
            // Whether there is nothing left, and when there will be, is for a full pass.
            self.next_full = now;
            self.timer.hurry(now);
        }
    }

    /// Running attempts that their owners want no more.
    fn drop_unwanted(&mut self, unwanted: &[(i64, i32)], starters: &mut Starters<'_>, turn: &Turn<'_>) {
        let Starters { attempts, pool, .. } = starters;
        for unwanted in unwanted {
            attempts.table.drop_unwanted(*unwanted);
            let around = attempts.table.batch_around(*unwanted);
            attempts.table.return_later(around, turn.now);
            if let Some(run) = attempts.table.claimed_id(*unwanted) {
                attempts.withdraw(run, pool, turn);
            }
        }
    }
}

/// A worker for a claimed row, if there is a slot. Pooled workers are forked when the next query is sent.
fn start(
    row: ClaimedRow,
    wanted: bool,
    slots: &mut Vec<SlotHandle>,
    starters: &mut Starters<'_>,
    turn: &Turn<'_>,
) -> Option<NotStarted> {
    let Starters { attempts, pool, jobs, spawner } = starters;
    let ClaimedRow { task, attempt, job, group, reuse, begun, handed } = row;
    let server = turn.session.home.name();
    let claim = ClaimedTask { task, attempt, group, row: None, server, reserved: None };
    let starts = turn.leads() && !turn.stop.asked();
    match (slots.pop(), begun, handed) {
        (Some(slot), Some((backend, row)), _) if wanted => {
            attempts.table.claim(ClaimedTask { row: Some(Rc::from(row)), reserved: Some((slot, backend)), ..claim });
            None
        }
        (Some(slot), None, Some(row)) if starts && !turn.base.settings.pool => {
            attempts.start_own(ClaimedTask { row: Some(Rc::from(row)), ..claim }, slot, spawner, turn).err()
        }
        (Some(slot), begun, _) if starts => {
            // A row that is begun and wanted no more: its worker finds that out.
            begun.into_iter().for_each(|(backend, _)| pool.unreserve(backend));
            let batches = reuse && job.is_none();
            match attempts.start_by_cell(claim, (slot, batches), (pool, spawner), turn) {
                Ok(run) => {
                    if let Some(job) = job {
                        jobs.claimed(run, job, (task, attempt), turn.label(), turn.now);
                    }
                    None
                }
                Err(failed) => Some(failed),
            }
        }
        (slot, begun, _) => {
            slots.extend(slot);
            if let Some((backend, _)) = begun {
                pool.unreserve(backend);
            }
            attempts.table.orphaned(task, attempt, turn.now);
            None
        }
    }
}
