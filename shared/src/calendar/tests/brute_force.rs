//! The calendar against brute force, around every change of the clock in every zone.
//!
//! Brute force walks through the moments of a window around a change, asks jiff what the clock shows at each, and writes
//! down at which moment the clock first got to each reading: that is the definition. A schedule's times in the window are
//! then a plain list, and every question to the calendar is answered by looking into it. Readings of a grid are made by
//! adding step by step; cron's by comparing the parts of the reading with lists of numbers.
//!
//! Sizes: a sample of the changes by default, all of them with PGMILL_FULL=1 (more than a million questions).

use super::super::*;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use std::collections::BTreeSet;

const SECOND_US: i64 = 1_000_000;

fn is_full() -> bool {
    std::env::var_os("PGMILL_FULL").is_some_and(|value| !value.is_empty() && value != "0")
}

fn chance(of_thousand: u32) -> bool {
    rand::random_range(0..1_000) < of_thousand
}

fn pick<T: Copy>(of: &[T]) -> T {
    of[rand::random_range(0..of.len())]
}

/// The moments of a window with the readings that the clock gets to at each, from (the first exclusive) to (inclusive).
struct Window {
    zone: Zone,
    clock: TimeZone,
    /// All moments are whole multiples of this, and so are the readings.
    grain: i64,
    /// Seconds since 1970.
    lo: i64,
    hi: i64,
    reached: Vec<(i64, i64, i64)>,
}

fn shown(clock: &TimeZone, second: i64) -> i64 {
    second + i64::from(clock.to_offset(Timestamp::from_second(second).expect("within range")).seconds())
}

fn civil(reading: i64) -> DateTime {
    TimeZone::UTC.to_datetime(Timestamp::from_second(reading).expect("within range"))
}

fn at(second: i64) -> Moment {
    Moment::from_seconds(second).expect("within range")
}

impl Window {
    fn around(zone: &Zone, clock: &TimeZone, change: i64, fine: bool) -> Window {
        let (before, after) = (shown(clock, change - 1) - change + 1, shown(clock, change) - change);
        let aligned = [before, after, change].iter().all(|number| number % 60 == 0);
        let grain = if aligned && !fine { 60 } else { 1 };
        let wide = (before - after).abs() + if grain == 60 { 3 * 3_600 } else { 400 };
        let (lo, hi) = (change - wide, change + wide);
        // what the clock has got to before the window: a day and two hours are more than any change
        let mut peak = (lo - 26 * 3_600..lo).step_by(60).chain([lo - 1]).map(|s| shown(clock, s)).max().unwrap_or(lo);
        let mut reached = Vec::new();
        for second in (lo..=hi).step_by(grain as usize) {
            let shows = shown(clock, second);
            if shows > peak {
                reached.push((second, peak, shows));
                peak = shows;
            }
        }
        Window { zone: zone.clone(), clock: clock.clone(), grain, lo, hi, reached }
    }

    /// At which moments of the window a set of readings happens. The first moment is left out: what it reaches had
    /// been reached before the window.
    fn happen(&self, mut matches: impl FnMut(i64) -> bool) -> Vec<i64> {
        let grain = self.grain;
        let mut some = |from: i64, to: i64| (from + grain..=to).step_by(grain as usize).any(&mut matches);
        let inner = self.reached.iter().skip(1);
        inner.filter(|(_, from, to)| some(*from, *to)).map(|(moment, ..)| *moment).collect()
    }

