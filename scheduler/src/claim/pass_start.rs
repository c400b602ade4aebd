//! The beginning of a pass: slots first, then as many rows. Under steady load most passes only claim.

use super::claims::{ClaimAnswer, Claims, InFlight};
use super::pass::run_pass;
use super::pass_request::PassRequest;
use crate::attempt::attempts::Attempts;
use crate::command::{Command, Refused, query, refusable};
use crate::jobs::job_table::{Jobs, JobsAsk};
use crate::limits::FULL_PASS_PERIOD;
use crate::pool::connection_pool::ConnectionPool;
use crate::table::make::QueueStatements;
use crate::turn::Turn;
use shared::db::db_error::DbError;
use shared::db::lock_key;
use shared::region::SlotHandle;
use std::rc::Rc;

/// A pass that begins now.
#[derive(Debug)]
pub struct PassPlan {
    slots: Vec<SlotHandle>,
    reserved: Vec<i32>,
    signs: Vec<(i32, bool)>,
    arm: bool,
    claim_only: bool,
    jobs: Option<JobsAsk>,
}

impl PassPlan {
    /// It may claim nothing.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Claims {
    /// Whether a pass is due, and for how many rows. Nothing stands in its way.
    pub fn plan(
        &mut self,
        attempts: &Attempts,
        jobs: &Jobs,
        pool: &mut ConnectionPool,
        turn: &Turn<'_>,
    ) -> Option<PassPlan> {
        let (base, now) = (turn.base, turn.now);
        let idle = turn.leads() && self.pass.is_none() && !turn.stop.asked() && turn.session.state.working();
        if !attempts.knows_unfinished()
            || attempts.settles_first()
            || !idle
            || !turn.session.leader_is_here(base)
            || now < self.timer.next_poll()
        {
            return None;
        }
        let unasked = self.timer.unasked();
        let arm = self.timer.begin(now);
        let running = (attempts.table.active() + attempts.table.claimed()).saturating_sub(attempts.remotes.unknown());
        let may_run = (base.settings.run as usize).saturating_sub(running);
        let (permits, taken) = base.start.region.connections();
        let permits = permits.saturating_sub(taken) as usize + pool.available(now);
        let room = self.process_limit.room(pool, turn);
        let (limit, fetch) = (base.settings.limit as usize, base.settings.fetch as usize);
        let count = may_run.min(limit).min(fetch).min(permits).min(room);
        let slots = self.reserve(count, attempts, turn);
        let wanted = [
            (lock_key::NO_SLOT, permits > 0 && room > 0 && slots.is_empty()),
            (lock_key::NO_CONNECTION, permits == 0 || room == 0 || !self.failed_starts.fresh()),
        ];
        let signs: Vec<(i32, bool)> =
            wanted.into_iter().filter(|(kind, on)| self.signs.contains(kind) != *on).collect();
        self.signs = wanted.into_iter().filter(|(_, on)| *on).map(|(kind, _)| kind).collect();
        let reserved =
            if base.settings.pool { slots.iter().map_while(|_| pool.reserve(now)).collect() } else { Vec::new() };
        let jobs = jobs.ask(now, slots.len());
        let hasty =
            signs.is_empty() && !slots.is_empty() && !jobs.as_ref().is_some_and(|jobs| jobs.start || jobs.stale);
        let claim_only = unasked && hasty && now < self.next_full;
        if !claim_only {
            self.next_full = now + FULL_PASS_PERIOD;
        }
        Some(PassPlan { slots, reserved, signs, arm, claim_only, jobs })
    }

    /// Sends it, with the results that wait to be recorded.
    pub fn begin(
        &mut self,
        plan: PassPlan,
        statements: &Rc<QueueStatements>,
        attempts: &mut Attempts,
        pool: &ConnectionPool,
        turn: &Turn<'_>,
    ) -> Command<ClaimAnswer> {
        let PassPlan { slots, reserved, signs, arm, claim_only, jobs } = plan;
        let (base, count) = (turn.base, slots.len());
        let known = attempts.table.known();
        let plain = claim_only && attempts.table.active() == attempts.table.reporting() && reserved.len() == count;
        let request = PassRequest {
            only: self.only.clone().filter(|only| plain && known.iter().all(|(_, group)| group == only)),
            ends: if count > 0 { attempts.take_ends() } else { None },
            signs,
            count,
            disarm: self.timer.armed(),
            arm,
            claim_only,
            cursor: self.cursor,
            running: attempts.table.running(),
            known,
            idle_backends: pool.idle_backends(),
            reserved: reserved.clone(),
            // Behind a pooler only the server knows the number of the backend.
            by_fork: !base.settings.pool && !base.order.target.late_settings,
            pooled: base.settings.pool,
            session_defaults: pool.session_defaults(),
            jobs,
        };
        self.pass = Some(InFlight { slots, reserved, claim_only, began: turn.now });
        let statements = statements.clone();
        refusable(Refused::Pass, "looking for tasks", move |client| async move {
            Ok(ClaimAnswer::Passed(Box::new(run_pass(client, statements, request).await?)))
        })
    }

    /// The pass was refused. It may hold the wake-up lock, and a transaction that has failed.
    pub fn refused(&mut self, pool: &mut ConnectionPool, turn: &Turn<'_>) -> Option<Command<ClaimAnswer>> {
        self.release(pool, turn);
        self.timer.forget(turn.now);
        let statements = turn.statements()?.clone();
        Some(query("tidying the session", move |client| async move {
            client.batch_execute("ROLLBACK").await.map_err(|error| DbError::of(&error))?;
            loop {
                let row = client.query_one(&statements.unlock, &[&lock_key::WAKE_UP, &statements.relid]).await;
                if !row.map_err(|error| DbError::of(&error))?.get::<_, bool>("done") {
                    return Ok(ClaimAnswer::Done);
                }
            }
        }))
    }
}
