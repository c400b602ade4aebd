//! Every form in which a statement is sent, for people and for tests.

use super::queue::{Claim, Rows, Scan};
use super::queue_name::Queue;
use super::render::{bare, parameters};
use crate::config::ColumnDefaults;
use crate::db::task_column::TASK_COLUMNS;
use crate::limits::CLAIM_WALKS;

/// A statement as it is sent.
#[derive(Clone, Debug)]
pub struct Form {
    /// What it is made for; empty where there is only one form.
    pub about: String,
    pub text: String,
}

/// Two numbers that stand for those which each session of a scheduler draws.
const PROOF: i64 = (1 << 32) | 2;

/// The forms of a statement of the list. Where the OID of the table or of the queue's user has to stand, `{oid}` and `{user}` are left.
pub fn forms(path: &str, text: &str, queue: &Queue) -> Vec<Form> {
    let only = |text: String| vec![Form { about: String::new(), text }];
    let copied = || TASK_COLUMNS.iter().filter(|column| column.is_copied()).map(|column| column.name.to_owned());
    match path {
        "task/claim_walk" => {
            let walks = CLAIM_WALKS.into_iter();
            walks.map(|rows| Form { about: format!("{rows} rows"), text: queue.fill_claim_walk(rows) }).collect()
        }
        "task/claim_next" => next_forms(queue),
        "task/end" => {
            let forms = [
                ("one row", Rows::One),
                ("many rows", Rows::Many),
                ("many rows, but for locked ones", Rows::ManyUnlocked),
            ];
            let form = |(about, rows): (&str, _)| Form { about: about.to_owned(), text: queue.fill_end(rows) };
            forms.into_iter().map(form).collect()
        }
        "task/begin" => vec![
            Form { about: "one row".to_owned(), text: queue.fill_begin_one() },
            Form { about: "many rows, but for locked ones".to_owned(), text: queue.fill_begin_many() },
        ],
        "task/make_table" => only(queue.fill_make_table(&ColumnDefaults::default())),
        "task/expire_tasks" | "task/repeat_task" | "task/crash_task" => {
            only(queue.fill_repeating(text, &copied().collect::<Vec<_>>()))
        }
        "job/make_run_triggers" => only(queue.fill_run_triggers("{oid}", "{user}")),
        path if path.starts_with("job/") => only(queue.fill_of_jobs(text, "{oid}")),
        path if path.starts_with("task/") => only(queue.fill(text)),
        _ => only(bare(text)),
    }
}

fn next_forms(queue: &Queue) -> Vec<Form> {
    let claims = [
        ("a batch", Claim::Batch),
        ("one task", Claim::One),
        ("one task, with its session setup", Claim::OneSetUp),
        ("one run, with its session setup", Claim::RunSetUp),
    ];
    let scans = [
        ("", Scan::FromStart),
        (", behind the last one claimed", Scan::BehindLast),
        (", behind the last one claimed, beside others", Scan::Contended),
    ];
    let forms = claims.into_iter().flat_map(|claim| scans.map(|scan| (claim, scan)));
    forms
        .map(|((what, claim), (place, scan))| Form {
            about: format!("{what}{place}"),
            text: queue.fill_claim_next(claim, scan, Some(PROOF)),
        })
        .collect()
}

impl Form {
    /// Name and type of each value that is sent with it: a form may leave the last ones out.
    pub fn parameters<'s>(&'s self, statement: &'s str) -> Vec<(&'s str, &'s str)> {
        let mut sent: Vec<_> = parameters(statement).collect();
        while !sent.is_empty() && !mentions(&self.text, sent.len()) {
            sent.pop();
        }
        // The form for one row has single values where the head lists arrays.
        let kind = |place: usize, listed| cast_of(&self.text, place + 1).unwrap_or(listed);
        sent.into_iter().enumerate().map(|(place, (name, listed))| (name, kind(place, listed))).collect()
    }
}

/// The type that the text gives a parameter.
fn cast_of(text: &str, place: usize) -> Option<&str> {
    let mark = format!("${place}::");
    let kind = &text[text.find(&mark)? + mark.len()..];
    let end = kind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(kind.len());
    let end = if kind[end..].starts_with("[]") { end + 2 } else { end };
    Some(&kind[..end])
}

fn mentions(text: &str, place: usize) -> bool {
    let mark = format!("${place}");
    text.match_indices(&mark).any(|(at, _)| !text[at + mark.len()..].starts_with(|next: char| next.is_ascii_digit()))
}
