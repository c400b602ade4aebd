//! `launcher uninstall`: the catalog of a database goes, its task tables stay.

use super::{login_in, print, print_error};
use crate::cli::Place;
use crate::limits::INSTALL_TIMEOUT;
use shared::db::identifier::quoted;
use shared::db::trouble::Trouble;
use shared::db::{catalog, one_shot};
use shared::process::exit_code::launcher_status;
use std::rc::Rc;
use tokio_postgres::Client;

pub fn run(place: &Place, database: &str) -> u8 {
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
        Err(trouble) => {
            print_error(&format!("{database}: not uninstalled, nothing was changed: {trouble}"));
            launcher_status::FAILED
        }
    }
}

/// False: there was none.
async fn uninstall(client: Rc<Client>) -> Result<bool, Trouble> {
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    let found = catalog::look(&client, None).await.map_err(trouble)?;
    if !found.get::<_, bool>("there") {
        return Ok(false);
    }
    if !found.get::<_, bool>("marked") {
        return Err(Trouble::standing("the schema mill does not belong to pgmill"));
    }
    if !found.get::<_, bool>("ours") {
        let owner = quoted(&found.get::<_, String>("owner"));
        return Err(Trouble::standing(format!(
            "the catalog belongs to {owner}; run as that role: SELECT mill.uninstall()"
        )));
    }
    catalog::look_trusted(&client).await?;
    client.batch_execute("SELECT mill.uninstall()").await.map_err(trouble)?;
    Ok(true)
}
