//! The server's calendar and the program's: the same verdicts with the same words, the same moments.
//!
//! The cases are random; a case that fails is printed whole, so that it can be asked again.

use std::collections::HashSet;

use postgres::Client;
use shared::calendar::{Cron, Error, Grid, Interval, Moment, Zone};
use tests::{Cluster, Database, sized};

use crate::queries::{all, one, one_with};

const DAY_US: i64 = 86_400_000_000;
/// 1970 and 2040.
const YEARS_US: std::ops::Range<i64> = 0..2_208_988_800_000_000;

/// A database with nothing but the catalog.
fn catalog() -> Database {
    let database = Cluster::shared().database();
    database.run(&shared::db::catalog::text("test"));
    database
}

fn pick<T: Copy>(of: &[T]) -> T {
    of[rand::random_range(0..of.len())]
}

fn chance(of_hundred: u32) -> bool {
    rand::random_range(0..100) < of_hundred
}

/// What somebody could have written: mostly right, sometimes just beside it, sometimes nonsense.
fn expression() -> String {
    if chance(3) {
        return pick(&["@hourly", "@DAILY", "@reboot", "@every 5", "@", "", " \t", "@weekly ", "30 seconds"])
            .to_owned();
    }
    let fields = if chance(4) { rand::random_range(0..9) } else { rand::random_range(5..=6) };
    let blank = if chance(5) { pick(&["  ", "\t", "\n", " \r\n"]) } else { " " };
    let written: Vec<String> = (0..fields).map(|index| field(index + 6 - fields.min(6))).collect();
    let mut text = written.join(blank);
    if chance(6) {
        let noise = ["*", "/", "-", ",", "?", "#", "L", "$", "7", "é", "x", "\u{a0}", ";", "W", "٣"];
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        if !places.is_empty() {
            text.insert_str(pick(&places), pick(&noise));
        }
    }
    text
}

/// A field of the kind that stands at this place of six.
fn field(place: usize) -> String {
    let items = if chance(25) { rand::random_range(2..5) } else { 1 };
    let written: Vec<String> = (0..items).map(|_| item(place)).collect();
    written.join(",")
}

fn item(place: usize) -> String {
    if chance(30) {
        return if chance(30) { format!("*/{}", rand::random_range(0..15)) } else { "*".to_owned() };
    }
    if place == 3 && chance(6) {
        return pick(&["L", "l", "$", "LW", "$/2"]).to_owned();
    }
    if !chance(35) {
        return if chance(2) { format!("{}/5", value(place)) } else { value(place) };
    }
    // upward, as it should be, unless it is made of names
    let (one, other) = (value(place), value(place));
    let upward = one.parse::<i32>().is_ok_and(|one| other.parse::<i32>().is_ok_and(|other| one > other));
    let range = if upward && !chance(5) { format!("{other}-{one}") } else { format!("{one}-{other}") };
    if !chance(30) {
        return range;
    }
    let step = if chance(90) { pick(&["1", "2", "5", "007"]) } else { pick(&["0", "31", "61", "", "x", "1234567890"]) };
    format!("{range}/{step}")
}

fn value(place: usize) -> String {
    let (low, high): (i32, i32) = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)][place.min(5)];
    if place >= 4 && chance(2) {
        return pick(&["june", "sunday", "ja", "sun", "jan"]).to_owned();
    }
    if place == 4 && chance(40) {
        return pick(&["jan", "FEB", "Mar", "sep", "dec"]).to_owned();
    }
    if place == 5 && chance(40) {
        return pick(&["sun", "MON", "Tue", "fri", "SAT", "Sun"]).to_owned();
    }
    let number = if chance(2) { rand::random_range(-2..100) } else { rand::random_range(low..=high) };
    if chance(5) { format!("{number:03}") } else { number.to_string() }
}

#[test]
fn server_and_program_give_every_cron_expression_the_same_verdict() {
    let database = catalog();
    let mut client = database.connect_superuser();
    let (mut good, mut reasons) = (0, HashSet::new());
    // one of each kind that is refused, so that all kinds are there
    let known = ["* *", "@x", "x * * * *", "60 * * * *", "5-2 * * * *", "*/0 * * * *", "5/5 * * * *", "0 0 31 2 *"];
    for _ in 0..sized(5, 100) {
        let random = (0..1_000).map(|_| expression());
        let expressions: Vec<String> = known.iter().map(|text| (*text).to_owned()).chain(random).collect();
        let sql = "SELECT mill.check_cron(e) FROM unnest($1::text[]) WITH ORDINALITY AS u(e, n) ORDER BY n";
        let verdicts = client.query(sql, &[&expressions]).expect("check_cron answers");
        assert_eq!(verdicts.len(), expressions.len());
        for (expression, verdict) in expressions.iter().zip(verdicts) {
            let server: Option<String> = verdict.get(0);
            let program = match Cron::parse(expression) {
                Ok(_) => None,
                Err(Error::Cron { why, .. }) => Some(why),
                Err(other) => panic!("{expression:?}: {other}"),
            };
            assert_eq!(server, program.as_ref().map(ToString::to_string), "{expression:?}");
            match program {
                None => good += 1,
                Some(why) => drop(reasons.insert(std::mem::discriminant(&why))),
            }
        }
    }
    // the cases are worth something only if they are of every kind
    assert!(good > sized(500, 10_000), "{good} good ones");
    assert_eq!(reasons.len(), known.len());
}