    /// Asks for times within the window. How many questions it were.
    fn ask(&self, schedule: &Schedule, times: &[i64], told: &str) -> usize {
        let lo = self.lo + self.grain;
        for _ in 0..4 {
            let t = rand::random_range(lo..=self.hi);
            let next = times.iter().find(|time| **time > t);
            self.same(schedule.after(at(t)).ok(), next, at(self.hi), told, &format!("after {}", at(t)));
            let next = times.iter().find(|time| **time >= t);
            self.same(schedule.at_or_after(at(t)).ok(), next, at(self.hi), told, &format!("at or after {}", at(t)));
            let last = schedule.before(at(t)).unwrap_or_else(|error| panic!("{told} before {}: {error}", at(t)));
            match times.iter().rev().find(|time| **time < t) {
                Some(time) => assert_eq!(last, Some(at(*time)), "{told} in {:?} before {}", self.zone, at(t)),
                None => assert!(last.is_none_or(|last| last < at(lo)), "{told} in {:?} before {}", self.zone, at(t)),
            }
        }
        let (a, b) = (rand::random_range(lo..=self.hi), rand::random_range(lo..=self.hi));
        let (a, b) = (a.min(b), a.max(b));
        let between: Vec<Moment> = times.iter().filter(|time| (a..b).contains(time)).map(|time| at(*time)).collect();
        let place = format!("{told} in {:?} from {} to {}", self.zone, at(a), at(b));
        assert_eq!(schedule.count(at(a), at(b)), between.len() as u64, "{place}");
        assert_eq!(schedule.times(at(a), at(b)).collect::<Vec<_>>(), between, "{place}");
        let backward: Vec<Moment> = schedule.times(at(a), at(b)).rev().collect();
        assert_eq!(backward, between.into_iter().rev().collect::<Vec<_>>(), "{place}");
        15
    }

    #[track_caller]
    fn same(&self, got: Option<Moment>, expected: Option<&i64>, end: Moment, told: &str, question: &str) {
        match expected {
            Some(time) => assert_eq!(got, Some(at(*time)), "{told} in {:?} {question}", self.zone),
            None => assert!(got.is_none_or(|got| got > end), "{told} in {:?} {question}: {got:?}", self.zone),
        }
    }
}

/// A field: its text and its numbers, made together.
fn field(low: u32, high: u32, open: u32) -> (String, BTreeSet<u32>) {
    if chance(open) {
        return ("*".to_owned(), (low..=high).collect());
    }
    if chance(300) {
        let step = rand::random_range(1..=(high - low) / 2);
        return (format!("*/{step}"), (low..=high).step_by(step as usize).collect());
    }
    let mut set = BTreeSet::new();
    let items: Vec<String> = (0..rand::random_range(1..4))
        .map(|_| {
            let from = rand::random_range(low..=high);
            if chance(500) {
                set.insert(from);
                return from.to_string();
            }
            let to = rand::random_range(from..=high);
            let step = rand::random_range(1..=4);
            set.extend((from..=to).step_by(step as usize));
            if step == 1 { format!("{from}-{to}") } else { format!("{from}-{to}/{step}") }
        })
        .collect();
    (items.join(","), set)
}

fn ask_cron(window: &Window) -> usize {
    let seconds = if window.grain == 1 { field(0, 59, 200) } else { ("0".to_owned(), BTreeSet::from([0])) };
    let (minutes, hours) = (field(0, 59, 300), field(0, 23, 600));
    let (days, months, weekdays) = (field(1, 31, 700), field(1, 12, 900), field(0, 6, 700));
    let last_day = chance(50);
    let day_text = if last_day { format!("{},L", days.0) } else { days.0.clone() };
    let mut text = format!("{} {} {day_text} {} {}", minutes.0, hours.0, months.0, weekdays.0);
    if window.grain == 1 {
        text = format!("{} {text}", seconds.0);
    }
    let either = !day_text.starts_with('*') && !weekdays.0.starts_with('*');
    let Ok(cron) = Cron::parse(&text) else {
        // the numbers are all allowed; the only reason to refuse is that there is no such day
        let lengths = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let some = months.1.iter().any(|month| days.1.iter().any(|day| *day <= lengths[*month as usize - 1]));
        assert!(!some && !either && !last_day, "{text} fires, but was refused");
        return 1;
    };
    let times = window.happen(|reading| {
        let now = civil(reading);
        let day = days.1.contains(&(now.day() as u32)) || last_day && now.day() == now.days_in_month();
        let weekday = weekdays.1.contains(&(now.weekday().to_sunday_zero_offset() as u32));
        seconds.1.contains(&(now.second() as u32))
            && minutes.1.contains(&(now.minute() as u32))
            && hours.1.contains(&(now.hour() as u32))
            && months.1.contains(&(now.month() as u32))
            && if either { day || weekday } else { day && weekday }
    });
    let schedule = Schedule::Cron { cron, zone: window.zone.clone(), start: None };
    window.ask(&schedule, &times, &text)
}

