//! `launcher fsck`: is the catalog of a database consistent? It compares twice, a second apart, and prints the
//! differences that it finds both times: a healthy system passes through some of them for a moment. Slots are compared
//! with processes too, where a launcher answers.

use super::{login_in, print, print_error, status};
use crate::cli::ConfigPlace;
use crate::limits::{FSCK_PAUSE, INSTALL_TIMEOUT};
use serde_json::Value;
use shared::db::db_error::DbError;
use shared::db::{catalog, one_shot};
use shared::process::exit_code::launcher_status;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use tokio_postgres::Client;

pub fn run(place: &ConfigPlace, database: &str) -> u8 {
    let (config, target) = match login_in(place, database) {
        Ok(login) => login,
        Err(status) => return status,
    };
    let mut lasting: Option<BTreeSet<String>> = None;
    for comparison in 0..2 {
        if comparison > 0 {
            std::thread::sleep(FSCK_PAUSE);
        }
        let found = match one_shot::ask(&target, "pgmill fsck", INSTALL_TIMEOUT, differences) {
            Ok(found) => found,
            Err(db_error) => {
                print_error(&format!("{database}: cannot check the database: {db_error}"));
                return launcher_status::FAILED;
            }
        };
        let found: BTreeSet<String> = found.into_iter().chain(slots(&config.control)).collect();
        lasting = Some(match lasting {
            None => found,
            Some(before) => before.intersection(&found).cloned().collect(),
        });
    }
    let lasting = lasting.unwrap_or_default();
    for problem in &lasting {
        print(problem);
    }
    if lasting.is_empty() {
        print(&format!("{database}: no problems found"));
        launcher_status::ORDERLY
    } else {
        print_error(&format!("{database}: {} problem{}", lasting.len(), if lasting.len() == 1 { "" } else { "s" }));
        launcher_status::FAILED
    }
}

async fn differences(client: Rc<Client>) -> Result<Vec<String>, DbError> {
    catalog::read_trusted(&client).await?;
    let sql = "SELECT pg_catalog.concat_ws(' ', f.queue || ':', 'task ' || f.task || ':', f.problem) AS line \
               FROM mill.fsck() AS f";
    let rows = client.query(sql, &[]).await.map_err(|error| DbError::of(&error))?;
    Ok(rows.iter().map(|row| row.get("line")).collect())
}

/// Slots whose process is gone, as far as a launcher answers on this host.
fn slots(control: &Path) -> Vec<String> {
    let Ok(answer) = status::ask(control) else { return Vec::new() };
    let holders = answer.pointer("/slots/holders").and_then(Value::as_array).cloned().unwrap_or_default();
    holders.iter().filter_map(lost).collect()
}

fn lost(holder: &Value) -> Option<String> {
    let pid = holder.get("pid")?.as_i64()?;
    let alive = Path::new("/proc").join(pid.to_string()).exists();
    (!alive).then(|| format!("slot {}: its process {pid} does not exist", holder.get("slot").unwrap_or(&Value::Null)))
}
