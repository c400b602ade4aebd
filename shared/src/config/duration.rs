//! Lengths of time as people write them: `100`, `500ms`, `10 min`, `1 hour 30 min`.
//!
//! Called by `config` for its own settings (whole milliseconds, `parse_ms`) and for column defaults (`IntervalText`,
//! which keeps months and days apart from hours, because a day is not always 24 hours long), and by whoever shows
//! a length of time (`Milliseconds`). A number without a unit is milliseconds, also where PostgreSQL would count
//! seconds. What can go wrong: an unknown unit, a number that is none, a sum too large; every error names the text,
//! unless it does not even begin like a length of time.

use crate::limits::{INTERVAL_DAYS_MAX, INTERVAL_DECIMALS_MAX, INTERVAL_MONTHS_MAX};
use std::fmt;
use std::str::FromStr;

const MILLISECOND_US: u64 = 1_000;
const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;
const HOUR_US: u64 = 60 * MINUTE_US;
const DAY_US: u64 = 24 * HOUR_US;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("\"{0}\" is not a duration; write for example \"500 ms\", \"10 s\", \"1 hour 30 min\"")]
    Malformed(String),
    /// Not even the beginning of one. It is not shown: it may be a password that landed under the wrong key.
    #[error("is not a duration; write for example \"500 ms\", \"10 s\", \"1 hour 30 min\"")]
    Foreign,
    #[error("\"{text}\" has the unknown unit \"{unit}\"; units are us, ms, s, min, h, d, week")]
    UnknownUnit { text: String, unit: String },
    #[error("\"{0}\" counts months or years, which have no fixed length; use days or weeks")]
    NoFixedLength(String),
    #[error("\"{0}\" is too long")]
    TooLong(String),
}

/// The milliseconds of a text; parts of a millisecond are rounded to the nearest.
pub fn parse_ms(text: &str) -> Result<u64, DurationError> {
    let mut total_us: u64 = 0;
    for term in terms(text)? {
        let Unit::Fixed(unit_us) = term.unit else {
            return Err(DurationError::NoFixedLength(shown(text)));
        };
        let term_us = term.times(unit_us).ok_or_else(|| DurationError::TooLong(shown(text)))?;
        total_us = total_us.checked_add(term_us).ok_or_else(|| DurationError::TooLong(shown(text)))?;
    }
    Ok(total_us / MILLISECOND_US + u64::from(total_us % MILLISECOND_US >= MILLISECOND_US / 2))
}

/// Milliseconds that read and write themselves as short text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milliseconds(pub u64);

impl FromStr for Milliseconds {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        parse_ms(text).map(Milliseconds)
    }
}

impl fmt::Display for Milliseconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("d", DAY_US), ("h", HOUR_US), ("min", MINUTE_US), ("s", SECOND_US), ("ms", MILLISECOND_US)];
        let mut rest_ms = self.0;
        let mut words = Vec::new();
        for (name, unit_us) in units {
            let unit_ms = unit_us / MILLISECOND_US;
            if rest_ms >= unit_ms {
                words.push(format!("{} {name}", rest_ms / unit_ms));
                rest_ms %= unit_ms;
            }
        }
        if words.is_empty() { out.write_str("0 ms") } else { out.write_str(&words.join(" ")) }
    }
}

/// A PostgreSQL interval that is not negative. Its text is read alike by this file and by every server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntervalText {
    pub months: u64,
    pub days: u64,
    pub us: u64,
}

impl IntervalText {
    /// A plain number of milliseconds, as in `"timeout": 600000`.
    pub fn from_ms(ms: u64) -> Result<IntervalText, DurationError> {
        let too_long = || DurationError::TooLong(format!("{ms} ms"));
        let us = ms.checked_mul(MILLISECOND_US).ok_or_else(too_long)?;
        IntervalText { us, ..IntervalText::default() }.limited().ok_or_else(too_long)
    }

    pub fn is_zero(&self) -> bool {
        *self == IntervalText::default()
    }

    fn limited(self) -> Option<IntervalText> {
        let fits = self.months <= INTERVAL_MONTHS_MAX
            && self.days <= INTERVAL_DAYS_MAX
            && self.us / DAY_US < INTERVAL_DAYS_MAX;
        fits.then_some(self)
    }

