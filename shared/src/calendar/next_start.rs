//! When a job starts next. One pure function for every occasion on which that is asked; the server's clock comes in as
//! an argument, and so does the random number of the jitter.

use super::Error;
use super::cron::Cron;
use super::grid::Grid;
use super::moment::{Interval, Moment};
use super::schedule::Schedule;
use super::zone::Zone;

/// The highest power of two that a wait is multiplied with.
const MOST_DOUBLINGS: u32 = 20;
/// A wait is at most so many intervals long.
const MOST_INTERVALS: i128 = 5;
/// The jitter: an eighth of the wait, to either side.
const JITTER: f64 = 0.125;

/// How a job is scheduled: its columns, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartPlan {
    pub rhythm: Rhythm,
    /// Wait after the first failure.
    pub retry_period: Interval,
    /// The least wait after a crash.
    pub crash_wait: Interval,
    initial_start: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// No schedule of its own: edges or run_job start it.
    None,
    /// From one finish to the next start.
    Drifting {
        interval: Interval,
        zone: Zone,
    },
    /// On a grid; slots that were missed are skipped.
    Fixed {
        interval: Interval,
        grid: Grid,
    },
    Cron {
        cron: Cron,
        zone: Zone,
    },
}

/// The columns of mill.job that matter here, as they are.
#[derive(Clone, Copy, Debug)]
pub struct JobColumns<'a> {
    pub schedule_interval: Option<Interval>,
    pub cron: Option<&'a str>,
    pub timezone: Option<&'a str>,
    pub initial_start: Option<Moment>,
    pub fixed_schedule: bool,
    pub retry_period: Interval,
    pub crash_wait: Interval,
    /// Where a fixed schedule without initial_start has its origin: the job's first due time, or now if it has none yet.
    pub origin: Moment,
}

/// On which occasion the next start is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Occasion {
    /// The job is new, or has lost its next start without ever having run.
    NeverRun { now: Moment },
    /// Its schedule was changed, or it was resumed.
    Changed { now: Moment, last_finish: Option<Moment> },
    /// `own`: the next start that the run itself has set.
    Succeeded { finish: Moment, own: Option<Moment> },
    /// `failures` in a row, this one included. `jitter` between -1 and 1.
    Failed { finish: Moment, own: Option<Moment>, failures: u32, jitter: f64 },
    /// `crashes` in a row, this one included. What the run had set for itself does not count: the wait is the operator's.
    Crashed { now: Moment, crashes: u32, jitter: f64 },
    /// Stopped in order: it is still due.
    Interrupted { due: Moment },
}

impl StartPlan {
    pub fn read(columns: JobColumns<'_>) -> Result<StartPlan, Error> {
        let zone = Zone::find_or_utc(columns.timezone)?;
        let rhythm = match (columns.cron, columns.schedule_interval) {
            (Some(cron), _) => Rhythm::Cron { cron: Cron::parse(cron)?, zone },
            (None, None) => Rhythm::None,
            (None, Some(interval)) if columns.fixed_schedule => {
                interval.check_fixed()?;
                let origin = columns.initial_start.unwrap_or(columns.origin);
                Rhythm::Fixed { interval, grid: Grid::new(origin, interval, zone)? }
            }
            (None, Some(interval)) => {
                if interval.length_us() <= 0 {
                    return Err(Error::NotPositive);
                }
                Rhythm::Drifting { interval, zone }
            }
        };
        let JobColumns { retry_period, crash_wait, initial_start, .. } = columns;
        Ok(StartPlan { rhythm, retry_period, crash_wait, initial_start })
    }

    /// The regular times, where the rhythm has some.
    pub fn schedule(&self) -> Option<Schedule> {
        match &self.rhythm {
            Rhythm::None | Rhythm::Drifting { .. } => None,
            Rhythm::Fixed { grid, .. } => Some(Schedule::Grid(grid.clone())),
            Rhythm::Cron { cron, zone } => {
                Some(Schedule::Cron { cron: cron.clone(), zone: zone.clone(), start: self.initial_start })
            }
        }
    }

