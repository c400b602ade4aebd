//! The worker's session: how it is opened, and what the task finds set in it.

use crate::book::{BEGIN, COMMIT, RENEWAL, TaskRow};
use crate::wire::{ConnectError, QueryError, Session};
use shared::conninfo::Target;
use shared::db::identifier::{literal, qualified};
use shared::db::lock_key;
pub use shared::db::pinned::WATCH as WATCHED;
use shared::db::server::{NAME_SERVER, NAME_SERVER_BRIEFLY, ServerName, apart, is_elsewhere, proof_item};
use shared::db::statement::bare;
use shared::process::order::{Gifts, Offered, WorkerOrder, encode};
use shared::region::{Permit, Region, Seat, SlotHandle, server_key};
use shared::sys::pass;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The largest number that statement_timeout takes.
const LONGEST_TIMEOUT_MS: i64 = i32::MAX as i64;

/// How often a worker that waits for its turn to connect looks again: soon at first, since a connect is short.
const TURN_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_TURN_PAUSE: Duration = Duration::from_millis(100);

/// Where this process asks for its turn and its place in the budget of connections.
static REGION: OnceLock<Region> = OnceLock::new();

/// What this process was given by its parent, and in which slot it sits; each gift is used once.
static GIFTS: Mutex<Option<(SlotHandle, Gifts)>> = Mutex::new(None);

/// Once, at the start of the process.
pub fn keep_to(region: &Region, slot: SlotHandle, gifts: Gifts) {
    let _ = REGION.set(region.clone());
    *GIFTS.lock().unwrap_or_else(PoisonError::into_inner) = Some((slot, gifts));
}

/// Our launcher is known to lead; without a region nobody asks.
pub fn is_led() -> bool {
    REGION.get().is_none_or(Region::leads)
}

/// The connection that the parent has lent, the first time.
fn inherit(order: &WorkerOrder) -> Option<Session> {
    let mut gifts = GIFTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (slot, gifts) = gifts.as_mut()?;
    let (region, socket) = (REGION.get()?, gifts.lent.take()?);
    Session::inherit(socket, order.lent.as_ref()?, &order.target, (region.clone(), *slot))
}

/// Lets the parent inherit a connection of our own, once. Whatever is in the way, it is then simply ours.
fn offer(session: &mut Session) {
    let mut gifts = GIFTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((slot, gifts)) = gifts.as_mut() else { return };
    let (Some(region), Some(back)) = (REGION.get(), gifts.back.take()) else { return };
    // What the view pg_stat_activity stands on: a new session would spend two milliseconds on reading what the view joins.
    let asked = "SELECT extract(epoch FROM a.backend_start)::pg_catalog.text \
                   FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a";
    let rows = session.execute(asked, &[]).unwrap_or_default();
    let began = rows.into_iter().flatten().flatten().next().and_then(|text| String::from_utf8(text).ok());
    let Some(lent) = began.and_then(|began| session.lendable(began)) else { return };
    let pid = nix::unistd::getpid().as_raw();
    let offered = encode(&Offered { slot: slot.index(), pid, seat: session.seat(), lent });
    if pass::send(&back, &offered, &*session).is_ok() {
        session.bequeath((region.clone(), *slot));
    }
}

/// Connects as the row's user. The server looks for us every 300 ms while it works: a killed worker's statement must
/// not run on.
///
/// Texts are carried as UTF-8, but for a SQL_ASCII database, which may hold any bytes: there they are carried as they
/// are. Nothing in the worker depends on it, because it treats all text as bytes.
pub fn open(order: &WorkerOrder) -> Result<Session, ConnectError> {
    if let Some(session) = inherit(order) {
        return Ok(session);
    }
    let mut name = application_name(order);
    let mut settings = Vec::new();
    if let Some(group) = &order.group {
        name = format!("{name} {group}");
        settings.extend([
            ("pg_task.group", &group[..]),
            ("pg_task.schema", &order.schema),
            ("pg_task.table", &order.table),
        ]);
    }
    settings.push(("application_name", &name));
    let mut session = connect(order, "UTF8", &settings)?;
    if session.parameter("server_encoding") == Some(b"SQL_ASCII") {
        session.close();
        session = connect(order, "SQL_ASCII", &settings)?;
    }
    if let Some(group) = &order.group {
        session.set_group(group);
    }
    if !order.target.late_settings {
        offer(&mut session);
    }
    Ok(session)
}

