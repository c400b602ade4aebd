//! `launcher install`: the catalog and the first task table, in one transaction, before it returns.
//!
//! As the launcher's own login. Where the config has rows of that database with other users, these are let in, and a
//! row's public.task is made as its own user, so that it can be served at once.

use super::{login_in, print, print_error};
use crate::cli::Place;
use shared::VERSION;
use shared::config::{Config, Row};
use shared::db::identifier::quoted;
use shared::db::trouble::Trouble;
use shared::db::{catalog, one_shot, statement};
use shared::exit_code::launcher_status;
use std::rc::Rc;
use std::time::Duration;
use tokio_postgres::Client;

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub fn print_text() -> u8 {
    print(&catalog::install_text(VERSION));
    launcher_status::ORDERLY
}

/// What was found and done.
enum Outcome {
    Installed,
    There,
    Other(String),
}

pub fn run(place: &Place, database: &str) -> u8 {
    let (config, target) = match login_in(place, database) {
        Ok(login) => login,
        Err(status) => return status,
    };
    let rows = Rows::of(&config, database);
    match one_shot::ask(&target, "pgmill install", PATIENCE, |client| install(client, rows)) {
        Ok(Outcome::Installed) => {
            print(&format!("{database}: catalog mill {VERSION} installed, with public.task"));
            launcher_status::ORDERLY
        }
        Ok(Outcome::There) => {
            print(&format!("{database}: catalog mill {VERSION} was there already; nothing but rights changed"));
            launcher_status::ORDERLY
        }
        Ok(Outcome::Other(version)) => {
            print_error(&format!(
                "{database}: its catalog has version {version}, this program is {VERSION}; run: launcher upgrade {database}"
            ));
            launcher_status::FAILED
        }
        Err(trouble) => {
            print_error(&format!("{database}: not installed, nothing was changed: {trouble}"));
            launcher_status::FAILED
        }
    }
}

/// What the config says of this database.
struct Rows {
    users: Vec<String>,
    /// Who serves public.task.
    server: Option<String>,
}

impl Rows {
    fn of(config: &Config, database: &str) -> Rows {
        let rows: Vec<&Row> = config.rows.iter().filter(|row| row.data == database || row.is_every()).collect();
        let mut users: Vec<String> = rows.iter().map(|row| row.user.clone()).filter(|user| !user.is_empty()).collect();
        users.sort();
        users.dedup();
        let server = rows.iter().find(|row| !row.is_every() && row.schema == "public" && row.table == "task");
        Rows { users, server: server.map(|row| row.user.clone()) }
    }
}

async fn install(client: Rc<Client>, rows: Rows) -> Result<Outcome, Trouble> {
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    client.batch_execute(&catalog::alone()).await.map_err(trouble)?;
    let found = catalog::look(&client, None).await.map_err(trouble)?;
    let me: String = found.get("me");
    let there: bool = found.get("there");
    if there && !found.get::<_, bool>("marked") {
        return Err(Trouble::standing("the schema mill is not pgmill's; rename it"));
    }
    if there {
        catalog::look_trusted(&client).await?;
        let version = client.query_one(&statement::bare(statement::LOOK_VERSION), &[]).await.map_err(trouble)?;
        let version: String = version.get("version");
        if version != VERSION {
            return Ok(Outcome::Other(version));
        }
    } else {
        for piece in catalog::pieces(VERSION) {
            client.batch_execute(&piece).await.map_err(trouble)?;
        }
    }
    let known = "SELECT rolname::text, pg_catalog.pg_has_role(oid, 'MEMBER') \
                 AND pg_catalog.has_schema_privilege(oid, 'public', 'CREATE') AS owns \
                 FROM pg_catalog.pg_roles WHERE rolname::text = ANY ($1) AND rolname <> current_user";
    let others = client.query(known, &[&rows.users]).await.map_err(trouble)?;
    let server = others.iter().find(|row| rows.server.as_deref() == Some(row.get::<_, &str>("rolname")));
    let task = match server.filter(|row| row.get("owns")) {
        Some(row) => {
            let role = quoted(row.get("rolname"));
            format!("SET LOCAL ROLE {role};\n{}\nRESET ROLE;", catalog::task_text())
        }
        None => catalog::task_text(),
    };
    client.batch_execute(&task).await.map_err(trouble)?;
    if let Some(row) = server.filter(|row| !row.get::<_, bool>("owns")) {
        let role = quoted(row.get("rolname"));
        let grants = format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON public.task TO {role}; GRANT USAGE ON SEQUENCE public.task_id_seq TO {role}"
        );
        client.batch_execute(&grants).await.map_err(trouble)?;
    }
    let users: Vec<String> = others.iter().map(|row| row.get("rolname")).collect();
    shared::debug!("catalog made", owner = me, admitted = users.join(", "));
    let restart = if there { "" } else { catalog::RESTART };
    client.batch_execute(&format!("{}{restart}COMMIT", catalog::admit_text(&users))).await.map_err(trouble)?;
    Ok(if there { Outcome::There } else { Outcome::Installed })
}