#[test]
fn an_expression_longer_than_a_thousand_characters_is_refused_by_both() {
    let database = catalog();
    let long = format!("{} * * * *", ["1"; 500].join(","));
    let said: String = one_with(&database, "SELECT mill.check_cron($1::text)", &[&long]);
    assert_eq!(Cron::parse(&long).unwrap_err().to_string(), format!("cron \"{}\": {said}", &long[..80]));
    assert_eq!(said, "it is longer than 1000 characters");
}

#[test]
fn only_names_of_zones_are_zones() {
    let database = catalog();
    let check = |name: &str| one_with::<Option<String>>(&database, "SELECT mill.check_zone($1::text)", &[&name]);
    for name in ["UTC", "utc", "Europe/Paris", "europe/paris", "Etc/GMT+5", "America/Port-au-Prince", "EST5EDT"] {
        assert_eq!(check(name), None, "{name}");
        Zone::find(name).unwrap_or_else(|error| panic!("{error}"));
    }
    for name in ["Europe/Atlantis", "XYZ-3", "Foo/Bar+3", "", "/", "Europe/", "../../etc/passwd", "CEST", "é"] {
        assert_eq!(check(name), Some(format!("time zone \"{name}\" does not exist")));
        assert_eq!(Zone::find(name), Err(Error::UnknownZone(name.to_owned())));
    }
}

#[test]
fn steps_that_cannot_be_repeated_are_refused_by_both() {
    let database = catalog();
    let good =
        ["1 second", "1 day", "1 day -1 hour", "1 month", "10 years", "1 microsecond", "36:00", "-1 day 25 hours"];
    let bad = [
        "0",
        "-1 second",
        "-1 month",
        "1 month 1 day",
        "1 month -1 day",
        "1 mon 1 us",
        "-1 mon 40 days",
        "1 day -25 hours",
    ];
    for (text, allowed) in good.iter().map(|text| (*text, true)).chain(bad.iter().map(|text| (*text, false))) {
        let step: Interval = one(&database, &format!("SELECT interval '{text}'"));
        let said: Option<String> = one(&database, &format!("SELECT mill.check_step(interval '{text}')"));
        assert_eq!(said, step.check_fixed().err().map(|error| error.to_string()), "{text}");
        assert_eq!(said.is_none(), allowed, "{text}: {said:?}");
    }
}

/// Zones that the program knows, and in which it shows the same time as the server on the first of every month and
/// around every change of the clock.
fn common_zones(database: &Database, client: &mut Client) -> Vec<Zone> {
    let names: Vec<String> =
        all(database, "SELECT name FROM pg_timezone_names WHERE name !~ '^(posix|right)' ORDER BY name");
    let names: Vec<String> = names.into_iter().filter(|_| chance(sized(8, 100))).collect();
    let (lo, hi) = (Moment::from_us(YEARS_US.start).expect("1970"), Moment::from_us(YEARS_US.end).expect("2040"));
    let mut common = Vec::new();
    for zone in names.iter().filter_map(|name| Zone::find(name).ok()) {
        let mut moments: Vec<Moment> = (0..840).filter_map(|month| lo.plus_us(month * 30 * DAY_US).ok()).collect();
        for change in zone.changes(lo, hi) {
            moments.extend([-1, 0, 1].iter().filter_map(|second| change.plus_us(second * 1_000_000).ok()));
        }
        let sql = "SELECT timezone($1, m) AT TIME ZONE 'UTC' FROM unnest($2::timestamptz[]) WITH ORDINALITY AS u(m, n) ORDER BY n";
        let shown = client.query(sql, &[&zone.name(), &moments]).expect("the server shows the time");
        if moments.iter().zip(shown).all(|(moment, shown)| zone.shows(*moment).us() == shown.get::<_, Moment>(0).us()) {
            common.push(zone);
        }
    }
    assert!(
        common.len() * 10 > names.len() * 8,
        "only {} of {} zones are the same for both",
        common.len(),
        names.len()
    );
    common
}

fn step() -> Interval {
    let (seconds, days, months) =
        (rand::random_range(1..200_000), rand::random_range(1..100), rand::random_range(1..40));
    match rand::random_range(0..7) {
        0 => Interval::from_seconds(seconds),
        1 => Interval::from_seconds(pick(&[1, 60, 300, 1_800, 3_600, 21_600, 43_200, 86_400])),
        2 => Interval::from_days(1),
        3 => Interval::from_days(days),
        4 => Interval::from_months(months),
        5 => Interval { days, us: seconds * 1_000_000 + 17, months: 0 },
        _ => Interval { days, us: seconds * 1_000_000, months },
    }
}

