//! One pass over the graph: timers that are due fire, jobs without input end, back-fills go on a little, and when nothing
//! is left, the catalog's bell is armed.
//!
//! It runs on a session of its own, so that the queue's look never waits for it. The next times are computed here, and the
//! server takes them only if the timers are still as they were; timers that are due together fire in one transaction, and
//! one by one if the server refuses that. Live timers come first, then jobs without input, then a few times of each
//! back-fill. A timer that the server refuses is left alone for a while and said; a deadlock is simply tried again.

use crate::graph::backfill::{self as stretch, Order, Stretch};
use crate::graph::timer_queue::{self, CatchUp, Columns, Next, Stale, Step, Timer};
use shared::calendar::{self, Moment};
use shared::db::lock_key;
use shared::db::statement;
use shared::db::trouble::Trouble;
use shared::process::fault;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Row, Statement};

/// Timers that are asked for, and fired in one go.
const TIMERS: i32 = 1024;
/// Jobs without input that are ended in one transaction.
const ERRANDS: i32 = 256;
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
    errands: Statement,
    list_backfills: Statement,
    fill_back: Statement,
    stop_backfill: Statement,
    look: Statement,
    sweep: Statement,
    lock: Statement,
    unlock: Statement,
}

/// What a pass is to do.
#[derive(Clone, Debug, Default)]
pub struct GraphAsk {
    /// The bell is armed from before.
    pub armed: bool,
    /// Old tokens are due to be swept.
    pub sweep: bool,
    /// Timers that gave trouble a moment ago.
    pub except_for: Vec<i32>,
}

/// What it came to.
#[derive(Debug, Default)]
pub struct GraphPassed {
    /// There is something of the graph: timers, errands, back-fills.
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
    pub refused: Vec<(Option<i32>, String, Trouble)>,
}

/// Prepares a session: it hears the catalog's bell.
pub async fn prepare(client: &Client) -> Result<GraphStatements, Trouble> {
    let text = async |text: &str| client.prepare(text).await.map_err(|error| Trouble::of(&error));
    client.batch_execute("LISTEN mill_0").await.map_err(|error| Trouble::of(&error))?;
    Ok(GraphStatements {
        list_timers: text(&statement::bare(statement::LIST_TIMERS)).await?,
        set_timers: text(&statement::bare(statement::SET_TIMERS)).await?,
        fire: text(&statement::bare(statement::FIRE_TIMERS)).await?,
        errands: text(&statement::bare(statement::END_IDLE_RUNS)).await?,
        list_backfills: text(&statement::bare(statement::LIST_BACKFILLS)).await?,
        fill_back: text(&statement::bare(statement::FILL_BACK)).await?,
        stop_backfill: text(&statement::bare(statement::STOP_BACKFILL)).await?,
        look: text(&statement::bare(statement::LOOK_GRAPH)).await?,
        sweep: text(&statement::bare(statement::SWEEP_GRAPH)).await?,
        lock: text(&statement::bare(statement::LOCK_SIGN)).await?,
        unlock: text(&statement::bare(statement::UNLOCK_SIGN)).await?,
    })
}

