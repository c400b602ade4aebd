//! `launcher check --connect`: logs in as the launcher and as the user of every queue, and prints which rights are
//! missing, with the SQL that grants them, and which other roles may put tasks into the queue. Queues that "*" would
//! find are checked too.
//!
//! Nothing is changed. The rights are those that the first start of the queue needs; the lists of GRANTs in the README
//! give all of them.

use super::resolve::wanted;
use super::{environment, print, print_error};
use crate::cli::ConfigPlace;
use crate::limits::CHECK_TIMEOUT;
use crate::queue::found_queue::{is_news, list_queues};
use crate::queue::login_refusal::owner_refused;
use crate::queue::wanted::WantedQueue;
use shared::VERSION;
use shared::config::{Config, QueueConfig};
use shared::conninfo::Target;
use shared::db::db_error::DbError;
use shared::db::identifier::{qualified, quoted};
use shared::db::statement::{
    self, CHECK_LAUNCHER, CHECK_QUEUE, LIST_DATABASES, LIST_INSERTERS, Queue, READ_VERSION, bare,
};
use shared::db::{catalog, one_shot};
use shared::process::exit_code::launcher_status;
use std::rc::Rc;
use tokio_postgres::Client;

/// What one login lacks, each with what to do.
type Lacks = Vec<String>;

/// Prints the findings about one login.
struct RightsReport<'a> {
    name: &'a str,
    good: bool,
}

impl RightsReport<'_> {
    fn print(&mut self, who: &str, found: Result<Lacks, DbError>) {
        let name = self.name;
        let lacks = found.unwrap_or_else(|db_error| vec![db_error.text]);
        if lacks.is_empty() {
            print(&format!("{name}: {who}: ok"));
        }
        for lack in &lacks {
            print_error(&format!("{name}: {who}: {lack}"));
        }
        self.good &= lacks.is_empty();
    }

    /// Findings that are no mistakes.
    fn remark(&self, who: &str, text: &str) {
        print(&format!("{}: {who}: {text}", self.name));
    }
}

pub fn run(config: &Config, place: &ConfigPlace, name: &str) -> u8 {
    let environment = environment(place);
    let mut findings = RightsReport { name, good: true };
    // Resolved before: the caller has printed the mistakes of the config.
    let own = config.target(&environment).ok();
    let queues = config.queues.iter().filter_map(|queue| wanted(config, queue, &environment).ok());
    let (every, queues): (Vec<WantedQueue>, Vec<WantedQueue>) = queues.partition(|one| one.config.is_every());
    let local = |one: &WantedQueue| own.as_ref().is_some_and(|own| one.target.places == own.places);
    let (found, unseen) = match (&own, every.is_empty()) {
        (Some(own), false) => find_queues(own, &every, queues.iter().filter(|one| local(one))),
        _ => (Vec::new(), Vec::new()),
    };
    let mut to_be_made = Vec::new();
    if let Some(own) = &own {
        let served = found.iter().filter(|one| one.refusal.is_none());
        let here = queues.iter().chain(served).filter(|one| local(one));
        let pairs: Vec<(String, String)> = here.map(|one| (one.config.user.clone(), one.config.data.clone())).collect();
        let lacks = one_shot::ask(own, "pgmill check", CHECK_TIMEOUT, |client| launcher_lacks(client, pairs));
        let lacks = lacks.map(|(lacks, made)| {
            to_be_made = made;
            lacks
        });
        findings.print(&format!("launcher as {}", quoted(&own.user)), lacks);
    }
    for one in &queues {
        if to_be_made.contains(&(one.config.user.clone(), one.config.data.clone())) {
            findings.remark(&who(one), "the first start creates it");
            continue;
        }
        check_queue(&mut findings, one);
    }
    for queue in &every {
        // The login by which its databases are searched.
        let login = queue.probe_login(&queue.target.database);
        let answer = one_shot::ask(&login, "pgmill check", CHECK_TIMEOUT, |client| async move {
            client.batch_execute("SELECT 1").await.map_err(|error| DbError::of(&error))?;
            Ok(Lacks::new())
        });
        findings.print(&format!("{} all databases as {}", queue.config.place, quoted(&login.user)), answer);
    }
    for (database, db_error) in unseen {
        findings.remark(&format!("all databases: {database}"), &format!("cannot list its queues: {db_error}"));
    }
    for one in &found {
        match &one.refusal {
            // Without a catalog it is none of ours, which may be meant.
            Some(refusal) if !is_news(refusal) => findings.remark(&who(one), &format!("not served: {refusal}")),
            Some(refusal) => findings.print(&who(one), Ok(vec![refusal.clone()])),
            None => check_queue(&mut findings, one),
        }
    }
    if findings.good { launcher_status::ORDERLY } else { launcher_status::FAILED }
}

