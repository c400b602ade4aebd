//! What `launcher status` prints: slots and their holders, queues and their states, and why something waits.

use crate::base::LauncherBase;
use crate::leader::leadership::Leadership;
use crate::queue::queue_counts::QueueCounts;
use crate::queue::queue_table::QueueTable;
use crate::status::queue_report::queue_report;
use serde_json::{Value, json};
use shared::region::ProcessKind;

/// The launcher that is reported on.
pub struct Subject<'a> {
    pub base: &'a LauncherBase,
    pub leadership: &'a Leadership,
    pub queues: &'a QueueTable,
    pub stopping: bool,
    /// The embedded server's pid and major version, if there is one.
    pub server: Option<(Option<i32>, u32)>,
}

impl Subject<'_> {
    /// Why this launcher neither serves a queue nor stands by for a leader that it sees.
    fn not_serving(&self, queue_counts: &QueueCounts) -> Option<String> {
        if self.stopping {
            return Some("the launcher is stopping".to_owned());
        }
        if !self.leadership.leads() {
            let why = self.leadership.why().unwrap_or("the launcher is connecting to its server");
            return (!self.leadership.stands_by()).then(|| why.to_owned());
        }
        if queue_counts.served > 0 {
            return None;
        }
        let none = "no queue found: no covered database has a task table and a catalog";
        Some(queue_counts.reason.clone().unwrap_or_else(|| none.to_owned()))
    }
}

pub fn report(subject: &Subject<'_>) -> Value {
    let Subject { base, leadership, queues, server, .. } = subject;
    let region = &base.region;
    let queue_counts = QueueCounts::of(queues);
    let not_serving = subject.not_serving(&queue_counts);
    let leads = leadership.leads();
    let leader = if leads { Some(leadership.own()) } else { leadership.seen.clone() };
    let slots = region.slots();
    let all = slots.holders();
    // Reserved slots come and go with every pass of a scheduler; a slot is used once a process holds it.
    let (reserved, held): (Vec<_>, Vec<_>) = all.iter().partition(|holder| holder.reserved);
    let holders: Vec<Value> = held
        .iter()
        .map(|holder| {
            let slot_status = slots.slot_status(holder.handle);
            let running = slot_status.running();
            json!({
                "slot": holder.handle.index(),
                "pid": holder.pid.as_raw(),
                "kind": slot_status.kind().map(ProcessKind::name),
                "queue": slot_status.label(),
                "since_ms": slot_status.started_ms(),
                "backend": running.map(|(_, _, backend)| backend.abs()),
                "task": running.filter(|(task, _, _)| *task != 0).map(|(task, _, _)| task),
                "attempt": running.filter(|(task, _, _)| *task != 0).map(|(_, attempt, _)| attempt),
            })
        })
        .collect();
    let (connections, taken) = region.connections();
    json!({
        "name": base.name,
        "host": leadership.host.name,
        "pid": std::process::id(),
        "version": shared::VERSION,
        "ready": not_serving.is_none(),
        "queues": {
            "wanted": queue_counts.wanted,
            "served": queue_counts.served,
            "starting": queue_counts.starting,
        },
        "leading": leads,
        "leader": leader.as_ref().map(|leader| json!({
            "host": leader.host,
            "pid": leader.pid,
            "since_ms": leader.since_ms,
            "backend": leader.backend,
            "address": leader.address,
        })),
        "why": not_serving.as_deref().or(leadership.why()),
        "server": server.map(|(pid, major)| json!({"pid": pid, "major": major})),
        "slots": {"limit": slots.limit(), "used": held.len(), "reserved": reserved.len(), "holders": holders},
        "connections": {"limit": connections, "used": taken},
        "databases": queue_report(queues, leadership.why()),
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
    let connections = status.get("connections").unwrap_or(&Value::Null);
    lines.push(format!("connections {} of {} used", get(connections, "used"), get(connections, "limit")));
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
        return format!("NOT SERVING: {}", why.unwrap_or("the launcher gave no reason"));
    }
    match why {
        Some(why) => format!("ready ({why})"),
        None => format!("ready ({served} of {wanted} queue{} served)", if wanted == 1 { "" } else { "s" }),
    }
}
