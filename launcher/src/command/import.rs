//! `launcher import`: the schedules of another program become jobs, in one transaction; one line per job reports what
//! was done.
//!
//! No existing job is changed: a job of the same name and definition is left alone, so that a second run does nothing,
//! and one of another definition is reported. The other program's own rows stay as they are; as long as both run a job,
//! it runs twice, and that is reported too. A job runs as its queue's user here; one of another role is imported
//! paused, because the queue's user may have more rights.

use super::{login_in, print, print_error};
use crate::cli::{ConfigPlace, ImportOptions};
use crate::import::pg_cron::{CronRow, Job, Journey, names};
use crate::limits::INSTALL_TIMEOUT;
use shared::calendar::Interval;
use shared::config::Config;
use shared::db::db_error::DbError;
use shared::db::{catalog, one_shot, statement};
use shared::process::exit_code::launcher_status;
use std::collections::HashMap;
use std::rc::Rc;
use tokio_postgres::Client;

/// Our sessions make an incomplete result an error. Here a part of the rows is enough, and the output says that it is a
/// part.
const SEE: &str = "SET row_security = on";

/// What was found in the source.
struct FoundSchedules {
    journey: Journey,
    rows: Vec<CronRow>,
    only_own: bool,
    me: String,
}

/// What became of one row.
enum Fate {
    Made(Made),
    /// With its id, and whether it is scheduled.
    There(i32, bool),
    Left(String),
}

/// A job that was made.
struct Made {
    id: i32,
    scheduled: bool,
    /// It was another role's, and waits for a person: who it was and who it would be.
    paused: Option<String>,
    /// What else is different from before.
    different: Vec<String>,
}

pub fn pg_cron(place: &ConfigPlace, options: &ImportOptions) -> u8 {
    let from = options.from.as_deref().unwrap_or(&options.database);
    let fail = |database: &str, db_error: &dyn std::fmt::Display| {
        print_error(&format!("{database}: nothing was imported: {db_error}"));
        launcher_status::FAILED
    };
    let journey = Journey {
        from: from.to_owned(),
        into: options.database.clone(),
        port: 0,
        zone: options.timezone.clone(),
        paused: options.paused,
    };
    let source = match login_in(place, from) {
        Ok((_, target)) => target,
        Err(status) => return status,
    };
    let (config, target) = match login_in(place, &options.database) {
        Ok(login) => login,
        Err(status) => return status,
    };
    let found = match one_shot::ask(&source, "pgmill import", INSTALL_TIMEOUT, |client| read(client, journey)) {
        Ok(found) => found,
        Err(db_error) => return fail(from, &db_error),
    };
    if found.only_own {
        print_error(&format!("{from}: cron.job shows role {:?} only its own jobs", found.me));
    }
    let found = Rc::new(found);
    let (rows, options_here) = (Rc::clone(&found), options.clone());
    let write = |client| write(client, config, rows, options_here);
    match one_shot::ask(&target, "pgmill import", INSTALL_TIMEOUT, write) {
        Ok(fates) => tell(options, &found.rows, &fates),
        Err(db_error) => return fail(&options.database, &db_error),
    }
    launcher_status::ORDERLY
}

async fn read(client: Rc<Client>, journey: Journey) -> Result<FoundSchedules, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    client.batch_execute(SEE).await.map_err(db_error)?;
    let found = client.query_one(&statement::bare(statement::READ_CRON), &[]).await.map_err(db_error)?;
    if !found.get::<_, bool>("there") {
        return Err(DbError::standing(
            "table cron.job does not exist; it is in the database of the setting cron.database_name",
        ));
    }
    let listed = client.query(&statement::bare(statement::LIST_CRON_JOBS), &[]).await.map_err(db_error)?;
    let mut rows = Vec::with_capacity(listed.len());
    for row in listed {
        let json: String = row.get("job");
        let strange = || DbError::standing("cron.job lacks columns of pg_cron: jobid, schedule and command are needed");
        rows.push(CronRow::read(&json).ok_or_else(strange)?);
    }
    if journey.zone.is_none() && found.get::<_, bool>("hidden") {
        return Err(DbError::standing(
            "cannot read the time zone of pg_cron; let this role read cron.timezone (GRANT pg_read_all_settings), or \
             name it: --timezone GMT",
        ));
    }
    let zone = journey.zone.clone().or_else(|| found.get("zone"));
    let journey = Journey { port: i64::from(found.get::<_, i32>("port")), zone, ..journey };
    Ok(FoundSchedules { journey, rows, only_own: found.get("only_own"), me: found.get("me") })
}