    /// The regular time after a finish.
    fn regular(&self, finish: Moment) -> Result<Option<Moment>, Error> {
        match &self.rhythm {
            Rhythm::None => Ok(None),
            Rhythm::Drifting { interval, zone } => zone.plus(finish, *interval).map(Some),
            Rhythm::Fixed { grid, .. } => grid.after(finish).map(Some),
            Rhythm::Cron { .. } => self.schedule().map(|schedule| schedule.after(finish)).transpose(),
        }
    }

    /// The time of another try: doubling, capped, jittered; on a fixed schedule never later than the next slot.
    fn retry(&self, from: Moment, failures: u32, jitter: f64) -> Result<Moment, Error> {
        let doublings = failures.saturating_sub(1).min(MOST_DOUBLINGS);
        let mut wait_us = self.retry_period.length_us().max(0) << doublings;
        if let Rhythm::Drifting { interval, .. } | Rhythm::Fixed { interval, .. } = &self.rhythm {
            wait_us = wait_us.min(interval.length_us() * MOST_INTERVALS);
        }
        // a jitter that is not a number counts as none
        let jitter = if jitter.is_finite() { jitter.clamp(-1.0, 1.0) } else { 0.0 };
        wait_us += (wait_us as f64 * JITTER * jitter) as i128;
        let retry = later(from, wait_us);
        let slot = match &self.rhythm {
            Rhythm::None | Rhythm::Drifting { .. } => None,
            Rhythm::Fixed { .. } | Rhythm::Cron { .. } => self.regular(from).ok().flatten(),
        };
        match (retry, slot) {
            (Ok(retry), Some(slot)) => Ok(retry.min(slot)),
            (Err(_), Some(slot)) => Ok(slot),
            (retry, None) => retry,
        }
    }
}

/// The next start of a job. `None`: it has none of its own.
pub fn next_start(plan: &StartPlan, occasion: Occasion) -> Result<Option<Moment>, Error> {
    match occasion {
        Occasion::NeverRun { now } => match &plan.rhythm {
            Rhythm::None => Ok(None),
            Rhythm::Drifting { .. } => Ok(Some(plan.initial_start.unwrap_or(now))),
            Rhythm::Fixed { grid, .. } => Ok(Some(grid.origin())),
            Rhythm::Cron { cron, zone } => cron.at_or_after(plan.initial_start.unwrap_or(now), zone).map(Some),
        },
        Occasion::Changed { now, last_finish: None } if matches!(plan.rhythm, Rhythm::Drifting { .. }) => {
            next_start(plan, Occasion::NeverRun { now })
        }
        Occasion::Changed { now, last_finish } => match (&plan.rhythm, last_finish) {
            (Rhythm::Drifting { .. }, Some(finish)) => plan.regular(finish),
            (Rhythm::None | Rhythm::Drifting { .. } | Rhythm::Fixed { .. } | Rhythm::Cron { .. }, _) => {
                plan.regular(now)
            }
        },
        Occasion::Succeeded { own: Some(own), .. } | Occasion::Failed { own: Some(own), .. } => Ok(Some(own)),
        Occasion::Succeeded { finish, own: None } => plan.regular(finish),
        Occasion::Failed { finish, own: None, failures, jitter } => plan.retry(finish, failures, jitter).map(Some),
        Occasion::Crashed { now, crashes, jitter } => {
            let wait = later(now, plan.crash_wait.length_us().max(0))?;
            // a back-off too long to be reckoned with is an error, not the short wait
            Ok(Some(plan.retry(now, crashes, jitter)?.max(wait)))
        }
        Occasion::Interrupted { due } => Ok(Some(due)),
    }
}

fn later(moment: Moment, us: i128) -> Result<Moment, Error> {
    moment.plus_us(i64::try_from(us).map_err(|_| Error::OutOfRange)?)
}
