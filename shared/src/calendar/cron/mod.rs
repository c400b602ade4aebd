//! A cron expression: five fields (minute, hour, day of month, month, day of week), or six with seconds in front.
//!
//! `text` reads it, `walk` finds its days and times. Written here and not taken from a crate: the known ones run a
//! wildcard's repeated hour twice or know another zone database, and ours must agree word for word with the check in the
//! catalog (`mill.check_cron`), which is plpgsql.
//!
//! The day rule is that of classic cron: if day of month and day of week are both restricted, one of them is enough; a
//! field that begins with `*` (also `*/2`) restricts, but both must then hold.

mod text;
mod walk;

use super::moment::Moment;
use super::zone::{Wall, Zone};
use super::{Error, schedule};
use std::fmt;
use std::str::FromStr;
pub use text::CronError;

/// A parsed expression. At least one of its times exists.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cron {
    /// Bit n: second n. A five-field expression fires at second 0.
    seconds: u64,
    minutes: u64,
    hours: u64,
    /// Bits 1 to 31.
    days: u64,
    /// `L` or `$`: the last day of the month, whichever it is.
    last_day: bool,
    /// Bits 1 to 12.
    months: u64,
    /// Bits 0 (Sunday) to 6.
    weekdays: u64,
    /// Day of month and day of week are both restricted: one is enough.
    either: bool,
}

impl Cron {
    pub fn parse(text: &str) -> Result<Cron, Error> {
        text::parse(text).map_err(|why| Error::Cron { text: shown(text), why })
    }

    /// The first match strictly after a moment.
    pub fn after(&self, moment: Moment, zone: &Zone) -> Result<Moment, Error> {
        zone.first(self.following(zone.reading(moment))?)
    }

    /// The first match at this moment or after it.
    pub fn at_or_after(&self, moment: Moment, zone: &Zone) -> Result<Moment, Error> {
        self.after(moment.just_before(), zone)
    }

    /// The last match strictly before a moment.
    pub fn before(&self, moment: Moment, zone: &Zone) -> Result<Moment, Error> {
        zone.first(self.preceding(zone.reading(moment.just_before()))?)
    }

    /// How many there are in [lo, hi), counted by days and not one by one.
    pub fn count(&self, lo: Moment, hi: Moment, zone: &Zone) -> u64 {
        schedule::count_moments(lo, hi, zone, |after, until| self.count_walls(after, until))
    }

    /// The first matching reading after this one.
    fn following(&self, wall: Wall) -> Result<Wall, Error> {
        walk::following(self, wall)
    }

    /// The last matching reading that is not after this one.
    fn preceding(&self, wall: Wall) -> Result<Wall, Error> {
        walk::preceding(self, wall)
    }

    /// How many matching readings are after one and not after another.
    fn count_walls(&self, after: Wall, until: Wall) -> u64 {
        walk::count(self, after, until)
    }
}

impl FromStr for Cron {
    type Err = Error;

    fn from_str(text: &str) -> Result<Cron, Error> {
        Cron::parse(text)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cron { seconds, minutes, hours, days, last_day, months, weekdays, either } = self;
        write!(out, "Cron(s {seconds:x} m {minutes:x} h {hours:x} d {days:x}{}", if *last_day { "+L" } else { "" })?;
        write!(out, " {} w {weekdays:x} M {months:x})", if *either { "or" } else { "and" })
    }
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}
