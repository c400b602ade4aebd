//! Serving the queue: what the scheduler asks the database, and what the answers lead to.
//!
//! Slots are reserved before rows are taken, so that no row is claimed that could not start. A row whose worker cannot
//! be forked, or that comes when the scheduler already stops, is settled back to PLAN like one whose worker died.

use crate::attempt::attempt_id::AttemptId;
use crate::attempt::attempt_table::ToSettle;
use crate::attempt::attempts::UnfinishedQuestion;
use crate::attempt::begin::Guest;
use crate::attempt::leftovers::Unfinished;
use crate::attempt::record::Begun;
use crate::attempt::settle::{Settlement, settle};
use crate::claim::pass::{Ask, Seen, Taken, look};
use crate::claim::poll_timer::{Looked, Pace};
use crate::command::Purpose;
use crate::command::Refused;
use crate::event_loop::{Answer, Scheduler};
use crate::limits::{ANSWER_TIMEOUT, FULL_PASS_PERIOD, LONGEST_GATHERING, MARKER_PERIOD, MEASURE_PERIOD, SWEEP_PERIOD};
use crate::pool::connection_pool::ToRetire;
use crate::session::session_state::SessionEvent;
use crate::session::start_gate::{UNINSTALLED, Verdict};
use crate::session::write_pause::or_refused;
use crate::table::defaults as column_defaults;
use crate::table::make::{self as queue, Measured, Readiness, Ready};
use crate::table::table_repair::Mended;
use shared::db::trouble::Trouble;
use shared::db::{lock_key, statement};
use shared::log::Level;
use shared::process::exit_code::ExitCode;
use shared::process::fault;
use shared::process::order::{WaitFor, WorkerOrder};
use shared::process::stopping::StopEvent;
use shared::region::{Kind, Phase, SlotHandle};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use worker::{Assignment, Connection};

impl Scheduler {
    pub(crate) fn answered(&mut self, answer: Answer, now: Instant) {
        match answer {
            Answer::Stood(verdict) => self.stood(verdict),
            Answer::Refused(what, trouble) => self.refused(what, &trouble, now),
            Answer::LeaderFound(proof) => self.leader_found(proof),
            Answer::Marker(marker) => self.marker_found(marker, now),
            Answer::Prepared(Readiness::HeldElsewhere) => self.session_event(SessionEvent::Refused { now }),
            Answer::Prepared(Readiness::OtherVersion(found)) => self.other_version(&found),
            Answer::Prepared(Readiness::OtherTable { former }) => self.other_table(former, now),
            Answer::Prepared(Readiness::NoTable { why }) => self.leave_without(ExitCode::NoQueue, &why),
            Answer::Prepared(Readiness::Ready(ready)) => self.prepared(*ready, now),
            Answer::Returned(locked) => {
                if self.attempts.returns.done(locked, now) {
                    self.claims.timer.hurry(now);
                }
            }
            Answer::Unfinished { claimed, purpose } => {
                let again = self.attempts.purpose != Purpose::default();
                self.attempts.unfinished = if again { UnfinishedQuestion::Wanted } else { UnfinishedQuestion::None };
                if purpose.sweep {
                    self.sweep(&claimed, now);
                }
                if purpose.adopt {
                    self.adopt(claimed, now);
                }
            }
            Answer::Rewritten { task, attempt, what } => self.rewritten(task, attempt, what),
            Answer::Seen(seen) => self.seen(*seen, now),
            Answer::Settings(settings) => self.apply(settings),
            Answer::Aligned(false) => self.table.mend_at = Some(now),
            Answer::Booked(written) => {
                self.booked(&written, now);
                self.written();
                // What was full may have room now.
                self.claims.timer.hurry(now);
            }
            Answer::Begun { asked, begun } => self.begun(&asked, &begun),
            Answer::Retired { backend, gone } => self.pool.retired(backend, gone, now),
            Answer::Named | Answer::Aligned(true) => {}
            Answer::Measured(Measured { rows, bytes, deleted }) => {
                self.base.notes().set_size(rows.max(0) as u64, bytes.max(0) as u64);
                if deleted > 0 {
                    shared::info!("old tasks deleted", queue = self.base.label, tasks = deleted);
                    // There may be more: a small batch at a time.
                    self.claims.next_chores = now;
                    self.claims.timer.hurry(now + Duration::from_millis(self.base.settings.sleep_ms));
                }
            }
            Answer::Job(answer) => {
                let commands = self.jobs_turn(|jobs, turn| jobs.answered(answer, turn, now));
                self.run_commands(commands, Answer::Job);
            }
            Answer::Graph(watched) => self.graph_watched(watched, now),
            Answer::Settled { run, task, settlement } => self.settled(run, task, settlement, now),
            Answer::Mended(mended) => self.table_mended(mended, now),
            Answer::Attended => self.admitted(),
            Answer::Upgraded(upgraded) => self.upgraded(&upgraded),
            Answer::Registered(Ok(access)) => self.has_catalog(access),
            Answer::Registered(Err(lack)) => self.lacks_catalog(lack, now),
        }
    }

