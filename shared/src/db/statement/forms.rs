//! Every form in which a statement is sent, for people and for tests.

use super::queue::{Crowd, Dress};
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
        "task/take_next" => next_forms(queue),
        "task/take_batch" => {
            let floors = [
                ("anywhere", None),
                ("behind the last one claimed", Some(Crowd::Alone)),
                ("behind the last one claimed, beside others", Some(Crowd::Others)),
            ];
            let form = |(about, floor): (&str, _)| Form {
                about: about.to_owned(),
                text: queue.fill_take_batch(floor, Some(PROOF)),
            };
            floors.into_iter().map(form).collect()
        }
        "task/finish_batch" => {
            let states = ["DONE", "FAIL"].into_iter();
            states.map(|state| Form { about: state.to_owned(), text: queue.fill_finish_batch(state) }).collect()
        }
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
    let setups =
        [("no session setup", None), ("setup of a task", Some(Dress::Task)), ("setup of a run", Some(Dress::Run))];
    let mut forms = Vec::new();
    for (about, dress) in setups {
        forms.push(Form { about: about.to_owned(), text: queue.fill_take_next(dress, false, Some(PROOF)) });
        if dress.is_some() {
            let about = format!("{about}, behind the last one claimed");
            forms.push(Form { about, text: queue.fill_take_next(dress, true, Some(PROOF)) });
        }
    }
    forms
}

impl Form {
    /// Name and type of each value that is sent with it: a form may leave the last ones out.
    pub fn parameters<'s>(&self, statement: &'s str) -> Vec<(&'s str, &'s str)> {
        let mut sent: Vec<_> = parameters(statement).collect();
        while !sent.is_empty() && !mentions(&self.text, sent.len()) {
            sent.pop();
        }
        sent
    }
}

fn mentions(text: &str, place: usize) -> bool {
    let mark = format!("${place}");
    text.match_indices(&mark).any(|(at, _)| !text[at + mark.len()..].starts_with(|next: char| next.is_ascii_digit()))
}
