//! The next start of a job on every occasion.

use super::super::*;
use super::moment;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

const MINUTE: i64 = 60_000_000;

fn columns<'a>() -> JobColumns<'a> {
    JobColumns {
        schedule_interval: None,
        cron: None,
        timezone: None,
        initial_start: None,
        fixed_schedule: true,
        retry_period: Interval::from_seconds(300),
        crash_wait: Interval::from_seconds(300),
        origin: moment("2026-05-01T00:00:00Z"),
    }
}

fn hourly<'a>() -> JobColumns<'a> {
    JobColumns { schedule_interval: Some(Interval::from_seconds(3_600)), ..columns() }
}

#[track_caller]
fn start(columns: JobColumns<'_>, occasion: Occasion) -> Option<String> {
    let plan = StartPlan::read(columns).unwrap_or_else(|error| panic!("{error}"));
    next_start(&plan, occasion).unwrap_or_else(|error| panic!("{error}")).map(|moment| moment.to_string())
}

fn failed(finish: &str, failures: u32, jitter: f64) -> Occasion {
    Occasion::Failed { finish: moment(finish), own: None, failures, jitter }
}

#[test]
fn a_job_that_has_never_run_starts_at_its_initial_start_or_now() {
    let now = moment("2026-05-01T12:34:56Z");
    let never = Occasion::NeverRun { now };
    let later = Some(moment("2026-06-01T00:00:00Z"));
    assert_eq!(start(columns(), never), None, "it has no schedule");
    let drifting = JobColumns { fixed_schedule: false, ..hourly() };
    assert_eq!(start(drifting, never).as_deref(), Some("2026-05-01T12:34:56Z"));
    assert_eq!(start(JobColumns { initial_start: later, ..drifting }, never).as_deref(), Some("2026-06-01T00:00:00Z"));
    assert_eq!(start(JobColumns { origin: now, ..hourly() }, never).as_deref(), Some("2026-05-01T12:34:56Z"));
    assert_eq!(start(JobColumns { initial_start: later, ..hourly() }, never).as_deref(), Some("2026-06-01T00:00:00Z"));
    let cron = JobColumns { cron: Some("0 * * * *"), ..columns() };
    assert_eq!(start(cron, never).as_deref(), Some("2026-05-01T13:00:00Z"));
    // the first slot counts
    assert_eq!(start(JobColumns { initial_start: later, ..cron }, never).as_deref(), Some("2026-06-01T00:00:00Z"));
}

#[test]
fn after_a_success_a_drifting_job_waits_its_interval_and_a_fixed_one_skips_missed_slots() {
    let done = Occasion::Succeeded { finish: moment("2026-05-01T12:34:56Z"), own: None };
    let drifting = JobColumns { fixed_schedule: false, ..hourly() };
    assert_eq!(start(drifting, done).as_deref(), Some("2026-05-01T13:34:56Z"));
    assert_eq!(start(hourly(), done).as_deref(), Some("2026-05-01T13:00:00Z"));
    assert_eq!(start(columns(), done), None);
    let cron = JobColumns { cron: Some("0 3 * * *"), timezone: Some("Europe/Paris"), ..columns() };
    assert_eq!(start(cron, done).as_deref(), Some("2026-05-02T01:00:00Z"));
    // a finish on the slot itself: strictly after
    let sharp = Occasion::Succeeded { finish: moment("2026-05-01T13:00:00Z"), own: None };
    assert_eq!(start(hourly(), sharp).as_deref(), Some("2026-05-01T14:00:00Z"));
}

#[test]
fn what_the_run_has_set_for_itself_wins() {
    let (finish, own) = (moment("2026-05-01T12:00:00Z"), Some(moment("2026-05-03T00:00:00Z")));
    for occasion in [Occasion::Succeeded { finish, own }, Occasion::Failed { finish, own, failures: 3, jitter: 1.0 }] {
        for columns in [columns(), hourly()] {
            assert_eq!(start(columns, occasion).as_deref(), Some("2026-05-03T00:00:00Z"));
        }
    }
}

