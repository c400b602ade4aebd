//! One look at the queue: releases what is due, takes what may start, and, when nothing is left, arms the bell.
//!
//! The take is a short walk that knows whether its answer is exact, and otherwise a look at the heads of all groups;
//! neither depends on how many rows wait. Arming is a lock that inserters try to share: once it is held the queue is
//! looked at once more, in a later statement with a new snapshot, and only then may the scheduler sleep.

use crate::attempt::record::{Ends, unless_refused};
use crate::claim::group::Group;
use crate::jobs::job_statements::put_runs;
use crate::jobs::job_table::{JobsAsk, Pulse};
use crate::limits::{CANDIDATES, EXPIRY_ROUNDS, FEW_GROUPS, FEW_SLOTS, GROUPS_PER_PASS, LONGEST_INPUT_BYTES};
use crate::table::make::Prepared;
use shared::db::trouble::Trouble;
use shared::db::{lock_key, statement};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, Row, ToStatement};
use worker::TaskRow;

/// A row that is ours now: state TAKE, or WORK if it is begun; this attempt.
#[derive(Clone, Debug)]
pub struct Taken {
    pub task: i64,
    pub attempt: i32,
    /// The job whose run it is.
    pub job: Option<i32>,
    pub group: Rc<Group>,
    /// Its worker may go on with others of its group.
    pub reuse: bool,
    /// Begun in the name of this backend, which is to be lent to it.
    pub begun: Option<(i32, Box<TaskRow>)>,
    /// Not begun, and plain: all that its worker has to know of it.
    pub handed: Option<Box<TaskRow>>,
}

/// Where the look at the groups goes on, and how many there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCursor {
    pub after: i32,
    pub groups: usize,
    /// They have been counted, and all of them.
    pub known: bool,
}

impl GroupCursor {
    /// They are as quickly looked at as rows are walked.
    fn is_few(&self) -> bool {
        self.known && self.groups <= FEW_GROUPS
    }
}

impl Default for GroupCursor {
    fn default() -> GroupCursor {
        GroupCursor { after: i32::MIN, groups: 1, known: false }
    }
}

/// What a look is to do.
#[derive(Clone, Debug)]
pub struct Ask {
    /// As many slots are reserved.
    pub count: usize,
    /// The bell is armed from before: it is disarmed first.
    pub disarm: bool,
    /// If nothing is left that could start, arm the bell.
    pub arm: bool,
    /// Only take: all the rest was looked at a moment ago.
    pub brief: bool,
    /// Results to be written in the transaction of the take.
    pub ends: Option<Ends>,
    pub cursor: GroupCursor,
    /// Signs for `mill.why` to be put up or taken down: lock kind, and whether it is to stand.
    pub signs: Vec<(i32, bool)>,
    /// Tasks that run, to see which their owners have stopped or deleted.
    pub running: Vec<(i64, i32)>,
    /// What is known of them, should their rows be gone.
    pub known: Vec<(i64, Rc<Group>)>,
    /// Backends of ours that run nothing at the moment.
    pub idle_backends: Vec<i32>,
    /// Those of them that plain tasks may be begun on.
    pub lent: Vec<i32>,
    /// The group that all workers are at, each at a plain task, if no other had anything waiting a moment ago.
    pub only: Option<Rc<Group>>,
    /// Rows are handed down to workers with connections of their own.
    pub hands_down: bool,
    /// What sessions begin with has to be known, and was this when it was last looked at.
    pub lends: bool,
    pub session_defaults: Option<i64>,
    /// Where the queue runs jobs.
    pub jobs: Option<JobsAsk>,
}

/// What a look has found.
#[derive(Debug, Default)]
pub struct Seen {
    pub taken: Vec<Taken>,
    pub armed: bool,
    /// The bell could not be armed: an inserter's transaction is open.
    pub refused: bool,
    /// A row waits for the end of its own earlier attempt, which rings nobody.
    pub busy: bool,
    pub next_plan: Option<Duration>,
    pub cursor: GroupCursor,
    /// Running attempts that are wanted no more.
    pub unwanted: Vec<(i64, i32)>,
    /// What sessions begin with, if it was looked at.
    pub session_defaults: Option<i64>,
    /// Of the results that were to be written: whose are.
    pub written: Option<Vec<i64>>,
    pub pulse: Option<Pulse>,
    /// Why nothing is known about jobs where something should be.
    pub jobs_failed: Option<String>,
}

