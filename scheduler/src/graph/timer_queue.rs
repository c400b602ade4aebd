//! What is to be done with a timer now: its next time, the time it fires, the times it has missed. PURE.
//!
//! The rows are the queue: the server hands over those that are due, in order; `now` is the server's. A timer is judged
//! one step at a time, and one step is one transaction: fire a time, or leave missed ones out, or hand a range of them
//! to a back-fill, and move on. Called by `graph`; what cannot be computed (a zone that we do not know) is an error for
//! that timer alone.

use shared::calendar::{Cron, Error, Grid, Interval, Moment, Schedule, Zone};

/// A time that is overdue by more than this was missed, whatever the cause.
const GRACE_US: i64 = 60_000_000;

/// The columns of a schedule.
#[derive(Clone, Debug)]
pub struct TimerColumns {
    pub start: Moment,
    pub period: Option<Interval>,
    pub cron: Option<String>,
    pub timezone: String,
}

impl TimerColumns {
    pub fn zone(&self) -> Result<Zone, Error> {
        Zone::find(&self.timezone)
    }

    pub fn schedule(&self) -> Result<Schedule, Error> {
        let zone = self.zone()?;
        match (&self.cron, self.period) {
            (Some(cron), _) => Ok(Schedule::Cron { cron: Cron::parse(cron)?, zone, start: Some(self.start) }),
            (None, Some(period)) => Ok(Schedule::Grid(Grid::new(self.start, period, zone)?)),
            (None, None) => Err(Error::NotPositive),
        }
    }
}

/// Why a timer's next time is to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    New,
    Edited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchUp {
    None,
    Last,
    /// All of them, by a back-fill.
    All,
}

#[derive(Clone, Debug)]
pub struct Timer {
    pub columns: TimerColumns,
    pub stop: Option<Moment>,
    pub shift: Interval,
    pub catchup: CatchUp,
    pub catchup_age: Option<Interval>,
    pub last: Option<Moment>,
    pub next: Option<Moment>,
    pub due: Option<Moment>,
}

/// The logical time that comes next, and when it fires. None: no time is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextTimer {
    pub time: Moment,
    pub due: Moment,
}

/// One step of a due timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerStep {
    pub fires: Option<Moment>,
    /// A range of missed times, [lo, hi).
    pub range: Option<(Moment, Moment)>,
    /// Missed times that are left out.
    pub skipped: u64,
    pub next: Option<NextTimer>,
}

/// The next time of a timer that is new (its first one, though it be long past) or was edited (never the past again).
pub fn next_time(timer: &Timer, stale: Stale, now: Moment) -> Result<Option<NextTimer>, Error> {
    let (zone, schedule) = (timer.columns.zone()?, timer.columns.schedule()?);
    let time = match stale {
        Stale::New => schedule.at_or_after(timer.columns.start),
        Stale::Edited => {
            let passed = zone.plus(now, negative(timer.shift))?;
            schedule.after(timer.last.map_or(passed, |last| last.max(passed)))
        }
    };
    following(timer, &zone, time)
}

