//! One pass over the graph: timers that are due fire, jobs without input end, back-fills go on a little, and when nothing
//! is left, the catalog's wake-up lock is held.
//!
//! It runs on a session of its own, so that the queue's pass never waits for it. The next times are computed here, and the
//! server takes them only if the timers are still as they were; timers that are due together fire in one transaction, and
//! one by one if the server refuses that. Live timers come first, then jobs without input, then a few times of each
//! back-fill. A timer that the server refuses is left alone for a while and said; a deadlock is simply tried again.

use crate::graph::backfill::{self as range, BackfillRange, Order};
use crate::graph::timer_queue::{self, CatchUp, NextTimer, Stale, Timer, TimerColumns, TimerStep};
use shared::calendar::{self, Moment};
use shared::db::db_error::DbError;
use shared::db::lock_key;
use shared::db::statement;
use shared::process::fault;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Row, Statement};

/// Timers that are asked for, and fired in one go.
const TIMERS: i32 = 1024;
/// Jobs without input that are ended in one transaction.
const IDLE_RUNS: i32 = 256;
/// Back-fills that take their turn in one round, and times of each in one transaction: the first, and the most while that
/// is quick.
const BACKFILLS: i32 = 8;
const CHUNK: usize = 16;
const CHUNK_MOST: usize = 128;
/// Back-fills, and jobs without input, give way after this long: live timers are looked at.
const FILLING: Duration = Duration::from_millis(50);
/// A pass gives way after this long; what is left is for the next one.
const TURN: Duration = Duration::from_millis(500);
/// Old tokens that are swept at once.
const SWEEP: i32 = 1000;

/// The statements of a session.
#[derive(Debug)]
pub struct GraphStatements {
    list_timers: Statement,
    set_timers: Statement,
    fire: Statement,
    idle_runs: Statement,
    list_backfills: Statement,
    fill_back: Statement,
    stop_backfill: Statement,
    read: Statement,
    sweep: Statement,
    lock: Statement,
    unlock: Statement,
}

/// What a pass is to do.
#[derive(Clone, Debug, Default)]
pub struct GraphAsk {
    /// The wake-up lock is held from before.
    pub armed: bool,
    /// Old tokens are due to be swept.
    pub sweep: bool,
    /// Timers that failed a moment ago.
    pub except_for: Vec<i32>,
}

/// What it came to.
#[derive(Debug, Default)]
pub struct GraphPassed {
    /// There is something of the graph: timers, idle runs, back-fills.
    pub used: bool,
    pub armed: bool,
    /// More is to be done right now.
    pub more: bool,
    /// More is to be swept soon.
    pub sweep_on: bool,
    pub next_due: Option<Duration>,
    pub activated: u64,
    pub skipped: Vec<(String, u64)>,
    /// A timer or back-fill, by name, and what the server says to it.
    pub refused: Vec<(Option<i32>, String, DbError)>,
}

/// Prepares a session: it listens to the catalog's channel.
pub async fn prepare(client: &Client) -> Result<GraphStatements, DbError> {
    let text = async |text: &str| client.prepare(text).await.map_err(|error| DbError::of(&error));
    client.batch_execute("LISTEN mill_0").await.map_err(|error| DbError::of(&error))?;
    Ok(GraphStatements {
        list_timers: text(&statement::bare(statement::LIST_TIMERS)).await?,
        set_timers: text(&statement::bare(statement::SET_TIMERS)).await?,
        fire: text(&statement::bare(statement::FIRE_TIMERS)).await?,
        idle_runs: text(&statement::bare(statement::END_IDLE_RUNS)).await?,
        list_backfills: text(&statement::bare(statement::LIST_BACKFILLS)).await?,
        fill_back: text(&statement::bare(statement::FILL_BACK)).await?,
        stop_backfill: text(&statement::bare(statement::STOP_BACKFILL)).await?,
        read: text(&statement::bare(statement::READ_GRAPH)).await?,
        sweep: text(&statement::bare(statement::SWEEP_GRAPH)).await?,
        lock: text(&statement::bare(statement::LOCK_SIGN)).await?,
        unlock: text(&statement::bare(statement::UNLOCK_SIGN)).await?,
    })
}