/// Anywhere, or close to a change of the clock.
fn moment(zone: &Zone) -> Moment {
    let anywhere = Moment::from_us(rand::random_range(YEARS_US)).expect("within range");
    if chance(40) {
        return anywhere;
    }
    let far = Moment::from_us(YEARS_US.end).expect("2040");
    let change = zone.changes(anywhere, far).next().unwrap_or(anywhere);
    let distance_us =
        if chance(50) { pick(&[-1_000_000, -1, 0, 1, 1_800_000_000]) } else { rand::random_range(-DAY_US..DAY_US) };
    change.plus_us(distance_us).expect("within range")
}

#[test]
fn server_and_program_find_the_same_next_slot_and_the_same_sum() {
    let database = catalog();
    let mut client = database.connect_superuser();
    let zones = common_zones(&database, &mut client);
    for _ in 0..sized(10, 200) {
        let cases: Vec<(&Zone, Moment, Interval, Moment)> = (0..500)
            .map(|_| {
                let zone = &zones[rand::random_range(0..zones.len())];
                (zone, moment(zone), step(), moment(zone))
            })
            .collect();
        let names: Vec<&str> = cases.iter().map(|case| case.0.name()).collect();
        let origins: Vec<Moment> = cases.iter().map(|case| case.1).collect();
        let steps: Vec<Interval> = cases.iter().map(|case| case.2).collect();
        let afters: Vec<Moment> = cases.iter().map(|case| case.3).collect();
        let sql = "SELECT mill_private.next_slot(o, s, z, a) FROM unnest($1::text[], $2::timestamptz[], $3::interval[], $4::timestamptz[]) \
                   WITH ORDINALITY AS u(z, o, s, a, n) ORDER BY n";
        let slots = client.query(sql, &[&names, &origins, &steps, &afters]).expect("next_slot answers");
        let sql = "SELECT mill_private.add_interval(o, s, z) FROM unnest($1::text[], $2::timestamptz[], $3::interval[]) \
                   WITH ORDINALITY AS u(z, o, s, n) ORDER BY n";
        let sums = client.query(sql, &[&names, &origins, &steps]).expect("zone_plus answers");
        for ((zone, origin, step, _), sum) in cases.iter().zip(sums) {
            let program = zone.plus(*origin, *step).expect("within range");
            assert_eq!(sum.get::<_, Moment>(0).to_string(), program.to_string(), "{zone:?}: {origin} + {step:?}");
        }
        for ((zone, origin, step, after), slot) in cases.into_iter().zip(slots) {
            let program =
                Grid::new(origin, step, zone.clone()).and_then(|grid| grid.after(after)).expect("a next slot");
            let server: Moment = slot.get(0);
            assert_eq!(server.to_string(), program.to_string(), "{zone:?} from {origin} by {step:?} after {after}");
        }
    }
}

#[test]
fn the_next_slot_has_an_answer_at_the_ends_of_time() {
    let database = catalog();
    let slot = |arguments: &str| -> Option<String> {
        let slot = format!("mill_private.next_slot({arguments}) AT TIME ZONE 'UTC'");
        one(&database, &format!("SELECT to_char({slot}, 'YYYY-MM-DD HH24:MI:SS')"))
    };
    assert_eq!(
        slot("'2026-01-31 10:00+00', '1 month', NULL, '2026-02-01 00:00+00'").as_deref(),
        Some("2026-02-28 10:00:00")
    );
    assert_eq!(
        slot("'2026-01-31 10:00+00', '1 month', NULL, '2026-03-01 00:00+00'").as_deref(),
        Some("2026-03-31 10:00:00")
    );
    assert_eq!(
        slot("'2026-03-01 00:00+00', '1 day', 'UTC', '2026-01-01 00:00+00'").as_deref(),
        Some("2026-03-01 00:00:00")
    );
    assert_eq!(slot("'2026-03-01 00:00+00', '9000 years', 'UTC', '2026-03-01 00:00+00'"), None);
    assert_eq!(slot("'2026-03-01 00:00+00', '170000000 years', 'UTC', '2026-03-02 00:00+00'"), None);
    assert_eq!(slot("'2026-03-01 00:00+00', '2000000000 days', 'UTC', '2026-03-02 00:00+00'"), None);
    assert_eq!(slot("'2026-03-01 00:00+00', '1 day', 'UTC', 'infinity'"), None);
    assert_eq!(slot("'infinity', '1 day', 'UTC', 'infinity'"), None);
    assert_eq!(slot("NULL, '1 day', 'UTC', '2026-03-01 00:00+00'"), None);
    assert_eq!(
        slot("'1970-01-01 00:00+00', '1 microsecond', NULL, '2026-01-01 00:00:00+00'").as_deref(),
        Some("2026-01-01 00:00:00")
    );
    let mut client = database.connect_superuser();
    for step in ["0", "-1 day"] {
        let sql = format!("SELECT mill_private.next_slot('2026-03-01', '{step}', NULL, '2026-03-02')");
        let error = client.query(&sql, &[]).expect_err("nothing to repeat");
        assert!(error.as_db_error().is_some_and(|said| said.message().contains("must be more than 0")), "{error}");
    }
}
