//! `launcher check --connect`: logs in as the launcher and as every row, and says what each may not do, with the SQL
//! that mends it.
//!
//! Nothing is changed. What is asked is what the first start of the row would need; the lists of GRANTs in the README
//! are what this room finds nothing to say about.

use super::{environment, print, print_error};
use crate::cli::Place;
use shared::VERSION;
use shared::config::{Config, Row};
use shared::conninfo::Target;
use shared::db::identifier::{qualified, quoted};
use shared::db::statement::{self, CHECK_LAUNCHER, CHECK_ROW, LOOK_CATALOG, LOOK_VERSION, bare};
use shared::db::trouble::Trouble;
use shared::db::{catalog, one_shot};
use shared::exit_code::launcher_status;
use std::rc::Rc;
use std::time::Duration;
use tokio_postgres::Client;

const PATIENCE: Duration = Duration::from_secs(30);

/// What one login lacks, each with what to do.
type Lacks = Vec<String>;

pub fn run(config: &Config, place: &Place, name: &str) -> u8 {
    let environment = environment(place);
    let mut good = true;
    let mut tell = |who: &str, found: Result<Lacks, Trouble>| {
        let lacks = found.unwrap_or_else(|trouble| vec![trouble.text]);
        if lacks.is_empty() {
            print(&format!("{name}: {who}: good"));
        }
        for lack in &lacks {
            print_error(&format!("{name}: {who}: {lack}"));
        }
        good &= lacks.is_empty();
    };
    // Resolved before: whoever calls has said what is wrong with the config.
    let own = config.target(&environment).ok();
    let rows: Vec<(&Row, Target)> =
        config.rows.iter().filter_map(|row| Some((row, config.row_target(row, &environment).ok()?))).collect();
    let (every, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(row, _)| row.is_every());
    let mut to_be_made = Vec::new();
    if let Some(own) = &own {
        let here = rows.iter().filter(|(_, target)| target.places == own.places);
        let pairs: Vec<(String, String)> = here.map(|(row, _)| (row.user.clone(), row.data.clone())).collect();
        let found = one_shot::ask(own, "pgmill check", PATIENCE, |client| launcher_lacks(client, pairs));
        let found = found.map(|(lacks, made)| {
            to_be_made = made;
            lacks
        });
        tell(&format!("launcher as {}", quoted(&own.user)), found);
    }
    for (row, target) in &rows {
        let who = format!("{} {} {}.{} as {}", row.place, row.data, row.schema, row.table, quoted(&row.user));
        if to_be_made.contains(&(row.user.clone(), row.data.clone())) {
            print(&format!("{name}: {who}: will be made at the first start"));
            continue;
        }
        let helper = config.installer(row, target, &environment).and_then(|login| {
            one_shot::ask(&login, "pgmill check", PATIENCE, |client| async move {
                let found = client.query_one(&bare(LOOK_CATALOG), &[]).await.map_err(|error| Trouble::of(&error))?;
                Ok(Helper { makes: found.get("may"), admits: found.get("ours") })
            })
            .ok()
        });
        let (schema, table) = (row.schema.clone(), row.table.clone());
        let found = one_shot::ask(target, "pgmill check", PATIENCE, |client| row_lacks(client, schema, table, helper));
        tell(&who, found);
    }
    for (row, target) in &every {
        // What is found is served as it is: a login that works is all it needs.
        let found = one_shot::ask(target, "pgmill check", PATIENCE, |client| async move {
            client.batch_execute("SELECT 1").await.map_err(|error| Trouble::of(&error))?;
            Ok(Lacks::new())
        });
        tell(&format!("{} every database as {}", row.place, quoted(&target.user)), found);
    }
    if good { launcher_status::ORDERLY } else { launcher_status::FAILED }
}

/// What the launcher's login may do in a row's database.
#[derive(Clone, Copy, Default)]
struct Helper {
    makes: bool,
    admits: bool,
}