fn who(one: &WantedQueue) -> String {
    let QueueConfig { place, data, schema, table, user, .. } = &one.config;
    format!("{place} {data} {schema}.{table} as {}", quoted(user))
}

/// What "*" would serve now, and databases that cannot be searched.
fn find_queues<'a>(
    own: &Target,
    every: &[WantedQueue],
    named: impl Iterator<Item = &'a WantedQueue>,
) -> (Vec<WantedQueue>, Vec<(String, DbError)>) {
    let named: Vec<&str> = named.map(|one| one.config.data.as_str()).collect();
    let databases = one_shot::ask(own, "pgmill check", CHECK_TIMEOUT, |client| async move {
        let rows = client.query(&bare(LIST_DATABASES), &[]).await.map_err(|error| DbError::of(&error))?;
        let servable = rows.iter().filter(|row| row.get("servable"));
        Ok(servable.map(|row| row.get("name")).collect::<Vec<String>>())
    });
    // A login that does not work is reported as the launcher's.
    let databases = databases.unwrap_or_default();
    let (mut found, mut unseen) = (Vec::new(), Vec::new());
    let Some(first) = every.first() else { return (found, unseen) };
    for database in databases.into_iter().filter(|database| !named.contains(&database.as_str())) {
        let login = first.probe_login(&database);
        match one_shot::ask(&login, "pgmill check", CHECK_TIMEOUT, |client| async move { list_queues(&client).await }) {
            Ok(queues) => found.extend(queues.iter().filter_map(|queue| WantedQueue::found(every, &database, queue))),
            Err(db_error) => unseen.push((database, db_error)),
        }
    }
    (found, unseen)
}

/// What a queue's user lacks, and who else may put tasks into it.
fn check_queue(findings: &mut RightsReport<'_>, one: &WantedQueue) {
    let helper = one.installer.as_ref().and_then(|login| {
        one_shot::ask(login, "pgmill check", CHECK_TIMEOUT, |client| async move {
            let found = catalog::read(&client, None).await.map_err(|error| DbError::of(&error))?;
            Ok(Helper { makes: found.get("may"), admits: found.get("ours") })
        })
        .ok()
    });
    let (schema, table) = (one.config.schema.clone(), one.config.table.clone());
    let answer = one_shot::ask(&one.target, "pgmill check", CHECK_TIMEOUT, |client| async move {
        let inserters = inserters(&client, &schema, &table).await?;
        Ok((queue_lacks(client, schema, table, helper).await?, inserters))
    });
    let user = &one.config.user;
    match answer {
        Ok((lacks, inserters)) => {
            findings.print(&who(one), Ok(lacks));
            match inserters.as_slice() {
                [] => findings.remark(&who(one), "no other role may INSERT"),
                roles => {
                    let text = format!("INSERT, and so run SQL as {}, may also: {}", quoted(user), roles.join(", "));
                    findings.remark(&who(one), &text);
                }
            }
        }
        Err(db_error) => {
            let refused = owner_refused(user, &db_error.text).filter(|_| one.as_owner);
            findings.print(&who(one), refused.map_or(Err(db_error), |refused| Ok(vec![refused])));
        }
    }
}

async fn inserters(client: &Client, schema: &str, table: &str) -> Result<Vec<String>, DbError> {
    let rows = client.query(&bare(LIST_INSERTERS), &[&schema, &table]).await.map_err(|error| DbError::of(&error))?;
    let name = |role: Option<String>| role.map_or_else(|| "PUBLIC".to_owned(), |role| quoted(&role));
    Ok(rows.iter().map(|row| name(row.get("role"))).collect())
}

/// What the launcher's login may do in a queue's database.
#[derive(Clone, Copy, Default)]
struct Helper {
    makes: bool,
    admits: bool,
}

