//! Workers for claimed rows, by three doors: a pooled connection, a connection of its own, a cell.
//!
//! A plain task that gets a pooled connection is begun by the claim itself, since the backend is known before the fork, and its
//! worker gets the row by the fork. One that connects by itself gets the row by the fork, too, and the scheduler records the
//! begins of many at once (`begin`). All others read their order from a cell and record everything themselves.

use super::attempt_id::AttemptId;
use super::attempt_state::Door;
use super::attempt_table::ClaimedTask;
use super::attempt_table::bulk::ToStart;
use super::attempts::Attempts;
use crate::limits::STEADY_FORKS;
use crate::pool::connection_pool::{Checkout, ConnectionPool};
use crate::turn::Turn;
use shared::process::begin_channel;
use shared::process::order::WorkerOrder;
use shared::process::spawn::Spawner;
use shared::region::{ProcessKind, SlotHandle};
use shared::sys::memory::own_again;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use worker::{Assignment, QueueContext, WorkerConnection};

/// A task whose worker could not be forked, and why.
#[derive(Debug)]
pub struct NotStarted {
    pub task: i64,
    pub error: String,
}

impl Attempts {
    /// Workers for rows that the claim has begun, as far as their connections are reset. All are forked before anything is
    /// noted: each page of ours that is written between two forks is copied once more.
    pub fn start_pooled(&mut self, pool: &mut ConnectionPool, spawner: &Spawner, turn: &Turn<'_>) -> Vec<NotStarted> {
        let claimed = self.table.to_start();
        if claimed.is_empty() {
            return Vec::new();
        }
        let mut failed = Vec::new();
        // What has begun with the claim runs, for all who look; it may finish like the others.
        let goes_on = turn.leads() && turn.stop.lets_finish();
        let context = self.queue_context(turn);
        let mut ready = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            if !goes_on {
                self.withdraw(claimed.run, pool, turn);
                continue;
            }
            match pool.checkout(claimed.backend) {
                Checkout::Here(pooled, socket) => {
                    self.expect(claimed.slot, turn);
                    ready.push((claimed, pooled, socket));
                }
                Checkout::Resetting => {}
                Checkout::Gone => {
                    let task = claimed.row.task;
                    self.withdraw(claimed.run, pool, turn);
                    failed.push(NotStarted { task, error: "the connection is gone".to_owned() });
                }
            }
        }
        let mut started = Vec::with_capacity(ready.len());
        for (claimed, pooled, socket) in &ready {
            started.push(spawner.spawn_plain(
                (claimed.slot, ProcessKind::Worker, turn.label()),
                worker::run,
                |start| Assignment::pooled(start, &context, &claimed.row, (pooled, socket)),
                &[socket.as_raw_fd()],
            ));
        }
        // Not for one that is alone: it may last, and what is copied here is its alone from then on.
        let steady = |before| turn.now.saturating_duration_since(before) < STEADY_FORKS;
        if !started.is_empty() && self.forked.replace(turn.now).is_some_and(steady) {
            own_again();
        }
        for ((ToStart { run, row, slot, backend }, ..), started) in ready.into_iter().zip(started) {
            match started {
                Ok(child) => {
                    pool.checked_out(backend, slot);
                    shared::debug!("worker started", queue = turn.label(), task = row.task, pid = child.pid());
                    self.table.forked(run, (child, slot, Door::Pooled), None, None, turn.now);
                }
                Err(error) => {
                    pool.unreserve(backend);
                    self.table.not_forked(run, turn.now);
                    failed.push(NotStarted { task: row.task, error: error.to_string() });
                }
            }
        }
        failed
    }

    /// A worker with a connection of its own that gets the row by the fork.
    pub fn start_own(
        &mut self,
        claim: ClaimedTask,
        slot: SlotHandle,
        spawner: &Spawner,
        turn: &Turn<'_>,
    ) -> Result<AttemptId, NotStarted> {
        let (task, row) = (claim.task, claim.row.clone());
        let run = self.table.claim(claim);
        self.expect(slot, turn);
        let started = begin_channel::pair().map_err(|error| error.to_string()).and_then(|(ours, theirs)| {
            let row = row.ok_or("its row was not read")?;
            let context = self.queue_context(turn);
            let child = spawner.spawn_plain(
                (slot, ProcessKind::Worker, turn.label()),
                worker::run,
                |start| Assignment::own_connection(start, &context, &row, &theirs),
                &[theirs.as_raw_fd()],
            );
            child.map(|child| (child, ours)).map_err(|error| error.to_string())
        });
        match started {
            Ok((child, channel)) => {
                shared::debug!("worker started", queue = turn.label(), task = task, pid = child.pid());
                self.table.forked(run, (child, slot, Door::Own), None, Some(channel), turn.now);
                Ok(run)
            }
            Err(error) => {
                self.table.not_forked(run, turn.now);
                Err(NotStarted { task, error })
            }
        }
    }

    /// A worker that reads its order from a cell. `batches`: it may go on with others of its group, several at once.
    pub fn start_by_cell(
        &mut self,
        claim: ClaimedTask,
        (slot, batches): (SlotHandle, bool),
        (pool, spawner): (&mut ConnectionPool, &Spawner),
        turn: &Turn<'_>,
    ) -> Result<AttemptId, NotStarted> {
        let base = turn.base;
        let (pooled, offer_to) = if base.settings.pool { pool.take_idle() } else { Default::default() };
        self.expect(slot, turn);
        // A connection that was told a group bears its name for ever: only where tasks of it will follow each other.
        let batches = base.settings.batch && batches;
        let plain = batches && base.order.schema.is_ascii() && base.order.table.is_ascii();
        let group = if plain { claim.group.plain_name() } else { None };
        let (task, attempt) = (claim.task, claim.attempt);
        let order = WorkerOrder { group, ..worker_order(turn, task, attempt) };
        let inherited = pooled.as_ref().map(|(pooled, _)| pooled.backend);
        let connection = match &pooled {
            Some((description, socket)) => WorkerConnection::Pooled { description, socket },
            None => WorkerConnection::Own { offer_to: offer_to.as_ref() },
        };
        let sockets = pooled.iter().map(|(_, socket)| socket).chain(&offer_to);
        let kept: Vec<RawFd> = sockets.map(AsRawFd::as_raw_fd).collect();
        let run = self.table.claim(claim);
        let spawned = spawner.spawn_with(
            (slot, ProcessKind::Worker, turn.label()),
            &order,
            worker::run,
            |start| Assignment::in_cell(start, connection),
            &kept,
        );
        match spawned {
            Ok((child, ticket)) => {
                if let Some(backend) = inherited {
                    pool.checked_out(backend, slot);
                }
                shared::debug!("worker started", queue = turn.label(), task = task, pid = child.pid());
                let ack_by = turn.now + Duration::from_millis(base.settings.close_ms);
                self.table.forked(run, (child, slot, Door::Cell { ack_by }), Some(ticket), None, turn.now);
                Ok(run)
            }
            Err(error) => {
                self.table.not_forked(run, turn.now);
                Err(NotStarted { task, error: error.to_string() })
            }
        }
    }

    /// A claimed row that is not to start: its slot and its connection are free again, and the row is settled.
    pub fn withdraw(&mut self, run: AttemptId, pool: &mut ConnectionPool, turn: &Turn<'_>) {
        if let Some((slot, backend)) = self.table.not_forked(run, turn.now) {
            self.free_slot(slot, turn.base);
            pool.unreserve(backend);
        }
    }

    pub(super) fn expect(&self, slot: SlotHandle, turn: &Turn<'_>) {
        turn.base.start.region.expect_return(slot);
        turn.base.start.region.expect_result(slot);
    }

    /// What all workers of this moment have in common.
    pub(super) fn queue_context(&self, turn: &Turn<'_>) -> QueueContext {
        let order = worker_order(turn, 0, 0);
        let target = Arc::new(order.target.clone());
        QueueContext { order, target, statements: self.statements.clone() }
    }
}

fn worker_order(turn: &Turn<'_>, task: i64, attempt: i32) -> WorkerOrder {
    let (base, home) = (turn.base, &turn.session.home);
    WorkerOrder {
        target: home.target(&base.order.target),
        schema: base.order.schema.clone(),
        table: base.order.table.clone(),
        task,
        attempt,
        output_limit: base.settings.output_limit,
        remotes: base.order.remotes.clone(),
        batch: base.settings.batch,
        group: None,
        lazy_commit: !base.settings.synchronous_commit,
        home: home.server().cloned(),
    }
}
