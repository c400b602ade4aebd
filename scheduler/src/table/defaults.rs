//! Column defaults that follow the config. PURE, but for the one function that asks and alters.
//!
//! A default of ours reads a `pg_task.*` setting and falls back to the config's value at the time the table was made.
//! When the config says something else now, that default is set anew; a default that is not one of ours is its
//! owner's and is never touched. When nothing differs there is no DDL.

use crate::table::lock_holder::holder;
use shared::config::ColumnDefaults;
use shared::db::db_error::DbError;
use shared::db::identifier::{literal, quoted};
use shared::db::statement::{self, Queue};
use shared::db::task_column::column_defaults;
use tokio_postgres::Client;

const LOCK_TIMEOUT: &str = "2s";

/// False: the table is locked, and they must wait.
pub async fn align(client: &Client, queue: &Queue, wanted: &ColumnDefaults) -> Result<bool, DbError> {
    let db_error = |error: tokio_postgres::Error| DbError::of(&error);
    let rows = client.query(&queue.fill(statement::LIST_DEFAULTS), &[]).await.map_err(db_error)?;
    let found: Vec<(String, String)> = rows.iter().map(|row| (row.get("name"), row.get("expression"))).collect();
    let changes = changes(&found, &column_defaults(wanted));
    if changes.is_empty() {
        return Ok(true);
    }
    let relid = client.query_one(&queue.fill("SELECT {queue_text}::pg_catalog.regclass::oid AS relid"), &[]).await;
    if holder(client, relid.map_err(db_error)?.get("relid"), true).await?.is_some() {
        return Ok(false);
    }
    let text: Vec<String> = changes
        .iter()
        .map(|change| format!("ALTER COLUMN {} SET DEFAULT {}", quoted(&change.column), change.expression))
        .collect();
    // One message is one transaction: nothing else of this session comes in between, and an error leaves none open.
    let script =
        format!("SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; ALTER TABLE {} {}", queue.fill("{queue}"), text.join(", "));
    if let Err(error) = client.batch_execute(&script).await {
        let db_error = DbError::of(&error);
        if db_error.passes() {
            return Err(db_error);
        }
        shared::warning!("cannot change column defaults yet", table = queue.fill("{queue}"), error = db_error);
        return Ok(false);
    }
    let columns: Vec<&str> = changes.iter().map(|change| change.column.as_str()).collect();
    shared::info!("column defaults changed", table = queue.fill("{queue}"), columns = columns.join(", "));
    Ok(true)
}

#[derive(Debug, PartialEq, Eq)]
struct DefaultChange {
    column: String,
    expression: String,
}

/// The columns whose default is ours and falls back to another value than is wanted now.
fn changes(found: &[(String, String)], wanted: &[(&'static str, String)]) -> Vec<DefaultChange> {
    let ours = found.iter().filter_map(|(column, expression)| {
        let (_, value) = wanted.iter().find(|(name, _)| name == column)?;
        let (fallback, cast) = fallback(column, expression)?;
        (fallback != *value).then(|| DefaultChange {
            column: column.clone(),
            expression: format!(
                "COALESCE(NULLIF(current_setting('pg_task.{column}', true), ''), {}){cast}",
                literal(value)
            ),
        })
    });
    ours.collect()
}

/// The value that a default of ours falls back to, and the cast behind it; None for any other default. The server
/// spells ours as `(COALESCE(NULLIF(current_setting('pg_task.max'::text, true), ''::text), '0'::text))::integer`.
fn fallback<'a>(column: &str, expression: &'a str) -> Option<(String, &'a str)> {
    let start = format!("COALESCE(NULLIF(current_setting('pg_task.{column}'::text, true), ''::text), ");
    let rest = expression.strip_prefix('(').unwrap_or(expression).strip_prefix(&start)?;
    let (value, rest) = read_literal(rest)?;
    let rest = rest.strip_prefix("::text)")?;
    let cast = if expression.starts_with('(') { rest.strip_prefix(')')? } else { rest };
    (cast.is_empty() || cast.starts_with("::")).then_some((value, cast))
}

/// A literal as pg_get_expr writes it: '..' with doubled quotes, or E'..' with doubled backslashes too.
fn read_literal(text: &str) -> Option<(String, &str)> {
    let (body, escaped) = match text.strip_prefix("E'") {
        Some(body) => (body, true),
        None => (text.strip_prefix('\'')?, false),
    };
    let mut value = String::new();
    let mut characters = body.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\'' if body[at + 1..].starts_with('\'') => {
                characters.next();
                value.push('\'');
            }
            '\'' => return Some((value, &body[at + 1..])),
            '\\' if escaped => value.push(characters.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(column: &str, expression: &str) -> Vec<(String, String)> {
        vec![(column.to_owned(), expression.to_owned())]
    }

    #[test]
    fn a_default_of_ours_with_another_value_is_changed() {
        let now = found(
            "max",
            "(COALESCE(NULLIF(current_setting('pg_task.max'::text, true), ''::text), '0'::text))::integer",
        );
        let wanted = [("max", "3".to_owned())];
        let expression = "COALESCE(NULLIF(current_setting('pg_task.max', true), ''), '3')::integer".to_owned();
        assert_eq!(changes(&now, &wanted), [DefaultChange { column: "max".into(), expression }]);
        assert_eq!(changes(&now, &[("max", "0".to_owned())]), []);
    }

    #[test]
    fn a_default_that_is_not_ours_is_left_alone() {
        for expression in [
            "7",
            "my_default()",
            "(COALESCE(NULLIF(current_setting('other.max'::text, true), ''::text), '0'::text))::integer",
        ] {
            assert_eq!(changes(&found("max", expression), &[("max", "3".to_owned())]), []);
        }
    }

    #[test]
    fn quotes_and_backslashes_of_a_literal_are_read_as_the_server_writes_them() {
        let null = r"COALESCE(NULLIF(current_setting('pg_task.null'::text, true), ''::text), '\N'::text)";
        assert_eq!(fallback("null", null), Some((r"\N".to_owned(), "")));
        let escaped = r"COALESCE(NULLIF(current_setting('pg_task.null'::text, true), ''::text), E'it''s \\'::text)";
        assert_eq!(fallback("null", escaped), Some((r"it's \".to_owned(), "")));
    }
}
