//! A task table in a database that "*" covers: what system catalogs say of it, and whether it may be served.
//!
//! Its tasks run as its owner, or as the user that the entry "*" names. The launcher's own login can become every
//! queue's user, so it runs no tasks: a table of its own is not served, nor one of a superuser that the config does not
//! name, nor one of a role that is neither admitted nor granted.

use crate::limits::FOUND_QUEUES_MAX;
use shared::db::db_error::DbError;
use shared::db::identifier::{literal, qualified, quoted};
use shared::db::statement::{LIST_QUEUES, bare};
use tokio_postgres::Client;

const NOT_INSTALLED: &str = "the catalog mill is not installed";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundQueue {
    pub schema: String,
    pub table: String,
    pub owner: String,
    /// Why it is not served as its owner, and what to do.
    pub refused_as_owner: Option<String>,
    /// Why it is not served as another user.
    pub refused: Option<String>,
}

/// The task tables of the database that this session is in. Reads system catalogs only.
pub async fn list_queues(client: &Client) -> Result<Vec<FoundQueue>, DbError> {
    let rows = client.query(&bare(LIST_QUEUES), &[&FOUND_QUEUES_MAX]).await.map_err(|error| DbError::of(&error))?;
    Ok(rows.iter().map(FoundQueue::read).collect())
}

/// A database without a catalog is not worth a line; it may be one of many.
pub fn is_news(refusal: &str) -> bool {
    refusal != NOT_INSTALLED
}

impl FoundQueue {
    fn read(row: &tokio_postgres::Row) -> FoundQueue {
        let [schema, table, owner, login]: [String; 4] = ["schema", "name", "owner", "login"].map(|name| row.get(name));
        let is = |name: &str| row.get::<_, bool>(name);
        let (queue, role) = (qualified(&schema, &table), quoted(&owner));
        let not_installed = (!is("installed")).then(|| NOT_INSTALLED.to_owned());
        let stranger = (!is("known") && !is("superuser")).then(|| {
            format!(
                "not served: role {role}, the owner of table {queue}, is neither admitted to the catalog mill nor granted to \
                 the launcher's login; run: GRANT {role} TO {}, or as the owner of the catalog: SELECT mill.admit({})",
                quoted(&login),
                literal(&owner)
            )
        });
        let elsewhere =
            format!("ALTER TABLE {queue} OWNER TO another role, or set \"user\" in the queue \"*\" of the config");
        let as_owner = if is("own") {
            Some(format!("the owner of table {queue} is the launcher's own login {role}, which runs no tasks; run: "))
        } else if is("superuser") {
            Some(format!("the owner of table {queue} is the superuser {role}, which the config does not name; run: "))
        } else if !is("logs_in") {
            Some(format!("role {role}, the owner of table {queue}, cannot log in; run: ALTER ROLE {role} LOGIN, or "))
        } else {
            None
        };
        let as_owner = as_owner.map(|why| format!("not served: {why}{elsewhere}"));
        FoundQueue {
            schema,
            table,
            owner,
            refused_as_owner: not_installed.clone().or(as_owner).or_else(|| stranger.clone()),
            refused: not_installed.or(stranger),
        }
    }
}
