//! When something happens next: zones, cron expressions, intervals, and the next start of a job.
//!
//! Pure: no clock, no connection; every `now` is an argument. Called by the scheduler for jobs and timers, and by the
//! launcher's import. The catalog has a smaller twin of it in SQL (`sql/catalog/parts/calendar.sql`), which validates at
//! INSERT and finds the next slot of what is not cron; tests hold the two together.
//!
//! All schedules with a zone live on the *wall clock* of that zone (`zone`): a local time happens at the first moment
//! when the clock on the wall shows it or has gone past it. From this one sentence follows all that has to be said of
//! daylight saving: a local time that is skipped happens at the first moment after the gap, together with all others of
//! that gap; one that is repeated happens at its first showing, and not again.
//!
//! What can go wrong is an [`Error`], never a panic. Years end with 9999 here (PostgreSQL's go further): a time beyond is
//! `OutOfRange`.

mod cron;
mod grid;
mod moment;
mod next_start;
mod schedule;
#[cfg(test)]
mod tests;
mod zone;

pub use cron::{Cron, CronError};
pub use grid::Grid;
pub use moment::{Interval, Moment};
pub use next_start::{JobColumns, Occasion, Rhythm, StartPlan, next_start};
pub use schedule::{Schedule, ScheduleTimes};
pub use zone::{Wall, Zone};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the time zone \"{0}\" is not known to pgmill's zone database")]
    UnknownZone(String),
    #[error("cron \"{text}\": {why}")]
    Cron { text: String, why: CronError },
    #[error("a repeated interval must be more than 0")]
    NotPositive,
    #[error("months cannot be mixed with days or hours in a schedule")]
    Mixed,
    #[error("the time is outside the supported years")]
    OutOfRange,
}
