//! Times at equal distances: origin + k · step, found by arithmetic.
//!
//! Without a zone the clock is UTC, where a day is 24 hours. With one, the whole step is reckoned on that zone's wall
//! clock, hours too: "1 day" and "12 hours" keep their time of day over a change of the clock. Months are always counted
//! from the origin: 31 January, 28 February, 31 March.

use super::Error;
use super::moment::{Interval, Moment};
use super::schedule::count_moments;
use super::zone::{Wall, Zone};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    origin: Moment,
    step: Interval,
    zone: Zone,
}

impl Grid {
    /// The times of a timer (start, period) or of a fixed schedule (initial_start, schedule_interval).
    pub fn new(origin: Moment, step: Interval, zone: Zone) -> Result<Grid, Error> {
        step.check_step()?;
        Ok(Grid { origin, step, zone })
    }

    pub fn origin(&self) -> Moment {
        self.origin
    }

    /// The k-th time; the origin is the 0th.
    pub fn time(&self, k: u64) -> Result<Moment, Error> {
        if k == 0 {
            return Ok(self.origin);
        }
        // an origin in an hour that is shown for the second time has neighbours in the first
        Ok(self.zone.first(self.wall(k)?)?.max(self.origin))
    }

    /// The first time strictly after a moment.
    pub fn after(&self, moment: Moment) -> Result<Moment, Error> {
        if moment < self.origin {
            return Ok(self.origin);
        }
        self.zone.first(self.wall(self.steps(self.zone.reading(moment)) + 1)?)
    }

    /// The first time at a moment or after it.
    pub fn at_or_after(&self, moment: Moment) -> Result<Moment, Error> {
        if moment <= self.origin { Ok(self.origin) } else { self.after(moment.just_before()) }
    }

    /// The last time strictly before a moment, if there is one.
    pub fn before(&self, moment: Moment) -> Result<Option<Moment>, Error> {
        if moment <= self.origin {
            return Ok(None);
        }
        self.time(self.steps(self.zone.reading(moment.just_before()))).map(Some)
    }

    /// How many there are in [lo, hi).
    pub fn count(&self, lo: Moment, hi: Moment) -> u64 {
        if hi <= self.origin || hi <= lo {
            return 0;
        }
        let origin = u64::from(lo <= self.origin);
        // all that are after the origin
        let lo = lo.max(self.after_origin());
        origin + count_moments(lo, hi, &self.zone, |after, until| self.steps(until) - self.steps(after))
    }

    fn after_origin(&self) -> Moment {
        self.origin.plus_us(1).unwrap_or(self.origin)
    }

    fn wall(&self, k: u64) -> Result<Wall, Error> {
        let origin = self.zone.shows(self.origin);
        let months = i64::try_from(k).ok().and_then(|k| k.checked_mul(i64::from(self.step.months)));
        origin.plus(months.ok_or(Error::OutOfRange)?, i128::from(k) * self.step.clock_us())
    }

    /// The greatest k whose reading is not after this one; 0 if there is none.
    fn steps(&self, wall: Wall) -> u64 {
        let distance = i128::from(wall.us()) - i128::from(self.zone.shows(self.origin).us());
        if distance <= 0 {
            return 0;
        }
        if self.step.months == 0 {
            return (distance / self.step.clock_us()) as u64;
        }
        // A month has 28 to 31 days; between the two bounds by halving.
        let day = i128::from(super::moment::DAY_US);
        let months = i128::from(self.step.months);
        let mut low = (distance / (months * 31 * day + self.step.clock_us())) as u64;
        low = low.saturating_sub(1);
        let mut high = (distance / (months * 28 * day + self.step.clock_us())) as u64 + 2;
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if self.wall(middle).is_ok_and(|reached| reached <= wall) { low = middle } else { high = middle }
        }
        low
    }
}
