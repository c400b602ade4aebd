//! Tasks whose beginning and end are written by the scheduler, many at once; only their input runs in a worker.
//!
//! A plain task that gets a lent connection is begun by the take itself, since the backend is known before the fork, and
//! its worker is handed the row by the fork. What the worker hands in is written down together with what others have
//! handed in meanwhile, in the transaction in which the next look takes, or alone if there is no slot for anything. Those
//! that have a connection of their own are `guests`; their ends are written here, too. A result stays in this table until
//! the database has it: it survives a lost session, and a row that cannot be written with the others (locked, come to
//! repeat, refused) gets a clerk, a worker that does nothing else. If the scheduler itself is killed in between, such a task
//! runs again.

use crate::attempt::attempt_id::AttemptId;
use crate::attempt::attempt_table::WorkerEnd;
use crate::claim::group::Group;
use crate::command::Refused;
use crate::event_loop::{Answer, Scheduler};
use crate::limits::{
    ANSWER_TIMEOUT, GATHERING_SHARE, LONGEST_GATHERING, MEAN_MEMORY, RECORD_RETRY_PAUSE, STEADY_FORKS,
};
use crate::pool::connection_pool::Gift;
use crate::session::write_pause::or_refused;
use crate::table::make::Prepared;
use shared::db::server::ServerName;
use shared::db::statement::Queue;
use shared::db::trouble::Trouble;
use shared::process::exit_code::ExitCode;
use shared::process::order::WorkerOrder;
use shared::region::{EndState, Kind, SlotHandle, TaskResult};
use shared::sys::memory::own_again;
use shared::sys::wait::{Child, End};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use worker::{Assignment, QueueContext, TaskRow, TaskStatements};

/// A result, and the row it belongs to.
#[derive(Debug)]
struct Ended {
    row: Rc<TaskRow>,
    result: TaskResult<'static>,
    /// Where the task began.
    server: Option<Rc<ServerName>>,
}

/// Several results, as parameters of `end.sql`.
#[derive(Clone, Debug)]
pub struct Ends {
    tasks: Vec<i64>,
    attempts: Vec<i32>,
    failed: Vec<bool>,
    outputs: Vec<Option<String>>,
    errors: Vec<Option<String>>,
    reasons: Vec<Option<&'static str>>,
    /// Begins and ends: as the row says, and now.
    times: Vec<Option<i64>>,
}

impl Ends {
    fn of(booking: &[Ended]) -> Ends {
        let results = || booking.iter().map(|ended| &ended.result);
        // Results of other than UTF-8 texts are never left to the scheduler.
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        Ends {
            tasks: results().map(|result| result.key.task).collect(),
            attempts: results().map(|result| result.key.attempt).collect(),
            failed: results().map(|result| result.state == EndState::Fail).collect(),
            outputs: results().map(|result| result.output.as_deref().map(text)).collect(),
            errors: results().map(|result| result.error.as_deref().map(text)).collect(),
            reasons: vec![None; booking.len()],
            times: vec![None; booking.len()],
        }
    }

    pub fn values(&self) -> [&(dyn ToSql + Sync); 9] {
        let Ends { tasks, attempts, failed, outputs, errors, reasons, times } = self;
        [tasks, attempts, failed, outputs, errors, reasons, times, times, &false]
    }

    /// Whose results are written.
    pub async fn write(&self, client: &Client, statements: &Prepared) -> Result<Vec<i64>, Trouble> {
        let rows = client.query(&statements.end_many, &self.values()).await;
        let rows = rows.map_err(|error| Trouble::of(&error))?;
        Ok(rows.iter().map(|row| row.get("id")).collect())
    }
}

/// A row that the take has begun.
#[derive(Debug)]
pub struct Begun {
    pub row: Rc<TaskRow>,
    pub group: Rc<Group>,
    pub slot: SlotHandle,
    /// Whose connection was promised to it.
    pub backend: i32,
    /// On which server.
    pub server: Option<Rc<ServerName>>,
}

/// Under way: the row, since when, and where it began.
#[derive(Debug)]
struct UnderWay {
    row: Rc<TaskRow>,
    since: Instant,
    server: Option<Rc<ServerName>>,
}

#[derive(Debug)]
pub struct Errands {
    statements: Rc<TaskStatements>,
    /// Begun, and not yet started, perhaps because their connections are not yet as new.
    waiting: Vec<Begun>,
    /// Of workers under way, and since when.
    rows: BTreeMap<AttemptId, UnderWay>,
    /// How long they take, in the mean.
    mean: Duration,
    /// When some were last forked.
    forked: Option<Instant>,
    /// To be written, being written, to be given to clerks, in the hands of clerks.
    handed: Vec<Ended>,
    booking: Vec<Ended>,
    refused: Vec<Ended>,
    clerks: BTreeMap<AttemptId, Ended>,
    next_clerk: Option<Instant>,
}

