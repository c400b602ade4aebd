//! `launcher install`: the catalog and the first task table, in one transaction, before it returns.
//!
//! The catalog belongs to the user of the queue, as it would after a first start: that role administers it, and its own
//! scheduler keeps timers and tokens. `--owner` names another role. The launcher's login only carries the statements:
//! it becomes the owner by SET ROLE. Users of other queues of that database are admitted.

use super::{login_in, print, print_error};
use crate::cli::ConfigPlace;
use crate::limits::INSTALL_TIMEOUT;
use shared::VERSION;
use shared::config::{Config, QueueConfig};
use shared::db::db_error::DbError;
use shared::db::identifier::quoted;
use shared::db::statement::Queue;
use shared::db::{catalog, one_shot, statement};
use shared::process::exit_code::launcher_status;
use std::rc::Rc;
use tokio_postgres::Client;

pub fn print_text() -> u8 {
    print(&catalog::install_text(VERSION));
    launcher_status::ORDERLY
}

/// What was found and done.
enum InstallOutcome {
    Installed(Owners),
    There(Owners),
    Other(String),
}

/// Whose the catalog and public.task are now.
struct Owners {
    /// The login of the command.
    login: String,
    catalog: String,
    task: Option<String>,
    /// The queue's user has not agreed to the catalog of another role.
    consent: bool,
}

pub fn run(place: &ConfigPlace, database: &str, owner: Option<&str>) -> u8 {
    let (config, target) = match login_in(place, database) {
        Ok(login) => login,
        Err(status) => return status,
    };
    let users = QueueUsers::of(&config, database);
    let (wanted, asked) = (users.clone(), owner.map(str::to_owned));
    match one_shot::ask(&target, "pgmill install", INSTALL_TIMEOUT, |client| install(client, wanted, asked)) {
        Ok(InstallOutcome::Installed(owners)) => {
            print(&format!("{database}: catalog mill {VERSION} installed, with public.task"));
            tell_owners(database, &users, &owners);
            launcher_status::ORDERLY
        }
        Ok(InstallOutcome::There(owners)) => {
            print(&format!("{database}: catalog mill {VERSION} exists already; only rights were changed"));
            tell_owners(database, &users, &owners);
            launcher_status::ORDERLY
        }
        Ok(InstallOutcome::Other(version)) => {
            print_error(&format!(
                "{database}: its catalog has version {version}, this program has {VERSION}; run: launcher upgrade {database}"
            ));
            launcher_status::FAILED
        }
        Err(db_error) => {
            print_error(&format!("{database}: not installed, nothing was changed: {db_error}"));
            launcher_status::FAILED
        }
    }
}

fn tell_owners(database: &str, users: &QueueUsers, owners: &Owners) {
    let task = owners.task.as_deref().map(|task| format!("; owner of public.task: {}", quoted(task)));
    print(&format!("{database}: owner of the catalog: {}{}", quoted(&owners.catalog), task.unwrap_or_default()));
    let next = match &users.task_user {
        Some(user) if owners.consent => {
            let queue = Queue { schema: "public".to_owned(), table: "task".to_owned() };
            format!("as {}: {}", quoted(user), catalog::consent_advice(&queue, &owners.catalog))
        }
        _ if users.named && users.owner.is_none() && owners.task == Some(owners.login.clone()) => {
            "ALTER TABLE public.task OWNER TO another role: a queue \"*\" runs no tasks as the launcher's login"
                .to_owned()
        }
        _ if users.named => format!("start the launcher; if it is running: launcher start {database}"),
        _ => {
            let user = owners.task.as_deref().unwrap_or(&owners.catalog);
            let queue = serde_json::json!({"data": database, "user": user});
            format!("add a queue to the config: {queue}")
        }
    };
    print(&format!("{database}: next: {next}"));
}

/// What the config has about this database.
#[derive(Clone)]
struct QueueUsers {
    users: Vec<String>,
    /// Who serves public.task.
    task_user: Option<String>,
    /// Who owns the catalog without --owner.
    owner: Option<String>,
    /// An entry names the database or covers it.
    named: bool,
}