/// Who runs a table's tasks: the user of the queue in the config, or of the queue "*", else its owner.
fn user_of(config: &Config, database: &str, found: &tokio_postgres::Row) -> Option<String> {
    let owner: String = found.get::<_, Option<String>>("owner")?;
    let (schema, table): (String, String) = (found.get("schema"), found.get("table"));
    let named = config.queues.iter().find(|queue| queue.identity() == (database, schema.as_str(), table.as_str()));
    let in_database = config.queues.iter().any(|queue| queue.data == database);
    let every = config.queues.iter().find(|queue| queue.is_every() && !in_database && !queue.user.is_empty());
    Some(named.or(every).map_or(owner, |queue| queue.user.clone()))
}

async fn write(
    client: Rc<Client>,
    config: Config,
    found: Rc<FoundSchedules>,
    options: ImportOptions,
) -> Result<Vec<Fate>, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    client.batch_execute(SEE).await.map_err(db_error)?;
    let installed = catalog::read_trusted(&client).await?;
    if !installed.get::<_, bool>("there") || !installed.get::<_, bool>("marked") {
        let database = &options.database;
        return Err(DbError::standing(format!("the database has no catalog mill; run: launcher install {database}")));
    }
    client.batch_execute("BEGIN").await.map_err(db_error)?;
    let table = client.query_one(&statement::bare(statement::READ_IMPORT_QUEUE), &[&options.queue]).await;
    let table = table.map_err(db_error)?;
    let queue: String = table.get("name");
    let Some(runs_as) = user_of(&config, &options.database, &table) else {
        return Err(DbError::standing(format!("{queue} is not a task table that pgmill has served")));
    };
    let names = names(&found.rows);
    let same = client.query(&statement::bare(statement::LIST_SAME_NAMES), &[&names]).await.map_err(db_error)?;
    let same: HashMap<String, tokio_postgres::Row> = same.into_iter().map(|row| (row.get("name"), row)).collect();
    let insert = client.prepare(&statement::bare(statement::INSERT_JOB)).await.map_err(db_error)?;
    let mut fates = Vec::with_capacity(found.rows.len());
    for (row, name) in found.rows.iter().zip(names) {
        let job = match row.job(&found.journey, name) {
            Ok(job) => job,
            Err(why) => {
                fates.push(Fate::Left(why));
                continue;
            }
        };
        if let Some(there) = same.get(&job.name) {
            fates.push(compare(&job, there));
            continue;
        }
        // one that the catalog refuses must not take the others with it
        client.batch_execute("SAVEPOINT job").await.map_err(db_error)?;
        let Job { name, input, cron, schedule_interval, timezone, scheduled } = &job;
        let made = client
            .query_one(
                &insert,
                &[
                    name,
                    input,
                    cron,
                    schedule_interval,
                    timezone,
                    scheduled,
                    &row.user,
                    &queue,
                    &runs_as,
                    &options.run_as_queue_user,
                ],
            )
            .await;
        match made {
            Ok(made) => {
                client.batch_execute("RELEASE job").await.map_err(db_error)?;
                fates.push(Fate::Made(told(row, &job, &made, &runs_as)));
            }
            Err(error) if error.as_db_error().is_some() => {
                client.batch_execute("ROLLBACK TO job").await.map_err(db_error)?;
                fates.push(Fate::Left(DbError::of(&error).text));
            }
            Err(error) => return Err(DbError::of(&error)),
        }
    }
    let end = if options.dry_run { "ROLLBACK" } else { "COMMIT" };
    client.batch_execute(end).await.map_err(db_error)?;
    Ok(fates)
}