impl Seen {
    /// The group whose plain tasks were begun, if no other had anything waiting.
    pub fn only_group(&self) -> Option<Rc<Group>> {
        let only = &self.taken.first()?.group;
        let alone = self.cursor.known && self.cursor.groups == 1 && only.plain_name().is_some();
        let plain = self.taken.iter().all(|row| row.begun.is_some() && row.group == *only);
        (alone && plain).then(|| only.clone())
    }
}

pub async fn look(client: Rc<Client>, statements: Rc<Prepared>, ask: Ask) -> Result<Seen, Trouble> {
    let (idle_backends, lent, known) = (ask.idle_backends.clone(), ask.lent.clone(), Known::new(&ask.known));
    let (only, hands_down) = (ask.only.clone(), ask.hands_down);
    let mut look = Look { client, statements, idle_backends, lent, known, only, hands_down };
    let mut seen = Seen { cursor: ask.cursor, ..Seen::default() };
    // All of them: the take itself sees which have been stopped by now.
    let running: Vec<i64> = ask.running.iter().map(|(task, _)| *task).collect();
    if ask.brief {
        look.take(ask.count, &running, ask.ends.as_ref(), &mut seen).await?;
        return Ok(seen);
    }
    // All that does not wait for an answer goes in one write.
    let disarmed = async || if ask.disarm { look.sign(lock_key::BELL, false).await } else { Ok(false) };
    let defaults = async || if ask.lends { look.session_defaults().await.map(Some) } else { Ok(None) };
    let unwanted = async || if ask.running.is_empty() { Ok(Vec::new()) } else { look.unwanted(&ask.running).await };
    let released = both(disarmed(), look.execute(&look.statements.release));
    let released = both(look.name(), released);
    let ((named, (disarmed, released)), (defaults, unwanted)) = both(released, both(defaults(), unwanted())).await;
    // What the rest says is of another table then, or that there is none.
    named?;
    disarmed.and(released)?;
    seen.unwanted = unwanted?;
    seen.session_defaults = defaults?;
    if seen.session_defaults != ask.session_defaults {
        // A task that starts now has to find what a new session would.
        look.lent.clear();
    }
    for (kind, stand) in &ask.signs {
        look.sign(*kind, *stand).await?;
    }
    if let Some(jobs) = &ask.jobs
        && jobs.start
    {
        match look.start_jobs(jobs, ask.count).await {
            Ok(started) => seen.pulse = Some(started),
            Err(trouble) => seen.jobs_failed = Some(contained(trouble)?),
        }
    }
    let mut next_plan = None;
    if ask.count > 0 {
        let take = look.take(ask.count, &running, ask.ends.as_ref(), &mut seen);
        // Where the bell may be armed it is asked behind that.
        let planned = async || if ask.arm { Ok(None) } else { look.next_plan().await };
        let (taken, planned) = both(take, planned()).await;
        taken?;
        next_plan = planned?;
    }
    // Without a slot nothing can start, but a row can still be stopped: that must ring too.
    if ask.arm && (ask.count == 0 || seen.taken.len() < ask.count) {
        // What was committed before the lock was ours rang nobody; what comes later will ring. The server does one after
        // the other, so what comes behind the lock has a later snapshot.
        let armed = look.sign(lock_key::BELL, true);
        let (armed, released) = both(armed, look.execute(&look.statements.release)).await;
        released?;
        seen.armed = armed?;
        seen.refused = !seen.armed;
        // Stopped after it was looked at or taken, and before somebody would have rung for it.
        let at_work: Vec<(i64, i32)> =
            seen.taken.iter().map(|row| (row.task, row.attempt)).chain(ask.running.iter().copied()).collect();
        if seen.armed && !at_work.is_empty() {
            seen.unwanted = look.unwanted(&at_work).await?;
        }
        if seen.armed && ask.count > 0 {
            let before = seen.taken.len();
            look.take(ask.count - before, &running, None, &mut seen).await?;
            if seen.taken.len() == ask.count {
                look.sign(lock_key::BELL, false).await?;
                seen.armed = false;
            }
        }
    }
    // A full look is followed by another one at once; then the jobs can wait for a moment.
    let full = ask.count > 0 && seen.taken.len() >= ask.count;
    let listens = |jobs: &JobsAsk| jobs.start || jobs.stale || !full;
    if let (Some(jobs), None) = (ask.jobs.as_ref().filter(|jobs| listens(jobs)), &seen.jobs_failed) {
        match look.next_event(jobs, &mut seen).await {
            Ok(()) => return Ok(seen),
            Err(trouble) => seen.jobs_failed = Some(contained(trouble)?),
        }
    }
    seen.pulse = None;
    seen.next_plan = if full && !ask.arm { next_plan } else { look.next_plan().await? };
    Ok(seen)
}

