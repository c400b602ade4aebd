//! What people expect of a calendar, by example. The comparison with brute force is in `brute_force`.

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