/// What a due timer does now.
pub fn step(timer: &Timer, now: Moment) -> Result<Option<TimerStep>, Error> {
    let (Some(next), Some(due)) = (timer.next, timer.due) else { return Ok(None) };
    let (zone, schedule) = (timer.columns.zone()?, timer.columns.schedule()?);
    let live = || -> Result<Option<TimerStep>, Error> {
        let after = following(timer, &zone, schedule.after(next))?;
        Ok(Some(TimerStep { fires: Some(next), range: None, skipped: 0, next: after }))
    };
    let oldest_due = now.plus_us(-GRACE_US)?;
    if due >= oldest_due {
        return live();
    }
    let back = negative(timer.shift);
    // The first time that is not missed.
    let fresh = schedule.at_or_after(zone.plus(oldest_due, back)?);
    let fresh = match fresh {
        Ok(fresh) => Some(fresh),
        Err(Error::OutOfRange) => None,
        Err(error) => return Err(error),
    };
    let fresh = fresh.filter(|fresh| timer.stop.is_none_or(|stop| *fresh < stop));
    let hi = fresh.or(timer.stop).unwrap_or(Moment::MAX);
    if hi <= next {
        // The clock of the zone was put back: not missed after all.
        return live();
    }
    let lo = match timer.catchup_age {
        Some(age) => next.max(zone.plus(zone.plus(now, negative(age))?, back)?),
        None => next,
    };
    let missed = schedule.count(next, hi);
    let after =
        fresh.map(|time| Ok::<NextTimer, Error>(NextTimer { time, due: zone.plus(time, timer.shift)? })).transpose()?;
    let step = match timer.catchup {
        CatchUp::None => TimerStep { fires: None, range: None, skipped: missed, next: after },
        CatchUp::Last => {
            let newest = schedule.before(hi)?.filter(|time| *time >= lo);
            TimerStep {
                fires: newest,
                range: None,
                skipped: missed - u64::from(newest.is_some()).min(missed),
                next: after,
            }
        }
        CatchUp::All => {
            let wanted = if lo < hi { schedule.count(lo, hi) } else { 0 };
            let range = (wanted > 0).then_some((lo, hi));
            TimerStep { fires: None, range, skipped: missed - wanted.min(missed), next: after }
        }
    };
    Ok(Some(step))
}

/// A time, if the timer's stop lets it, with the moment when it fires.
fn following(timer: &Timer, zone: &Zone, time: Result<Moment, Error>) -> Result<Option<NextTimer>, Error> {
    match time {
        Ok(time) if timer.stop.is_none_or(|stop| time < stop) => {
            Ok(Some(NextTimer { time, due: zone.plus(time, timer.shift)? }))
        }
        Ok(_) | Err(Error::OutOfRange) => Ok(None),
        Err(error) => Err(error),
    }
}