pub async fn pass(client: Rc<Client>, statements: Rc<GraphStatements>, ask: GraphAsk) -> Result<GraphPassed, Trouble> {
    let mut round = Round { client, statements, except_for: ask.except_for, passed: GraphPassed::default() };
    if ask.armed {
        round.bell(false).await?;
    }
    let began = Instant::now();
    loop {
        // A timer that fires every second may be several behind: none is due before anything else has its turn.
        let mut worked = false;
        while began.elapsed() < TURN && round.timers().await? {
            worked = true;
        }
        worked |= round.errands().await? | round.backfills().await?;
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

type Values<'a> = &'a [&'a (dyn tokio_postgres::types::ToSql + Sync)];

impl Round {
    /// New and edited timers get their next time, due ones fire. True: there were some.
    async fn timers(&mut self) -> Result<bool, Trouble> {
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
                Err(trouble) => {
                    let (id, name): (i32, String) = (row.get("id"), row.get("name"));
                    self.refuse(Some(id), format!("timer {name}"), trouble)?;
                }
            }
        }
        if !reckoned.is_empty() && self.set_timers(&reckoned).await.is_err() {
            for timer in &reckoned {
                if let Err(trouble) = self.set_timers(std::slice::from_ref(timer)).await {
                    self.refuse(Some(timer.id), format!("timer {}", timer.name), trouble)?;
                }
            }
        }
        if let Err(trouble) = self.fire(&moves).await {
            // One that the server refuses keeps no other from firing.
            if self.client.is_closed() || moves.len() == 1 {
                self.refuse(moves.first().map(|fire| fire.id), moves[0].what(), trouble)?;
                return Ok(true);
            }
            for fire in &moves {
                if let Err(trouble) = self.fire(std::slice::from_ref(fire)).await {
                    self.refuse(Some(fire.id), fire.what(), trouble)?;
                }
            }
        }
        Ok(true)
    }

    async fn set_timers(&self, timers: &[Reckoned]) -> Result<(), Trouble> {
        let ids: Vec<i32> = timers.iter().map(|timer| timer.id).collect();
        let revisions: Vec<i32> = timers.iter().map(|timer| timer.revision).collect();
        let (nexts, dues): (Vec<_>, Vec<_>) = timers.iter().map(|timer| split(timer.next)).unzip();
        let troubles: Vec<Option<&str>> = timers.iter().map(|timer| timer.trouble.as_deref()).collect();
        self.one(&self.statements.set_timers, &[&ids, &revisions, &nexts, &dues, &troubles]).await.map(|_| ())
    }

    /// In one transaction. What is not as it was, or somebody else's just now, is for the next round.
    async fn fire(&mut self, moves: &[Fire]) -> Result<(), Trouble> {
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
        let (los, his): (Vec<_>, Vec<_>) = moves.iter().map(|fire| fire.step.stretch.unzip()).unzip();
        let values: Values<'_> = &[&ids, &revisions, &expected, &fires, &nexts, &dues, &skipped, &los, &his];
        let row = self.one(&self.statements.fire, values).await?;
        let (fired, activated): (Vec<i32>, i32) = (row.get("fired"), row.get("activated"));
        self.passed.activated += u64::try_from(activated).unwrap_or(0);
        for fire in moves.iter().filter(|fire| fire.step.skipped > 0 && fired.contains(&fire.id)) {
            self.passed.skipped.push((fire.name.clone(), fire.step.skipped));
        }
        Ok(())
    }

    /// Level by level, while that is quick. True: there were some.
    async fn errands(&mut self) -> Result<bool, Trouble> {
        let began = Instant::now();
        let mut worked = false;
        while let Some(1..) = self.number("jobs without input", &self.statements.clone().errands, &[&ERRANDS]).await? {
            worked = true;
            if began.elapsed() >= FILLING {
                break;
            }
        }
        Ok(worked)
    }

    /// Each back-fill that may goes on a little.
    async fn backfills(&mut self) -> Result<bool, Trouble> {
        let rows = self.many(&self.statements.list_backfills, &[&BACKFILLS]).await?;
        let mut worked = false;
        for row in &rows {
            let number: i32 = row.get("id");
            match self.fill_back(row, number).await {
                Ok(filled) => worked |= filled,
                Err(trouble) => self.refuse(None, format!("back-fill {number}"), trouble)?,
            }
        }
        Ok(worked)
    }

    /// As many of its times as the window lets through, and, while that is quick, what has no input is over at once, and
    /// the next ones have room.
    async fn fill_back(&mut self, row: &Row, number: i32) -> Result<bool, Trouble> {
        let order = match row.get::<_, &str>("order") {
            "latest" => Order::Latest,
            "random" => Order::Random,
            _ => Order::Earliest,
        };
        let mut stretch = Stretch {
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
                .map_err(Trouble::clone)
                .and_then(|schedule| stretch::chunk(schedule, &stretch, most).map_err(unreckoned));
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(trouble) => {
                    // Nobody can go on with it; its row says why.
                    let values: Values<'_> = &[&number, &trouble.text];
                    self.many(&self.statements.stop_backfill, values).await?;
                    return Err(trouble);
                }
            };
            let values: Values<'_> = &[&number, &fired, &chunk.times, &chunk.spans, &chunk.positions, &chunk.ends];
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
            stretch.at = chunk.times.get(last).copied();
            (stretch.span, stretch.pos) = (chunk.spans[last], chunk.positions[last]);
            fired += last as i64 + 1;
            self.errands().await?;
            if began.elapsed() >= FILLING {
                break;
            }
        }
        Ok(worked)
    }

    /// Nothing is left: the bell is armed and, in a later statement, everything looked at once more.
    async fn arm(&mut self) -> Result<(), Trouble> {
        let armed = self.bell(true).await?;
        let row = self.one(&self.statements.look, &[&self.except_for]).await?;
        let due: Option<f64> = row.get("due_ms");
        self.passed.used = row.get("used");
        self.passed.armed = armed;
        self.passed.next_due = due.map(|ms| Duration::from_millis(ms.max(0.0) as u64));
        if row.get("idle") || due.is_some_and(|ms| ms <= 0.0) {
            self.passed.more = true;
            if armed {
                self.bell(false).await?;
                self.passed.armed = false;
            }
        }
        Ok(())
    }

    async fn bell(&self, hold: bool) -> Result<bool, Trouble> {
        let statement = if hold { &self.statements.lock } else { &self.statements.unlock };
        Ok(self.one(statement, &[&lock_key::BELL, &0u32]).await?.get("done"))
    }

    /// One thing's trouble is not the session's, unless the session is gone.
    fn refuse(&mut self, timer: Option<i32>, what: String, trouble: Trouble) -> Result<(), Trouble> {
        if self.client.is_closed() {
            return Err(trouble);
        }
        self.except_for.extend(timer);
        self.passed.refused.push((timer, what, trouble));
        Ok(())
    }

    /// A statement that answers with one number; None: the server refused it, and that is said.
    async fn number(&mut self, what: &str, statement: &Statement, values: Values<'_>) -> Result<Option<i32>, Trouble> {
        match self.client.query_one(statement, values).await {
            Ok(row) => Ok(Some(row.get(0))),
            Err(error) => {
                self.refuse(None, what.to_owned(), Trouble::of(&error))?;
                Ok(None)
            }
        }
    }

    async fn one(&self, statement: &Statement, values: Values<'_>) -> Result<Row, Trouble> {
        self.client.query_one(statement, values).await.map_err(|error| Trouble::of(&error))
    }

    async fn many(&self, statement: &Statement, values: Values<'_>) -> Result<Vec<Row>, Trouble> {
        self.client.query(statement, values).await.map_err(|error| Trouble::of(&error))
    }
}