/// Why there is no session on which a result may be recorded.
#[derive(Debug)]
pub enum NotReopened {
    /// The server is away, or its scheduler has no session there yet; this may pass.
    Yet(String),
    /// The scheduler works on another server, which need not know what the task has done.
    Elsewhere(String),
}

/// A session in the place of a lost one, on the server where the scheduler is at this moment. `effects`: only if what the
/// task has done on the server of its order is known there.
pub fn reopen(order: &WorkerOrder, effects: bool) -> Result<Session, NotReopened> {
    let yet = |why: &dyn fmt::Display| NotReopened::Yet(why.to_string());
    let mut session = open(order).map_err(|error| yet(&error))?;
    let Some(home) = &order.home else { return Ok(session) };
    let proof = scheduler_proof().ok_or_else(|| yet(&"the scheduler has no session"))?;
    match session.execute(&format!("SELECT {}", proof_item(proof)), &[]) {
        Ok(_) => {}
        Err(QueryError::Server(refusal)) if is_elsewhere(refusal.code(), refusal.message()) => {
            let why = elsewhere(&mut session, order);
            session.taint();
            session.close();
            return Err(yet(&why));
        }
        Err(error) => return Err(yet(&error)),
    }
    if !effects {
        return Ok(session);
    }
    let name = name_server(&mut session).map_err(|error| yet(&error))?;
    if name.has_the_data_of(&home.name) {
        return Ok(session);
    }
    session.close();
    Err(NotReopened::Elsewhere(format!("the task ran on server {}, its queue is served on {name} now", home.name)))
}

fn scheduler_proof() -> Option<i64> {
    let gifts = GIFTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (slot, _) = gifts.as_ref()?;
    REGION.get()?.scheduler_proof(*slot)
}

/// Which server a session is on.
fn name_server(session: &mut Session) -> Result<ServerName, QueryError> {
    let rows = match session.execute(&bare(NAME_SERVER), &[]) {
        Err(QueryError::Server(refusal)) if refusal.code() == Some(b"42501") => {
            session.execute(&bare(NAME_SERVER_BRIEFLY), &[])
        }
        rows => rows,
    }?;
    let mut values = rows.into_iter().next().unwrap_or_default().into_iter();
    let mut next = || values.next().flatten().and_then(|text| String::from_utf8(text).ok());
    let facts = [next(), next(), next()];
    Ok(ServerName::new(session.whereabouts(), facts))
}

/// A session that did not pass the proof: on which server it is, and on which its scheduler was. If that is one and the same,
/// the scheduler's session has only been made anew.
pub fn elsewhere(session: &mut Session, order: &WorkerOrder) -> String {
    let name = name_server(session);
    match (name, &order.home) {
        (Ok(here), Some(home)) if scheduler_proof() == Some(home.proof) && !here.has_the_data_of(&home.name) => {
            apart("a worker", &here, &format!("its scheduler is connected to server {}", home.name))
        }
        _ => "the scheduler's session was lost before the task began".to_owned(),
    }
}

/// The task has not changed the encoding: what it has said can be given back on a session that is as new.
pub fn speaks_as_opened(session: &Session) -> bool {
    let ascii = session.parameter("server_encoding") == Some(b"SQL_ASCII");
    session.parameter("client_encoding") == Some(if ascii { b"SQL_ASCII" } else { b"UTF8" })
}

/// Connects for this one task, whose session is dressed by the login itself as far as that can be. Whether it was.
pub fn open_for(order: &WorkerOrder, row: &TaskRow) -> Result<(Session, bool), ConnectError> {
    let dress = Dress::new(order, row);
    // What comes with a login is in no encoding.
    let ascii = |bytes| std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii());
    let Some([id, group, schema, table, name, timeout]) = all(dress.values(order, row).map(ascii)) else {
        return open(order).map(|session| (session, false));
    };
    let mut settings = vec![
        ("pg_task.id", id),
        ("pg_task.group", group),
        ("pg_task.schema", schema),
        ("pg_task.table", table),
        ("application_name", name),
    ];
    settings.extend((timeout != "0").then_some(("statement_timeout", timeout)));
    connect(order, "UTF8", &settings).map(|session| (session, true))
}

