//! Next starts that the server cannot compute: those of cron expressions. The calendar does, and the catalog is told; a
//! job whose zone or expression the calendar does not know is paused with the reason.

use crate::jobs::job_statements::JobStatements;
use shared::calendar::{Error, Interval, JobColumns, Moment, Occasion, StartPlan, next_start};
use shared::db::db_error::DbError;
use std::time::SystemTime;
use tokio_postgres::{Client, Row};

/// As many as `mill_private.list_unfilled_jobs` gives at once.
const AT_ONCE: usize = 500;

/// Fills in what is waiting; whether there may be more.
pub async fn fill(client: &Client, statements: &JobStatements, label: &str) -> Result<bool, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let rows = client.query(&statements.unfilled, &[]).await.map_err(db_error)?;
    for row in &rows {
        let (job, stamp): (i32, i64) = (row.get("job"), row.get("stamp"));
        let (next, wrong) = match computed(row) {
            Ok(next) => (next.map(SystemTime::from), None),
            Err(error) => (None, Some(error.to_string())),
        };
        if let Some(wrong) = &wrong {
            shared::warning!("job paused", queue = label, job = job, why = wrong);
        }
        client.query(&statements.fill, &[&job, &stamp, &next, &wrong]).await.map_err(db_error)?;
    }
    Ok(rows.len() >= AT_ONCE)
}

fn computed(row: &Row) -> Result<Option<Moment>, Error> {
    let now = Moment::try_from(row.get::<_, SystemTime>("moment"))?;
    let initial_start = row.get::<_, Option<SystemTime>>("initial_start").map(Moment::try_from).transpose()?;
    let plan = StartPlan::read(JobColumns {
        schedule_interval: None,
        cron: row.get("cron"),
        timezone: row.get("timezone"),
        initial_start,
        fixed_schedule: true,
        retry_period: Interval::default(),
        crash_wait: Interval::default(),
        origin: now,
    })?;
    let fresh: bool = row.get("fresh");
    next_start(&plan, if fresh { Occasion::NeverRun { now } } else { Occasion::Changed { now, last_finish: None } })
}
