//! A row of pg_cron's cron.job as a job of ours, or the reason why it cannot be one.
//!
//! Called by `command::import`. Rows come as JSON, because the columns of that table have grown over the years: what a
//! version does not have is what it always meant.

use serde_json::Value;
use shared::calendar::{Cron, Error, Interval, Zone};
use std::collections::HashMap;

/// Where the jobs come from and go to.
#[derive(Clone, Debug)]
pub struct Journey {
    /// The database that has cron.job.
    pub from: String,
    /// The database whose mill.job they go to.
    pub into: String,
    /// The source server's own port: a job of another port is one of another server.
    pub port: i64,
    /// pg_cron's time zone; None is its default, GMT.
    pub zone: Option<String>,
    /// All of them paused, whatever they are now.
    pub paused: bool,
}

/// A row of cron.job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronRow {
    pub id: i64,
    pub schedule: String,
    command: String,
    node: String,
    port: Option<i64>,
    database: Option<String>,
    pub user: String,
    pub active: bool,
    name: Option<String>,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub name: String,
    pub input: String,
    pub cron: Option<String>,
    pub schedule_interval: Option<Interval>,
    pub timezone: Option<String>,
    pub scheduled: bool,
}

impl CronRow {
    /// `None`: that is no row of cron.job.
    pub fn read(json: &str) -> Option<CronRow> {
        let value: Value = serde_json::from_str(json).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(CronRow {
            id: value.get("jobid")?.as_i64()?,
            schedule: text("schedule")?,
            command: text("command")?,
            node: text("nodename").unwrap_or_default(),
            port: value.get("nodeport").and_then(Value::as_i64),
            database: text("database"),
            user: text("username").unwrap_or_default(),
            active: value.get("active").and_then(Value::as_bool).unwrap_or(true),
            name: text("jobname").filter(|name| !name.is_empty()),
        })
    }

    /// How a person knows it.
    pub fn told(&self) -> String {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" {name:?}"));
        format!("cron.job {}{name} ({})", self.id, self.schedule.escape_debug())
    }

    /// The job that does the same; else why there can be none.
    pub fn job(&self, journey: &Journey, name: String) -> Result<Job, String> {
        if let Some(database) = self.database.as_ref().filter(|database| **database != journey.into) {
            let from = &journey.from;
            return Err(format!(
                "it runs in the database {database:?}; import it there: launcher import pg_cron --database {database} --from {from}"
            ));
        }
        let local = self.node.starts_with('/') || ["", "localhost", "127.0.0.1", "::1"].contains(&self.node.as_str());
        if !local || self.port.is_some_and(|port| port != journey.port) {
            let (node, port) = (&self.node, self.port.map_or_else(|| "?".to_owned(), |port| port.to_string()));
            return Err(format!("it runs on another server, {}:{port}; create a job there", node.escape_debug()));
        }
        let (cron, schedule_interval) = self.schedule()?;
        // an interval in seconds has no use for a wall clock
        let timezone = if cron.is_some() { zone(journey)? } else { None };
        let scheduled = self.active && !journey.paused;
        Ok(Job { name, input: self.command.clone(), cron, schedule_interval, timezone, scheduled })
    }

    fn schedule(&self) -> Result<(Option<String>, Option<Interval>), String> {
        let schedule = self.schedule.trim();
        if schedule.eq_ignore_ascii_case("@reboot") {
            return Err("it runs at the start of its server; pgmill has no such schedule".into());
        }
        if let Some(seconds) = seconds_of(schedule) {
            return match seconds {
                1..=59 => Ok((None, Some(Interval::from_seconds(seconds)))),
                _ => Err(format!("pg_cron allows 1 to 59 seconds, not {seconds}")),
            };
        }
        match Cron::parse(schedule) {
            Ok(_) => Ok((Some(schedule.to_owned()), None)),
            Err(Error::Cron { why, .. }) => Err(why.to_string()),
            Err(other) => Err(other.to_string()),
        }
    }
}

/// "30 seconds", as newer versions write it.
fn seconds_of(schedule: &str) -> Option<i64> {
    let (number, unit) = schedule.split_once([' ', '\t'])?;
    let unit = unit.trim();
    if unit.eq_ignore_ascii_case("seconds") || unit.eq_ignore_ascii_case("second") { number.parse().ok() } else { None }
}

/// GMT is what we have without a zone.
fn zone(journey: &Journey) -> Result<Option<String>, String> {
    match journey.zone.as_deref() {
        None => Ok(None),
        Some(zone) if ["GMT", "UTC", "Etc/UTC", "Etc/GMT"].iter().any(|name| zone.eq_ignore_ascii_case(name)) => {
            Ok(None)
        }
        Some(zone) => Zone::find(zone).map(|_| Some(zone.to_owned())).map_err(|error| error.to_string()),
    }
}

