//! What `status` tells: slots and who holds them, rows and their states, and why something waits.

use crate::leader::host::LeaderSeen;
use crate::queue::queue_table::QueueTable;
use crate::status::readiness::Tally;
use serde_json::{Value, json};
use shared::region::{Kind, Region};

/// What the loop knows besides the rows.
#[derive(Debug)]
pub struct Outline<'a> {
    pub name: &'a str,
    /// It serves a queue, or stands by for a leader that it sees.
    pub ready: bool,
    pub tally: &'a Tally,
    pub leading: bool,
    pub host: &'a str,
    /// Who leads, as far as that is known.
    pub leader: Option<LeaderSeen>,
    /// Why it does not serve, or why it stands by.
    pub why: Option<&'a str>,
    /// Why the launcher itself waits: the reason of queues that have no process.
    pub waits: Option<&'a str>,
    /// The embedded server's pid and major version, if there is one.
    pub server: Option<(Option<i32>, u32)>,
}

pub fn report(outline: &Outline<'_>, region: &Region, rows: &QueueTable) -> Value {
    let slots = region.slots();
    let all = slots.holders();
    // Reserved slots come and go with every look of a scheduler; what is used is what a process holds.
    let (reserved, held): (Vec<_>, Vec<_>) = all.iter().partition(|holder| holder.reserved);
    let holders: Vec<Value> = held
        .iter()
        .map(|holder| {
            let notes = slots.notes(holder.handle);
            let running = notes.running();
            json!({
                "slot": holder.handle.index(),
                "pid": holder.pid.as_raw(),
                "kind": notes.kind().map(Kind::name),
                "queue": notes.label(),
                "since_ms": notes.started_ms(),
                "backend": running.map(|(_, _, backend)| backend.abs()),
                "task": running.filter(|(task, _, _)| *task != 0).map(|(task, _, _)| task),
                "attempt": running.filter(|(task, _, _)| *task != 0).map(|(_, attempt, _)| attempt),
            })
        })
        .collect();
    let (seats, taken) = region.seats();
    json!({
        "name": outline.name,
        "host": outline.host,
        "pid": std::process::id(),
        "version": shared::VERSION,
        "ready": outline.ready,
        "queues": {
            "wanted": outline.tally.wanted,
            "served": outline.tally.served,
            "starting": outline.tally.starting,
        },
        "leading": outline.leading,
        "leader": outline.leader.as_ref().map(|leader| json!({
            "host": leader.host,
            "pid": leader.pid,
            "since_ms": leader.since_ms,
            "backend": leader.backend,
            "address": leader.address,
        })),
        "why": outline.why,
        "server": outline.server.map(|(pid, major)| json!({"pid": pid, "major": major})),
        "slots": {"limit": slots.limit(), "used": held.len(), "reserved": reserved.len(), "holders": holders},
        "connections": {"limit": seats, "used": taken},
        "databases": rows.report(outline.waits),
    })
}

/// The same for people.
pub fn as_text(status: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let get = |value: &Value, key: &str| text(value.get(key).unwrap_or(&Value::Null));
    let mut lines = vec![format!(
        "launcher {} on {} pid {} version {}: {}",
        get(status, "name"),
        get(status, "host"),
        get(status, "pid"),
        get(status, "version"),
        readiness(status),
    )];
    if let Some(leader) = status.get("leader").filter(|leader| !leader.is_null()) {
        let since = leader.get("since_ms").and_then(Value::as_i64).map_or_else(|| "-".to_owned(), shared::log::moment);
        let from =
            leader.get("address").and_then(Value::as_str).map(|from| format!(" from {from}")).unwrap_or_default();
        let (host, pid, backend) = (get(leader, "host"), get(leader, "pid"), get(leader, "backend"));
        lines.push(format!("leader on {host} pid {pid} since {since}, backend {backend}{from}"));
    }
    let slots = status.get("slots").unwrap_or(&Value::Null);
    lines.push(format!("slots {} of {} used", get(slots, "used"), get(slots, "limit")));
    let seats = status.get("connections").unwrap_or(&Value::Null);
    lines.push(format!("connections {} of {} used", get(seats, "used"), get(seats, "limit")));
    for row in status.get("databases").and_then(Value::as_array).into_iter().flatten() {
        let unserved = if row.get("served") == Some(&Value::Bool(false)) { " not served" } else { "" };
        let why = row.get("why").and_then(Value::as_str);
        let why = why.map(|why| format!("{unserved} because: {why}")).unwrap_or_default();
        lines.push(format!(
            "  {} {}.{} as {}: {} {} pid {} running {} rows {} bytes {}{why}",
            get(row, "data"),
            get(row, "schema"),
            get(row, "table"),
            get(row, "user"),
            get(row, "state"),
            get(row, "phase"),
            get(row, "pid"),
            get(row, "running"),
            get(row, "rows"),
            get(row, "bytes"),
        ));
    }
    for holder in slots.get("holders").and_then(Value::as_array).into_iter().flatten() {
        if holder.get("task").is_some_and(|task| !task.is_null()) {
            lines.push(format!(
                "  task {} attempt {} of {} in worker {} on backend {}",
                get(holder, "task"),
                get(holder, "attempt"),
                get(holder, "queue"),
                get(holder, "pid"),
                get(holder, "backend"),
            ));
        }
    }
    lines.join("\n")
}

/// Whether it serves, in the first line.
fn readiness(status: &Value) -> String {
    let why = status.get("why").and_then(Value::as_str);
    let count = |key: &str| status.pointer(key).and_then(Value::as_u64).unwrap_or_default();
    let (served, wanted) = (count("/queues/served"), count("/queues/wanted"));
    if status.get("ready") != Some(&Value::Bool(true)) {
        return format!("NOT SERVING: {}", why.unwrap_or("the launcher does not say why"));
    }
    match why {
        Some(why) => format!("ready ({why})"),
        None => format!("ready ({served} of {wanted} queue{} served)", if wanted == 1 { "" } else { "s" }),
    }
}