/// All of them, or none.
fn all<T: Copy + Default, const N: usize>(values: [Option<T>; N]) -> Option<[T; N]> {
    values.iter().all(Option::is_some).then(|| values.map(Option::unwrap_or_default))
}

fn connect(order: &WorkerOrder, encoding: &str, settings: &[(&str, &str)]) -> Result<Session, ConnectError> {
    let mut parameters = vec![("client_encoding", encoding)];
    parameters.extend_from_slice(settings);
    parameters.extend(WATCHED);
    connect_in_turn(&order.target, &parameters, Instant::now() + order.target.patience())
}

/// What pg_stat_activity shows; the group joins it with the task.
pub fn application_name(order: &WorkerOrder) -> String {
    format!("pg_task {} {}", order.schema, order.table)
}

/// Within the budget of connections, and not with too many others at once.
pub fn connect_in_turn(
    target: &Target,
    parameters: &[(&str, &str)],
    deadline: Instant,
) -> Result<Session, ConnectError> {
    let (seat, permit) = match REGION.get() {
        Some(region) => {
            let (seat, permit) = wait_for_turn(region, target, deadline)?;
            (Some(seat), Some(permit))
        }
        None => (None, None),
    };
    let session = Session::connect(target, parameters, deadline);
    if let Some(permit) = permit {
        match &session {
            Ok(_) => permit.widen(),
            Err(error) if error.is_away() => permit.narrow(),
            Err(_) => {}
        }
    }
    session.map(|mut session| {
        session.sit(seat);
        session
    })
}

fn wait_for_turn(region: &Region, target: &Target, deadline: Instant) -> Result<(Seat, Permit), ConnectError> {
    let server = server_key(target);
    let mut pause = TURN_PAUSE;
    let mut seat = None;
    loop {
        seat = seat.or_else(|| region.take_seat());
        if seat.is_some()
            && let Some(permit) = region.take_permit(server)
        {
            return seat.map(|seat| (seat, permit)).ok_or(ConnectError::NoSeat);
        }
        if Instant::now() >= deadline {
            return Err(ConnectError::NoSeat);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_TURN_PAUSE);
    }
}

/// A task's time limit as the server takes it; 0: none.
fn limit_ms(row: &TaskRow) -> i64 {
    row.timeout_ms.clamp(0, LONGEST_TIMEOUT_MS)
}

/// The time limit of a task whose session is dressed otherwise.
pub fn limit(session: &mut Session, row: &TaskRow) -> Result<(), QueryError> {
    if row.timeout_ms <= 0 {
        return Ok(());
    }
    let timeout = limit_ms(row).to_string();
    let text = "SELECT pg_catalog.set_config('statement_timeout', $1, false)";
    session.execute(text, &[Some(timeout.as_bytes())]).map(|_| ())
}

/// Sets what a task's SQL may read, and its time limit. In a message of its own: inside the input's string a
/// procedure could no longer COMMIT.
pub fn dress(session: &mut Session, order: &WorkerOrder, row: &TaskRow) -> Result<(), QueryError> {
    let text = format!(
        "{DRESS}, {WATCH_CLIENT}, pg_catalog.pg_try_advisory_lock({}){}, pg_catalog.pg_backend_pid()",
        sign("$7", "$1"),
        proof(order)
    );
    let (dress, queue) = (Dress::new(order, row), qualified(&order.schema, &order.table));
    let [id, group, schema, table, name, timeout] = dress.values(order, row);
    let rows = session.execute(&text, &[id, group, schema, table, name, timeout, queue.as_bytes()].map(Some))?;
    dress_run(session, row)?;
    // A pooler has numbers of its own; who is to be terminated must be known by the server's.
    session.learn_backend(rows.first().and_then(|row| row.last()).and_then(Option::as_deref));
    Ok(())
}

/// As a further item of a SELECT: fails where the scheduler's session is not.
fn proof(order: &WorkerOrder) -> String {
    order.home.as_ref().map(|home| format!(", {}", proof_item(home.proof))).unwrap_or_default()
}