struct Look {
    client: Rc<Client>,
    statements: Rc<Prepared>,
    idle_backends: Vec<i32>,
    lent: Vec<i32>,
    known: Known,
    only: Option<Rc<Group>>,
    hands_down: bool,
}

/// The tasks that workers are at, as parameters.
struct Known {
    ids: Vec<i64>,
    groups: Vec<Vec<u8>>,
    remotes: Vec<Option<Vec<u8>>>,
}

impl Known {
    fn new(known: &[(i64, Rc<Group>)]) -> Known {
        Known {
            ids: known.iter().map(|(task, _)| *task).collect(),
            groups: known.iter().map(|(_, group)| group.name.clone()).collect(),
            remotes: known.iter().map(|(_, group)| group.remote.clone()).collect(),
        }
    }
}

impl Look {
    async fn take(
        &self,
        count: usize,
        running: &[i64],
        mut ends: Option<&Ends>,
        seen: &mut Seen,
    ) -> Result<(), Trouble> {
        for _ in 0..EXPIRY_ROUNDS {
            let used: Vec<i32> = seen.taken.iter().filter_map(|row| Some(row.begun.as_ref()?.0)).collect();
            let lent: Vec<i32> = self.lent.iter().filter(|backend| !used.contains(backend)).copied().collect();
            // Nobody may see an end that a crash of the server could take back.
            let asking = Asking { count, running, lent: &lent, lazy: ends.is_none() };
            let Harvest { taken, expired, busy } = match ends.take() {
                Some(ends) => match self.take_of_one_group(ends, &asking, seen).await? {
                    Some(harvest) => harvest,
                    None => self.take_behind(ends, &asking, seen).await?,
                },
                None => self.take_once(&asking, &mut seen.cursor).await?,
            };
            seen.busy |= busy;
            let enough = taken.len() >= count || expired.is_empty();
            seen.taken.extend(taken);
            if !expired.is_empty() {
                Box::pin(self.expire(&expired)).await?;
            }
            if enough || !seen.taken.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// All at once; if the data refuse a repetition, one by one, so that a sad row holds nobody up.
    async fn expire(&self, tasks: &[i64]) -> Result<(), Trouble> {
        let queue = &self.statements.queue;
        let copied = self.many(&queue.fill(statement::LIST_COLUMNS), &[]).await?;
        let copied: Vec<String> = copied.iter().map(|row| row.get("name")).collect();
        let text = queue.fill_repeating(statement::EXPIRE_TASKS, &copied);
        match self.one(&text, &[&tasks]).await {
            Ok(rows) => {
                let (gone, again): (i64, i64) = (rows.get("gone"), rows.get("again"));
                shared::info!("tasks not started in time", gone = gone, repeated = again);
                return Ok(());
            }
            Err(trouble) if trouble.passes() => return Err(trouble),
            Err(_) => {}
        }
        for task in tasks {
            let Err(refusal) = self.one(&text, &[&[*task].as_slice()]).await else { continue };
            let failed = self.many(&queue.fill(statement::EXPIRE_REFUSED), &[task, &refusal.text]).await;
            for trouble in [Some(refusal), failed.err()].into_iter().flatten() {
                if trouble.passes() {
                    return Err(trouble);
                }
                shared::warning!("an expired task cannot be repeated", task = task, error = trouble);
            }
        }
        Ok(())
    }

    /// The most frequent case in one statement: short tasks of one group follow one another. None: it is not that case, or
    /// the database refuses one of the rows, and nothing has been done.
    async fn take_of_one_group(
        &self,
        ends: &Ends,
        asking: &Asking<'_>,
        seen: &mut Seen,
    ) -> Result<Option<Harvest>, Trouble> {
        let name = self.only.as_ref().and_then(|group| group.plain_name());
        let Some(name) = name.filter(|_| asking.lent.len() >= asking.count) else { return Ok(None) };
        let count = asking.count as i64;
        let take: Values<'_> = &[&count, &self.known.ids, &name, &asking.lent, &LONGEST_INPUT_BYTES];
        let rows = match self.many(&self.statements.one_group, &[&ends.values(), take].concat()).await {
            Err(trouble) if !trouble.passes() => return Ok(None),
            rows => rows?,
        };
        let Some(first) = rows.first() else { return Ok(None) };
        seen.written = Some(first.get("written"));
        if first.get("exact") {
            return Ok(Some(harvest(&rows)));
        }
        self.take_once(asking, &mut seen.cursor).await.map(Some)
    }

    /// The ends of earlier tasks and the take of what they make room for, in one transaction: the ends first, since two that
    /// take before they end can wait for each other's rows. All of it is sent at once, so that nothing else that is asked on
    /// this session comes between. If the database refuses the ends, nothing is taken.
    async fn take_behind(&self, ends: &Ends, asking: &Asking<'_>, seen: &mut Seen) -> Result<Harvest, Trouble> {
        let cursor = &mut seen.cursor;
        let few = cursor.is_few();
        let rows = async { if few { self.ask_groups(asking, cursor).await } else { self.ask_walk(asking).await } };
        let begin = both(self.execute(&self.statements.begin), ends.write(&self.client, &self.statements));
        let commit = self.execute(&self.statements.commit);
        let ((begun, written), (rows, committed)) = both(begin, both(rows, commit)).await;
        begun?;
        let written = match (written, &rows, committed) {
            (Ok(_), Ok(_), Err(trouble)) => Err(trouble),
            (written, ..) => written,
        };
        let refused = written.is_err();
        seen.written = Some(unless_refused(written)?);
        if refused {
            return Ok(Harvest { taken: Vec::new(), expired: Vec::new(), busy: false });
        }
        if few { Ok(found(&rows?, cursor)) } else { self.walked(&rows?, asking, cursor).await }
    }

    async fn take_once(&self, asking: &Asking<'_>, cursor: &mut GroupCursor) -> Result<Harvest, Trouble> {
        // Few groups: their heads are as quickly looked at as a walk that may come to nothing, and that is always exact.
        if cursor.is_few() {
            return self.take_groups(asking, cursor).await;
        }
        let rows = self.ask_walk(asking).await?;
        self.walked(&rows, asking, cursor).await
    }

    async fn ask_walk(&self, asking: &Asking<'_>) -> Result<Vec<Row>, Trouble> {
        let Asking { count, running, lent, lazy } = asking;
        let walk = if *count <= FEW_SLOTS { &self.statements.walk_few } else { &self.statements.walk_many };
        let values: Values<'_> = &[&(*count as i64), running, &self.idle_backends, lent, &LONGEST_INPUT_BYTES];
        self.many(walk, &[values, &self.known(), &[lazy, &self.hands_down]].concat()).await
    }

    /// What a walk has brought, or, where it cannot tell, a look at the groups.
    async fn walked(&self, rows: &[Row], asking: &Asking<'_>, cursor: &mut GroupCursor) -> Result<Harvest, Trouble> {
        let exact = rows.first().is_none_or(|row| row.get("exact"));
        if exact {
            return Ok(harvest(rows));
        }
        let began = cursor.after;
        let found = self.take_groups(asking, cursor).await?;
        // Nothing behind the cursor: once more from the start, so that no group waits for the round to end.
        if found.taken.is_empty() && began != i32::MIN {
            cursor.after = i32::MIN;
            return self.take_groups(asking, cursor).await;
        }
        Ok(found)
    }

    async fn take_groups(&self, asking: &Asking<'_>, cursor: &mut GroupCursor) -> Result<Harvest, Trouble> {
        let rows = self.ask_groups(asking, cursor).await?;
        Ok(found(&rows, cursor))
    }

    async fn ask_groups(&self, asking: &Asking<'_>, cursor: &GroupCursor) -> Result<Vec<Row>, Trouble> {
        let Asking { count, running, lent, lazy } = asking;
        let depth = (CANDIDATES / cursor.groups.max(1)).clamp(1, (*count).max(4)) as i64;
        let after = cursor.after;
        let heads: Values<'_> = &[&(*count as i64), running, &self.idle_backends, &after, &GROUPS_PER_PASS, &depth];
        let values = [heads, &[lent, &LONGEST_INPUT_BYTES], &self.known(), &[lazy, &self.hands_down]].concat();
        self.many(&self.statements.groups, &values).await
    }

    fn known(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 3] {
        [&self.known.ids, &self.known.groups, &self.known.remotes]
    }

    async fn unwanted(&self, running: &[(i64, i32)]) -> Result<Vec<(i64, i32)>, Trouble> {
        let (tasks, attempts): (Vec<i64>, Vec<i32>) = running.iter().copied().unzip();
        let rows = self.many(&self.statements.look_runs, &[&tasks, &attempts]).await?;
        Ok(rows.iter().map(|row| (row.get("id"), row.get("attempt"))).collect())
    }

    /// Whether the table under the queue's name is the one whose lock we hold. Otherwise the session ends, and the next one
    /// looks at what is there.
    async fn name(&self) -> Result<(), Trouble> {
        let relid: Option<u32> = self.one(&self.statements.look_name, &[]).await?.get("relid");
        if relid == Some(self.statements.relid) {
            return Ok(());
        }
        let name = self.statements.queue.fill("{queue}");
        Err(Trouble::passing(format!("{name} is another table than the one that was served, or there is none")))
    }

    async fn session_defaults(&self) -> Result<i64, Trouble> {
        Ok(self.one(&self.statements.session_defaults, &[]).await?.get("defaults"))
    }

    async fn next_plan(&self) -> Result<Option<Duration>, Trouble> {
        let rows = self.many(&self.statements.next_plan, &[]).await?;
        Ok(rows.first().and_then(|row| wait(row, "ms")))
    }

    /// The same where the queue runs jobs: one question for both.
    async fn next_event(&self, jobs: &JobsAsk, seen: &mut Seen) -> Result<(), Trouble> {
        let since = seen.pulse.and_then(|pulse| pulse.until).or(jobs.since);
        let row = self.one(&jobs.statements.next_event, &[&since, &jobs.fold]).await?;
        seen.next_plan = wait(&row, "ms");
        seen.pulse = Some(Pulse {
            version: row.get("version"),
            due: wait(&row, "due_ms"),
            waiting: wait(&row, "waiting_ms"),
            fill: row.get("fill"),
            orders: row.get("orders"),
            recalls: row.get("recalls"),
            leftover: row.get("leftover"),
            folded: jobs.fold,
            ..seen.pulse.unwrap_or_default()
        });
        Ok(())
    }

    async fn start_jobs(&self, jobs: &JobsAsk, slots: usize) -> Result<Pulse, Trouble> {
        let slots = i32::try_from(slots).unwrap_or(i32::MAX);
        let slots: Values<'_> = &[&slots];
        let put = put_runs(&self.client, &jobs.statements);
        let (row, put) = both(self.one(&jobs.statements.start, slots), put).await;
        let (row, put) = (row?, put?);
        Ok(Pulse { started: Some(row.get::<_, i32>("started") + put), until: row.get("until"), ..Pulse::default() })
    }

    /// Takes or gives back one of our session locks on the queue. True: it was done.
    async fn sign(&self, kind: i32, stand: bool) -> Result<bool, Trouble> {
        let statement = if stand { &self.statements.lock } else { &self.statements.unlock };
        Ok(self.one(statement, &[&kind, &self.statements.relid]).await?.get("done"))
    }

    async fn execute(&self, statement: &tokio_postgres::Statement) -> Result<u64, Trouble> {
        self.client.execute(statement, &[]).await.map_err(|error| Trouble::of(&error))
    }

    async fn one<S>(&self, statement: &S, values: Values<'_>) -> Result<Row, Trouble>
    where
        S: ?Sized + ToStatement,
    {
        self.client.query_one(statement, values).await.map_err(|error| Trouble::of(&error))
    }

    async fn many<S>(&self, statement: &S, values: Values<'_>) -> Result<Vec<Row>, Trouble>
    where
        S: ?Sized + ToStatement,
    {
        self.client.query(statement, values).await.map_err(|error| Trouble::of(&error))
    }
}

/// Both at once: the second is asked while the first is not answered. The server answers in that order. In boxes: held by value,
/// what is asked inside of what is asked would be there once more for each step, and a look ten pages long.
fn both<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> impl Future<Output = (A, B)> {
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    let (mut one, mut other) = (None, None);
    poll_fn(move |context| {
        if one.is_none()
            && let Poll::Ready(answer) = first.as_mut().poll(context)
        {
            one = Some(answer);
        }
        if other.is_none()
            && let Poll::Ready(answer) = second.as_mut().poll(context)
        {
            other = Some(answer);
        }
        match (one.take(), other.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (first, second) => {
                (one, other) = (first, second);
                Poll::Pending
            }
        }
    })
}

type Values<'a> = &'a [&'a (dyn tokio_postgres::types::ToSql + Sync)];

/// What a take asks for.
struct Asking<'a> {
    count: usize,
    /// Tasks that workers are at.
    running: &'a [i64],
    /// Backends that plain tasks are begun on.
    lent: &'a [i32],
    /// If nothing begins, the commit need not wait for the disk.
    lazy: bool,
}

/// What a take has brought.
struct Harvest {
    taken: Vec<Taken>,
    /// Rows found expired.
    expired: Vec<i64>,
    busy: bool,
}

/// What the catalog refuses about jobs is no reason not to serve tasks.
fn contained(trouble: Trouble) -> Result<String, Trouble> {
    if trouble.passes() { Err(trouble) } else { Ok(trouble.text) }
}

/// A column of milliseconds as a wait.
fn wait(row: &Row, column: &str) -> Option<Duration> {
    row.get::<_, Option<f64>>(column).map(|ms| Duration::from_millis(ms.max(0.0) as u64))
}

/// Texts as the server sent them, whatever their encoding.
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT
    }
}

/// What a look at the groups has brought, and where the next one goes on.
fn found(rows: &[Row], cursor: &mut GroupCursor) -> Harvest {
    let groups: i64 = rows.first().map_or(0, |row| row.get("groups"));
    let last: Option<i32> = rows.first().and_then(|row| row.get("last"));
    cursor.groups = groups.max(1) as usize;
    cursor.known = groups < i64::from(GROUPS_PER_PASS);
    cursor.after = if groups >= i64::from(GROUPS_PER_PASS) { last.unwrap_or(i32::MIN) } else { i32::MIN };
    harvest(rows)
}

fn harvest(rows: &[Row]) -> Harvest {
    let taken = rows.iter().filter_map(|row| {
        let (task, attempt) = (row.get::<_, Option<i64>>("id")?, row.get::<_, Option<i32>>("attempt")?);
        let texts = row.get::<_, Option<Vec<Option<Raw>>>>("task_row");
        let texts = texts.map(|texts| texts.into_iter().map(|text| text.map(|Raw(bytes)| bytes)).collect());
        let sign = row.get("sign");
        let whole = texts.map(|texts| Box::new(TaskRow { lock_key: sign, ..worker::task_row(texts) }));
        let (begun, handed) = match row.get::<_, Option<i32>>("backend") {
            Some(backend) => (whole.map(|whole| (backend, whole)), None),
            None => (None, whole),
        };
        let group = Rc::new(Group { name: row.get("group"), remote: row.get("remote") });
        let reuse = row.get::<_, Option<bool>>("reuse") == Some(true);
        Some(Taken { task, attempt, job: row.get("job"), group, reuse, begun, handed })
    });
    let expired = rows.first().and_then(|row| row.get::<_, Option<Vec<i64>>>("expired")).unwrap_or_default();
    Harvest { taken: taken.collect(), expired, busy: rows.first().is_some_and(|row| row.get("busy")) }
}
