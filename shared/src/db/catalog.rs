//! The catalog `mill`: its text, put together from parts, one per subject, in the order in which they build on each other.
//!
//! Whoever installs it runs the whole text in one transaction. Every part is a file of plain statements; placeholders
//! stand for what all programs must agree on (lock keys), so that it is written down once. `install_text` is the whole
//! installation, the first task table included, as one transaction: what `launcher install` runs and prints.

use super::db_error::DbError;
use super::identifier::literal;
use super::statement::{self, Queue};
use super::{identifier, lock_key};
use crate::config::ColumnDefaults;
use crate::limits::{CATALOG_PIECE_BYTES, LOCK_TIMEOUT};
use tokio_postgres::{Client, Row};

macro_rules! part {
    ($name:literal) => {
        ($name, include_str!(concat!("../../sql/catalog/parts/", $name, ".sql")))
    };
}

/// Each part uses only what it or an earlier one defines.
const PARTS: &[(&str, &str)] = &[
    part!("schema"),
    part!("check"),
    part!("calendar"),
    part!("queue"),
    part!("job"),
    part!("run"),
    part!("job_state"),
    part!("graph"),
    part!("token"),
    part!("order"),
    part!("activation"),
    part!("run_report"),
    part!("job_change"),
    part!("graph_change"),
    part!("graph_check"),
    part!("idle_run"),
    part!("timer"),
    part!("stash"),
    part!("keeper"),
    part!("poll"),
    part!("entry_point"),
    part!("registration"),
    part!("job_function"),
    part!("job_view"),
    part!("command"),
    part!("command_function"),
    part!("document"),
    part!("graph_view"),
    part!("why"),
    part!("fsck"),
    part!("message"),
    part!("rights"),
    part!("uninstall"),
    #[cfg(feature = "next")]
    part!("next/novelty"),
];
const INSTALL_TASK: &str = include_str!("../../sql/catalog/install_task.sql");

/// Nothing in the schemas is for any role but the owner, whatever default privileges the database has.
const CLOSING: &str = "SELECT mill_private.revoke_all();";

/// The last word of an installation and the first of an upgrade: whoever runs here waits for this transaction's end.
pub const RESTART: &str = "SELECT mill.restart();\n";

/// What there is of a catalog, from system catalogs alone, and whether it may be used: for a queue, or by a command.
pub async fn read(client: &Client, queue: Option<&Queue>) -> Result<Row, tokio_postgres::Error> {
    let (schema, table) = (queue.map(|queue| queue.schema.as_str()), queue.map(|queue| queue.table.as_str()));
    client.query_one(&statement::bare(statement::READ_CATALOG), &[&schema, &table]).await
}

/// The same for a command that is about to call functions of the catalog: they run with the rights of its login, so a catalog of
/// a role that the login does not trust is refused. Above all a superuser uses no catalog of a role that is none.
pub async fn read_trusted(client: &Client) -> Result<Row, DbError> {
    let found = read(client, None).await.map_err(|error| DbError::of(&error))?;
    if found.get::<_, bool>("there") && !found.get::<_, bool>("trusted") {
        let (owner, me) = (identifier::quoted(found.get("owner")), identifier::quoted(found.get("me")));
        return Err(DbError::standing(format!(
            "the catalog mill belongs to {owner}, who could run anything with the rights of {me}; log in as {owner}"
        )));
    }
    Ok(found)
}

/// The statements that make the catalog of this version.
pub fn text(version: &str) -> String {
    let parts: Vec<String> = PARTS.iter().map(|(_, part)| fill(part, version)).collect();
    format!("{}\n{CLOSING}", parts.join("\n"))
}

/// The same in pieces of whole statements, for the one transaction that `alone` begins: a session keeps room for the longest
/// message that it has ever sent, and so does every process that is forked meanwhile.
pub fn pieces(version: &str) -> Vec<String> {
    cut(&text(version))
}

/// The same for an owner who may not create in the database: this session makes the schemas for it and goes on in its name.
pub fn pieces_for(version: &str, owner: &str) -> Vec<String> {
    let owner = identifier::quoted(owner);
    let made =
        |schema: &str| format!("RESET ROLE;\nCREATE SCHEMA {schema} AUTHORIZATION {owner};\nSET LOCAL ROLE {owner};");
    let text = ["mill", "mill_private"]
        .into_iter()
        .fold(text(version), |text, schema| text.replacen(&format!("CREATE SCHEMA {schema};"), &made(schema), 1));
    cut(&text)
}

fn cut(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut in_body = false;
    for line in text.lines() {
        in_body ^= line.matches("$function$").count() % 2 == 1;
        if let Some(piece) = pieces.last_mut() {
            piece.push_str(line);
            piece.push('\n');
            if !in_body && line.ends_with(';') && piece.len() >= CATALOG_PIECE_BYTES {
                pieces.push(String::new());
            }
        }
    }
    pieces
}

/// A statement of the catalog with what all programs agree on in it.
pub(super) fn filled(statement: &str) -> String {
    fill(statement, crate::VERSION)
}

