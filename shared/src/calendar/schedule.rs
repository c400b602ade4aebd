//! What a timer or a fixed job follows: a grid, or a cron expression on a zone's clock from a start on.

use super::Error;
use super::cron::Cron;
use super::grid::Grid;
use super::moment::Moment;
use super::zone::{Wall, Zone};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    Grid(Grid),
    /// `start`: nothing before it counts (None: no beginning).
    Cron {
        cron: Cron,
        zone: Zone,
        start: Option<Moment>,
    },
}

impl Schedule {
    /// The first time strictly after a moment. `OutOfRange`: none within the years that can be reckoned with.
    pub fn after(&self, moment: Moment) -> Result<Moment, Error> {
        match self {
            Schedule::Grid(grid) => grid.after(moment),
            Schedule::Cron { cron, zone, start: Some(start) } if moment < *start => cron.at_or_after(*start, zone),
            Schedule::Cron { cron, zone, .. } => cron.after(moment, zone),
        }
    }

    /// The first time at a moment or after it.
    pub fn at_or_after(&self, moment: Moment) -> Result<Moment, Error> {
        match self {
            Schedule::Grid(grid) => grid.at_or_after(moment),
            Schedule::Cron { cron, zone, start } => {
                cron.at_or_after(start.map_or(moment, |start| start.max(moment)), zone)
            }
        }
    }

    /// The last time strictly before a moment, if there is one: the newest missed one, with `moment` the first not missed.
    pub fn before(&self, moment: Moment) -> Result<Option<Moment>, Error> {
        match self {
            Schedule::Grid(grid) => grid.before(moment),
            Schedule::Cron { cron, zone, start } => {
                let last = match cron.before(moment, zone) {
                    Ok(last) => last,
                    Err(Error::OutOfRange) => return Ok(None),
                    Err(error) => return Err(error),
                };
                Ok(Some(last).filter(|last| start.is_none_or(|start| start <= *last)))
            }
        }
    }

    /// How many times there are in [lo, hi), by arithmetic: a year of seconds costs as much as a year of days.
    pub fn count(&self, lo: Moment, hi: Moment) -> u64 {
        match self {
            Schedule::Grid(grid) => grid.count(lo, hi),
            Schedule::Cron { cron, zone, start } => cron.count(start.map_or(lo, |start| start.max(lo)), hi, zone),
        }
    }

    /// The times in [lo, hi), from either end.
    pub fn times(&self, lo: Moment, hi: Moment) -> ScheduleTimes<'_> {
        ScheduleTimes { schedule: self, lo, hi }
    }
}

/// The times of a schedule within a range, earliest first; `next_back` gives the latest.
#[derive(Clone, Debug)]
pub struct ScheduleTimes<'s> {
    schedule: &'s Schedule,
    lo: Moment,
    hi: Moment,
}

impl Iterator for ScheduleTimes<'_> {
    type Item = Moment;

    fn next(&mut self) -> Option<Moment> {
        let time = self.schedule.at_or_after(self.lo).ok().filter(|time| *time < self.hi);
        match time {
            Some(time) => self.lo = time.plus_us(1).unwrap_or(self.hi),
            None => self.lo = self.hi,
        }
        time
    }
}

impl DoubleEndedIterator for ScheduleTimes<'_> {
    fn next_back(&mut self) -> Option<Moment> {
        let time = self.schedule.before(self.hi).ok().flatten().filter(|time| *time >= self.lo);
        self.hi = time.unwrap_or(self.lo);
        time
    }
}

/// Distinct moments in [lo, hi) of a schedule that is counted by readings: all that a gap skips fall on one moment.
pub(super) fn count_moments(lo: Moment, hi: Moment, zone: &Zone, readings: impl Fn(Wall, Wall) -> u64) -> u64 {
    if hi <= lo {
        return 0;
    }
    let (after, until) = (lo.just_before(), hi.just_before());
    let all = readings(zone.reading(after), zone.reading(until));
    let one_too_many = zone.changes_between(after, until).map(|change| {
        // from the last reading before the gap up to the first one after it
        let from = zone.reading(change.at.just_before());
        let skipped = readings(from, zone.reading(change.at));
        skipped.saturating_sub(1)
    });
    all - one_too_many.sum::<u64>().min(all)
}
