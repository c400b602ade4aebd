//! A time zone as a wall clock: which reading a moment has brought it to, and when it first gets to a reading.
//!
//! `reading` and `first` belong together: `first(w) > t` exactly if `w > reading(t)`. Everything else in this folder
//! compares readings, which are as regular as UTC, and comes back to moments at the very end.

use super::moment::{DAY_US, Interval, Moment};
use super::{Error, moment};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use std::fmt;
use std::sync::OnceLock;

/// No clock is ever put forward or back by more than a day and an hour (Samoa and Alaska changed sides of the date line).
const LONGEST_CHANGE_US: i64 = DAY_US + 3_600 * moment::SECOND_US;

/// What the clock on the wall shows: microseconds since 1970 there, as if there were no zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(i64);

impl Wall {
    pub(super) fn from_us(us: i64) -> Result<Wall, Error> {
        Moment::from_us(us).map(|_| Wall(us))
    }

    /// Microseconds since 1970 on that clock.
    pub fn us(self) -> i64 {
        self.0
    }

    pub(super) fn civil(self) -> DateTime {
        Offset::UTC.to_datetime(Timestamp::from_microsecond(self.0).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    pub(super) fn from_civil(civil: DateTime) -> Result<Wall, Error> {
        let timestamp = Offset::UTC.to_timestamp(civil).map_err(|_| Error::OutOfRange)?;
        Wall::from_us(timestamp.as_microsecond())
    }

    /// So many months on, at the same day or the last one of a shorter month, and then so much time on.
    pub(super) fn plus(self, months: i64, us: i128) -> Result<Wall, Error> {
        let mut wall = self;
        if months != 0 {
            let civil = self.civil();
            let month = i64::from(civil.year()) * 12 + i64::from(civil.month()) - 1 + months;
            let year = i16::try_from(month.div_euclid(12)).map_err(|_| Error::OutOfRange)?;
            let first =
                jiff::civil::Date::new(year, month.rem_euclid(12) as i8 + 1, 1).map_err(|_| Error::OutOfRange)?;
            let day = civil.day().min(first.days_in_month());
            let date = jiff::civil::Date::new(year, first.month(), day).map_err(|_| Error::OutOfRange)?;
            wall = Wall::from_civil(date.to_datetime(civil.time()))?;
        }
        let us = i64::try_from(i128::from(wall.0) + us).map_err(|_| Error::OutOfRange)?;
        Wall::from_us(us)
    }
}

/// A zone of the database.
#[derive(Clone)]
pub struct Zone {
    name: String,
    clock: TimeZone,
}

impl Zone {
    pub fn utc() -> Zone {
        Zone { name: "UTC".to_owned(), clock: TimeZone::UTC }
    }

    /// By its name, in any case, as the server does: first in the system's database, then in the bundled one.
    pub fn find(name: &str) -> Result<Zone, Error> {
        static SYSTEM: OnceLock<TimeZoneDatabase> = OnceLock::new();
        if name.eq_ignore_ascii_case("UTC") {
            return Ok(Zone::utc());
        }
        let found = SYSTEM.get_or_init(TimeZoneDatabase::from_env).get(name);
        let found = found.or_else(|_| TimeZoneDatabase::bundled().get(name));
        // jiff calls a clock without a place "Etc/Unknown": nobody can have meant it
        match found.ok().filter(|clock| !clock.is_unknown()) {
            Some(clock) => Ok(Zone { name: name.to_owned(), clock }),
            None => Err(Error::UnknownZone(shown(name))),
        }
    }

    /// The zone of a job or timer: UTC where none is given.
    pub fn find_or_utc(name: Option<&str>) -> Result<Zone, Error> {
        name.map_or_else(|| Ok(Zone::utc()), Zone::find)
    }

    /// Every name that `find` knows from the bundled database.
    pub fn bundled_names() -> Vec<String> {
        TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect()
    }

    #[cfg(test)]
    pub(super) fn clock(&self) -> &TimeZone {
        &self.clock
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the clock shows at this moment.
    pub fn shows(&self, moment: Moment) -> Wall {
        Wall(moment.us() + self.offset_us(moment))
    }

    /// The farthest that the clock has got at this moment: what it shows, but in an hour that it goes through for the
    /// second time, the last microsecond of that hour.
    pub fn reading(&self, moment: Moment) -> Wall {
        let mut reading = self.shows(moment);
        for change in self.changes_before(moment) {
            reading = reading.max(Wall(change.at.us() + change.before_us - 1));
        }
        reading
    }

    /// The first moment at which the clock has got to this reading or past it.
    pub fn first(&self, wall: Wall) -> Result<Moment, Error> {
        match self.clock.to_ambiguous_timestamp(wall.civil()).offset() {
            AmbiguousOffset::Unambiguous { offset } => Moment::from_us(wall.0 - seconds_us(offset)),
            AmbiguousOffset::Fold { before, .. } => Moment::from_us(wall.0 - seconds_us(before)),
            AmbiguousOffset::Gap { before, .. } => {
                let within = Moment::from_us(wall.0 - seconds_us(before))?;
                let put_forward = |change: &ZoneChange| change.at.us() + change.before_us <= wall.0;
                Ok(self.changes_before(within).find(put_forward).map_or(within, |change| change.at))
            }
        }
    }

    /// `moment` + `interval` as PostgreSQL adds: months and days on the calendar, hours by the stopwatch.
    pub fn plus(&self, moment: Moment, interval: Interval) -> Result<Moment, Error> {
        let moment = match (interval.months, interval.days) {
            (0, 0) => moment,
            (months, days) => {
                let wall = self.shows(moment).plus(i64::from(months), i128::from(days) * i128::from(DAY_US))?;
                // a time that is shown twice stays the same showing, where the calendar has not moved it
                if wall == self.shows(moment) { moment } else { self.first(wall)? }
            }
        };
        moment.plus_us(interval.us)
    }

    fn offset_us(&self, moment: Moment) -> i64 {
        seconds_us(self.clock.to_offset(whole_second(moment)))
    }

    /// The changes of the clock up to and with this moment, newest first, as far as they can still be felt.
    fn changes_before(&self, moment: Moment) -> impl Iterator<Item = ZoneChange> + '_ {
        let oldest_us = moment.us() - LONGEST_CHANGE_US;
        let from = whole_second(moment) + jiff::SignedDuration::from_secs(1);
        self.told(self.clock.preceding(from)).take_while(move |change| change.at.us() >= oldest_us)
    }

    /// When the clock is put forward or back, or only gets another name: after one moment and up to another, in order.
    pub fn changes(&self, after: Moment, until: Moment) -> impl Iterator<Item = Moment> + '_ {
        self.changes_between(after, until).map(|change| change.at)
    }

    /// The same, with what went before.
    pub(super) fn changes_between(&self, after: Moment, until: Moment) -> impl Iterator<Item = ZoneChange> + '_ {
        self.told(self.clock.following(whole_second(after))).take_while(move |change| change.at <= until)
    }

    fn told<'t>(
        &'t self,
        transitions: impl Iterator<Item = jiff::tz::TimeZoneTransition<'t>> + 't,
    ) -> impl Iterator<Item = ZoneChange> + 't {
        transitions.map_while(move |transition| {
            let at = Moment::from_timestamp(transition.timestamp()).ok()?;
            Some(ZoneChange { at, before_us: self.offset_us(at.just_before()) })
        })
    }
}

/// The clock was put forward or back.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneChange {
    pub at: Moment,
    pub before_us: i64,
}

/// Clocks change at whole seconds, and jiff takes a fraction before 1970 for the second after it.
fn whole_second(moment: Moment) -> Timestamp {
    Timestamp::from_second(moment.us().div_euclid(moment::SECOND_US)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn seconds_us(offset: Offset) -> i64 {
    i64::from(offset.seconds()) * moment::SECOND_US
}

/// A name from a table may be anything, and of any length.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(80).collect();
    if shown.len() < name.len() {
        shown.push_str("..");
    }
    shown
}

impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.name.eq_ignore_ascii_case(&other.name)
    }
}

impl Eq for Zone {}

impl fmt::Debug for Zone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Zone({})", self.name)
    }
}