/// What the launcher lacks, and which pairs of role and database it will make itself.
async fn launcher_lacks(
    client: Rc<Client>,
    pairs: Vec<(String, String)>,
) -> Result<(Lacks, Vec<(String, String)>), Trouble> {
    let (roles, databases): (Vec<String>, Vec<String>) = pairs.into_iter().unzip();
    let rows = client.query(&bare(CHECK_LAUNCHER), &[&roles, &databases]).await;
    let (mut lacks, mut made) = (Lacks::new(), Vec::new());
    for row in rows.map_err(|error| Trouble::of(&error))? {
        let (role, database): (String, String) = (row.get("role"), row.get("database"));
        let (there, database_there): (bool, bool) = (row.get("there"), row.get("database_there"));
        let role_comes = there || row.get("makes_roles");
        let mut lack = |text: String| {
            if !lacks.contains(&text) {
                lacks.push(text);
            }
        };
        if !role_comes {
            lack(format!("role {0} does not exist and cannot be made; run: CREATE ROLE {0} LOGIN", quoted(&role)));
        }
        if !database_there && !row.get::<_, bool>("makes_databases") {
            let (database, role) = (quoted(&database), quoted(&role));
            lack(format!(
                "database {database} does not exist and cannot be made; run: CREATE DATABASE {database} OWNER {role}"
            ));
        }
        let ends: bool = row.get("ends");
        let me = quoted(&row.get::<_, String>("me"));
        if there && row.get("superuser") && !ends {
            lack(format!(
                "{} is a superuser: its sessions cannot be ended from here; choose another user",
                quoted(&role)
            ));
        } else if there && !ends {
            lack(format!("cannot end the sessions of {0}; run: GRANT {0} TO {me}", quoted(&role)));
        }
        if role_comes && (!there || !database_there) && (database_there || row.get("makes_databases")) {
            made.push((role, database));
        }
    }
    Ok((lacks, made))
}

async fn row_lacks(
    client: Rc<Client>,
    schema: String,
    table: String,
    helper: Option<Helper>,
) -> Result<Lacks, Trouble> {
    let trouble = |error: tokio_postgres::Error| Trouble::of(&error);
    let found = client.query_one(&bare(CHECK_ROW), &[&schema, &table]).await.map_err(trouble)?;
    let catalog = client.query_one(&bare(LOOK_CATALOG), &[]).await.map_err(trouble)?;
    let is = |name: &str| found.get::<_, bool>(name);
    let (me, database) = (quoted(catalog.get("me")), quoted(catalog.get("database")));
    let mut lacks = Lacks::new();
    if is("superuser") {
        lacks.push("tasks would run as a superuser; give the row a user of its own".to_owned());
    }
    if !is("schema") && !is("makes_schemas") {
        lacks.push(format!("cannot make its schema; run: CREATE SCHEMA {} AUTHORIZATION {me}", quoted(&schema)));
    } else if is("schema") && !is("enters") {
        lacks.push(format!("cannot use its schema; run: GRANT USAGE ON SCHEMA {} TO {me}", quoted(&schema)));
    }
    if is("schema") && !is("queue") && !is("makes_tables") {
        lacks.push(format!("cannot make its table; run: GRANT CREATE, USAGE ON SCHEMA {} TO {me}", quoted(&schema)));
    } else if is("queue") && !is("owns") && !is("serves") {
        lacks.push(format!("cannot serve its table; run: ALTER TABLE {} OWNER TO {me}", qualified(&schema, &table)));
    }
    let helper = helper.unwrap_or_default();
    let has = |name: &str| catalog.get::<_, bool>(name);
    if !has("there") {
        if !has("may") && !helper.makes {
            lacks.push(format!("cannot make the catalog mill; run: GRANT CREATE ON DATABASE {database} TO {me}"));
        }
    } else if !has("marked") {
        lacks.push("the schema mill is not pgmill's; rename it".to_owned());
    } else if !has("admitted") {
        if !helper.admits {
            let (owner, advice) = (quoted(catalog.get("owner")), catalog::admission_advice(catalog.get("me")));
            lacks.push(format!("cannot use the catalog mill; run as {owner}: {advice}"));
        }
    } else {
        let row = client.query_one(&statement::bare(LOOK_VERSION), &[]).await.map_err(trouble)?;
        let version: String = row.get("version");
        if version != VERSION {
            lacks.push(format!(
                "its catalog has version {version}, this program is {VERSION}; run: launcher upgrade {database}"
            ));
        }
    }
    Ok(lacks)
}