fn fill(part: &str, version: &str) -> String {
    let names = [
        ("version", literal(version)),
        ("leader_key", lock_key::LEADER.to_string()),
        ("queue_key", lock_key::QUEUE.to_string()),
        ("task_key", lock_key::TASK.to_string()),
        ("wakeup_key", lock_key::WAKE_UP.to_string()),
        ("flow_key", lock_key::FLOW.to_string()),
        ("graph_key", lock_key::GRAPH.to_string()),
        ("cancelled_text", literal(statement::CANCELLED)),
        ("install_key", lock_key::INSTALL.to_string()),
        ("no_slot_key", lock_key::NO_SLOT.to_string()),
        ("run_reached_key", lock_key::RUN_REACHED.to_string()),
        ("limit_zero_key", lock_key::LIMIT_ZERO.to_string()),
        ("no_connection_key", lock_key::NO_CONNECTION.to_string()),
        ("unknown_key", lock_key::UNKNOWN.to_string()),
        ("start_key", lock_key::MESSAGE_START.to_string()),
        ("stop_key", lock_key::MESSAGE_STOP.to_string()),
        ("restart_key", lock_key::MESSAGE_RESTART.to_string()),
        ("true_key", lock_key::ANSWER_TRUE.to_string()),
        ("false_key", lock_key::ANSWER_FALSE.to_string()),
        ("refused_key", lock_key::ANSWER_REFUSED.to_string()),
    ];
    statement::fill(part, &names)
}

/// The beginning of every transaction that makes or changes our objects: one session at a time, and nobody queues behind
/// one that waits.
pub fn alone() -> String {
    // Only such sessions wait here, and one of them may be waiting for a launcher's answer.
    format!(
        "BEGIN; SET LOCAL lock_timeout = '15s'; SELECT pg_catalog.pg_advisory_xact_lock({}, 0); \
         SET LOCAL lock_timeout = '{LOCK_TIMEOUT}';",
        lock_key::INSTALL
    )
}

/// The statement that makes the first task table, owned by whoever runs it.
pub fn task_text() -> String {
    let queue = first_queue();
    let names =
        [("make_state", queue.fill(statement::MAKE_STATE)), ("make_task", format!("\n{}\n", table_text(&queue)))];
    statement::fill(INSTALL_TASK, &names)
}

/// The statements that make any task table; its schema has the type `state` already.
pub fn table_text(queue: &Queue) -> String {
    let make = [
        format!("{};", queue.fill_make_table(&ColumnDefaults::default())),
        queue.fill(statement::MAKE_INDEXES),
        queue.fill_make_guarded(),
        queue.fill(statement::COMMENT_TABLE),
    ];
    make.join("\n")
}

/// Makes the first task table known; run by a role that may serve it.
pub const REGISTER_TASK: &str = "SELECT mill_private.s_register('public.task'::pg_catalog.regclass);\n";

/// The row triggers of jobs on the first task table, for the role that runs the text.
fn run_triggers_text() -> String {
    let (table, user) = ("@TABLE@", "@USER@");
    format!(
        "DO $run_triggers$\nBEGIN\n    EXECUTE replace(replace($statements${}$statements$, '{table}', \
         'public.task'::pg_catalog.regclass::oid::text), '{user}', (SELECT r.oid::text FROM pg_catalog.pg_roles r \
         WHERE r.rolname = current_user));\nEND\n$run_triggers$;",
        first_queue().fill_run_triggers(table, user)
    )
}

/// The whole installation as one transaction, to be run by hand.
pub fn install_text(version: &str) -> String {
    let head = "-- pgmill: the catalog mill and the task table public.task, in one transaction. Run it in the database\n\
                -- concerned, as the role that is to own them: psql -d DATABASE -f THIS_FILE";
    let (catalog, task, triggers) = (text(version), task_text(), run_triggers_text());
    format!("{head}\n{}\n{catalog}\n{task}\n{REGISTER_TASK}{triggers}\n{RESTART}COMMIT;", alone())
}

/// What the owner of the catalog has to run for a queue's user that may not use it.
pub fn admission_advice(user: &str) -> String {
    format!("SELECT mill.admit({})", literal(user))
}

/// Lets a queue's user in. Where the role that does so owns the catalog and serves no queue, and no other user keeps timers and
/// tokens, this one does, or nothing would. The catalog of a queue's user is kept by its own scheduler. A user that keeps them
/// already goes on with it.
pub fn admission(user: &str) -> String {
    let user = literal(user);
    format!(
        "SELECT mill.admit({user}, keeps => EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'mill_private'::pg_catalog.regnamespace \
         AND p.proname = 's_watch_graph' AND (EXISTS (SELECT FROM pg_catalog.aclexplode(p.proacl) a \
         WHERE a.grantee <> p.proowner AND pg_catalog.pg_get_userbyid(a.grantee) = {user}) \
         OR pg_catalog.pg_get_userbyid(p.proowner) = current_user \
         AND NOT EXISTS (SELECT FROM mill.queue q WHERE COALESCE(q.\"user\", q.owner) = current_user) \
         AND NOT EXISTS (SELECT FROM pg_catalog.aclexplode(p.proacl) a WHERE a.grantee <> p.proowner))))"
    )
}

