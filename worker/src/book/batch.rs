//! The books of a batch: several ends, and the take of the next ones, in one transaction.
//!
//! What is written of one task in `book` is written here of several at once; the rules are the same, and so is the fence.
//! The statements are planned once in a session, for any number of rows.

use super::row::{Floor, TaskRow, batch_row};
use super::{Book, COMMIT, Finished, Framed, Numbers, Record, Reuse, names, short_frame, tidy, tried};
use crate::wire::{QueryError, Row, Session, Statement};
use shared::db::statement::Crowd;
use std::rc::Rc;
use std::time::Duration;

/// One of several ends that are written together.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    pub task: i64,
    pub attempt: i32,
    pub record: Record<'a>,
    /// Since it was taken; None: it has ended just now.
    pub began: Duration,
    pub ended: Option<Duration>,
}

/// How many tasks a worker asks for at once, and from where on it looks.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    pub reuse: &'a Reuse,
    pub size: usize,
    pub floor: Option<Floor>,
}

/// What came of several ends.
#[derive(Debug)]
pub struct BatchFinished {
    /// Whose ends are written.
    pub written: Vec<i64>,
    /// In the order in which they are to run.
    pub next: Vec<TaskRow>,
}

impl Book {
    /// WORK → DONE or FAIL of several tasks without consequences, and WORK → PLAN of those that were never sent. A task that
    /// is not among the written ones is no longer ours, or has consequences by now.
    pub fn finish_batch(
        &self,
        session: &mut Session,
        ends: &[End<'_>],
        back: &[(i64, i32)],
    ) -> Result<BatchFinished, QueryError> {
        let entries = BatchEntries::new(self, ends, back, None);
        let params = entries.params();
        let statements: Vec<_> = params.iter().map(|(text, values)| Statement::once(text, values)).collect();
        let rows = self.retried(session, &statements)?;
        Ok(entries.finished(rows, &Framed::default()))
    }

    /// The same by the short way, with the take of the next ones, if there are to be any, on the session that the batch ran on:
    /// it is made as new, in the same write, and the statements stand. True: a task has left prepared statements behind.
    pub fn finish_batch_renewed(
        &self,
        session: &mut Session,
        ends: &[End<'_>],
        back: &[(i64, i32)],
        wish: Option<Wish<'_>>,
    ) -> Result<(BatchFinished, bool), QueryError> {
        let entries = BatchEntries::new(self, ends, back, wish);
        let params = entries.params();
        let frame = short_frame(session);
        let mut statements = self.short_way(&frame);
        let head = statements.len();
        statements.extend(params.iter().map(|(text, values)| Statement::standing(text, values)));
        statements.push(Statement::standing(COMMIT, &[]));
        let mut rows = tried(|| session.transaction(&statements))?;
        rows.pop();
        let booked = rows.split_off(head);
        let framed = Framed::read(rows.pop().unwrap_or_default());
        let strange = tidy(session, &framed)?;
        Ok((entries.finished(booked, &framed), strange))
    }

    /// The same for one task that came alone and may be followed by several.
    pub fn next_batch(
        &self,
        session: &mut Session,
        row: &TaskRow,
        record: Record<'_>,
        wish: Wish<'_>,
    ) -> Result<(Finished, bool), QueryError> {
        let end = End { task: row.task, attempt: row.attempt, record, began: Duration::ZERO, ended: None };
        let (done, strange) = self.finish_batch_renewed(session, &[end], &[], Some(wish))?;
        Ok((Finished { written: !done.written.is_empty(), next: done.next, renewed: true }, strange))
    }

    fn take_text(&self, wish: Wish<'_>) -> Rc<str> {
        let crowd = |floor: Floor| if floor.is_crowded() { Crowd::Others } else { Crowd::Alone };
        let crowd = wish.floor.map(crowd);
        self.takes
            .borrow_mut()
            .entry(crowd)
            .or_insert_with(|| self.queue.fill_take_batch(crowd, self.proof).into())
            .clone()
    }
}

/// Values as the text of an array.
fn array<'v>(values: impl Iterator<Item = Option<&'v [u8]>>) -> Vec<u8> {
    let mut text = vec![b'{'];
    for (i, value) in values.enumerate() {
        if i > 0 {
            text.push(b',');
        }
        match value {
            None => text.extend_from_slice(b"NULL"),
            Some(value) => {
                text.push(b'"');
                for byte in value {
                    if matches!(byte, b'"' | b'\\') {
                        text.push(b'\\');
                    }
                    text.push(*byte);
                }
                text.push(b'"');
            }
        }
    }
    text.push(b'}');
    text
}

/// Several ends as parameters of one statement.
struct Ends {
    count: usize,
    values: [Vec<u8>; 7],
}

impl Ends {
    fn of<'e>(ends: impl Iterator<Item = &'e End<'e>>) -> Ends {
        let ends: Vec<&End<'_>> = ends.collect();
        let numbers = |number: &dyn Fn(&End<'_>) -> String| {
            let texts: Vec<String> = ends.iter().map(|end| number(end)).collect();
            array(texts.iter().map(|text| Some(text.as_bytes())))
        };
        let micros = |span: Duration| span.as_micros().to_string();
        let ended: Vec<Option<String>> = ends.iter().map(|end| end.ended.map(micros)).collect();
        let values = [
            numbers(&|end| end.task.to_string()),
            numbers(&|end| end.attempt.to_string()),
            array(ends.iter().map(|end| end.record.output)),
            array(ends.iter().map(|end| end.record.error)),
            array(ends.iter().map(|end| end.record.reason.map(str::as_bytes))),
            numbers(&|end| micros(end.began)),
            array(ended.iter().map(|micros| micros.as_ref().map(String::as_bytes))),
        ];
        Ends { count: ends.len(), values }
    }
}