    fn plus(self, term: &Term) -> Option<IntervalText> {
        let mut sum = self;
        match term.unit {
            Unit::Months(months) if term.fraction == 0 => {
                sum.months = sum.months.checked_add(term.whole.checked_mul(months)?)?;
            }
            Unit::Months(_) => return None,
            Unit::Fixed(unit_us) if unit_us >= DAY_US => {
                let whole_days = term.whole.checked_mul(unit_us / DAY_US)?;
                let fraction_us = Term { whole: 0, ..*term }.times(unit_us)?;
                sum.days = sum.days.checked_add(whole_days)?.checked_add(fraction_us / DAY_US)?;
                sum.us = sum.us.checked_add(fraction_us % DAY_US)?;
            }
            Unit::Fixed(unit_us) => sum.us = sum.us.checked_add(term.times(unit_us)?)?,
        }
        sum.limited()
    }
}

impl FromStr for IntervalText {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        terms(text)?.iter().try_fold(IntervalText::default(), |sum, term| {
            if matches!(term.unit, Unit::Months(_)) && term.fraction > 0 {
                return Err(DurationError::Malformed(shown(text)));
            }
            sum.plus(term).ok_or_else(|| DurationError::TooLong(shown(text)))
        })
    }
}

impl fmt::Display for IntervalText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, parts_us) = (self.us % MINUTE_US / SECOND_US, self.us % SECOND_US);
        let mut words = Vec::new();
        let whole = [
            (self.months, "mon"),
            (self.days, "day"),
            (self.us / HOUR_US, "hour"),
            (self.us % HOUR_US / MINUTE_US, "min"),
        ];
        for (count, name) in whole {
            if count > 0 {
                words.push(format!("{count} {name}"));
            }
        }
        if parts_us > 0 {
            let decimals = format!("{parts_us:06}");
            words.push(format!("{seconds}.{} s", decimals.trim_end_matches('0')));
        } else if seconds > 0 || words.is_empty() {
            words.push(format!("{seconds} s"));
        }
        out.write_str(&words.join(" "))
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Fixed(u64),
    Months(u64),
}

/// `1.5 s`: whole 1, fraction 500,000,000 billionths, unit one second.
struct Term {
    whole: u64,
    fraction: u64,
    unit: Unit,
}

impl Term {
    fn times(&self, unit_us: u64) -> Option<u64> {
        let billion = 10u128.pow(INTERVAL_DECIMALS_MAX as u32);
        let exact = u128::from(self.whole) * u128::from(unit_us)
            + (u128::from(self.fraction) * u128::from(unit_us) + billion / 2) / billion;
        u64::try_from(exact).ok()
    }
}

fn terms(text: &str) -> Result<Vec<Term>, DurationError> {
    let malformed = || DurationError::Malformed(shown(text));
    let mut rest = text.trim();
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(DurationError::Foreign);
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split_while(after.trim_start(), char::is_alphabetic);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > INTERVAL_DECIMALS_MAX {
            return Err(malformed());
        }
        let alone = found.is_empty() && after.is_empty();
        let unit = match unit {
            "" if alone => Unit::Fixed(MILLISECOND_US),
            "" => return Err(malformed()),
            name => unit_of(name).ok_or_else(|| DurationError::UnknownUnit { text: shown(text), unit: shown(name) })?,
        };
        let whole = whole.parse().map_err(|_| DurationError::TooLong(shown(text)))?;
        let fraction = format!("{fraction:0<INTERVAL_DECIMALS_MAX$}").parse().map_err(|_| malformed())?;
        found.push(Term { whole, fraction, unit });
        rest = after.trim_start();
    }
    if found.is_empty() { Err(malformed()) } else { Ok(found) }
}

