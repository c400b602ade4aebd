//! `launcher uninstall`: the catalog of a database goes, its task tables stay.

use super::{login_in, print, print_error};
use crate::cli::ConfigPlace;
use crate::limits::INSTALL_TIMEOUT;
use shared::db::db_error::DbError;
use shared::db::identifier::quoted;
use shared::db::{catalog, one_shot};
use shared::process::exit_code::launcher_status;
use std::rc::Rc;
use tokio_postgres::Client;

pub fn run(place: &ConfigPlace, database: &str) -> u8 {
    let (_, target) = match login_in(place, database) {
        Ok(login) => login,
        Err(status) => return status,
    };
    match one_shot::ask(&target, "pgmill uninstall", INSTALL_TIMEOUT, uninstall) {
        Ok(true) => {
            print(&format!("{database}: catalog mill dropped; task tables are kept"));
            launcher_status::ORDERLY
        }
        Ok(false) => {
            print(&format!("{database}: there is no catalog mill"));
            launcher_status::ORDERLY
        }
        Err(db_error) => {
            print_error(&format!("{database}: not uninstalled, nothing was changed: {db_error}"));
            launcher_status::FAILED
        }
    }
}

/// False: there was none.
async fn uninstall(client: Rc<Client>) -> Result<bool, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let found = catalog::read(&client, None).await.map_err(db_error)?;
    if !found.get::<_, bool>("there") {
        return Ok(false);
    }
    if !found.get::<_, bool>("marked") {
        return Err(DbError::standing("the schema mill does not belong to pgmill"));
    }
    if !found.get::<_, bool>("ours") {
        let owner = quoted(&found.get::<_, String>("owner"));
        return Err(DbError::standing(format!(
            "the catalog belongs to {owner}; run as that role: SELECT mill.uninstall()"
        )));
    }
    catalog::read_trusted(&client).await?;
    client.batch_execute("SELECT mill.uninstall()").await.map_err(db_error)?;
    Ok(true)
}
