//! A flow as a Graphviz picture. PURE: from what `mill.picture` returns to the text that `dot` reads.
//!
//! Jobs are boxes, filled by their state at one logical time; jobs of other flows are dashed. Timers are ellipses.
//! An arrow is solid on success, red and dashed on failure, dotted on either.

use serde_json::Value;
use std::fmt::Write;

/// State, fill, text of the legend.
const STATES: [(&str, &str); 6] = [
    ("succeeded", "#c8e6c9"),
    ("failed", "#ef9a9a"),
    ("running", "#bbdefb"),
    ("planned", "#fff9c4"),
    ("waiting", "#ffe0b2"),
    ("skipped", "#e1bee7"),
];

pub fn draw(picture: &Value) -> String {
    let flow = text(picture, "flow");
    let at = picture.get("at").and_then(Value::as_str);
    let mut out = format!("digraph {} {{\n", quoted(flow));
    out += "  rankdir=LR; fontname=\"sans-serif\"; labelloc=t;\n";
    let paused = if picture.get("paused").and_then(Value::as_bool) == Some(true) { ", paused" } else { "" };
    let title = at.map_or_else(|| format!("{flow}{paused}"), |at| format!("{flow}{paused}, at {at}"));
    let _ = writeln!(out, "  label={};", quoted(&title));
    out += "  node [fontname=\"sans-serif\", fontsize=11]; edge [fontname=\"sans-serif\", fontsize=9];\n";
    for timer in list(picture, "timers") {
        let off = if timer.get("enabled").and_then(Value::as_bool) == Some(false) { "\ndisabled" } else { "" };
        let zone = match text(timer, "timezone") {
            "UTC" => String::new(),
            zone => format!("\n{zone}"),
        };
        let label = format!("{}\n{}{zone}{off}", text(timer, "name"), text(timer, "schedule"));
        let name = format!("timer {}", text(timer, "name"));
        let _ = writeln!(out, "  {} [shape=ellipse, label={}];", quoted(&name), quoted(&label));
    }
    for job in list(picture, "jobs") {
        let name = text(job, "name");
        let mut label = name.to_owned();
        if let Some(threshold) = job.get("threshold").and_then(Value::as_i64) {
            let _ = write!(label, "\nany {threshold}");
        }
        if let Some(schedule) = job.get("schedule").and_then(Value::as_str) {
            let _ = write!(label, "\n{schedule}");
        }
        let state = job.get("state").and_then(Value::as_str);
        if let Some(state) = state {
            let _ = write!(label, "\n{state}");
        }
        let fill = STATES.iter().find(|(known, _)| Some(*known) == state).map_or("#ffffff", |(_, fill)| fill);
        let foreign = text(job, "flow") != flow;
        let style = if foreign { "rounded,filled,dashed" } else { "rounded,filled" };
        if foreign && !text(job, "flow").is_empty() {
            let _ = write!(label, "\n(flow {})", text(job, "flow"));
        }
        let pen = if job.get("empty").and_then(Value::as_bool) == Some(true) { ", color=\"#9e9e9e\"" } else { "" };
        let _ = writeln!(
            out,
            "  {} [shape=box, style=\"{style}\", fillcolor=\"{fill}\"{pen}, label={}];",
            quoted(&format!("job {name}")),
            quoted(&label)
        );
    }
    for edge in list(picture, "edges") {
        let from = match edge.get("from_timer").and_then(Value::as_str) {
            Some(timer) => format!("timer {timer}"),
            None => format!("job {}", text(edge, "from_job")),
        };
        let mut attributes = Vec::new();
        match text(edge, "on") {
            "failure" => attributes.push("color=\"#c62828\", style=dashed".to_owned()),
            "done" => attributes.push("style=dotted".to_owned()),
            _ => {}
        }
        if let Some(shift) = edge.get("shift").and_then(Value::as_str) {
            attributes.push(format!("label={}", quoted(&format!("+ {shift}"))));
        }
        let to = format!("job {}", text(edge, "job"));
        let _ = writeln!(out, "  {} -> {} [{}];", quoted(&from), quoted(&to), attributes.join(", "));
    }
    out + "}\n"
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A string of the dot language: whatever a job is called, it stays a name.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jobs_are_filled_by_their_state_and_names_stay_names() {
        let picture = json!({"flow": "etl", "at": "2026-01-01", "paused": true,
            "timers": [{"name": "daily", "schedule": "0 3 * * *", "timezone": "Europe/Paris", "enabled": false}],
            "jobs": [{"name": "load \"it\"", "flow": "etl", "state": "failed"}, {"name": "b", "flow": "other", "threshold": 2}],
            "edges": [{"job": "load \"it\"", "from_timer": "daily", "on": "success"},
                      {"job": "b", "from_job": "load \"it\"", "on": "failure", "shift": "1 day"}]});
        let dot = draw(&picture);
        for part in [
            r#"digraph "etl" {"#,
            r#"label="etl, paused, at 2026-01-01";"#,
            r#""timer daily" [shape=ellipse, label="daily\n0 3 * * *\nEurope/Paris\ndisabled"];"#,
            r##""job load \"it\"" [shape=box, style="rounded,filled", fillcolor="#ef9a9a", label="load \"it\"\nfailed"];"##,
            r##"style="rounded,filled,dashed", fillcolor="#ffffff", label="b\nany 2\n(flow other)"];"##,
            r#""timer daily" -> "job load \"it\"" [];"#,
            r##""job load \"it\"" -> "job b" [color="#c62828", style=dashed, label="+ 1 day"];"##,
        ] {
            assert!(dot.contains(part), "{part}\nis not in\n{dot}");
        }
    }
}