fn negative(interval: Interval) -> Interval {
    Interval { months: -interval.months, days: -interval.days, us: -interval.us }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60;
    const HOUR: i64 = 3600;
    const DAY: i64 = 86400;

    fn at(seconds: i64) -> Moment {
        Moment::from_seconds(1_700_006_400 + seconds).expect("a time")
    }

    fn timer(period: i64) -> Timer {
        let columns = TimerColumns {
            start: at(0),
            period: Some(Interval::from_seconds(period)),
            cron: None,
            timezone: "UTC".into(),
        };
        let (catchup, shift) = (CatchUp::Last, Interval::default());
        Timer {
            columns,
            stop: None,
            shift,
            catchup,
            catchup_age: None,
            last: None,
            next: Some(at(0)),
            due: Some(at(0)),
        }
    }

    fn next(seconds: i64) -> Option<NextTimer> {
        Some(NextTimer { time: at(seconds), due: at(seconds) })
    }

    #[test]
    fn a_time_within_its_grace_fires_and_the_next_follows() {
        for late in [0, 1, 60] {
            let step = step(&timer(HOUR), at(late)).expect("computed").expect("due");
            assert_eq!(step, TimerStep { fires: Some(at(0)), range: None, skipped: 0, next: next(HOUR) });
        }
        // several within the grace fire one after the other
        let step = step(&timer(10), at(45)).expect("computed").expect("due");
        assert_eq!((step.fires, step.next), (Some(at(0)), next(10)));
    }

    #[test]
    fn missed_times_go_by_the_rule() {
        let now = at(10 * HOUR + 30);
        let with = |catchup, age: Option<i64>| {
            let timer = Timer { catchup, catchup_age: age.map(Interval::from_seconds), ..timer(HOUR) };
            step(&timer, now).expect("computed").expect("due")
        };
        let none = with(CatchUp::None, None);
        assert_eq!(none, TimerStep { fires: None, range: None, skipped: 10, next: next(10 * HOUR) });
        let last = with(CatchUp::Last, None);
        assert_eq!(last, TimerStep { fires: Some(at(9 * HOUR)), range: None, skipped: 9, next: next(10 * HOUR) });
        let all = with(CatchUp::All, None);
        let range = Some((at(0), at(10 * HOUR)));
        assert_eq!(all, TimerStep { fires: None, range, skipped: 0, next: next(10 * HOUR) });
        // what is too old is left out
        let young = with(CatchUp::All, Some(3 * HOUR));
        assert_eq!(
            (young.skipped, young.range),
            (8, Some((now.plus_us(-3 * HOUR * 1_000_000).unwrap(), at(10 * HOUR))))
        );
        assert_eq!(with(CatchUp::Last, Some(10 * MINUTE)).fires, None);
        assert_eq!(with(CatchUp::All, Some(10 * MINUTE)).range, None);
    }

    #[test]
    fn no_time_is_left_after_stop() {
        let stopped = Timer { stop: Some(at(2 * HOUR)), ..timer(HOUR) };
        let first = step(&stopped, at(1)).expect("computed").expect("due");
        assert_eq!(first.next, next(HOUR));
        let second = Timer { next: Some(at(HOUR)), due: Some(at(HOUR)), ..stopped.clone() };
        assert_eq!(step(&second, at(HOUR)).expect("computed").expect("due").next, None);
        // missed for good: the newest one still counts
        let late = step(&stopped, at(50 * HOUR)).expect("computed").expect("due");
        assert_eq!((late.fires, late.skipped, late.next), (Some(at(HOUR)), 1, None));
        assert_eq!(next_time(&stopped, Stale::Edited, at(3 * HOUR)).expect("computed"), None);
    }

    #[test]
    fn a_shift_moves_the_firing_and_not_the_time() {
        let shifted = Timer { shift: Interval::from_seconds(-600), ..timer(HOUR) };
        let first = next_time(&shifted, Stale::New, at(0)).expect("computed").expect("a time");
        assert_eq!((first.time, first.due), (at(0), at(-600)));
        let edited = next_time(&shifted, Stale::Edited, at(HOUR - 700)).expect("computed").expect("a time");
        assert_eq!(edited.time, at(HOUR));
        let edited = next_time(&shifted, Stale::Edited, at(HOUR - 500)).expect("computed").expect("a time");
        assert_eq!(edited.time, at(2 * HOUR));
    }

    #[test]
    fn editing_never_replays_the_past() {
        let edited = Timer { last: Some(at(5 * HOUR)), ..timer(HOUR) };
        assert_eq!(next_time(&edited, Stale::Edited, at(2 * HOUR)).expect("computed"), next(6 * HOUR));
        assert_eq!(next_time(&edited, Stale::Edited, at(7 * HOUR + 5)).expect("computed"), next(8 * HOUR));
        assert_eq!(next_time(&edited, Stale::New, at(7 * HOUR)).expect("computed"), next(0));
    }

    #[test]
    fn months_end_where_they_end_and_an_unknown_zone_is_an_error_of_its_timer() {
        let start = Moment::from_seconds(1_706_659_200).expect("2024-01-31");
        let columns =
            TimerColumns { start, period: Some(Interval::from_months(1)), cron: None, timezone: "UTC".into() };
        let monthly = Timer { columns, next: Some(start), due: Some(start), ..timer(DAY) };
        let step_of = |next: Moment| {
            let timer = Timer { next: Some(next), due: Some(next), ..monthly.clone() };
            step(&timer, next).expect("computed").expect("due").next.expect("a time").time
        };
        let (february, march) = (step_of(start), step_of(step_of(start)));
        assert_eq!(
            (february.to_string(), march.to_string()),
            ("2024-02-29T00:00:00Z".into(), "2024-03-31T00:00:00Z".into())
        );
        let mut nowhere = monthly;
        nowhere.columns.timezone = "Europe/Atlantis".into();
        assert!(step(&nowhere, start).is_err());
    }
}