fn ask_grid(window: &Window) -> usize {
    let seconds = if window.grain == 1 { rand::random_range(1..4_000) } else { 60 * rand::random_range(1..400) };
    let step = match rand::random_range(0..5) {
        0 | 1 => Interval::from_seconds(seconds),
        2 => Interval::from_days(rand::random_range(1..4)),
        3 => Interval::from_months(rand::random_range(1..30)),
        _ => Interval { months: pick(&[0, 1]), days: rand::random_range(0..3), us: seconds * SECOND_US },
    };
    // an origin from which some step falls near the change, and sometimes in the middle of it
    let steps = rand::random_range(0..300);
    let length = i64::try_from(step.length_us() / i128::from(SECOND_US)).expect("short");
    let near = rand::random_range(window.lo + window.grain..window.hi) / window.grain * window.grain;
    let origin = if chance(100) { near } else { near - steps * length };
    let start = shown(&window.clock, origin);
    // a lone origin between the grains has no place in the list
    if start % window.grain != 0 || origin < window.lo && shown(&window.clock, origin) % window.grain != 0 {
        return 0;
    }
    let (from, to) = (window.reached.first().map_or(0, |r| r.1), window.reached.last().map_or(0, |r| r.2));
    let mut readings = BTreeSet::new();
    let mut k = 1;
    loop {
        let months = Span::new().months(i64::from(step.months) * k);
        let reading = civil(start).checked_add(months).expect("within range");
        let reading = TimeZone::UTC.to_timestamp(reading).expect("within range").as_second();
        let reading = reading + k * (i64::from(step.days) * 86_400 + step.us / SECOND_US);
        if reading > to {
            break;
        }
        if reading >= from {
            readings.insert(reading);
        }
        k += 1;
    }
    let mut times = window.happen(|reading| readings.contains(&reading));
    times.retain(|time| *time > origin);
    if origin > window.lo {
        times.insert(0, origin);
    }
    let grid = Grid::new(at(origin), step, window.zone.clone()).expect("a good step");
    let told = format!("{step:?} from {}", at(origin));
    for k in [0, 1, 2, 7] {
        let time = grid.time(k).unwrap_or_else(|error| panic!("{told}: {error}"));
        assert!(k == 0 || grid.after(time).is_ok_and(|after| after > time), "{told}: the {k}-th time");
    }
    window.ask(&Schedule::Grid(grid), &times, &told)
}

/// `first` and `reading` belong together.
fn ask_zone(window: &Window) -> usize {
    for (moment, from, to) in &window.reached[1..] {
        for reading in [from + 1, *to] {
            let wall = Wall::from_us(reading * SECOND_US).expect("within range");
            let first = window.zone.first(wall).expect("within range");
            if window.grain == 1 || reading == *to {
                assert_eq!(first, at(*moment), "{:?} first shows {}", window.zone, civil(reading));
            }
            let (then, before) = (window.zone.reading(first), window.zone.reading(first.just_before()));
            assert!(then >= wall && before < wall, "{:?} at {}", window.zone, civil(reading));
        }
    }
    window.reached.len().min(30)
}

#[test]
fn the_calendar_agrees_with_brute_force_around_every_change_of_every_zone() {
    let (lo, hi) = (-6_000_000_000, 4_102_444_800); // 1779 and 2100
    let (mut questions, mut changes, mut zones) = (0, 0, 0);
    for name in Zone::bundled_names() {
        let zone = Zone::find(&name).unwrap_or_else(|error| panic!("{error}"));
        let clock = zone.clock().clone();
        zones += 1;
        let from = Timestamp::from_second(lo).expect("within range");
        for transition in clock.following(from).take_while(|transition| transition.timestamp().as_second() < hi) {
            changes += 1;
            if !is_full() && !chance(15) {
                continue;
            }
            let window = Window::around(&zone, &clock, transition.timestamp().as_second(), chance(100));
            questions += ask_zone(&window);
            questions += ask_cron(&window) + ask_grid(&window);
        }
    }
    println!("{questions} questions around {changes} changes of {zones} zones");
    assert!(zones > 550, "{zones} zones");
    assert!(questions > if is_full() { 1_000_000 } else { 10_000 }, "{questions} questions");
}
