//! What a task table looks like now, read from the server's catalog.
//!
//! Called by `make` at the start of a session and by `table_repair`; what follows from it is decided in `table_plan`, which
//! knows no connection.

use shared::db::db_error::DbError;
use shared::db::statement::{self, Queue};
use tokio_postgres::Client;

#[derive(Clone, Debug, Default)]
pub struct Shape {
    pub relid: u32,
    pub partitioned: bool,
    pub bytes: i64,
    /// A primary key or unique index on id alone (partitioned: id and the partition key).
    pub unique_id: bool,
    pub partition_key: Vec<String>,
    pub partition_expression: bool,
    /// Roles that are granted to write into the table, but for its owner, us and superusers.
    pub writers: Vec<String>,
    /// Roles that waiting rows are to run as; only known if the table says so, and before it is taken over.
    pub waiting_users: Vec<String>,
    /// It is published with its changes and has no replica identity: the server refuses every UPDATE.
    pub unidentified: Option<Unidentified>,
    /// The extension pg_task serves this table at this moment.
    pub upstream: bool,
    pub columns: Vec<TableColumn>,
    pub triggers: Vec<Trigger>,
    pub indexes: Vec<Index>,
}

/// A published table, or a partition of it, without a replica identity.
#[derive(Clone, Debug, Default)]
pub struct Unidentified {
    /// As SQL names them.
    pub table: String,
    pub publications: String,
    /// The unique index that could be its identity.
    pub index: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct TableColumn {
    pub name: String,
    /// As declared, and what a domain comes down to.
    pub type_name: String,
    pub base: String,
    pub category: String,
    pub not_null: bool,
    pub generated: bool,
    pub expression: Option<String>,
    pub commented: bool,
    /// None: no check on this column alone. Some(false): ours, and old rows have not been looked at.
    pub checked: Option<bool>,
    pub labels: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Trigger {
    pub name: String,
    pub schema: String,
    pub function: String,
    pub source: String,
    /// Its function serves another trigger as well.
    pub shared: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Index {
    pub name: String,
    pub valid: bool,
    /// As the server spells it, names without quotes.
    pub predicate: String,
    pub columns: Vec<String>,
    /// The columns of the key and of the predicate, in any order.
    pub uses: Vec<String>,
}

impl Shape {
    pub fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub fn has_trigger(&self, name: &str) -> bool {
        self.triggers.iter().any(|trigger| trigger.name == name)
    }

    /// Rows say which role they are to run as, as pg_task's do, and we have not taken the table over yet.
    pub fn runs_as_authors(&self) -> bool {
        let author = self.column("user").and_then(|column| column.expression.as_deref());
        self.column("attempt").is_none() && author.is_some_and(|default| default.eq_ignore_ascii_case("CURRENT_USER"))
    }
}

pub async fn read(client: &Client, queue: &Queue) -> Result<Shape, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let found = client.query_opt(&queue.fill(statement::READ_SHAPE), &[]).await.map_err(db_error)?;
    let Some(found) = found else {
        let text = format!("table {} was dropped while it was read", queue.fill("{queue}"));
        return Err(DbError::passing(text));
    };
    let columns = client.query(&queue.fill(statement::LIST_SHAPE_COLUMNS), &[]).await.map_err(db_error)?;
    let triggers = client.query(&queue.fill(statement::LIST_SHAPE_TRIGGERS), &[]).await.map_err(db_error)?;
    let indexes = client.query(&queue.fill(statement::LIST_SHAPE_INDEXES), &[]).await.map_err(db_error)?;
    let unidentified = client.query_opt(&queue.fill(statement::FIND_UNIDENTIFIED), &[]).await.map_err(db_error)?;
    let mut shape = Shape {
        relid: found.get("relid"),
        partitioned: found.get("partitioned"),
        bytes: found.get("bytes"),
        unique_id: found.get("unique_id"),
        partition_key: found.get("partition_key"),
        partition_expression: found.get("partition_expression"),
        writers: found.get("writers"),
        waiting_users: Vec::new(),
        unidentified: unidentified.map(|row| Unidentified {
            table: row.get("name"),
            publications: row.get("publications"),
            index: row.get("index"),
        }),
        upstream: found.get("upstream"),
        columns: columns
            .iter()
            .map(|row| TableColumn {
                name: row.get("name"),
                type_name: row.get("type"),
                base: row.get("base"),
                category: row.get("category"),
                not_null: row.get("not_null"),
                generated: row.get("generated"),
                expression: row.get("expression"),
                commented: row.get("commented"),
                checked: row.get("checked"),
                labels: row.get("labels"),
            })
            .collect(),
        triggers: triggers
            .iter()
            .map(|row| Trigger {
                name: row.get("name"),
                schema: row.get("schema"),
                function: row.get("function"),
                source: row.get("source"),
                shared: row.get("shared"),
            })
            .collect(),
        indexes: indexes
            .iter()
            .map(|row| Index {
                name: row.get("name"),
                valid: row.get("valid"),
                predicate: row.get("predicate"),
                columns: row.get("columns"),
                uses: row.get("uses"),
            })
            .collect(),
    };
    if shape.runs_as_authors() && shape.column("state").is_some() {
        let users = client.query(&queue.fill(statement::LIST_WAITING_USERS), &[]).await.map_err(db_error)?;
        shape.waiting_users = users.iter().map(|row| row.get("name")).collect();
    }
    Ok(shape)
}