impl QueueUsers {
    fn of(config: &Config, database: &str) -> QueueUsers {
        let queues: Vec<&QueueConfig> =
            config.queues.iter().filter(|queue| queue.data == database || queue.is_every()).collect();
        let mut users: Vec<String> =
            queues.iter().map(|queue| queue.user.clone()).filter(|user| !user.is_empty()).collect();
        users.sort();
        users.dedup();
        let task = queues.iter().find(|queue| !queue.is_every() && queue.schema == "public" && queue.table == "task");
        let named = queues.iter().find(|queue| !queue.is_every());
        let owner = task.or(named).or(queues.first()).map(|queue| queue.user.clone()).filter(|user| !user.is_empty());
        QueueUsers { users, task_user: task.map(|queue| queue.user.clone()), owner, named: !queues.is_empty() }
    }
}

/// Where the config names no user: the owner of the database, if its tasks may run as that role; else this login.
const DEFAULT_OWNER: &str = "SELECT COALESCE((SELECT r.rolname FROM pg_catalog.pg_database d JOIN pg_catalog.pg_roles r \
    ON r.oid = d.datdba WHERE d.datname = pg_catalog.current_database() AND r.rolcanlogin AND NOT r.rolsuper \
    AND pg_catalog.pg_has_role(r.oid, 'MEMBER')), current_user)::text AS owner";

async fn install(client: Rc<Client>, users: QueueUsers, asked: Option<String>) -> Result<InstallOutcome, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    client.batch_execute(&catalog::alone()).await.map_err(db_error)?;
    let found = catalog::read(&client, None).await.map_err(db_error)?;
    let me: String = found.get("me");
    let there: bool = found.get("there");
    if there && !found.get::<_, bool>("marked") {
        return Err(DbError::standing("the schema mill does not belong to pgmill; rename it"));
    }
    let owner = if there {
        let owner: String = found.get("owner");
        if let Some(asked) = asked.filter(|asked| *asked != owner) {
            return Err(DbError::standing(format!(
                "the catalog belongs to {}; to create one that belongs to {}, drop it first: launcher uninstall",
                quoted(&owner),
                quoted(&asked)
            )));
        }
        catalog::read_trusted(&client).await?;
        let version = client.query_one(&statement::bare(statement::READ_VERSION), &[]).await.map_err(db_error)?;
        let version: String = version.get("version");
        if version != VERSION {
            return Ok(InstallOutcome::Other(version));
        }
        owner
    } else {
        let owner = match asked.or(users.owner) {
            Some(owner) => owner,
            None => client.query_one(DEFAULT_OWNER, &[]).await.map_err(db_error)?.get("owner"),
        };
        make_catalog(&client, &me, &owner).await?;
        owner
    };
    let become_owner = format!("SET LOCAL ROLE {};\n", quoted(&owner));
    client.batch_execute("RESET ROLE").await.map_err(db_error)?;
    let known = "SELECT rolname::text, pg_catalog.pg_has_role(oid, 'MEMBER') \
                 AND pg_catalog.has_schema_privilege(oid, 'public', 'CREATE') AS makes \
                 FROM pg_catalog.pg_roles WHERE rolname::text = ANY ($1)";
    let mut roles = users.users.clone();
    roles.push(owner.clone());
    let known = client.query(known, &[&roles]).await.map_err(db_error)?;
    let task_user = users.task_user.unwrap_or_else(|| owner.clone());
    let task_row = known.iter().find(|row| row.get::<_, &str>("rolname") == task_user);
    // A role that may not create in the schema is given the rights on a table of the login.
    let creator = task_row.filter(|row| row.get("makes")).map(|row| row.get::<_, String>("rolname"));
    let become_creator = creator.as_ref().map(|role| format!("SET LOCAL ROLE {};\n", quoted(role))).unwrap_or_default();
    client.batch_execute(&format!("{become_creator}{}\nRESET ROLE", catalog::task_text())).await.map_err(db_error)?;
    if let (None, Some(row)) = (&creator, task_row.filter(|_| task_user != me)) {
        let role = quoted(row.get("rolname"));
        let grants = format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON public.task TO {role}; GRANT USAGE ON SEQUENCE public.task_id_seq TO {role}"
        );
        client.batch_execute(&grants).await.map_err(db_error)?;
    }
    let others = known.iter().map(|row| row.get::<_, String>("rolname"));
    let mut others: Vec<String> = others.filter(|user| *user != owner).collect();
    others.sort();
    others.dedup();
    shared::debug!("catalog made", owner = owner, admitted = others.join(", "));
    // The owner's own queue comes first: it decides whether another user has to keep timers and tokens.
    let register = format!("{become_creator}{}RESET ROLE;\n", catalog::REGISTER_TASK);
    let admit: String = others.iter().map(|user| format!("{};\n", catalog::admission(user))).collect();
    let admit = format!("{become_owner}{admit}RESET ROLE;\n");
    let both =
        if creator.as_ref() == Some(&owner) { format!("{register}{admit}") } else { format!("{admit}{register}") };
    client.batch_execute(&both).await.map_err(db_error)?;
    let owners = read_owners(&client, me, owner, &task_user).await.map_err(db_error)?;
    let restart = if there { "" } else { catalog::RESTART };
    client.batch_execute(&format!("{become_owner}{restart}COMMIT")).await.map_err(db_error)?;
    Ok(if there { InstallOutcome::There(owners) } else { InstallOutcome::Installed(owners) })
}