impl Errands {
    pub fn new(queue: Queue, lazy_commit: bool) -> Errands {
        Errands {
            statements: Rc::new(TaskStatements::new(queue, lazy_commit, None)),
            waiting: Vec::new(),
            rows: BTreeMap::new(),
            mean: Duration::ZERO,
            forked: None,
            handed: Vec::new(),
            booking: Vec::new(),
            refused: Vec::new(),
            clerks: BTreeMap::new(),
            next_clerk: None,
        }
    }

    /// Nothing waits to be written, or to be started.
    pub fn is_empty(&self) -> bool {
        self.results().next().is_none() && self.waiting.is_empty()
    }

    /// They are started when what is to be asked has been asked.
    pub fn wait(&mut self, begun: Vec<Begun>) {
        self.waiting.extend(begun);
    }

    /// What is known of those that will start in a moment, should their rows be deleted.
    pub fn known(&self) -> impl Iterator<Item = (i64, Rc<Group>)> {
        self.waiting.iter().map(|begun| (begun.row.task, begun.group.clone()))
    }

    /// Those themselves, which have begun for all who look.
    pub fn begun(&self) -> impl Iterator<Item = (i64, i32)> {
        self.waiting.iter().map(|begun| (begun.row.task, begun.row.attempt))
    }

    /// One of them that is not to start.
    pub fn withdraw(&mut self, unwanted: (i64, i32)) -> Option<Begun> {
        let at = self.begun().position(|begun| begun == unwanted)?;
        Some(self.waiting.swap_remove(at))
    }

    /// As many workers are under way.
    pub fn under_way(&self) -> usize {
        self.rows.len()
    }

    /// As many will start in a moment.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Rows that are ours without a worker that says so.
    pub fn knows(&self, task: i64) -> bool {
        let waiting = self.waiting.iter().map(|begun| &begun.row);
        self.results().map(|ended| &ended.row).chain(waiting).any(|row| row.task == task)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.next_clerk.filter(|_| !self.refused.is_empty())
    }

    /// What is to be written now, all at once, if nothing is being written.
    pub fn begin_booking(&mut self) -> Option<Ends> {
        if self.handed.is_empty() || !self.booking.is_empty() {
            return None;
        }
        self.booking = std::mem::take(&mut self.handed);
        shared::process::fault::point("scheduler.before_booking");
        Some(Ends::of(&self.booking))
    }

    /// The worker of this row is under way; a result that it hands in is written down here.
    pub fn expect(&mut self, run: AttemptId, row: Rc<TaskRow>, server: Option<Rc<ServerName>>) {
        self.rows.insert(run, UnderWay { row, since: Instant::now(), server });
    }

    /// Another session writes from now on, and holds another number.
    pub fn renew_book(&mut self, queue: &Queue, lazy_commit: bool, proof: i64) {
        self.statements = Rc::new(TaskStatements::new(queue.clone(), lazy_commit, Some(proof)));
    }

    /// What was begun on a server whose data are not here: rows that wait for their workers, and results.
    pub fn drop_others_than(&mut self, name: &ServerName) -> (Vec<Begun>, Vec<(i64, i32)>) {
        let elsewhere = |server: &Option<Rc<ServerName>>| server.as_ref().is_some_and(|at| !name.has_the_data_of(at));
        let begun = self.waiting.extract_if(.., |begun| elsewhere(&begun.server)).collect();
        let mut dropped = Vec::new();
        let clerks: Vec<AttemptId> =
            self.clerks.iter().filter(|(_, ended)| elsewhere(&ended.server)).map(|(run, _)| *run).collect();
        let of_clerks = clerks.into_iter().filter_map(|run| self.clerks.remove(&run));
        dropped.extend(of_clerks.map(|ended| (ended.result.key.task, ended.result.key.attempt)));
        for results in [&mut self.handed, &mut self.booking, &mut self.refused] {
            let others = results.extract_if(.., |ended| elsewhere(&ended.server));
            dropped.extend(others.map(|ended| (ended.result.key.task, ended.result.key.attempt)));
        }
        (begun, dropped)
    }

    /// How long it is worth while to wait for more ends: not at all if nobody is under way.
    pub fn gathering(&self) -> Duration {
        if self.rows.is_empty() { Duration::ZERO } else { (self.mean / GATHERING_SHARE).min(LONGEST_GATHERING) }
    }

    fn results(&self) -> impl Iterator<Item = &Ended> {
        self.handed.iter().chain(&self.booking).chain(&self.refused).chain(self.clerks.values())
    }
}