/// The next time of a timer that was new or edited.
struct Reckoned {
    id: i32,
    name: String,
    revision: i32,
    next: Option<Next>,
    trouble: Option<String>,
}

/// What a timer that is due does now, if it is as it was.
struct Fire {
    id: i32,
    name: String,
    revision: i32,
    expected: Option<Moment>,
    step: Step,
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

fn judge(row: &Row) -> Result<Judged, Trouble> {
    let (id, revision, now): (i32, i32, Moment) = (row.get("id"), row.get("revision"), get(row, "now")?);
    let timer = timer(row)?;
    let stale = match row.get::<_, Option<&str>>("stale") {
        Some("new") => Some(Stale::New),
        Some(_) => Some(Stale::Edited),
        None => None,
    };
    if let Some(stale) = stale {
        let (next, trouble) = match timer_queue::next_time(&timer, stale, now) {
            Ok(next) => (next, None),
            Err(error) => (None, Some(error.to_string())),
        };
        return Ok(Judged::Next(Reckoned { id, name: row.get("name"), revision, next, trouble }));
    }
    Ok(match timer_queue::step(&timer, now).map_err(unreckoned)? {
        Some(step) => Judged::Moves(Fire { id, name: row.get("name"), revision, expected: timer.next, step }),
        None => Judged::Nothing,
    })
}

fn split(next: Option<Next>) -> (Option<Moment>, Option<Moment>) {
    (next.map(|next| next.time), next.map(|next| next.due))
}

fn unreckoned(error: calendar::Error) -> Trouble {
    Trouble::standing(error.to_string())
}

/// A column that may hold what cannot be reckoned with (a time beyond all calendars).
fn get<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, name: &str) -> Result<T, Trouble> {
    row.try_get(name).map_err(|error| Trouble::standing(format!("cannot read its {name}: {error}")))
}

fn columns(row: &Row) -> Result<Columns, Trouble> {
    Ok(Columns {
        start: get(row, "start")?,
        period: row.get("period"),
        cron: row.get("cron"),
        timezone: row.get("timezone"),
    })
}

fn timer(row: &Row) -> Result<Timer, Trouble> {
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