/// What `dress` sets, as one statement without parameters, for a session of our own, which is watched from its start; of one
/// that was dressed by its login, only the lock and the proof.
pub fn quick_dress(order: &WorkerOrder, row: &TaskRow) -> String {
    let dress = Dress::new(order, row);
    let [id, group, schema, table, name, timeout] = dress.values(order, row);
    let settings: [(&str, &[u8]); 5] = [
        ("pg_task.id", id),
        ("pg_task.group", group),
        ("pg_task.schema", schema),
        ("pg_task.table", table),
        ("application_name", name),
    ];
    let limit = (timeout != b"0").then_some(("statement_timeout", timeout));
    let mut text = String::with_capacity(512);
    text.push_str("SELECT ");
    for (setting, value) in settings.into_iter().chain(limit).filter(|_| !row.dressed) {
        let value = literal(&String::from_utf8_lossy(value));
        text.push_str(&format!("pg_catalog.set_config('{setting}', {value}, false), "));
    }
    let sign = match row.sign {
        Some(key) => format!("{}, {key}", lock_key::TASK),
        None => sign(&literal(&qualified(&order.schema, &order.table)), &format!("'{}'", dress.task)),
    };
    text.push_str(&format!("pg_catalog.pg_try_advisory_lock({sign})"));
    text.push_str(&proof(order));
    text
}

/// Of a group whose tasks come in batches.
const LONGEST_GROUP_BYTES: usize = 4096;

/// What `dress` sets, as a statement that stands on the session while its tasks of one group follow each other in
/// batches: the task's id and time limit are left open. It also gives back the locks of the task before. On a session
/// of our own, which is watched from its start, and whose login may have `told` it what is the same for all of them. None:
/// the group cannot be written into a statement, or its name is too long for one that is kept.
pub fn batch_dress(order: &WorkerOrder, group: &[u8], told: bool) -> Option<String> {
    let group = std::str::from_utf8(group).ok().filter(|group| group.len() <= LONGEST_GROUP_BYTES)?;
    let name = format!("{} {group}", application_name(order));
    let [group, schema, table, name] = [group, &order.schema, &order.table, &name].map(literal);
    let queue = literal(&qualified(&order.schema, &order.table));
    let set = |setting: &str, value: &str| format!("pg_catalog.set_config('{setting}', {value}, false)");
    let settings = [
        set("pg_task.id", "$1"),
        set("pg_task.group", &group),
        set("pg_task.schema", &schema),
        set("pg_task.table", &table),
        set("application_name", &name),
    ];
    let settings = if told { settings[0].clone() } else { settings.join(", ") };
    let (limit, sign) = (set("statement_timeout", "$2"), sign(&queue, "$1"));
    Some(format!(
        "SELECT pg_catalog.pg_advisory_unlock_all(), {settings}, \
         CASE WHEN $2 OPERATOR(pg_catalog.<>) '0' THEN {limit} END, pg_catalog.pg_try_advisory_lock({sign}){}",
        proof(order)
    ))
}

/// What stands before a task of a batch: a transaction in which the session is made as new, unless it is, and dressed. By
/// the names under which the statements stand; the dress is the last but one, and its values are the task's.
#[derive(Debug)]
pub struct Renewals {
    anew: Vec<String>,
    dressed: Vec<String>,
    values: Vec<[String; 2]>,
}

impl Renewals {
    /// For these rows, which are all of one group.
    pub fn prepare(session: &mut Session, order: &WorkerOrder, rows: &[TaskRow]) -> Result<Renewals, QueryError> {
        let dress = rows.first().and_then(|row| batch_dress(order, &row.group, session.is_of_group(&row.group)));
        let dress = dress.unwrap_or_default();
        let mut stand = |texts: &[&str]| texts.iter().map(|text| session.prepare(text)).collect::<Result<Vec<_>, _>>();
        let dressed = stand(&[BEGIN, &dress, COMMIT])?;
        let anew = [&dressed[..1], &stand(&RENEWAL)?, &dressed[1..]].concat();
        let values = rows.iter().map(|row| [row.task.to_string(), limit_ms(row).to_string()]).collect();
        Ok(Renewals { anew, dressed, values })
    }

    /// What stands before the row in this place. The first one finds a session that is as new.
    pub fn before(&self, place: usize) -> (&[String], [&str; 2]) {
        let statements = if place == 0 { &self.dressed } else { &self.anew };
        (statements, self.values[place].each_ref().map(String::as_str))
    }
}