/// What the launcher lacks, and which pairs of role and database it will make itself.
async fn launcher_lacks(
    client: Rc<Client>,
    pairs: Vec<(String, String)>,
) -> Result<(Lacks, Vec<(String, String)>), DbError> {
    let (roles, databases): (Vec<String>, Vec<String>) = pairs.into_iter().unzip();
    let rows = client.query(&bare(CHECK_LAUNCHER), &[&roles, &databases]).await;
    let (mut lacks, mut made) = (Lacks::new(), Vec::new());
    for row in rows.map_err(|error| DbError::of(&error))? {
        let (role, database): (String, String) = (row.get("role"), row.get("database"));
        let (there, database_there): (bool, bool) = (row.get("there"), row.get("database_there"));
        let role_comes = there || row.get("makes_roles");
        let mut lack = |text: String| {
            if !lacks.contains(&text) {
                lacks.push(text);
            }
        };
        if !role_comes {
            lack(format!(
                "role {0} does not exist, and the launcher may not create it; run: CREATE ROLE {0} LOGIN",
                quoted(&role)
            ));
        }
        if !database_there && !row.get::<_, bool>("makes_databases") {
            let (database, role) = (quoted(&database), quoted(&role));
            lack(format!(
                "database {database} does not exist, and the launcher may not create it; run: CREATE DATABASE {database} OWNER {role}"
            ));
        }
        let ends: bool = row.get("ends");
        let me = quoted(&row.get::<_, String>("me"));
        if there && row.get("superuser") && !ends {
            lack(format!("cannot end the sessions of {}: it is a superuser; choose another user", quoted(&role)));
        } else if there && !ends {
            lack(format!("cannot end the sessions of {0}; run: GRANT {0} TO {me}", quoted(&role)));
        }
        if role_comes && (!there || !database_there) && (database_there || row.get("makes_databases")) {
            made.push((role, database));
        }
    }
    Ok((lacks, made))
}

async fn queue_lacks(
    client: Rc<Client>,
    schema: String,
    table: String,
    helper: Option<Helper>,
) -> Result<Lacks, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let found = client.query_one(&bare(CHECK_QUEUE), &[&schema, &table]).await.map_err(db_error)?;
    let queue = Queue { schema: schema.clone(), table: table.clone() };
    let installed = catalog::read(&client, Some(&queue)).await.map_err(db_error)?;
    let is = |name: &str| found.get::<_, bool>(name);
    let (me, database) = (quoted(installed.get("me")), quoted(installed.get("database")));
    let mut lacks = Lacks::new();
    if is("superuser") {
        lacks.push("tasks would run as a superuser; give the queue a user that is not a superuser".to_owned());
    }
    if !is("schema") && !is("makes_schemas") {
        lacks.push(format!("cannot create its schema; run: CREATE SCHEMA {} AUTHORIZATION {me}", quoted(&schema)));
    } else if is("schema") && !is("enters") {
        lacks.push(format!("cannot use its schema; run: GRANT USAGE ON SCHEMA {} TO {me}", quoted(&schema)));
    }
    if is("schema") && !is("queue") && !is("makes_tables") {
        lacks.push(format!("cannot create its table; run: GRANT CREATE, USAGE ON SCHEMA {} TO {me}", quoted(&schema)));
    } else if is("queue") && !is("owns") && !is("serves") {
        lacks.push(format!("cannot serve its table; run: ALTER TABLE {} OWNER TO {me}", qualified(&schema, &table)));
    }
    let helper = helper.unwrap_or_default();
    let has = |name: &str| installed.get::<_, bool>(name);
    if !has("there") {
        if !has("may") && !helper.makes {
            lacks.push(format!("cannot create the catalog mill; run: GRANT CREATE ON DATABASE {database} TO {me}"));
        }
    } else if !has("marked") {
        lacks.push("the schema mill does not belong to pgmill; rename it".to_owned());
    } else if !has("trusted") && is("queue") {
        let owner: &str = installed.get("owner");
        let advice = catalog::consent_advice(&queue, owner);
        lacks.push(format!(
            "cannot use the catalog mill of {}: the queue has not agreed to it; run: {advice}",
            quoted(owner)
        ));
    } else if !has("admitted") {
        if !helper.admits {
            let (owner, advice) = (quoted(installed.get("owner")), catalog::admission_advice(installed.get("me")));
            lacks.push(format!(
                "cannot use the catalog mill: its owner has not admitted this user; run as {owner}: {advice}"
            ));
        }
    } else if has("trusted") {
        let row = client.query_one(&statement::bare(READ_VERSION), &[]).await.map_err(db_error)?;
        let version: String = row.get("version");
        if version != VERSION {
            lacks.push(format!(
                "its catalog has version {version}, this program has {VERSION}; run: launcher upgrade {database}"
            ));
        }
    }
    Ok(lacks)
}