/// As the owner, who may create in the database; else the schemas are made for it.
async fn make_catalog(client: &Client, me: &str, owner: &str) -> Result<(), DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let text = "SELECT pg_catalog.pg_has_role(r.oid, 'MEMBER') AS member, \
                pg_catalog.has_database_privilege(r.oid, pg_catalog.current_database(), 'CREATE') AS creates \
                FROM pg_catalog.pg_roles r WHERE r.rolname::text = $1";
    let Some(role) = client.query_opt(text, &[&owner]).await.map_err(db_error)? else {
        let owner = quoted(owner);
        return Err(DbError::standing(format!(
            "role {owner}, the user of its queue, does not exist; run: CREATE ROLE {owner} LOGIN, or name another role with --owner"
        )));
    };
    if !role.get::<_, bool>("member") {
        let (owner, me) = (quoted(owner), quoted(me));
        return Err(DbError::standing(format!(
            "the login {me} cannot make the catalog for {owner}, the user of its queue; run: GRANT {owner} TO {me}, or name \
             another one with --owner"
        )));
    }
    let pieces = if role.get("creates") {
        client.batch_execute(&format!("SET LOCAL ROLE {}", quoted(owner))).await.map_err(db_error)?;
        catalog::pieces(VERSION)
    } else {
        catalog::pieces_for(VERSION, owner)
    };
    for piece in pieces {
        client.batch_execute(&piece).await.map_err(db_error)?;
    }
    Ok(())
}

async fn read_owners(
    client: &Client,
    login: String,
    catalog: String,
    user: &str,
) -> Result<Owners, tokio_postgres::Error> {
    let text = "SELECT pg_catalog.pg_get_userbyid(c.relowner)::text AS task, \
                NOT (o.rolsuper OR pg_catalog.pg_has_role(u.oid, o.oid, 'MEMBER') \
                     OR pg_catalog.has_table_privilege(o.oid, c.oid, 'INSERT')) AS consent \
                FROM pg_catalog.pg_class c, pg_catalog.pg_roles o, pg_catalog.pg_roles u \
                WHERE c.oid = pg_catalog.to_regclass('public.task') AND o.rolname::text = $1 AND u.rolname::text = $2";
    let row = client.query_opt(text, &[&catalog, &user]).await?;
    let task = row.as_ref().map(|row| row.get("task"));
    Ok(Owners { login, catalog, task, consent: row.is_some_and(|row| row.get("consent")) })
}
