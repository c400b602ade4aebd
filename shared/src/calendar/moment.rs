//! A point on the time line, and the lengths that PostgreSQL adds to one.

use super::Error;
use jiff::Timestamp;
use std::fmt;
use std::time::SystemTime;

pub(super) const SECOND_US: i64 = 1_000_000;
pub(super) const DAY_US: i64 = 86_400 * SECOND_US;

/// A moment, in microseconds since 1970 in UTC: PostgreSQL's precision. Always between the years -9999 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(i64);

impl Moment {
    pub const MIN: Moment = Moment(-377_705_023_201_000_000 + 3 * DAY_US);
    /// Three days before the end of jiff: whatever the zone, its clock can still be reckoned with.
    pub const MAX: Moment = Moment(253_402_207_200_999_999 - 3 * DAY_US);

    pub fn from_us(us: i64) -> Result<Moment, Error> {
        let moment = Moment(us);
        if (Moment::MIN..=Moment::MAX).contains(&moment) { Ok(moment) } else { Err(Error::OutOfRange) }
    }

    pub fn from_seconds(seconds: i64) -> Result<Moment, Error> {
        Moment::from_us(seconds.checked_mul(SECOND_US).ok_or(Error::OutOfRange)?)
    }

    /// Microseconds since 1970.
    pub fn us(self) -> i64 {
        self.0
    }

    /// So much later, or earlier, by the stopwatch.
    pub fn plus_us(self, us: i64) -> Result<Moment, Error> {
        Moment::from_us(self.0.checked_add(us).ok_or(Error::OutOfRange)?)
    }

    /// The microsecond before, where there is one.
    pub(super) fn just_before(self) -> Moment {
        Moment((self.0 - 1).max(Moment::MIN.0))
    }

    pub(super) fn timestamp(self) -> Timestamp {
        Timestamp::from_microsecond(self.0).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub(super) fn from_timestamp(timestamp: Timestamp) -> Result<Moment, Error> {
        Moment::from_us(timestamp.as_microsecond())
    }
}

impl TryFrom<SystemTime> for Moment {
    type Error = Error;

    /// As the database client reads and writes a timestamptz. What is finer than a microsecond is cut off.
    fn try_from(time: SystemTime) -> Result<Moment, Error> {
        let us = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).ok(),
            Err(before) => i64::try_from(before.duration().as_nanos().div_ceil(1_000)).ok().map(|us| -us),
        };
        Moment::from_us(us.ok_or(Error::OutOfRange)?)
    }
}

impl From<Moment> for SystemTime {
    fn from(moment: Moment) -> SystemTime {
        let distance = std::time::Duration::from_micros(moment.0.unsigned_abs());
        if moment.0 >= 0 { SystemTime::UNIX_EPOCH + distance } else { SystemTime::UNIX_EPOCH - distance }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.timestamp())
    }
}

/// PostgreSQL's interval, part for part. Unlike the config's (`config::duration::Interval`) it may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub us: i64,
}

impl Interval {
    pub fn from_seconds(seconds: i64) -> Interval {
        Interval { us: seconds.saturating_mul(SECOND_US), ..Interval::default() }
    }

    pub fn from_days(days: i32) -> Interval {
        Interval { days, ..Interval::default() }
    }

    pub fn from_months(months: i32) -> Interval {
        Interval { months, ..Interval::default() }
    }

    /// Its length where only a length is wanted: a day is 24 hours, a month 30 days, as PostgreSQL compares.
    pub fn length_us(self) -> i128 {
        (i128::from(self.months) * 30 + i128::from(self.days)) * i128::from(DAY_US) + i128::from(self.us)
    }

    /// Days and time of day, on a clock whose days are 24 hours long.
    pub(super) fn clock_us(self) -> i128 {
        i128::from(self.days) * i128::from(DAY_US) + i128::from(self.us)
    }

    /// Can it be repeated without end, always forward? It counts months, or days and time, all forward; days and time
    /// may have different signs, as long as their sum is forward ("1 day -1 hour").
    pub fn check_step(self) -> Result<(), Error> {
        match (self.months, self.clock_us()) {
            (0, 1..) | (1.., 0..) => Ok(()),
            (0, _) | (i32::MIN..=-1, _) | (1.., _) => Err(Error::NotPositive),
        }
    }

    /// What a job's fixed schedule asks on top: only months, or none.
    pub fn check_fixed(self) -> Result<(), Error> {
        self.check_step()?;
        if self.months != 0 && (self.days != 0 || self.us != 0) { Err(Error::Mixed) } else { Ok(()) }
    }
}