fn unit_of(name: &str) -> Option<Unit> {
    Some(match name.to_ascii_lowercase().as_str() {
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => Unit::Fixed(1),
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => Unit::Fixed(MILLISECOND_US),
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Fixed(SECOND_US),
        "min" | "mins" | "minute" | "minutes" => Unit::Fixed(MINUTE_US),
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Fixed(HOUR_US),
        "d" | "day" | "days" => Unit::Fixed(DAY_US),
        "w" | "week" | "weeks" => Unit::Fixed(7 * DAY_US),
        "mon" | "mons" | "month" | "months" => Unit::Months(1),
        "y" | "year" | "years" => Unit::Months(12),
        _ => return None,
    })
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// The text as an error may show it: short and on one line.
fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        short.push_str("..");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::{DurationError, IntervalText, Milliseconds, parse_ms};
    use proptest::prelude::{any, proptest};

    #[test]
    fn a_number_without_a_unit_is_milliseconds() {
        assert_eq!(parse_ms("100"), Ok(100));
        assert_eq!("100".parse::<IntervalText>().unwrap(), IntervalText::from_ms(100).unwrap());
    }

    #[test]
    fn every_unit_is_understood_with_and_without_blanks() {
        let table = [
            ("1500 us", 2),
            ("500ms", 500),
            ("1 s", 1_000),
            ("2 sec", 2_000),
            ("3 seconds", 3_000),
            ("10 min", 600_000),
            ("1 minute", 60_000),
            ("1h", 3_600_000),
            ("1 hour", 3_600_000),
            ("2 d", 172_800_000),
            ("1 day", 86_400_000),
            ("2 weeks", 1_209_600_000),
            ("1.5 S", 1_500),
            (" 1 hour  30min ", 5_400_000),
            ("1h30min5s", 5_405_000),
            ("0", 0),
        ];
        for (text, ms) in table {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_of_time_is_refused_and_named_if_it_begins_like_one() {
        for text in ["1..5 s", "1. s", "1 2 s", "1 s 2", "1 s,", "1e3"] {
            let error = parse_ms(text).expect_err(text).to_string();
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
        }
        for text in ["", " ", "s", "ten s", "-1 s", ".5 s"] {
            assert_eq!(parse_ms(text), Err(DurationError::Foreign), "{text}");
        }
    }

    #[test]
    fn an_unknown_unit_is_named() {
        let error = parse_ms("5 fortnights").expect_err("unit").to_string();
        assert!(error.contains("\"5 fortnights\"") && error.contains("\"fortnights\""), "{error}");
    }

    #[test]
    fn overflow_is_an_error_and_not_a_small_number() {
        for text in ["99999999999999999999", "18446744073709551615 weeks", "9999999999999999 s 9999999999999999 s"] {
            assert!(matches!(parse_ms(text), Err(DurationError::TooLong(_))), "{text}");
            assert!(matches!(text.parse::<IntervalText>(), Err(DurationError::TooLong(_))), "{text}");
        }
        assert!(IntervalText::from_ms(u64::MAX).is_err());
    }

    #[test]
    fn a_month_has_no_milliseconds_but_is_an_interval() {
        assert!(matches!(parse_ms("1 month"), Err(DurationError::NoFixedLength(_))));
        assert_eq!("1 year 2 mons".parse::<IntervalText>().unwrap().to_string(), "14 mon");
        assert!("1.5 months".parse::<IntervalText>().is_err());
    }

    #[test]
    fn a_day_stays_a_day_in_an_interval() {
        assert_eq!("1 day".parse::<IntervalText>().unwrap().to_string(), "1 day");
        assert_eq!("24 hours".parse::<IntervalText>().unwrap().to_string(), "24 hour");
        assert_eq!("1.5 weeks".parse::<IntervalText>().unwrap().to_string(), "10 day 12 hour");
        assert_eq!(IntervalText::from_ms(600_500).unwrap().to_string(), "10 min 0.5 s");
        assert_eq!(IntervalText::default().to_string(), "0 s");
    }

    #[test]
    fn milliseconds_are_shown_in_the_units_they_fill() {
        assert_eq!(Milliseconds(0).to_string(), "0 ms");
        assert_eq!(Milliseconds(90_061_001).to_string(), "1 d 1 h 1 min 1 s 1 ms");
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(ms in 0..u64::MAX / 1_000) {
            assert_eq!(Milliseconds(ms).to_string().parse(), Ok(Milliseconds(ms)));
        }

        #[test]
        fn an_interval_reads_back(months in 0..120_000u64, days in 0..3_652_500u64, us in 0..300_000_000_000_000_000u64) {
            let interval = IntervalText { months, days, us };
            assert_eq!(interval.to_string().parse(), Ok(interval));
        }

        #[test]
        fn any_text_is_survived(text in any::<String>(), digits in "[0-9.]{0,30} ?[a-zé]{0,4}") {
            let _ = parse_ms(&text);
            let _ = text.parse::<IntervalText>();
            let _ = parse_ms(&digits);
            let _ = digits.parse::<IntervalText>();
        }
    }
}