#[test]
fn waits_after_failures_double_up_to_the_cap() {
    let daily = JobColumns { schedule_interval: Some(Interval::from_days(1)), fixed_schedule: false, ..columns() };
    let noon = moment("2026-05-01T12:00:00Z");
    let wait = |columns, failures, jitter| {
        let plan = StartPlan::read(columns).expect("a good plan");
        let next = next_start(&plan, Occasion::Failed { finish: noon, own: None, failures, jitter });
        (next.expect("in range").expect("a retry").us() - noon.us()) / MINUTE
    };
    let waits: Vec<i64> = (1..=12).map(|failures| wait(daily, failures, 0.0)).collect();
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 7_200], "at most five days");
    assert_eq!((wait(daily, 4, -1.0), wait(daily, 4, 1.0)), (35, 45), "an eighth to either side");
    assert_eq!((wait(daily, 4, f64::NAN), wait(daily, 4, 1e9)), (40, 45));
    assert_eq!(wait(daily, 0, 0.0), 5, "nobody fails for the zeroth time");
    // without a schedule there is no interval to cap it; the doublings end
    assert_eq!(wait(columns(), 21, 0.0), 5 << 20);
    assert_eq!(wait(columns(), u32::MAX, 0.0), 5 << 20);
}

#[test]
fn a_fixed_schedule_never_retries_later_than_its_next_slot() {
    assert_eq!(start(hourly(), failed("2026-05-01T12:10:00Z", 1, 0.0)).as_deref(), Some("2026-05-01T12:15:00Z"));
    assert_eq!(start(hourly(), failed("2026-05-01T12:58:00Z", 1, 0.0)).as_deref(), Some("2026-05-01T13:00:00Z"));
    assert_eq!(start(hourly(), failed("2026-05-01T12:10:00Z", 9, 1.0)).as_deref(), Some("2026-05-01T13:00:00Z"));
    let cron = JobColumns { cron: Some("0 * * * *"), ..columns() };
    assert_eq!(start(cron, failed("2026-05-01T12:58:00Z", 20, 0.0)).as_deref(), Some("2026-05-01T13:00:00Z"));
}

#[test]
fn after_a_crash_the_operator_has_time_also_where_a_slot_is_near() {
    let now = moment("2026-05-01T12:58:00Z");
    let crashed = |crashes| Occasion::Crashed { now, crashes, jitter: 0.0 };
    assert_eq!(start(hourly(), crashed(1)).as_deref(), Some("2026-05-01T13:03:00Z"));
    let drifting = JobColumns { fixed_schedule: false, ..hourly() };
    assert_eq!(start(drifting, crashed(3)).as_deref(), Some("2026-05-01T13:18:00Z"), "the back-off is longer");
    let patient = JobColumns { crash_wait: Interval::from_days(2), ..hourly() };
    assert_eq!(start(patient, crashed(1)).as_deref(), Some("2026-05-03T12:58:00Z"));
    assert_eq!(start(columns(), crashed(1)).as_deref(), Some("2026-05-01T13:03:00Z"), "edges started it");
}

#[test]
fn an_interrupted_job_is_still_due() {
    let due = moment("2026-05-01T12:00:00Z");
    for columns in [columns(), hourly()] {
        assert_eq!(start(columns, Occasion::Interrupted { due }).as_deref(), Some("2026-05-01T12:00:00Z"));
    }
}

#[test]
fn a_changed_schedule_moves_the_next_start() {
    let (now, finish) = (moment("2026-05-01T12:10:00Z"), Some(moment("2026-05-01T11:50:00Z")));
    let drifting = JobColumns { fixed_schedule: false, ..hourly() };
    let changed = |last_finish| Occasion::Changed { now, last_finish };
    assert_eq!(start(drifting, changed(finish)).as_deref(), Some("2026-05-01T12:50:00Z"));
    assert_eq!(start(drifting, changed(None)).as_deref(), Some("2026-05-01T12:10:00Z"));
    assert_eq!(start(hourly(), changed(finish)).as_deref(), Some("2026-05-01T13:00:00Z"));
    let later = JobColumns { initial_start: Some(moment("2026-07-01T00:00:00Z")), ..hourly() };
    assert_eq!(start(later, changed(finish)).as_deref(), Some("2026-07-01T00:00:00Z"));
    assert_eq!(start(columns(), changed(finish)), None);
}