    /// What was waited for is over: there is something to serve here, or there is not.
    fn stood(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Go { marker } => {
                // The next session waits for whatever is then in the way, not for this again.
                self.base.order.wait = WaitFor::default();
                self.mark(marker);
                self.session_event(SessionEvent::Admitted);
            }
            Verdict::Leave { code, why } => self.leave_without(code, &why),
        }
    }

    /// There is nothing to serve.
    fn leave_without(&mut self, code: ExitCode, why: &str) {
        self.base.notes().set_reason(why);
        shared::debug!("scheduler leaves", queue = self.base.label, why = why);
        self.stop.leave = Some(code);
    }

    /// Another table has the name that was our table's. What this process knows of tasks is by their ids, and those of the other
    /// table may be the same; so a new process takes it over.
    fn other_table(&mut self, former: Option<String>, now: Instant) {
        let former = former.as_deref().unwrap_or("dropped");
        shared::info!(
            "another table has the name of the queue; beginning anew",
            queue = self.base.label,
            former = former
        );
        self.stop.parting = Some(ExitCode::Asked);
        self.stop(StopEvent::Cancel { now });
    }

    fn mark(&mut self, marker: Option<u32>) {
        self.session.marker = marker;
        self.base.order.installed |= marker.is_some();
        self.base.notes().set_marker(marker.unwrap_or(0));
    }

    /// A catalog that went too quickly for anybody to see it go: what was said of it does not hold any more.
    fn marker_found(&mut self, marker: Option<u32>, now: Instant) {
        if marker == self.session.marker || self.stop.state.asked() {
            return;
        }
        match marker {
            // One that came later, by another row or by an operator.
            Some(_) if self.session.marker.is_none() => self.mark(marker),
            Some(_) => {
                shared::info!("the catalog is another one; beginning anew", queue = self.base.label);
                self.stop.parting = Some(ExitCode::Asked);
                self.stop(StopEvent::Cancel { now });
            }
            None => {
                self.base.notes().set_reason(UNINSTALLED);
                self.stop.parting = Some(ExitCode::NotInstalled);
                self.stop(StopEvent::Cancel { now });
            }
        }
    }

    fn prepared(&mut self, ready: Ready, now: Instant) {
        self.mark(ready.marker);
        self.table.served = Some(ready.statements.relid);
        if ready.superuser && !self.session.state.held_before {
            shared::warning!(
                "tasks of this queue run as a superuser; give the row a user of its own",
                queue = self.base.label
            );
        }
        self.base.notes().set_running(0, 0, ready.backend);
        self.session.statements = Some(ready.statements);
        self.settle_in(ready.home, ready.leader, now);
        self.session_event(SessionEvent::Prepared);
        self.apply(ready.settings);
        self.adopt(ready.unfinished, now);
        self.claims.timer.forget(now);
        self.claims.signs.clear();
        self.claims.next_chores = now;
        self.table.mend_at = ready.mends.then_some(now);
        match ready.access {
            Err(lack) => self.lacks_catalog(lack, now),
            Ok(access) => self.has_catalog(access),
        }
    }

    /// What is left for later is said once, and tried again ever more seldom.
    fn table_mended(&mut self, mended: Mended, now: Instant) {
        let Mended { done, later, failed } = mended;
        for why in failed {
            shared::warning!(
                "the table is served without something it should have",
                queue = self.base.label,
                why = why
            );
        }
        if !done.is_empty() {
            // Nobody may have rung before the triggers were there.
            self.claims.timer.hurry(now);
        }
        let steps = done.join(", ");
        match later {
            Some(why) => {
                if self.table.mend_pause.fresh() || !done.is_empty() {
                    let queue = &self.base.label;
                    shared::info!("the rest of the table is mended later", queue = queue, done = steps, why = why);
                }
                self.table.mend_at = Some(self.table.mend_pause.next(now));
            }
            None => {
                self.table.mend_pause.succeeded();
                if !done.is_empty() {
                    shared::info!("table mended", queue = self.base.label, steps = steps);
                }
            }
        }
    }

    /// The server's settings over the config's.
    pub(crate) fn apply(&mut self, from_server: Vec<(String, String)>) {
        let mut settings = self.base.order.settings.clone();
        for (name, text) in from_server {
            if let Err(why) = settings.set_from_server(&name, &text) {
                shared::warning!("a setting of the server is not used", queue = self.base.label, why = why);
            }
        }
        if settings != self.base.settings {
            shared::info!(
                "settings in force",
                queue = self.base.label,
                sleep_ms = settings.sleep_ms,
                run = settings.run
            );
        }
        let renamed = settings.sleep_ms != self.base.settings.sleep_ms;
        self.base.settings = settings;
        if renamed {
            self.name_session();
        }
        let now = Instant::now();
        self.attempts.next_sweep = now + self.sweep_pause();
        self.claims.timer.hurry(now);
    }

    /// A reload may change what the columns fall back to; without a session the next one sees to it.
    pub(crate) fn align_defaults(&mut self) {
        let (queue, defaults) = (self.base.queue.clone(), self.base.order.defaults.clone());
        if let (Some(link), true) = (&mut self.links.queue, self.session.state.working()) {
            link.ask("changing column defaults", ANSWER_TIMEOUT, |client| async move {
                Ok(Answer::Aligned(column_defaults::align(&client, &queue, &defaults).await?))
            });
        }
    }

    fn name_session(&mut self) {
        let (name, text) = (self.base.application_name(), statement::bare(statement::NAME_SESSION));
        if let Some(link) = &mut self.links.queue {
            link.ask("naming the session", ANSWER_TIMEOUT, |client| async move {
                client.query_one(&text, &[&name]).await.map_err(|error| Trouble::of(&error))?;
                Ok(Answer::Named)
            });
        }
    }

    /// Rows that were claimed and are nobody's: not one of our workers'.
    fn adopt(&mut self, unfinished: Vec<Unfinished>, now: Instant) {
        for Unfinished { task, attempt, backend } in unfinished {
            if !self.attempts.table.knows(task, attempt, backend) && !self.attempts.records.knows(task) {
                shared::info!("unfinished task found", queue = self.base.label, task = task);
                self.attempts.table.orphaned(task, attempt, now);
            }
        }
    }

    /// Claimed rows that nobody runs, whatever has left them so, and ends that were refused.
    fn sweep(&mut self, claimed: &[Unfinished], now: Instant) {
        let unwritten = self.attempts.table.still_unwritten(claimed);
        self.rewrite(unwritten);
        let (runs, errands, returns) = (&self.attempts.table, &self.attempts.records, &self.attempts.returns);
        let holds = |task, attempt| runs.holds(task, attempt) || errands.knows(task) || returns.knows(task, attempt);
        let nobodys = self.attempts.leftovers.judge(claimed, holds, |backend| runs.at_backend(backend));
        for (task, attempt) in nobodys {
            shared::info!("unfinished task found", queue = self.base.label, task = task);
            self.attempts.table.orphaned(task, attempt, now);
        }
    }

    /// Often enough that two looks come within a minute.
    pub(crate) fn sweep_pause(&self) -> Duration {
        SWEEP_PERIOD.min(Duration::from_millis(self.base.settings.reset_ms))
    }

    pub(crate) fn ask_unfinished(&mut self) {
        let pauses = self.session.write_pause.pauses(Instant::now());
        if self.attempts.unfinished != UnfinishedQuestion::Wanted
            || self.claims.looking.is_some()
            || pauses
            || !self.session.state.working()
        {
            return;
        }
        if let (Some(link), Some(statements)) = (&mut self.links.queue, self.session.statements.clone()) {
            self.attempts.unfinished = UnfinishedQuestion::InFlight;
            let purpose = std::mem::take(&mut self.attempts.purpose);
            link.ask("unfinished tasks", ANSWER_TIMEOUT, move |client| {
                or_refused(Refused::Unfinished(purpose), async move {
                    Ok(Answer::Unfinished { claimed: queue::unfinished(&client, &statements).await?, purpose })
                })
            });
        }
    }

    /// A look that was hurried begins in a moment, and nothing stands in its way.
    pub(crate) fn looks_soon(&self) -> bool {
        let idle = self.claims.looking.is_none()
            && self.attempts.unfinished == UnfinishedQuestion::None
            && !self.stop.state.asked();
        self.claims.timer.is_hurried()
            && idle
            && self.base.start.region.leads()
            && self.claims.timer.next_look() <= Instant::now() + LONGEST_GATHERING
    }

    /// Slots first, then as many rows. While tasks come and go by themselves, most looks only take.
    pub(crate) fn start_look(&mut self) {
        let now = Instant::now();
        let leads = self.base.start.region.leads();
        let idle = leads && self.claims.looking.is_none() && !self.stop.state.asked() && self.session.state.working();
        let idle = idle && self.leader_is_here();
        if self.attempts.unfinished != UnfinishedQuestion::None || !idle || now < self.claims.timer.next_look() {
            return;
        }
        let unasked = self.claims.timer.unasked();
        let arm = self.claims.timer.begin(now);
        let running = (self.attempts.table.len() + self.attempts.records.waiting())
            .saturating_sub(self.attempts.remotes.unknown());
        let may_run = (self.base.settings.run as usize).saturating_sub(running);
        let (seats, taken) = self.base.start.region.seats();
        let seats = seats.saturating_sub(taken) as usize + self.pool.to_be_had(now);
        let room = self.room(now);
        let count =
            may_run.min(self.base.settings.limit as usize).min(self.base.settings.fetch as usize).min(seats).min(room);
        let slots = self.reserve(count);
        let wanted = [
            (lock_key::NO_SLOT, seats > 0 && room > 0 && slots.is_empty()),
            (lock_key::NO_CONNECTION, seats == 0 || room == 0 || !self.claims.stumbling.fresh()),
        ];
        let signs: Vec<(i32, bool)> =
            wanted.into_iter().filter(|(kind, on)| self.claims.signs.contains(kind) != *on).collect();
        self.claims.signs = wanted.into_iter().filter(|(_, on)| *on).map(|(kind, _)| kind).collect();
        if self.base.settings.lend {
            self.claims.promised = slots.iter().map_while(|_| self.pool.promise(now)).collect();
        }
        let jobs = self.jobs.ask(now, slots.len());
        let hasty =
            signs.is_empty() && !slots.is_empty() && !jobs.as_ref().is_some_and(|jobs| jobs.start || jobs.stale);
        self.claims.brief = unasked && hasty && now < self.claims.next_thorough;
        if !self.claims.brief {
            self.claims.next_thorough = now + FULL_PASS_PERIOD;
        }
        let count = slots.len();
        if count == 0 {
            self.book_errands();
        }
        self.claims.looking = Some(slots);
        self.claims.looked_at = now;
        let (Some(link), Some(statements)) = (&mut self.links.queue, self.session.statements.clone()) else {
            self.release_reserved();
            return;
        };
        let known: Vec<_> = self.attempts.table.known().into_iter().chain(self.attempts.records.known()).collect();
        let plain = self.claims.brief
            && self.attempts.table.len() == self.attempts.records.under_way()
            && self.claims.promised.len() == count;
        let ask = Ask {
            only: self.claims.only.clone().filter(|only| plain && known.iter().all(|(_, group)| group == only)),
            ends: if count > 0 { self.attempts.records.begin_booking() } else { None },
            signs,
            count,
            disarm: self.claims.timer.armed(),
            arm,
            brief: self.claims.brief,
            cursor: self.claims.cursor,
            running: self.attempts.table.running().into_iter().chain(self.attempts.records.begun()).collect(),
            known,
            idle_backends: self.pool.idle_backends(),
            lent: self.claims.promised.clone(),
            // Behind a pooler nobody but the server knows the number of the backend.
            hands_down: !self.base.settings.lend && !self.base.order.target.late_settings,
            lends: self.base.settings.lend,
            session_defaults: self.pool.session_defaults(),
            jobs,
        };
        let prepared = statements.clone();
        link.ask("looking for tasks", ANSWER_TIMEOUT, move |client| {
            or_refused(Refused::Look, async move { Ok(Answer::Seen(Box::new(look(client, prepared, ask).await?))) })
        });
        if now >= self.session.next_marker {
            self.session.next_marker = now + MARKER_PERIOD;
            let statements = statements.clone();
            link.ask("looking for the catalog", ANSWER_TIMEOUT, move |client| async move {
                let row = client.query_opt(&statements.find_marker, &[]).await.map_err(|error| Trouble::of(&error))?;
                Ok(Answer::Marker(row.map(|row| row.get("marker"))))
            });
        }
        if now >= self.claims.next_chores {
            self.claims.next_chores = now + MEASURE_PERIOD;
            let keep_ms = self.base.settings.keep_ms;
            link.ask("measuring the queue", ANSWER_TIMEOUT, move |client| {
                or_refused(Refused::Chore, async move {
                    Ok(Answer::Measured(queue::chores(&client, &statements, keep_ms).await?))
                })
            });
        }
    }

    /// As many slots as there are, at most `count`. None at all: says so in the notes, and only then looks for the
    /// last time, so that a slot that comes free meanwhile is either seen here or brings a ring.
    fn reserve(&mut self, count: usize) -> Vec<SlotHandle> {
        let counter = self.base.start.region.slots();
        let hungry = self.hungry();
        let reserve = || {
            let few = count.min((counter.for_workers() as usize).saturating_sub(hungry));
            std::iter::from_fn(|| counter.reserve()).take(few).collect::<Vec<SlotHandle>>()
        };
        let notes = counter.notes(self.base.start.slot);
        let mut slots = reserve();
        if slots.is_empty() && count > 0 {
            notes.set_wants_slot(true);
            slots = reserve();
        }
        let wants = slots.is_empty() && count > 0;
        notes.set_wants_slot(wants);
        self.claims.wants_slot = wants;
        if wants {
            self.say_running();
        }
        slots
    }

    /// So many slots are left to others: a queue that wants one and has none comes before one that has some.
    fn hungry(&self) -> usize {
        if self.attempts.table.len() == 0 {
            return 0;
        }
        let slots = self.base.start.region.slots();
        let holders = slots.holders();
        let served: Vec<Option<u32>> = holders
            .iter()
            .map(|holder| slots.notes(holder.handle))
            .filter(|notes| notes.kind() == Some(Kind::Worker))
            .map(|notes| notes.parent())
            .collect();
        let own = self.base.start.slot.index();
        let waits = |slot: SlotHandle| {
            slot.index() != own && slots.notes(slot).wants_slot() && !served.contains(&Some(slot.index()))
        };
        holders.iter().filter(|holder| waits(holder.handle)).count()
    }

    /// The launcher rings those who wait for what we have given back; only it may signal its children.
    pub(crate) fn offer_slots(&mut self) {
        if !std::mem::take(&mut self.claims.freed) {
            return;
        }
        let slots = self.base.start.region.slots();
        let own = self.base.start.slot.index();
        let wanted = |slot: SlotHandle| slot.index() != own && slots.notes(slot).wants_slot();
        let somebody = || slots.wanted() > 0 || slots.holders().iter().any(|holder| wanted(holder.handle));
        if slots.used() < slots.limit() && somebody() {
            self.base.start.ring_parent();
        }
    }

    /// In the notes: the queue is served, whatever is due.
    fn say_running(&self) {
        let notes = self.base.notes();
        if notes.phase() == Some(Phase::Waiting) {
            notes.set_phase(Phase::Running);
            self.base.start.ring_parent();
        }
    }

    fn seen(&mut self, seen: Seen, now: Instant) {
        let mut slots = self.claims.looking.take().unwrap_or_default();
        let asked = slots.len();
        if !seen.taken.is_empty() || seen.written.is_some() || self.attempts.records.is_empty() {
            self.written();
        }
        self.claims.cursor = seen.cursor;
        self.claims.only = seen.only_group().or_else(|| self.claims.only.take().filter(|_| seen.taken.is_empty()));
        if let Some(written) = &seen.written {
            // The take has seen the room that they made.
            self.booked(written, now);
        }
        if let Some(why) = &seen.jobs_failed {
            self.jobs.failed(why, &self.base.label, now);
        }
        let due = seen.pulse.and_then(|pulse| self.jobs.pulsed(pulse, asked, &self.base.label, now));
        let pace = Pace { sleep: Duration::from_millis(self.base.settings.sleep_ms), idle: self.base.settings.idle };
        let looked = Looked {
            now,
            full: asked > 0 && seen.taken.len() >= asked,
            room: self.base.start.region.slots().for_workers() > 0,
            found: !seen.taken.is_empty(),
            brief: self.claims.brief,
            armed: seen.armed,
            refused: seen.refused,
            busy: seen.busy,
            next_plan: [seen.next_plan, due].into_iter().flatten().min(),
        };
        self.claims.timer.looked(looked, pace);
        if asked > 0 {
            self.claims.backlog = looked.full;
        }
        if !self.claims.brief {
            // What is planned is released when it is due, however much comes and goes.
            let planned = looked.next_plan.map(|plan| now + plan);
            self.claims.next_thorough = planned.into_iter().fold(self.claims.next_thorough, Instant::min);
        } else if !looked.found {
            // Whether there is nothing left, and when there will be, is for a look that sees to everything.
            self.claims.next_thorough = now;
            self.claims.timer.hurry(now);
        }
        fault::point("scheduler.after_take");
        self.say_running();
        for unwanted in &seen.unwanted {
            self.attempts.table.drop_unwanted(*unwanted);
            self.attempts.returns.add(self.attempts.table.batch_around(*unwanted), now);
            if let Some(begun) = self.attempts.records.withdraw(*unwanted) {
                self.give_slot_back(begun.slot);
                self.never_started(begun.row.task, begun.row.attempt, Some(begun.backend), now);
            }
        }
        let leads = self.base.start.region.leads();
        let starts = leads && !self.stop.state.asked();
        let begun: Vec<i32> = seen.taken.iter().filter_map(|row| Some(row.begun.as_ref()?.0)).collect();
        for backend in std::mem::take(&mut self.claims.promised).into_iter().filter(|backend| !begun.contains(backend))
        {
            self.pool.unpromise(backend);
        }
        if let Some(defaults) = seen.session_defaults {
            self.pool.begin_with(defaults);
        }
        let mut errands = Vec::new();
        for row in seen.taken {
            let wanted = !seen.unwanted.contains(&(row.task, row.attempt));
            match (slots.pop(), row) {
                (Some(slot), Taken { begun: Some((backend, row)), group, .. }) if wanted => {
                    let server = self.session.home.name();
                    errands.push(Begun { row: Rc::from(row), group, slot, backend, server });
                }
                (Some(slot), Taken { task, attempt, handed: Some(row), group, .. })
                    if starts && !self.base.settings.lend =>
                {
                    self.start_guest(Guest::new(task, attempt, Rc::from(row), group, slot), now);
                }
                (Some(slot), row) if starts => self.start_worker(row, slot, now),
                (slot, Taken { task, attempt, begun, .. }) => {
                    slots.extend(slot);
                    self.never_started(task, attempt, begun.map(|(backend, _)| backend), now);
                }
            }
        }
        self.attempts.records.wait(errands);
        self.claims.looking = Some(slots);
        self.release_reserved();
    }

    /// A row that was taken, and perhaps begun on a connection, has no worker.
    pub(crate) fn never_started(&mut self, task: i64, attempt: i32, backend: Option<i32>, now: Instant) {
        if let Some(backend) = backend {
            self.pool.unpromise(backend);
        }
        self.attempts.table.orphaned(task, attempt, now);
    }

    pub(crate) fn start_worker(&mut self, row: Taken, slot: SlotHandle, now: Instant) {
        let (pooled, offer_to) = if self.base.settings.lend { self.pool.checkout() } else { Default::default() };
        self.base.start.region.expect_return(slot);
        self.base.start.region.expect_result(slot);
        // A connection that was told a group bears its name for ever: only where tasks of it will follow each other.
        let batches = self.base.settings.batch && row.reuse && row.job.is_none();
        let plain = batches && self.base.order.schema.is_ascii() && self.base.order.table.is_ascii();
        let group = if plain { row.group.plain_name() } else { None };
        let order = WorkerOrder { group, ..self.worker_order(row.task, row.attempt) };
        let inherited = pooled.as_ref().map(|(lent, _)| lent.backend);
        let connection = match &pooled {
            Some((description, socket)) => Connection::Pooled { description, socket },
            None => Connection::Own { offer_to: offer_to.as_ref() },
        };
        let kept: Vec<RawFd> =
            pooled.iter().map(|(_, socket)| socket).chain(&offer_to).map(AsRawFd::as_raw_fd).collect();
        let spawned = self.spawner.spawn_with(
            (slot, Kind::Worker, &self.base.label),
            &order,
            worker::run,
            |start| Assignment::in_cell(start, connection),
            &kept,
        );
        match spawned {
            Ok(worker) => {
                if let Some(backend) = inherited {
                    self.pool.lent(backend, slot);
                }
                shared::debug!("worker started", queue = self.base.label, task = row.task, pid = worker.0.pid());
                let ack_by = now + Duration::from_millis(self.base.settings.close_ms);
                let run = self.attempts.table.started(row.task, row.attempt, worker, slot, ack_by);
                self.attempts.table.set_group(run, row.group.clone());
                if let Some(job) = row.job {
                    self.jobs.claimed(run, job, (row.task, row.attempt), &self.base.label, now);
                }
            }
            Err(error) => self.not_started(row.task, row.attempt, &error.to_string(), now),
        }
    }

    /// Ends the backends of connections that are not trusted any more.
    pub(crate) fn retire(&mut self, now: Instant) {
        let (Some(link), Some(statements), true) =
            (&mut self.links.queue, &self.session.statements, self.session.state.working())
        else {
            return;
        };
        for ToRetire { backend, began } in self.pool.due_for_retirement(now) {
            let statements = statements.clone();
            link.ask("retiring a connection", ANSWER_TIMEOUT, move |client| {
                or_refused(Refused::Retirement(backend), async move {
                    let rows = client.query(&statements.retire, &[&backend, &began]).await;
                    let gone = rows.map_err(|error| Trouble::of(&error))?.is_empty();
                    Ok(Answer::Retired { backend, gone })
                })
            });
        }
    }

    /// Plans again what workers have taken in batches and will not send.
    pub(crate) fn give_back(&mut self, now: Instant) {
        let (Some(link), Some(statements), true) =
            (&mut self.links.queue, &self.session.statements, self.session.state.working())
        else {
            return;
        };
        if self.session.write_pause.pauses(now) {
            return;
        }
        let Some(tasks) = self.attempts.returns.begin(now) else { return };
        let statements = statements.clone();
        link.ask("giving tasks of a batch back", ANSWER_TIMEOUT, move |client| {
            or_refused(Refused::Returns, async move {
                let (tasks, attempts): (Vec<i64>, Vec<i32>) = tasks.into_iter().unzip();
                let rows = client.query(&statements.return_batch, &[&tasks, &attempts]).await;
                let rows = rows.map_err(|error| Trouble::of(&error))?;
                Ok(Answer::Returned(rows.iter().map(|row| (row.get("id"), row.get("attempt"))).collect()))
            })
        });
    }

    /// Puts the questions about tasks whose workers are gone; without a session they are put again later.
    pub(crate) fn put(&mut self, questions: Vec<ToSettle>, now: Instant) {
        for ToSettle { run, task, attempt, terminate, patient, why, death } in questions {
            let mut strangers = self.pool.strangers_to(task, |slot| self.attempts.table.task_in(slot));
            strangers.extend(self.attempts.table.busy_elsewhere(task));
            match (&mut self.links.queue, self.session.statements.clone()) {
                (Some(link), Some(statements))
                    if self.session.state.working() && !self.session.write_pause.pauses(now) =>
                {
                    link.ask("settling a task", ANSWER_TIMEOUT, move |client| {
                        or_refused(Refused::Settlement(run), async move {
                            let (named, how, why) = ((task, attempt), (terminate, patient), (why, death));
                            let settlement = settle(&client, &statements.settle, named, strangers, how, why).await?;
                            Ok(Answer::Settled { run, task, settlement })
                        })
                    });
                }
                _ => self.attempts.table.unsettled(run, now),
            }
        }
    }

    fn settled(&mut self, run: AttemptId, task: i64, settlement: Settlement, now: Instant) {
        match settlement {
            Settlement::StillRunning => self.attempts.table.unsettled(run, now),
            Settlement::Refused(error) => {
                if self.attempts.table.refused(run, now + SWEEP_PERIOD) {
                    shared::warning!(
                        "a task that nobody runs cannot be settled",
                        queue = self.base.label,
                        task = task,
                        error = error
                    );
                }
            }
            Settlement::Elsewhere(lead) => self.look_elsewhere(run, lead, now),
            Settlement::PlannedAgain => {
                self.found(run, task);
                // While no worker can begin, all tasks come back again and again, and the reason has been said.
                let said = self.claims.stumbled || self.claims.process_limit.reason().is_some();
                let level = if said { Level::Debug } else { Level::Info };
                shared::log_line!(level, "task planned again", queue = self.base.label, task = task);
                self.attempts.table.settled(run);
                if self.claims.stumbling.fresh() {
                    self.claims.timer.hurry(now);
                }
            }
            Settlement::Delayed { crashes, wait } => {
                self.found(run, task);
                let how = self.attempts.table.death(run).map(|death| death.to_string()).unwrap_or_default();
                let queue = &self.base.label;
                shared::warning!(
                    "task crashed; planned again",
                    queue = queue,
                    task = task,
                    how = how,
                    in_a_row = crashes,
                    wait_s = wait
                );
                self.attempts.table.settled(run);
                self.claims.timer.hurry(now);
            }
            Settlement::Spent => {
                self.found(run, task);
                let how = self.attempts.table.death(run).map(|death| death.to_string()).unwrap_or_default();
                shared::warning!("task failed: it crashed too often", queue = self.base.label, task = task, how = how);
                self.attempts.table.settled(run);
                self.claims.timer.hurry(now);
            }
            Settlement::Closed => {
                self.found(run, task);
                shared::info!("run of a job closed", queue = self.base.label, task = task);
                self.attempts.table.settled(run);
                self.claims.timer.hurry(now);
            }
            Settlement::NotOurs => {
                self.found(run, task);
                self.attempts.table.settled(run);
                // Its worker may have died while the server still finished it and took the next one for it.
                self.ask_unfinished();
            }
        }
    }

    pub(crate) fn release_reserved(&mut self) {
        for backend in std::mem::take(&mut self.claims.promised) {
            self.pool.unpromise(backend);
        }
        for slot in self.claims.looking.take().unwrap_or_default() {
            self.base.start.region.slots().release(slot);
            self.claims.freed = true;
        }
    }
}