/// What the run of a job may read beside: whose run it is, for which time, and the how-manieth try.
fn dress_run(session: &mut Session, row: &TaskRow) -> Result<(), QueryError> {
    let Some(job) = &row.job else { return Ok(()) };
    let text = "SELECT pg_catalog.set_config('mill.job', $1, false), pg_catalog.set_config('mill.at', $2, false), \
         pg_catalog.set_config('mill.attempt', $3, false)";
    let attempt = row.attempt.to_string();
    session.execute(text, &[&job[..], row.at.as_deref().unwrap_or_default(), attempt.as_bytes()].map(Some)).map(|_| ())
}

const DRESS: &str = "SELECT pg_catalog.set_config('pg_task.id', $1, false), pg_catalog.set_config('pg_task.group', $2, false), \
         pg_catalog.set_config('pg_task.schema', $3, false), pg_catalog.set_config('pg_task.table', $4, false), \
         pg_catalog.set_config('application_name', $5, false), \
         CASE WHEN $6 OPERATOR(pg_catalog.<>) '0' THEN pg_catalog.set_config('statement_timeout', $6, false) END";
const WATCH_CLIENT: &str = "pg_catalog.set_config('client_connection_check_interval', '300', false)";

/// The texts of it.
struct Dress {
    task: String,
    name: Vec<u8>,
    timeout: String,
}

impl Dress {
    fn new(order: &WorkerOrder, row: &TaskRow) -> Dress {
        let mut name = format!("{} ", application_name(order)).into_bytes();
        name.extend_from_slice(&row.group);
        let timeout = limit_ms(row).to_string();
        Dress { task: row.task.to_string(), name, timeout }
    }

    fn values<'a>(&'a self, order: &'a WorkerOrder, row: &'a TaskRow) -> [&'a [u8]; 6] {
        let (schema, table) = (order.schema.as_bytes(), order.table.as_bytes());
        [self.task.as_bytes(), &row.group, schema, table, &self.name, self.timeout.as_bytes()]
    }
}

/// The same on a remote, where our table is not.
pub fn dress_far(session: &mut Session, order: &WorkerOrder, row: &TaskRow) -> Result<(), QueryError> {
    let dress = Dress::new(order, row);
    session.execute(DRESS, &dress.values(order, row).map(Some))?;
    dress_run(session, row)
}

/// The lock of a task that runs elsewhere, held by the session that will write its end.
pub fn mark(home: &mut Session, order: &WorkerOrder, row: &TaskRow) -> Result<(), QueryError> {
    let text = format!("SELECT pg_catalog.pg_try_advisory_lock({})", sign("$1", "$2"));
    let (queue, task) = (qualified(&order.schema, &order.table), row.task.to_string());
    home.execute(&text, &[Some(queue.as_bytes()), Some(task.as_bytes())]).map(|_| ())
}

/// Between two tasks of one worker: as new, or, if the finished one asked to `save`, all but the path and the time
/// limit, which are each task's own.
pub fn undress(session: &mut Session, order: &WorkerOrder, finished: &TaskRow) -> Result<(), QueryError> {
    if finished.save {
        let unlock = format!("SELECT pg_catalog.pg_advisory_unlock({})", sign("$1", "$2"));
        let (queue, task) = (qualified(&order.schema, &order.table), finished.task.to_string());
        session.execute(&unlock, &[Some(queue.as_bytes()), Some(task.as_bytes())])?;
        session.execute("RESET search_path", &[])?;
        session.execute("RESET statement_timeout", &[]).map(|_| ())
    } else {
        session.discard_all()
    }
}

/// `undress` on a remote.
pub fn undress_far(session: &mut Session, finished: &TaskRow) -> Result<(), QueryError> {
    if finished.save {
        session.execute("RESET search_path", &[])?;
        session.execute("RESET statement_timeout", &[]).map(|_| ())
    } else {
        session.execute("DISCARD ALL", &[]).map(|_| ())
    }
}

/// The two keys of a running task's lock: for `why` and monitoring, no proof of anything.
fn sign(queue: &str, task: &str) -> String {
    let name = format!("pg_catalog.concat({queue}::pg_catalog.regclass::pg_catalog.oid, ':', {task}::pg_catalog.text)");
    format!("{}, pg_catalog.hashtext({name})", lock_key::TASK)
}