impl Scheduler {
    /// Workers of their own for rows that are begun, each on the connection that was promised to it. All are forked before
    /// anything is noted: each page of ours that is written between two forks is copied once more.
    fn start_errands(&mut self, begun: Vec<Begun>, now: Instant) {
        if begun.is_empty() {
            return;
        }
        // What has begun with the take runs, for all who look; it may finish like the others.
        let goes_on = self.base.start.region.leads() && self.stop.state.lets_finish();
        let context = self.queue_context();
        let mut errands = Vec::with_capacity(begun.len());
        for begun in begun {
            let (row, slot) = (begun.row.clone(), begun.slot);
            match self.pool.gift(begun.backend) {
                _ if !goes_on => {
                    self.give_slot_back(slot);
                    self.never_started(row.task, row.attempt, Some(begun.backend), now);
                }
                Gift::Here(lent, socket) => {
                    self.base.start.region.expect_return(slot);
                    self.base.start.region.expect_result(slot);
                    errands.push((begun, lent, socket));
                }
                Gift::Coming => self.attempts.records.waiting.push(begun),
                Gift::Gone => {
                    self.give_slot_back(slot);
                    self.errand_started(begun, Err("the connection is gone".to_owned()), now);
                }
            }
        }
        let mut started = Vec::with_capacity(errands.len());
        for (begun, lent, socket) in &errands {
            started.push(self.spawner.spawn_plain(
                (begun.slot, Kind::Worker, &self.base.label),
                worker::run,
                |start| Assignment::pooled(start, &context, &begun.row, (lent, socket)),
                &[socket.as_raw_fd()],
            ));
        }
        // Not for one that stands alone: it may last, and what is copied here is its alone from then on.
        if self
            .attempts
            .records
            .forked
            .replace(now)
            .is_some_and(|before| now.saturating_duration_since(before) < STEADY_FORKS)
        {
            own_again();
        }
        for ((begun, ..), started) in errands.into_iter().zip(started) {
            self.errand_started(begun, started.map_err(|error| error.to_string()), now);
        }
    }

    /// Those that have begun, as far as their connections are as new.
    pub(crate) fn start_waiting(&mut self, now: Instant) {
        let waiting = std::mem::take(&mut self.attempts.records.waiting);
        self.start_errands(waiting, now);
    }

    pub(crate) fn give_slot_back(&mut self, slot: SlotHandle) {
        self.base.start.region.slots().release(slot);
        self.claims.freed = true;
    }

    fn errand_started(&mut self, begun: Begun, started: Result<Child, String>, now: Instant) {
        let Begun { row, group, slot, backend, server } = begun;
        let (task, attempt) = (row.task, row.attempt);
        match started {
            Ok(child) => {
                self.pool.lent(backend, slot);
                shared::debug!("worker started", queue = self.base.label, task = task, pid = child.pid());
                let run = self.attempts.table.started_plain(task, attempt, child, slot, false);
                self.attempts.table.set_group(run, group);
                self.attempts.records.expect(run, row, server);
            }
            Err(error) => {
                self.pool.unpromise(backend);
                self.not_started(task, attempt, &error, now);
            }
        }
    }

    /// A worker could not even be forked.
    pub(crate) fn not_started(&mut self, task: i64, attempt: i32, error: &str, now: Instant) {
        let first = self.worker_failed(task, error, now);
        self.attempts.table.orphaned(task, attempt, now);
        if first {
            let pause = self.claims.stumbling.next(now);
            self.claims.timer.hold_off(pause);
        }
    }

    /// What workers of this moment have in common.
    pub(crate) fn queue_context(&self) -> Rc<QueueContext> {
        let order = self.worker_order(0, 0);
        let target = Arc::new(order.target.clone());
        Rc::new(QueueContext { order, target, statements: self.attempts.records.statements.clone() })
    }

    pub(crate) fn worker_order(&self, task: i64, attempt: i32) -> WorkerOrder {
        WorkerOrder {
            target: self.session.home.target(&self.base.order.target),
            schema: self.base.order.schema.clone(),
            table: self.base.order.table.clone(),
            task,
            attempt,
            output_limit: self.base.settings.output_limit,
            remotes: self.base.order.remotes.clone(),
            batch: self.base.settings.batch,
            group: None,
            lazy_commit: !self.base.settings.synchronous_commit,
            home: self.session.home.server().cloned(),
        }
    }