/// What the queue's user has to run to agree to the catalog of another role.
pub fn consent_advice(queue: &Queue, owner: &str) -> String {
    let (table, owner) = (identifier::qualified(&queue.schema, &queue.table), identifier::quoted(owner));
    format!("GRANT INSERT ON {table} TO {owner}")
}

/// What somebody has to run so that a queue's user may make the catalog itself.
pub fn installation_advice(database: &str, user: &str) -> String {
    format!("GRANT CREATE ON DATABASE {} TO {}", identifier::quoted(database), identifier::quoted(user))
}

fn first_queue() -> Queue {
    Queue { schema: "public".to_owned(), table: "task".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [&str; 5] = ["FUNCTION", "TABLE", "VIEW", "SEQUENCE", "TYPE"];

    /// The code of a part without comments and, as far as they end in the same line, texts.
    fn code(part: &str) -> String {
        let bare = |line: &str| {
            let line = line.split("--").next().unwrap_or_default();
            line.split('\'').step_by(2).collect::<Vec<_>>().join(" ")
        };
        part.lines().map(bare).collect::<Vec<_>>().join("\n")
    }

    /// The names in the schemas of the catalog that a text mentions, each with the two words before it.
    fn mentioned(text: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for schema in ["mill.", "mill_private."] {
            for (at, _) in text.match_indices(schema) {
                let (before, name) = (&text[..at], &text[at + schema.len()..]);
                if before.ends_with(|last: char| last.is_alphanumeric() || "_.".contains(last)) {
                    continue;
                }
                let name: String = name.chars().take_while(|next| next.is_alphanumeric() || *next == '_').collect();
                let words: Vec<&str> = before.split_whitespace().rev().take(2).collect();
                found.push((words.into_iter().rev().collect::<Vec<_>>().join(" "), format!("{schema}{name}")));
            }
        }
        found
    }

    #[test]
    fn each_part_uses_what_it_or_an_earlier_one_defines_and_replaces_nothing() {
        let mut defined: Vec<(String, String)> = Vec::new();
        for (title, part) in PARTS {
            assert!(!part.contains("OR REPLACE"), "{title}");
            let mentions = mentioned(&code(part));
            let made: Vec<_> = mentions
                .iter()
                .filter(|(words, _)| KINDS.iter().any(|kind| *words == format!("CREATE {kind}")))
                .cloned()
                .collect();
            let twice: Vec<_> = made.iter().filter(|one| defined.contains(one)).collect();
            assert!(twice.is_empty(), "{title}: {twice:?}");
            defined.extend(made);
            let unknown: Vec<_> =
                mentions.iter().filter(|(_, name)| !defined.iter().any(|(_, known)| known == name)).collect();
            assert!(unknown.is_empty(), "{title}: {unknown:?}");
        }
        assert!(defined.len() > 150, "{}", defined.len());
    }

    #[test]
    fn the_readme_lists_the_parts_in_their_order() {
        let readme = include_str!("../../sql/catalog/README.md");
        let listed: Vec<&str> = readme
            .lines()
            .filter_map(|line| line.strip_prefix("| `").and_then(|rest| rest.split_once('`')))
            .map(|(name, _)| name)
            .collect();
        let parts: Vec<&str> = PARTS.iter().map(|(name, _)| *name).filter(|name| !name.starts_with("next/")).collect();
        assert_eq!(listed, parts);
    }

    #[test]
    fn no_part_keeps_a_placeholder_once_it_is_filled() {
        let text = install_text("1.2.3");
        let left: Vec<&str> = text.lines().filter(|line| line.contains("_key}") || line.contains("{make")).collect();
        assert!(left.is_empty() && text.contains("'1.2.3'"), "{left:?}");
    }

    #[test]
    fn the_schemas_of_another_owner_are_made_for_it_and_nothing_else_is() {
        let text = pieces_for("1.2.3", "a b").concat();
        assert_eq!(text.matches("AUTHORIZATION \"a b\";\nSET LOCAL ROLE \"a b\";").count(), 2);
        let plain = text
            .replace("RESET ROLE;\n", "")
            .replace("\nSET LOCAL ROLE \"a b\";", "")
            .replace(" AUTHORIZATION \"a b\"", "");
        assert_eq!(plain, pieces("1.2.3").concat());
    }

    #[test]
    fn the_pieces_are_the_whole_and_none_of_them_cuts_a_function() {
        let pieces = pieces("1.2.3");
        assert_eq!(pieces.concat().trim_end(), text("1.2.3").trim_end());
        for piece in &pieces {
            // whatever a body is quoted by
            let tags =
                piece.split('$').filter(|tag| !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_lowercase()));
            for tag in tags.map(|tag| format!("${tag}$")) {
                assert_eq!(piece.matches(&tag).count() % 2, 0, "{tag} in {piece}");
            }
            assert!(piece.len() < 16 * 1024, "{}", piece.len());
        }
    }
}
