//! Reading a cron expression. The twin in the catalog refuses the same texts with the same words; whoever changes one
//! changes the other.
//!
//! ```text
//! expression = shortcut | [second] minute hour day month weekday        separated by blanks
//! field      = item {"," item}
//! item       = "*" ["/" step] | value | value "-" value ["/" step] | "L" | "$"      the last two: day of month only
//! ```
//!
//! Values are numbers, or the first three letters of an English month or day. 7 is Sunday too, and a range may end with
//! `sun`. A range goes upward; a step needs a range, is at least 1 and not longer than its field.

use super::Cron;
use jiff::civil::Weekday;

/// Longer than any expression that a person can read.
const LONGEST: usize = 1_000;

/// Why an expression was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error("it is longer than 1000 characters")]
    TooLong,
    #[error("it has {0} fields; five are needed, or six with seconds in front")]
    Fields(usize),
    #[error("unknown shortcut {0}; known are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly")]
    Shortcut(String),
    #[error("{field}: \"{item}\" is not a value, a range or a step")]
    Malformed { field: &'static str, item: String },
    #[error("{field}: {value} is not within {low} to {high}")]
    Outside { field: &'static str, value: String, low: u8, high: u8 },
    #[error("{field}: the range {item} goes backward")]
    Backward { field: &'static str, item: String },
    #[error("{field}: the step {step} is not within 1 to {high}")]
    Step { field: &'static str, step: String, high: u8 },
    #[error("{field}: the step in {item} needs a range, as in {value}-{high}/{step}")]
    Rangeless { field: &'static str, item: String, value: String, high: u8, step: String },
    #[error("it never fires: none of its months has such a day")]
    Never,
}

struct Field {
    name: &'static str,
    low: u8,
    high: u8,
    /// The longest step: as many as it has values.
    longest: u8,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const SECOND: Field = Field { name: "second", low: 0, high: 59, longest: 60, names: &[] };
const MINUTE: Field = Field { name: "minute", low: 0, high: 59, longest: 60, names: &[] };
const HOUR: Field = Field { name: "hour", low: 0, high: 23, longest: 24, names: &[] };
const DAY: Field = Field { name: "day of month", low: 1, high: 31, longest: 31, names: &[] };
const MONTH: Field = Field { name: "month", low: 1, high: 12, longest: 12, names: &MONTHS };
const WEEKDAY: Field = Field { name: "day of week", low: 0, high: 7, longest: 7, names: &WEEKDAYS };

pub fn parse(text: &str) -> Result<Cron, CronError> {
    if text.chars().count() > LONGEST {
        return Err(CronError::TooLong);
    }
    let text = text.trim_matches(is_blank);
    let text = if text.starts_with('@') { shortcut(text)? } else { text };
    let fields: Vec<&str> = text.split(is_blank).filter(|field| !field.is_empty()).collect();
    let (second, [minute, hour, day, month, weekday]) = match fields[..] {
        [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
        [second, minute, hour, day, month, weekday] => (second, [minute, hour, day, month, weekday]),
        _ => return Err(CronError::Fields(fields.len())),
    };
    let (seconds, minutes, hours) = (read(&SECOND, second)?, read(&MINUTE, minute)?, read(&HOUR, hour)?);
    let (days, last_day) = read_days(day)?;
    let (months, weekdays) = (read(&MONTH, month)?, read(&WEEKDAY, weekday)?);
    let weekdays = (weekdays | weekdays >> 7) & 0x7f;
    let either = !day.starts_with('*') && !weekday.starts_with('*');
    let cron = Cron { seconds, minutes, hours, days, last_day, months, weekdays, either };
    if fires(&cron) { Ok(cron) } else { Err(CronError::Never) }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

fn shortcut(text: &str) -> Result<&'static str, CronError> {
    match text.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => Ok("0 0 1 1 *"),
        "@monthly" => Ok("0 0 1 * *"),
        "@weekly" => Ok("0 0 * * 0"),
        "@daily" | "@midnight" => Ok("0 0 * * *"),
        "@hourly" => Ok("0 * * * *"),
        _ => Err(CronError::Shortcut(text.to_owned())),
    }
}

/// Days of the month, and whether the last one is meant too.
fn read_days(text: &str) -> Result<(u64, bool), CronError> {
    let is_last = |item: &&str| matches!(*item, "L" | "l" | "$");
    let mut days = 0;
    for item in text.split(',').filter(|item| !is_last(item)) {
        days |= read_item(&DAY, item)?;
    }
    Ok((days, text.split(',').any(|item| is_last(&item))))
}

fn read(field: &Field, text: &str) -> Result<u64, CronError> {
    text.split(',').try_fold(0, |set, item| Ok(set | read_item(field, item)?))
}

fn read_item(field: &Field, item: &str) -> Result<u64, CronError> {
    let malformed = || CronError::Malformed { field: field.name, item: item.to_owned() };
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (item, None),
    };
    let (low, high) = match range.split_once('-') {
        _ if range == "*" => (field.low, if field.high == 7 { 6 } else { field.high }),
        Some((low_text, high_text)) => {
            let low = read_value(field, low_text).ok_or_else(malformed)?;
            let high = read_value(field, high_text).ok_or_else(malformed)?;
            let (low, high) = (within(field, low_text, low)?, within(field, high_text, high)?);
            let sunday = field.high == 7 && low > 0 && high_text.eq_ignore_ascii_case("sun");
            (low, if sunday { 7 } else { high })
        }
        None => {
            let value = read_value(field, range).ok_or_else(malformed)?;
            let value = within(field, range, value)?;
            if let Some(step) = step {
                let (item, value, step) = (item.to_owned(), range.to_owned(), step.to_owned());
                return Err(CronError::Rangeless { field: field.name, item, value, high: field.high, step });
            }
            (value, value)
        }
    };
    if low > high {
        return Err(CronError::Backward { field: field.name, item: item.to_owned() });
    }
    let step = match step {
        None => 1,
        Some(text) => {
            let step = read_number(text).ok_or_else(malformed)?;
            if step == 0 || step > u64::from(field.longest) {
                return Err(CronError::Step { field: field.name, step: text.to_owned(), high: field.longest });
            }
            step as usize
        }
    };
    Ok((low..=high).step_by(step).fold(0, |set, value| set | 1 << value))
}

fn read_value(field: &Field, text: &str) -> Option<u64> {
    let named = field.names.iter().position(|name| text.eq_ignore_ascii_case(name));
    named.map(|index| index as u64 + u64::from(field.low)).or_else(|| read_number(text))
}

/// Up to nine digits: more are no number that a field could have.
fn read_number(text: &str) -> Option<u64> {
    let digits = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn within(field: &Field, text: &str, value: u64) -> Result<u8, CronError> {
    let (low, high) = (field.low, field.high);
    match u8::try_from(value) {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(CronError::Outside { field: field.name, value: text.to_owned(), low, high }),
    }
}

/// Does any day match? Every date falls on every weekday within 400 years, so only month and day can exclude each other.
fn fires(cron: &Cron) -> bool {
    const LENGTHS: [u64; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let within =
        |(index, length): (usize, &u64)| cron.months & (1 << (index + 1)) != 0 && cron.days & ((2 << length) - 1) != 0;
    cron.either || cron.last_day || LENGTHS.iter().enumerate().any(within)
}

pub(super) fn weekday_bit(weekday: Weekday) -> u64 {
    1 << weekday.to_sunday_zero_offset()
}