/// A job of that name is there: ours from an earlier run, or another.
fn compare(job: &Job, there: &tokio_postgres::Row) -> Fate {
    let id: i32 = there.get("id");
    let same = there.get::<_, Option<String>>("input").as_ref() == Some(&job.input)
        && there.get::<_, Option<String>>("cron") == job.cron
        && there.get::<_, Option<Interval>>("schedule_interval") == job.schedule_interval
        && there.get::<_, Option<String>>("timezone") == job.timezone;
    if same {
        Fate::There(id, there.get("scheduled"))
    } else {
        Fate::Left(format!("job {id} has the name {:?} and another definition", job.name))
    }
}

/// What a reader who knows pg_cron would not expect.
fn told(row: &CronRow, job: &Job, made: &tokio_postgres::Row, runs_as: &str) -> Made {
    let (owner, scheduled): (String, bool) = (made.get("owner"), made.get("scheduled"));
    let was = if row.user.is_empty() { "an unknown role".to_owned() } else { format!("{:?}", row.user) };
    let mut different = Vec::new();
    if !job.scheduled {
        different.push(if row.active { "paused".to_owned() } else { "paused, as it was".to_owned() });
    }
    let paused =
        (job.scheduled && !scheduled).then(|| format!("job {:?} ran as {was} and would run as {runs_as:?}", job.name));
    if paused.is_none() && row.user != runs_as {
        different.push(format!("it runs as {runs_as:?}, the user of its queue, not as {was}"));
    }
    if row.user != owner {
        different.push(format!("it belongs to {owner:?}"));
    }
    Made { id: made.get("id"), scheduled, paused, different }
}

fn tell(options: &ImportOptions, rows: &[CronRow], fates: &[Fate]) {
    let (mut made, mut there, mut left, mut paused) = (0, 0, 0, 0);
    let mut twice: Vec<String> = Vec::new();
    for (row, fate) in rows.iter().zip(fates) {
        let row_told = row.told();
        let said = match fate {
            Fate::Made(Made { id, scheduled, paused: why, different }) => {
                made += 1;
                if *scheduled {
                    twice.push(row.id.to_string());
                }
                let mut said =
                    if options.dry_run { "would be created".to_owned() } else { format!("job {id} created") };
                if let Some(why) = why {
                    paused += 1;
                    said += &format!(", paused: {why}");
                }
                said.extend(different.iter().map(|text| format!("; {text}")));
                if let (Some(_), false) = (why, options.dry_run) {
                    said += &format!("; check it, then: UPDATE mill.job SET scheduled = true WHERE id = {id}");
                }
                said
            }
            Fate::There(id, scheduled) => {
                there += 1;
                if row.active && *scheduled {
                    twice.push(row.id.to_string());
                }
                format!("job {id} exists already")
            }
            Fate::Left(why) => {
                left += 1;
                format!("not imported: {why}")
            }
        };
        print(&format!("{row_told}: {said}"));
    }
    let dry = if options.dry_run { " (dry run: nothing was changed)" } else { "" };
    let summary = format!("{made} created, {there} existing, {left} not imported{dry}");
    print(&format!("{}: {summary}", options.database));
    if paused > 0 {
        print(&format!(
            "{paused} paused: they ran as other roles, and a job of pgmill runs as the user of its queue; \
             --run-as-queue-user imports such jobs without a pause"
        ));
    }
    if !twice.is_empty() {
        let from = options.from.as_deref().unwrap_or(&options.database);
        print(&format!(
            "jobs that are active in pg_cron too run twice; disable them there. In {from}: \
             SELECT cron.alter_job(jobid, active => false) FROM cron.job WHERE jobid IN ({})",
            twice.join(", ")
        ));
    }
}
