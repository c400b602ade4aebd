//! What a worker is started for: the argument of its only entry.
//!
//! | made by | parameters | connection | begin | end |
//! |---|---|---|---|---|
//! | `in_cell` | in the cell | own or pooled | worker | worker |
//! | `pooled` | with the fork | pooled | the claim | scheduler, if short |
//! | `own_connection` | with the fork | own | scheduler | scheduler, if short |
//! | `record_retry` | with the fork | own | long ago | this worker, which runs nothing |
//!
//! A plain task comes with the fork: the row, and what all workers of a queue have in common, as the parent has it when it
//! forks. Any other task comes through the cell, and its worker reads the row when it begins it.

use crate::record::TaskStatements;
use crate::task_row::TaskRow;
use shared::conninfo::Target;
use shared::process::order::{ForkStart, PooledConnection, Start, WorkerOrder};
use shared::region::TaskResult;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// What all workers of a queue have in common. The task is in the row, not in this order.
#[derive(Debug)]
pub struct QueueContext {
    pub order: WorkerOrder,
    pub target: Arc<Target>,
    pub statements: Rc<TaskStatements>,
}

/// Where the parameters are.
#[derive(Debug)]
pub enum ParameterSource<'a> {
    /// A `WorkerOrder`, which the worker accepts.
    Cell(Start),
    /// In the memory that the fork has copied.
    Fork { start: ForkStart, context: &'a QueueContext, row: &'a TaskRow },
}

/// Whose connection is used.
#[derive(Clone, Copy, Debug)]
pub enum WorkerConnection<'a> {
    /// The worker connects. It offers the connection to the pool of its scheduler, where that is wanted.
    Own { offer_to: Option<&'a OwnedFd> },
    /// A connection of the pool, which is reset.
    Pooled { description: &'a PooledConnection, socket: &'a OwnedFd },
}

/// Who writes that the task begins.
#[derive(Clone, Copy, Debug)]
pub enum Begin<'a> {
    Worker,
    /// The scheduler, many at once; the worker reports its backend over this socket.
    Scheduler(&'a OwnedFd),
    /// It is written already: by the claim of a task for a pooled connection.
    Claim,
}

/// Who writes how the task ended.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    Worker,
    /// The scheduler, many at once, if the result is short. Any other result is recorded by the worker.
    Scheduler,
    /// The task has run, and the scheduler could not record this result: the worker does, and nothing else.
    RecordRetry(&'a TaskResult<'static>),
}

#[derive(Clone, Copy, Debug)]
pub struct Reporting<'a> {
    pub begin: Begin<'a>,
    pub end: End<'a>,
}

#[derive(Debug)]
pub struct Assignment<'a> {
    pub parameters: ParameterSource<'a>,
    pub connection: WorkerConnection<'a>,
    pub reporting: Reporting<'a>,
}

impl<'a> Assignment<'a> {
    /// Any task.
    pub fn in_cell(start: Start, connection: WorkerConnection<'a>) -> Assignment<'a> {
        let reporting = Reporting { begin: Begin::Worker, end: End::Worker };
        Assignment { parameters: ParameterSource::Cell(start), connection, reporting }
    }

    /// A plain task that the claim has begun on a connection of the pool.
    pub fn pooled(
        start: ForkStart,
        context: &'a QueueContext,
        row: &'a TaskRow,
        (description, socket): (&'a PooledConnection, &'a OwnedFd),
    ) -> Assignment<'a> {
        let connection = WorkerConnection::Pooled { description, socket };
        let reporting = Reporting { begin: Begin::Claim, end: End::Scheduler };
        Assignment { parameters: ParameterSource::Fork { start, context, row }, connection, reporting }
    }

    /// A plain task with a connection of its own.
    pub fn own_connection(
        start: ForkStart,
        context: &'a QueueContext,
        row: &'a TaskRow,
        scheduler: &'a OwnedFd,
    ) -> Assignment<'a> {
        let connection = WorkerConnection::Own { offer_to: None };
        let reporting = Reporting { begin: Begin::Scheduler(scheduler), end: End::Scheduler };
        Assignment { parameters: ParameterSource::Fork { start, context, row }, connection, reporting }
    }

    /// A result that the scheduler could not record together with others: the row was locked, has come to repeat, or the
    /// database refused it.
    pub fn record_retry(
        start: ForkStart,
        context: &'a QueueContext,
        row: &'a TaskRow,
        result: &'a TaskResult<'static>,
    ) -> Assignment<'a> {
        let connection = WorkerConnection::Own { offer_to: None };
        let reporting = Reporting { begin: Begin::Claim, end: End::RecordRetry(result) };
        Assignment { parameters: ParameterSource::Fork { start, context, row }, connection, reporting }
    }
}