/// What is written about a batch: the statements' texts, and what their parameters are made of.
struct BatchEntries<'b> {
    /// By the state that they write.
    ended: Vec<(&'b str, Ends)>,
    /// Deletes those without a result, if there may be any.
    delete: Option<&'b str>,
    /// Plans again what was never sent.
    back: Option<(&'b str, [Vec<u8>; 2])>,
    take: Option<(Rc<str>, Asking, Wish<'b>)>,
}

impl<'b> BatchEntries<'b> {
    fn new(book: &'b Book, ends: &[End<'_>], back: &[(i64, i32)], wish: Option<Wish<'b>>) -> BatchEntries<'b> {
        let ended = book
            .finish_batch
            .iter()
            .map(|(state, text)| (text.as_str(), Ends::of(ends.iter().filter(|end| end.record.state == *state))));
        let silent = ends.iter().any(|end| end.record.output.is_none() && end.record.error.is_none());
        let numbers = |number: &dyn Fn(&(i64, i32)) -> String| {
            let texts: Vec<String> = back.iter().map(number).collect();
            array(texts.iter().map(|text| Some(text.as_bytes())))
        };
        let returned = [numbers(&|(task, _)| task.to_string()), numbers(&|(_, attempt)| attempt.to_string())];
        BatchEntries {
            ended: ended.filter(|(_, ends)| ends.count > 0).collect(),
            delete: silent.then_some(&book.delete_batch),
            back: (!back.is_empty()).then_some((&book.return_batch, returned)),
            take: wish.map(|wish| (book.take_text(wish), Asking::new(wish), wish)),
        }
    }

    /// The statements in their order: ends first, the take last.
    fn params(&self) -> Vec<(&str, Vec<Option<&[u8]>>)> {
        fn given(values: &[Vec<u8>]) -> Vec<Option<&[u8]>> {
            values.iter().map(|value| Some(&value[..])).collect()
        }
        let mut all: Vec<(&str, Vec<Option<&[u8]>>)> =
            self.ended.iter().map(|(text, ends)| (*text, given(&ends.values))).collect();
        if let Some(delete) = self.delete {
            all.extend(self.ended.iter().map(|(_, ends)| (delete, given(&ends.values[..2]))));
        }
        all.extend(self.back.iter().map(|(text, values)| (*text, given(values))));
        all.extend(self.take.iter().map(|(text, asking, wish)| (&**text, asking.params(*wish))));
        all
    }

    /// What the statements have answered.
    fn finished(&self, mut rows: Vec<Vec<Row>>, framed: &Framed) -> BatchFinished {
        let mut next = Vec::new();
        if let Some((_, _, wish)) = &self.take {
            let taken = rows.pop().unwrap_or_default().into_iter();
            next.extend(taken.map(|row| batch_row(row, wish.reuse, framed)));
        }
        next.sort_by_key(|row| (std::cmp::Reverse((row.max, row.priority)), row.task));
        let written = rows.into_iter().take(self.ended.len()).flatten().collect();
        let written = names(written).iter().filter_map(|id| id.parse().ok()).collect();
        BatchFinished { written, next }
    }
}

/// The numbers of a `Wish` as parameters.
struct Asking {
    numbers: Numbers,
    size: String,
    floor: Option<[String; 3]>,
}

impl Asking {
    fn new(wish: Wish<'_>) -> Asking {
        let floor = wish.floor.map(Floor::numbers);
        Asking { numbers: Numbers::new(wish.reuse), size: wish.size.to_string(), floor }
    }

    fn params<'a>(&'a self, wish: Wish<'a>) -> Vec<Option<&'a [u8]>> {
        let mut asked = self.numbers.params(wish.reuse)[..4].to_vec();
        asked.push(Some(self.size.as_bytes()));
        asked.extend(self.floor.iter().flatten().map(|number| Some(number.as_bytes())));
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::array;

    #[test]
    fn an_array_says_which_values_are_null_and_which_only_look_like_it() {
        let values: [Option<&[u8]>; 4] = [Some(b"a\"b\\c"), None, Some(b"NULL"), Some(b"")];
        assert_eq!(array(values.into_iter()), br#"{"a\"b\\c",NULL,"NULL",""}"#);
        assert_eq!(array(std::iter::empty()), b"{}");
    }
}