pub async fn pass(client: Rc<Client>, statements: Rc<GraphStatements>, ask: GraphAsk) -> Result<GraphPassed, DbError> {
    let mut round = Round { client, statements, except_for: ask.except_for, passed: GraphPassed::default() };
    if ask.armed {
        round.sign_wakeup(false).await?;
    }
    let began = Instant::now();
    loop {
        // A timer that fires every second may be several behind: none is due before anything else has its turn.
        let mut worked = false;
        while began.elapsed() < TURN && round.timers().await? {
            worked = true;
        }
        worked |= round.idle_runs().await? | round.backfills().await?;
        if worked && began.elapsed() < TURN {
            continue;
        }
        round.passed.more = worked;
        break;
    }
    if ask.sweep {
        let swept = round.number("sweeping", &round.statements.clone().sweep, &[&SWEEP]).await?;
        round.passed.sweep_on = swept.is_some_and(|swept| swept >= SWEEP);
    }
    if !round.passed.more {
        round.arm().await?;
    }
    Ok(round.passed)
}

struct Round {
    client: Rc<Client>,
    statements: Rc<GraphStatements>,
    except_for: Vec<i32>,
    passed: GraphPassed,
}

type GraphValues<'a> = &'a [&'a (dyn tokio_postgres::types::ToSql + Sync)];

impl Round {
    /// New and edited timers get their next time, due ones fire. True: there were some.
    async fn timers(&mut self) -> Result<bool, DbError> {
        let rows = self.many(&self.statements.list_timers, &[&TIMERS, &self.except_for]).await?;
        if rows.is_empty() {
            return Ok(false);
        }
        fault::point("scheduler.before_fire");
        let (mut reckoned, mut moves) = (Vec::new(), Vec::new());
        for row in &rows {
            match judge(row) {
                Ok(Judged::Next(next)) => reckoned.push(next),
                Ok(Judged::Moves(fire)) => moves.push(fire),
                Ok(Judged::Nothing) => {}
                Err(db_error) => {
                    let (id, name): (i32, String) = (row.get("id"), row.get("name"));
                    self.refuse(Some(id), format!("timer {name}"), db_error)?;
                }
            }
        }
        if !reckoned.is_empty() && self.set_timers(&reckoned).await.is_err() {
            for timer in &reckoned {
                if let Err(db_error) = self.set_timers(std::slice::from_ref(timer)).await {
                    self.refuse(Some(timer.id), format!("timer {}", timer.name), db_error)?;
                }
            }
        }
        if let Err(db_error) = self.fire(&moves).await {
            // One that the server refuses keeps no other from firing.
            if self.client.is_closed() || moves.len() == 1 {
                self.refuse(moves.first().map(|fire| fire.id), moves[0].what(), db_error)?;
                return Ok(true);
            }
            for fire in &moves {
                if let Err(db_error) = self.fire(std::slice::from_ref(fire)).await {
                    self.refuse(Some(fire.id), fire.what(), db_error)?;
                }
            }
        }
        Ok(true)
    }

    async fn set_timers(&self, timers: &[Reckoned]) -> Result<(), DbError> {
        let ids: Vec<i32> = timers.iter().map(|timer| timer.id).collect();
        let revisions: Vec<i32> = timers.iter().map(|timer| timer.revision).collect();
        let (nexts, dues): (Vec<_>, Vec<_>) = timers.iter().map(|timer| split(timer.next)).unzip();
        let db_errors: Vec<Option<&str>> = timers.iter().map(|timer| timer.db_error.as_deref()).collect();
        self.one(&self.statements.set_timers, &[&ids, &revisions, &nexts, &dues, &db_errors]).await.map(|_| ())
    }

    /// In one transaction. What is not as it was, or somebody else's just now, is for the next round.
    async fn fire(&mut self, moves: &[Fire]) -> Result<(), DbError> {
        if moves.is_empty() {
            return Ok(());
        }
        let ids: Vec<i32> = moves.iter().map(|fire| fire.id).collect();
        let revisions: Vec<i32> = moves.iter().map(|fire| fire.revision).collect();
        let expected: Vec<Option<Moment>> = moves.iter().map(|fire| fire.expected).collect();
        let fires: Vec<Option<Moment>> = moves.iter().map(|fire| fire.step.fires).collect();
        let (nexts, dues): (Vec<_>, Vec<_>) = moves.iter().map(|fire| split(fire.step.next)).unzip();
        let count = |fire: &Fire| i64::try_from(fire.step.skipped).unwrap_or(i64::MAX);
        let skipped: Vec<i64> = moves.iter().map(count).collect();
        let (los, his): (Vec<_>, Vec<_>) = moves.iter().map(|fire| fire.step.range.unzip()).unzip();
        let values: GraphValues<'_> = &[&ids, &revisions, &expected, &fires, &nexts, &dues, &skipped, &los, &his];
        let row = self.one(&self.statements.fire, values).await?;
        let (fired, activated): (Vec<i32>, i32) = (row.get("fired"), row.get("activated"));
        self.passed.activated += u64::try_from(activated).unwrap_or(0);
        for fire in moves.iter().filter(|fire| fire.step.skipped > 0 && fired.contains(&fire.id)) {
            self.passed.skipped.push((fire.name.clone(), fire.step.skipped));
        }
        Ok(())
    }

    /// Level by level, while that is quick. True: there were some.
    async fn idle_runs(&mut self) -> Result<bool, DbError> {
        let began = Instant::now();
        let mut worked = false;
        while let Some(1..) =
            self.number("jobs without input", &self.statements.clone().idle_runs, &[&IDLE_RUNS]).await?
        {
            worked = true;
            if began.elapsed() >= FILLING {
                break;
            }
        }
        Ok(worked)
    }

    /// Each back-fill that may goes on a little.
    async fn backfills(&mut self) -> Result<bool, DbError> {
        let rows = self.many(&self.statements.list_backfills, &[&BACKFILLS]).await?;
        let mut worked = false;
        for row in &rows {
            let number: i32 = row.get("id");
            match self.fill_back(row, number).await {
                Ok(filled) => worked |= filled,
                Err(db_error) => self.refuse(None, format!("back-fill {number}"), db_error)?,
            }
        }
        Ok(worked)
    }

    /// As many of its times as the window lets through, and, while that is quick, what has no input is over at once, and
    /// the next ones have room.
    async fn fill_back(&mut self, row: &Row, number: i32) -> Result<bool, DbError> {
        let order = match row.get::<_, &str>("order") {
            "latest" => Order::Latest,
            "random" => Order::Random,
            _ => Order::Earliest,
        };
        let mut range = BackfillRange {
            number,
            lo: get(row, "lo")?,
            hi: get(row, "hi")?,
            order,
            at: get(row, "at")?,
            span: row.get("span"),
            pos: row.get("pos"),
        };
        let schedule = columns(row).and_then(|columns| columns.schedule().map_err(unreckoned));
        let mut fired: i64 = row.get("fired");
        let began = Instant::now();
        let (mut worked, mut most) = (false, CHUNK);
        loop {
            let chunk = schedule
                .as_ref()
                .map_err(DbError::clone)
                .and_then(|schedule| range::chunk(schedule, &range, most).map_err(unreckoned));
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(db_error) => {
                    // Nobody can go on with it; its row says why.
                    let values: GraphValues<'_> = &[&number, &db_error.text];
                    self.many(&self.statements.stop_backfill, values).await?;
                    return Err(db_error);
                }
            };
            let values: GraphValues<'_> = &[&number, &fired, &chunk.times, &chunk.spans, &chunk.positions, &chunk.ends];
            let asked = Instant::now();
            let answer: Option<i32> = self.one(&self.statements.fill_back, values).await?.get(0);
            if asked.elapsed() < FILLING / 4 {
                most = (most * 2).min(CHUNK_MOST);
            }
            fault::point("scheduler.after_backfill");
            let Some(last) = answer.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_sub(1)) else { break };
            worked = true;
            if chunk.ends && last + 1 == chunk.times.len() {
                break;
            }
            range.at = chunk.times.get(last).copied();
            (range.span, range.pos) = (chunk.spans[last], chunk.positions[last]);
            fired += last as i64 + 1;
            self.idle_runs().await?;
            if began.elapsed() >= FILLING {
                break;
            }
        }
        Ok(worked)
    }

    /// Nothing is left: the wake-up lock is taken and, in a later statement, everything looked at once more.
    async fn arm(&mut self) -> Result<(), DbError> {
        let armed = self.sign_wakeup(true).await?;
        let row = self.one(&self.statements.read, &[&self.except_for]).await?;
        let due: Option<f64> = row.get("due_ms");
        self.passed.used = row.get("used");
        self.passed.armed = armed;
        self.passed.next_due = due.map(|ms| Duration::from_millis(ms.max(0.0) as u64));
        if row.get("idle") || due.is_some_and(|ms| ms <= 0.0) {
            self.passed.more = true;
            if armed {
                self.sign_wakeup(false).await?;
                self.passed.armed = false;
            }
        }
        Ok(())
    }

    async fn sign_wakeup(&self, hold: bool) -> Result<bool, DbError> {
        let statement = if hold { &self.statements.lock } else { &self.statements.unlock };
        Ok(self.one(statement, &[&lock_key::WAKE_UP, &0u32]).await?.get("done"))
    }

    /// An error of one thing is not the session's, unless the session is gone.
    fn refuse(&mut self, timer: Option<i32>, what: String, db_error: DbError) -> Result<(), DbError> {
        if self.client.is_closed() {
            return Err(db_error);
        }
        self.except_for.extend(timer);
        self.passed.refused.push((timer, what, db_error));
        Ok(())
    }

    /// A statement that answers with one number; None: the server refused it, and that is said.
    async fn number(
        &mut self,
        what: &str,
        statement: &Statement,
        values: GraphValues<'_>,
    ) -> Result<Option<i32>, DbError> {
        match self.client.query_one(statement, values).await {
            Ok(row) => Ok(Some(row.get(0))),
            Err(error) => {
                self.refuse(None, what.to_owned(), DbError::of(&error))?;
                Ok(None)
            }
        }
    }

    async fn one(&self, statement: &Statement, values: GraphValues<'_>) -> Result<Row, DbError> {
        self.client.query_one(statement, values).await.map_err(|error| DbError::of(&error))
    }

    async fn many(&self, statement: &Statement, values: GraphValues<'_>) -> Result<Vec<Row>, DbError> {
        self.client.query(statement, values).await.map_err(|error| DbError::of(&error))
    }
}