    /// A worker is gone: what it has handed in is to be written; what a clerk could not write is tried again.
    pub(crate) fn errand_ended(&mut self, ended: &WorkerEnd, now: Instant) {
        if let Some(UnderWay { row, since, server }) = self.attempts.records.rows.remove(&ended.run)
            && let Some(result) = &ended.handed_in
        {
            let took = now.saturating_duration_since(since);
            self.attempts.records.mean = (self.attempts.records.mean * (MEAN_MEMORY - 1) + took) / MEAN_MEMORY;
            let moved =
                |at: &Rc<ServerName>| self.session.home.server().is_some_and(|home| !home.name.has_the_data_of(at));
            if server.as_ref().is_some_and(moved) {
                shared::info!("a result of another server is dropped", queue = self.base.label, task = result.key.task);
                self.attempts.table.orphaned(result.key.task, result.key.attempt, now);
            } else {
                self.attempts.records.handed.push(Ended { row, result: result.clone(), server });
            }
        }
        if let Some(result) = self.attempts.records.clerks.remove(&ended.run) {
            let over = [ExitCode::Asked, ExitCode::Permanent].map(ExitCode::status);
            if !matches!(ended.end, End::Exited(status) if over.contains(&status)) {
                self.attempts.records.refused.push(result);
                self.attempts.records.next_clerk = Some(now + RECORD_RETRY_PAUSE);
            }
        }
    }

    /// Writes down what was handed in, all at once, and one such writing at a time. Not while a short look is under way or
    /// will begin in a moment: the next look writes it in the transaction in which it takes.
    pub(crate) fn book_errands(&mut self) {
        let looks = self.claims.brief && self.claims.looking.is_some() || self.looks_soon();
        if !self.session.state.working() || looks {
            return;
        }
        let (Some(link), Some(statements)) = (&mut self.links.queue, self.session.statements.clone()) else { return };
        if self.session.write_pause.pauses(Instant::now()) {
            return;
        }
        let Some(ends) = self.attempts.records.begin_booking() else { return };
        link.ask("writing results", ANSWER_TIMEOUT, move |client| {
            or_refused(Refused::Results, async move {
                Ok(Answer::Booked(unless_refused(ends.write(&client, &statements).await)?))
            })
        });
    }

    pub(crate) fn booked(&mut self, written: &[i64], now: Instant) {
        for ended in std::mem::take(&mut self.attempts.records.booking) {
            if written.contains(&ended.result.key.task) {
                shared::debug!(
                    "task finished",
                    task = ended.result.key.task,
                    failed = ended.result.state == EndState::Fail
                );
            } else {
                self.attempts.records.refused.push(ended);
                self.attempts.records.next_clerk.get_or_insert(now);
            }
        }
    }

    /// Results that could not be written with the others get a clerk each, as far as there are slots.
    pub(crate) fn send_clerks(&mut self, now: Instant) {
        if self.attempts.records.refused.is_empty()
            || !self.session.state.working()
            || self.attempts.records.next_clerk.is_some_and(|at| now < at)
        {
            return;
        }
        self.attempts.records.next_clerk = Some(now + RECORD_RETRY_PAUSE);
        let context = self.queue_context();
        while let Some(ended) = self.attempts.records.refused.pop() {
            let Some(slot) = self.base.start.region.slots().reserve() else {
                self.attempts.records.refused.push(ended);
                return;
            };
            let (task, attempt) = (ended.result.key.task, ended.result.key.attempt);
            self.base.start.region.expect_return(slot);
            self.base.start.region.expect_result(slot);
            let spawned = self.spawner.spawn_plain(
                (slot, Kind::Worker, &self.base.label),
                worker::run,
                |start| Assignment::record_retry(start, &context, &ended.row, &ended.result),
                &[],
            );
            match spawned {
                Ok(child) => {
                    let run = self.attempts.table.started_plain(task, attempt, child, slot, true);
                    self.attempts.records.clerks.insert(run, ended);
                }
                Err(error) => {
                    shared::error!("cannot start a worker", queue = self.base.label, task = task, error = error);
                    self.attempts.records.refused.push(ended);
                    return;
                }
            }
        }
    }

    /// The session is gone, and every answer with it: what was being written is written again (the fence makes that
    /// harmless).
    pub(crate) fn errands_lost(&mut self) {
        let booking = std::mem::take(&mut self.attempts.records.booking);
        self.attempts.records.handed.extend(booking);
    }
}

/// Whose results are written. What the database refuses is said, and leaves each of them to be tried alone; anything else
/// is the session's trouble.
pub fn unless_refused(written: Result<Vec<i64>, Trouble>) -> Result<Vec<i64>, Trouble> {
    written.or_else(|trouble| {
        if trouble.passes() {
            return Err(trouble);
        }
        shared::warning!("results cannot be written together; each is tried alone", error = trouble);
        Ok(Vec::new())
    })
}