/// The names that rows get: their own, with the user's where two users have the same; `pg_cron <id>` without one.
pub fn names(rows: &[CronRow]) -> Vec<String> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for name in rows.iter().filter_map(|row| row.name.as_deref()) {
        *uses.entry(name).or_default() += 1;
    }
    let named = |row: &CronRow| match row.name.as_deref() {
        None => format!("pg_cron {}", row.id),
        Some(name) if uses.get(name) == Some(&1) => name.to_owned(),
        Some(name) => format!("{name} ({})", row.user),
    };
    rows.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn journey() -> Journey {
        Journey { from: "postgres".into(), into: "app".into(), port: 5432, zone: None, paused: false }
    }

    fn row(schedule: &str, more: Value) -> CronRow {
        let mut value = json!({"jobid": 7, "schedule": schedule, "command": "VACUUM", "nodename": "localhost",
            "nodeport": 5432, "database": "app", "username": "bob", "active": true, "jobname": null});
        for (name, new) in more.as_object().expect("an object") {
            value[name] = new.clone();
        }
        CronRow::read(&value.to_string()).expect("a row")
    }

    fn plain(schedule: &str) -> Result<Job, String> {
        row(schedule, json!({})).job(&journey(), "x".into())
    }

    #[test]
    fn schedules_of_every_kind_are_carried_over() {
        for schedule in ["0 3 * * *", "@daily", "0 12 $ * *", "*/5 8-18 * * mon-fri", " 1 2 3 4 5 "] {
            let job = plain(schedule).unwrap_or_else(|why| panic!("{schedule}: {why}"));
            assert_eq!((job.cron.as_deref(), job.schedule_interval), (Some(schedule.trim()), None));
        }
        for (schedule, seconds) in [("30 seconds", 30), ("1 second", 1), ("59  Seconds", 59)] {
            let job = plain(schedule).unwrap_or_else(|why| panic!("{schedule}: {why}"));
            assert_eq!((job.cron, job.schedule_interval), (None, Some(Interval::from_seconds(seconds))));
        }
    }

    #[test]
    fn what_cannot_be_carried_over_has_its_reason() {
        let refused = [
            (plain("@reboot"), "at the start of its server"),
            (plain("90 seconds"), "1 to 59"),
            (plain("30 2 30 2 *"), "never fires"),
            (plain("5/10 * * * *"), "needs a range"),
            (plain("hello"), "fields"),
            (
                row("@daily", json!({"database": "other"})).job(&journey(), "x".into()),
                "--database other --from postgres",
            ),
            (row("@daily", json!({"nodename": "db2"})).job(&journey(), "x".into()), "another server, db2:5432"),
            (row("@daily", json!({"nodeport": 5433})).job(&journey(), "x".into()), "another server"),
        ];
        for (job, words) in refused {
            assert!(job.as_ref().is_err_and(|why| why.contains(words)), "{job:?} should say {words}");
        }
        let mars = Journey { zone: Some("Mars/Olympus".into()), ..journey() };
        assert!(row("@daily", json!({})).job(&mars, "x".into()).is_err_and(|why| why.contains("Mars/Olympus")));
    }

    #[test]
    fn old_versions_lack_columns() {
        let old = CronRow::read(r#"{"jobid": 1, "schedule": "@daily", "command": "SELECT 1"}"#).expect("a row");
        let job = old.job(&journey(), "x".into()).expect("a job");
        assert!(job.scheduled && job.timezone.is_none());
        assert_eq!(CronRow::read("{}"), None);
        assert_eq!(CronRow::read("[1]"), None);
    }

    #[test]
    fn pause_and_zone_come_along() {
        let job = row("@daily", json!({"active": false})).job(&journey(), "x".into()).expect("a job");
        assert!(!job.scheduled);
        let paris = Journey { zone: Some("Europe/Paris".into()), paused: true, ..journey() };
        let job = row("@daily", json!({})).job(&paris, "x".into()).expect("a job");
        assert_eq!((job.timezone.as_deref(), job.scheduled), (Some("Europe/Paris"), false));
        let job = row("5 seconds", json!({})).job(&paris, "x".into()).expect("a job");
        assert_eq!(job.timezone, None);
        let gmt = Journey { zone: Some("gmt".into()), ..journey() };
        assert_eq!(row("@daily", json!({})).job(&gmt, "x".into()).expect("a job").timezone, None);
    }

    #[test]
    fn rows_without_a_name_or_with_another_users_name_get_one_of_their_own() {
        let named =
            |id: i64, name: Value, user: &str| row("@daily", json!({"jobid": id, "jobname": name, "username": user}));
        let rows = [
            named(1, Value::Null, "ann"),
            named(2, json!("sum"), "ann"),
            named(3, json!("sum"), "bob"),
            named(4, json!("one"), "bob"),
            named(5, json!(""), "bob"),
        ];
        assert_eq!(names(&rows), ["pg_cron 1", "sum (ann)", "sum (bob)", "one", "pg_cron 5"]);
    }
}