/// The next time of a timer that was new or edited.
struct Reckoned {
    id: i32,
    name: String,
    revision: i32,
    next: Option<NextTimer>,
    db_error: Option<String>,
}

/// What a timer that is due does now, if it is as it was.
struct Fire {
    id: i32,
    name: String,
    revision: i32,
    expected: Option<Moment>,
    step: TimerStep,
}

impl Fire {
    fn what(&self) -> String {
        format!("timer {}", self.name)
    }
}

enum Judged {
    Next(Reckoned),
    Moves(Fire),
    Nothing,
}

fn judge(row: &Row) -> Result<Judged, DbError> {
    let (id, revision, now): (i32, i32, Moment) = (row.get("id"), row.get("revision"), get(row, "now")?);
    let timer = timer(row)?;
    let stale = match row.get::<_, Option<&str>>("stale") {
        Some("new") => Some(Stale::New),
        Some(_) => Some(Stale::Edited),
        None => None,
    };
    if let Some(stale) = stale {
        let (next, db_error) = match timer_queue::next_time(&timer, stale, now) {
            Ok(next) => (next, None),
            Err(error) => (None, Some(error.to_string())),
        };
        return Ok(Judged::Next(Reckoned { id, name: row.get("name"), revision, next, db_error }));
    }
    Ok(match timer_queue::step(&timer, now).map_err(unreckoned)? {
        Some(step) => Judged::Moves(Fire { id, name: row.get("name"), revision, expected: timer.next, step }),
        None => Judged::Nothing,
    })
}

fn split(next: Option<NextTimer>) -> (Option<Moment>, Option<Moment>) {
    (next.map(|next| next.time), next.map(|next| next.due))
}

fn unreckoned(error: calendar::Error) -> DbError {
    DbError::standing(error.to_string())
}

/// A column that may hold what cannot be reckoned with (a time beyond all calendars).
fn get<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, name: &str) -> Result<T, DbError> {
    row.try_get(name).map_err(|error| DbError::standing(format!("cannot read its {name}: {error}")))
}

fn columns(row: &Row) -> Result<TimerColumns, DbError> {
    Ok(TimerColumns {
        start: get(row, "start")?,
        period: row.get("period"),
        cron: row.get("cron"),
        timezone: row.get("timezone"),
    })
}

fn timer(row: &Row) -> Result<Timer, DbError> {
    Ok(Timer {
        columns: columns(row)?,
        stop: get(row, "stop")?,
        shift: row.get("shift"),
        catchup: match row.get::<_, &str>("catchup") {
            "none" => CatchUp::None,
            "last" => CatchUp::Last,
            _ => CatchUp::All,
        },
        catchup_age: row.get("catchup_age"),
        last: get(row, "last")?,
        next: get(row, "next")?,
        due: get(row, "due")?,
    })
}
