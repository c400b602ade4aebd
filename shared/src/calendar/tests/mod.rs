//! What people expect of a calendar, by example. The comparison with brute force is in `brute_force`.

mod brute_force;
mod starts;

use super::*;

fn moment(text: &str) -> Moment {
    let timestamp: jiff::Timestamp = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    Moment::from_timestamp(timestamp).expect("a moment within range")
}

fn zone(name: &str) -> Zone {
    Zone::find(name).expect("a known zone")
}

fn cron(text: &str) -> Cron {
    Cron::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn fires(expression: &str, zone_name: &str, after: &str, expected: &[&str]) {
    let (cron, zone) = (cron(expression), zone(zone_name));
    let mut at = moment(after);
    for expected in expected {
        at = cron.after(at, &zone).expect("a next match");
        assert_eq!(at.to_string(), *expected, "{expression} in {zone_name}");
    }
}

#[test]
fn a_skipped_time_happens_at_the_first_moment_after_the_gap() {
    fires("30 2 * * *", "Europe/Paris", "2026-03-28T12:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    fires("*/20 2 * * *", "Europe/Paris", "2026-03-28T12:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    // both the skipped 2:30 and 3:00 itself: one moment
    fires("0,30 2,3 * * *", "Europe/Paris", "2026-03-28T12:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]);
}

#[test]
fn a_repeated_time_happens_once() {
    fires("30 2 * * *", "Europe/Paris", "2026-10-24T12:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    // asked within the second showing
    fires("30 2 * * *", "Europe/Paris", "2026-10-25T01:10:00Z", &["2026-10-26T01:30:00Z"]);
    fires("0 3 * * *", "Europe/Paris", "2026-10-25T00:59:59Z", &["2026-10-25T02:00:00Z"]);
}

#[test]
fn a_day_of_month_and_a_day_of_week_are_joined_as_classic_cron_joins_them() {
    // both restricted: one is enough. 2026-01-01 is a Thursday
    fires(
        "0 0 13 * 5",
        "UTC",
        "2026-01-03T00:00:00Z",
        &["2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z", "2026-01-16T00:00:00Z"],
    );
    // one begins with a star: both must hold
    fires("0 0 */2 * 1", "UTC", "2026-01-01T00:00:00Z", &["2026-01-05T00:00:00Z", "2026-01-19T00:00:00Z"]);
    fires("0 0 * * 7", "UTC", "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"]);
    fires(
        "0 0 * * fri-sun",
        "UTC",
        "2026-01-05T00:00:00Z",
        &["2026-01-09T00:00:00Z", "2026-01-10T00:00:00Z", "2026-01-11T00:00:00Z", "2026-01-16T00:00:00Z"],
    );
}

#[test]
fn seconds_names_shortcuts_and_the_last_day_are_understood() {
    fires("*/20 59 23 31 dec *", "UTC", "2026-12-31T23:59:20Z", &["2026-12-31T23:59:40Z", "2027-12-31T23:59:00Z"]);
    fires("0 12 L * *", "UTC", "2027-02-01T00:00:00Z", &["2027-02-28T12:00:00Z", "2027-03-31T12:00:00Z"]);
    fires("0 12 $ 2 *", "UTC", "2027-03-01T00:00:00Z", &["2028-02-29T12:00:00Z", "2029-02-28T12:00:00Z"]);
    fires("@weekly", "UTC", "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z"]);
    fires("@Yearly", "Asia/Tokyo", "2026-01-01T00:00:00Z", &["2026-12-31T15:00:00Z"]);
    // over the year 2100, which has no 29 February, and on a Sunday only
    fires("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]);
    fires("0 0 29 2 */7", "UTC", "2076-03-01T00:00:00Z", &["2088-02-29T00:00:00Z"]);
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_reason() {
    let refused = [
        ("* * * *", "it has 4 fields; five are needed, or six with seconds in front"),
        ("", "it has 0 fields; five are needed, or six with seconds in front"),
        ("60 * * * *", "minute: 60 is not within 0 to 59"),
        ("0 0 0 * *", "day of month: 0 is not within 1 to 31"),
        ("0 22-2 * * *", "hour: the range 22-2 goes backward"),
        ("*/90 * * * *", "minute: the step 90 is not within 1 to 60"),
        ("5/10 * * * *", "minute: the step in 5/10 needs a range, as in 5-59/10"),
        ("0 0 * jan-foo *", "month: \"jan-foo\" is not a value, a range or a step"),
        ("0 0 31 2,4 *", "it never fires: none of its months has such a day"),
        ("0 0 30 feb *", "it never fires: none of its months has such a day"),
        (
            "@reboot",
            "unknown shortcut @reboot; known are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly",
        ),
    ];
    for (text, reason) in refused {
        assert_eq!(Cron::parse(text).unwrap_err().to_string(), format!("cron \"{text}\": {reason}"));
    }
    assert!(Cron::parse("0 0 30 2 1").is_ok(), "Mondays of February");
}

fn grid(origin: &str, step: Interval, zone_name: &str) -> Grid {
    Grid::new(moment(origin), step, zone(zone_name)).expect("a good step")
}

#[test]
fn months_are_counted_from_the_origin() {
    let grid = grid("2026-01-31T10:00:00Z", Interval::from_months(1), "UTC");
    let times: Vec<String> = (0..5).map(|k| grid.time(k).expect("in range").to_string()).collect();
    let days = ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"];
    assert_eq!(times, days.map(|day| format!("{day}T10:00:00Z")));
    for k in 0..4 {
        assert_eq!(grid.after(grid.time(k).expect("in range")), grid.time(k + 1));
    }
}

#[test]
fn a_grid_with_a_zone_keeps_its_time_of_day_and_one_without_keeps_its_distance() {
    let day = Interval::from_days(1);
    let paris = grid("2026-03-27T08:00:00Z", day, "Europe/Paris"); // 9 o'clock
    assert_eq!(paris.after(moment("2026-03-29T00:00:00Z")), Ok(moment("2026-03-29T07:00:00Z")));
    let utc = grid("2026-03-27T08:00:00Z", day, "UTC");
    assert_eq!(utc.after(moment("2026-03-29T00:00:00Z")), Ok(moment("2026-03-29T08:00:00Z")));
    let half = grid("2026-03-27T08:00:00Z", Interval::from_seconds(43_200), "Europe/Paris");
    assert_eq!(half.after(moment("2026-03-29T12:00:00Z")), Ok(moment("2026-03-29T19:00:00Z")), "9 and 21 o'clock");
}

#[test]
fn a_year_of_missed_seconds_is_counted_without_looking_at_each() {
    let (lo, hi) = (moment("2026-01-01T00:00:00Z"), moment("2027-01-01T00:00:00Z"));
    let year = 365 * 86_400;
    let every = Schedule::Grid(grid("2020-01-01T00:00:00Z", Interval::from_seconds(1), "UTC"));
    let began = std::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(every.count(lo, hi), year);
        let seconds = Schedule::Cron { cron: cron("* * * * * *"), zone: zone("Europe/Paris"), start: None };
        // the repeated hour counts once; the skipped one was never there
        assert_eq!(seconds.count(lo, hi), year - 3_600);
        assert_eq!(seconds.before(hi), Ok(Some(moment("2026-12-31T23:59:59Z"))));
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn the_ends_of_time_are_errors_and_never_panics() {
    let crons = ["* * * * * *", "0 0 29 2 */7", "0 0 1 1 *", "59 59 23 L 12 *"].map(cron);
    let steps = [
        Interval::from_seconds(1),
        Interval { us: i64::MAX, ..Interval::default() },
        Interval::from_days(i32::MAX),
        Interval::from_months(i32::MAX),
        Interval { months: i32::MAX, days: i32::MAX, us: i64::MAX },
    ];
    for zone in ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Paris"].map(zone) {
        for moment in [Moment::MIN, Moment::MAX, moment("1970-01-01T00:00:00Z")] {
            for cron in &crons {
                let _ = (cron.after(moment, &zone), cron.before(moment, &zone), cron.at_or_after(moment, &zone));
            }
            for step in steps {
                let grid = Grid::new(moment, step, zone.clone()).expect("a good step");
                let _ = (grid.after(Moment::MAX), grid.before(Moment::MAX), grid.time(u64::MAX));
                let _ = (grid.count(Moment::MIN, Moment::MAX), zone.plus(moment, step));
            }
        }
    }
    assert_eq!(cron("0 0 1 1 *").after(Moment::MAX, &zone("UTC")), Err(Error::OutOfRange));
    assert_eq!(Moment::from_us(i64::MAX), Err(Error::OutOfRange));
    assert_eq!(Moment::from_seconds(i64::MAX), Err(Error::OutOfRange));
}

#[test]
fn intervals_are_added_as_postgresql_adds_them() {
    let paris = zone("Europe/Paris");
    let plus = |text: &str, interval| paris.plus(moment(text), interval).map(|moment| moment.to_string());
    // noon before the change: a day later it is noon again, 24 hours later it is one o'clock
    assert_eq!(plus("2026-03-28T11:00:00Z", Interval::from_days(1)).as_deref(), Ok("2026-03-29T10:00:00Z"));
    assert_eq!(plus("2026-03-28T11:00:00Z", Interval::from_seconds(86_400)).as_deref(), Ok("2026-03-29T11:00:00Z"));
    assert_eq!(plus("2026-03-31T11:00:00Z", Interval::from_months(-1)).as_deref(), Ok("2026-02-28T12:00:00Z"));
    assert_eq!(plus("2026-10-25T01:30:00Z", Interval::from_seconds(60)).as_deref(), Ok("2026-10-25T01:31:00Z"));
}

#[test]
fn a_zone_that_nobody_knows_is_an_error() {
    assert_eq!(
        Zone::find("Europe/Atlantis").unwrap_err().to_string(),
        "the time zone \"Europe/Atlantis\" is not known to pgmill's zone database"
    );
    assert!(Zone::find(&"x".repeat(100_000)).is_err_and(|error| error.to_string().len() < 200));
    assert!(Zone::find("../../../etc/passwd").is_err());
    assert_eq!(Zone::find_or_utc(None), Ok(Zone::utc()));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}") {
        let _ = Cron::parse(&text);
    }

    #[test]
    fn no_likely_text_makes_the_parser_panic(text in "[0-9*/,L$@ a-z-]{0,40}") {
        if let Ok(cron) = Cron::parse(&text) {
            let noon = moment("2026-11-16T12:00:00Z");
            let next = cron.after(noon, &Zone::utc()).expect("it fires");
            proptest::prop_assert!(next > noon);
            proptest::prop_assert_eq!(cron.at_or_after(next, &Zone::utc()), Ok(next));
            proptest::prop_assert!(cron.before(next, &Zone::utc()).is_ok_and(|last| last <= noon));
        }
    }
}
