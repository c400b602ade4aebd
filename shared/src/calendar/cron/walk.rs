//! The matching readings of a cron expression: the next one, the last one, and how many there are between two.
//!
//! Readings are those of one clock without zones: days are 24 hours long. Whole months are skipped by the set of months,
//! days are looked at one by one (at most a few decades of 29 Februaries), times of the day are found by bits.

use super::super::moment::{DAY_US, SECOND_US};
use super::super::zone::Wall;
use super::text::weekday_bit;
use super::{Cron, Error};
use jiff::civil::Date;

const DAY_SECONDS: i64 = 86_400;

pub fn following(cron: &Cron, wall: Wall) -> Result<Wall, Error> {
    // the first whole second after it
    let second = wall.us().div_euclid(SECOND_US) + 1;
    let today = date_of(second)?;
    if day_matches(cron, today)
        && let Some(time) = time_at_or_after(cron, second.rem_euclid(DAY_SECONDS))
    {
        return reading(today, time);
    }
    let mut date = today.tomorrow().map_err(|_| Error::OutOfRange)?;
    while !day_matches(cron, date) {
        let step = if month_matches(cron, date) { date.tomorrow() } else { date.last_of_month().tomorrow() };
        date = step.map_err(|_| Error::OutOfRange)?;
    }
    reading(date, first_time(cron))
}

pub fn preceding(cron: &Cron, wall: Wall) -> Result<Wall, Error> {
    let second = wall.us().div_euclid(SECOND_US);
    let today = date_of(second)?;
    if day_matches(cron, today)
        && let Some(time) = time_at_or_before(cron, second.rem_euclid(DAY_SECONDS))
    {
        return reading(today, time);
    }
    let mut date = today.yesterday().map_err(|_| Error::OutOfRange)?;
    while !day_matches(cron, date) {
        let step = if month_matches(cron, date) { date.yesterday() } else { date.first_of_month().yesterday() };
        date = step.map_err(|_| Error::OutOfRange)?;
    }
    reading(date, last_time(cron))
}

/// In (after, until].
pub fn count(cron: &Cron, after: Wall, until: Wall) -> u64 {
    if after >= until {
        return 0;
    }
    let (first, last) = (after.us().div_euclid(SECOND_US), until.us().div_euclid(SECOND_US));
    let (Ok(first_day), Ok(last_day)) = (date_of(first), date_of(last)) else { return 0 };
    let up_to = |date: Date, second: i64| {
        if day_matches(cron, date) { times_up_to(cron, second.rem_euclid(DAY_SECONDS)) } else { 0 }
    };
    // all times of the days from the first up to the last, without the last
    let whole_day = u64::from(cron.seconds.count_ones() * cron.minutes.count_ones() * cron.hours.count_ones());
    let mut days = 0;
    let mut date = first_day;
    while date < last_day {
        let next = if month_matches(cron, date) {
            days += u64::from(day_matches(cron, date));
            date.tomorrow()
        } else {
            date.last_of_month().tomorrow()
        };
        let Ok(next) = next else { break };
        date = next;
    }
    days * whole_day + up_to(last_day, last) - up_to(first_day, first)
}

fn month_matches(cron: &Cron, date: Date) -> bool {
    cron.months & (1 << date.month()) != 0
}

fn day_matches(cron: &Cron, date: Date) -> bool {
    if !month_matches(cron, date) {
        return false;
    }
    let day = cron.days & (1 << date.day()) != 0 || cron.last_day && date.day() == date.days_in_month();
    let weekday = cron.weekdays & weekday_bit(date.weekday()) != 0;
    if cron.either { day || weekday } else { day && weekday }
}

/// The least value of a set that is not below `from`.
fn at_or_above(set: u64, from: i64) -> Option<i64> {
    let rest = set.checked_shr(from as u32)?;
    (rest != 0).then(|| from + i64::from(rest.trailing_zeros()))
}

/// The greatest value of a set that is not above `from` (which is below 63).
fn at_or_below(set: u64, from: i64) -> Option<i64> {
    let rest = set & ((2 << from) - 1);
    (rest != 0).then(|| 63 - i64::from(rest.leading_zeros()))
}

fn first_time(cron: &Cron) -> i64 {
    let least = |set: u64| i64::from(set.trailing_zeros());
    least(cron.hours) * 3_600 + least(cron.minutes) * 60 + least(cron.seconds)
}

fn last_time(cron: &Cron) -> i64 {
    let greatest = |set: u64| 63 - i64::from(set.leading_zeros());
    greatest(cron.hours) * 3_600 + greatest(cron.minutes) * 60 + greatest(cron.seconds)
}

fn time_at_or_after(cron: &Cron, time: i64) -> Option<i64> {
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    let least = |set: u64| i64::from(set.trailing_zeros());
    if cron.hours & (1 << hour) != 0 {
        if cron.minutes & (1 << minute) != 0
            && let Some(second) = at_or_above(cron.seconds, second)
        {
            return Some(hour * 3_600 + minute * 60 + second);
        }
        if let Some(minute) = at_or_above(cron.minutes, minute + 1) {
            return Some(hour * 3_600 + minute * 60 + least(cron.seconds));
        }
    }
    let hour = at_or_above(cron.hours, hour + 1)?;
    Some(hour * 3_600 + least(cron.minutes) * 60 + least(cron.seconds))
}

fn time_at_or_before(cron: &Cron, time: i64) -> Option<i64> {
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    let greatest = |set: u64| 63 - i64::from(set.leading_zeros());
    if cron.hours & (1 << hour) != 0 {
        if cron.minutes & (1 << minute) != 0
            && let Some(second) = at_or_below(cron.seconds, second)
        {
            return Some(hour * 3_600 + minute * 60 + second);
        }
        if minute > 0
            && let Some(minute) = at_or_below(cron.minutes, minute - 1)
        {
            return Some(hour * 3_600 + minute * 60 + greatest(cron.seconds));
        }
    }
    let hour = if hour > 0 { at_or_below(cron.hours, hour - 1)? } else { return None };
    Some(hour * 3_600 + greatest(cron.minutes) * 60 + greatest(cron.seconds))
}

/// How many times of a day are not after this one.
fn times_up_to(cron: &Cron, time: i64) -> u64 {
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    let below = |set: u64, value: i64| u64::from((set & ((1 << value) - 1)).count_ones());
    let all = |set: u64| u64::from(set.count_ones());
    let mut times = below(cron.hours, hour) * all(cron.minutes) * all(cron.seconds);
    if cron.hours & (1 << hour) != 0 {
        times += below(cron.minutes, minute) * all(cron.seconds);
        if cron.minutes & (1 << minute) != 0 {
            times += below(cron.seconds, second + 1);
        }
    }
    times
}

fn date_of(second: i64) -> Result<Date, Error> {
    Ok(Wall::from_us(second.checked_mul(SECOND_US).ok_or(Error::OutOfRange)?)?.civil().date())
}

fn reading(date: Date, time: i64) -> Result<Wall, Error> {
    let midnight = Wall::from_civil(date.at(0, 0, 0, 0))?;
    Wall::from_us(midnight.us() + (time * SECOND_US).min(DAY_US))
}