#[test]
fn columns_that_make_no_schedule_are_refused() {
    let every = |schedule_interval| JobColumns { schedule_interval: Some(schedule_interval), ..columns() };
    let mixed = Interval { months: 1, days: 1, us: 0 };
    assert_eq!(StartPlan::read(every(mixed)), Err(Error::Mixed));
    assert!(StartPlan::read(JobColumns { fixed_schedule: false, ..every(mixed) }).is_ok(), "drifting may");
    for fixed_schedule in [true, false] {
        assert_eq!(
            StartPlan::read(JobColumns { fixed_schedule, ..every(Interval::default()) }),
            Err(Error::NotPositive)
        );
        assert_eq!(
            StartPlan::read(JobColumns { fixed_schedule, ..every(Interval::from_days(-1)) }),
            Err(Error::NotPositive)
        );
    }
    let unknown = JobColumns { timezone: Some("Mars/Olympus"), ..hourly() };
    assert_eq!(StartPlan::read(unknown), Err(Error::UnknownZone("Mars/Olympus".into())));
    assert!(matches!(StartPlan::read(JobColumns { cron: Some("0 0 31 2 *"), ..columns() }), Err(Error::Cron { .. })));
}

#[test]
fn a_wait_beyond_the_calendar_is_an_error_unless_a_slot_comes_first() {
    let long = JobColumns { retry_period: Interval::from_months(i32::MAX), ..columns() };
    let finish = moment("2026-05-01T12:00:00Z");
    let occasion = Occasion::Failed { finish, own: None, failures: 21, jitter: 1.0 };
    let plan = StartPlan::read(long).expect("a good plan");
    assert_eq!(next_start(&plan, occasion), Err(Error::OutOfRange));
    let cron = JobColumns { cron: Some("0 * * * *"), ..long };
    assert_eq!(start(cron, occasion).as_deref(), Some("2026-05-01T13:00:00Z"));
}

fn seconds() -> impl Strategy<Value = i64> {
    0i64..4_000_000_000
}

proptest! {
    #[test]
    fn a_retry_lies_within_the_jitter_and_never_behind_the_next_slot(
        finish in seconds(), origin in seconds(), interval in 1i64..10_000_000, retry in 0i64..100_000,
        failures in any::<u32>(), jitter in -1.0f64..=1.0, fixed_schedule in any::<bool>(),
    ) {
        let at = |second| Moment::from_seconds(second).expect("in range");
        let plan = StartPlan::read(JobColumns {
            schedule_interval: Some(Interval::from_seconds(interval)),
            fixed_schedule,
            retry_period: Interval::from_seconds(retry),
            origin: at(origin),
            ..columns()
        }).expect("a good plan");
        let occasion = Occasion::Failed { finish: at(finish), own: None, failures, jitter };
        let next = next_start(&plan, occasion).expect("in range").expect("a retry");
        let plain = (i128::from(retry) << failures.saturating_sub(1).min(20)).min(i128::from(interval) * 5) * 1_000_000;
        let wait = i128::from(next.us() - at(finish).us());
        prop_assert!(wait <= plain + plain / 8 + 1);
        let slot = fixed_schedule.then(|| plan.schedule().expect("fixed").after(at(finish)).expect("in range"));
        match slot {
            Some(slot) if next == slot => prop_assert!(i128::from(slot.us() - at(finish).us()) <= plain + plain / 8 + 1),
            Some(slot) => prop_assert!(next < slot && wait >= plain - plain / 8 - 1),
            None => prop_assert!(wait >= plain - plain / 8 - 1),
        }
        let done = next_start(&plan, Occasion::Succeeded { finish: at(finish), own: None });
        if let Some(slot) = slot {
            prop_assert_eq!(done, Ok(Some(slot)));
            // by brute reasoning: on the grid, after the finish, and none between
            let distance = slot.us() / 1_000_000 - origin;
            prop_assert_eq!(distance.rem_euclid(interval), 0);
            prop_assert!(slot > at(finish) && (slot == at(origin) || slot.us() - interval * 1_000_000 <= at(finish).us()));
        } else {
            prop_assert_eq!(done, Ok(Some(at(finish + interval))));
        }
    }
}
