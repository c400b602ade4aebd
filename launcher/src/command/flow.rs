//! `launcher apply`, `export` and `graph`: a flow as one JSON document, in and out, and as a picture.
//!
//! The document goes to `mill.apply` in one transaction; it is checked there, with the place of every mistake.
//! The picture is `dot_text`'s; as SVG it is drawn by Graphviz, where that is installed.

use super::{login_in, print, print_error, read_config};
use crate::cli::ConfigPlace;
use crate::dot_text;
use crate::limits::INSTALL_TIMEOUT;
use serde_json::Value;
use shared::db::db_error::DbError;
use shared::db::{catalog, one_shot};
use shared::process::exit_code::launcher_status;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use tokio_postgres::Client;

/// The only database of the config, where none is named.
fn database_of(place: &ConfigPlace, named: Option<&str>) -> Result<String, u8> {
    if let Some(database) = named {
        return Ok(database.to_owned());
    }
    let mut databases: Vec<String> = match read_config(place) {
        Ok(config) => config.queues.into_iter().map(|queue| queue.data).filter(|data| data != "*").collect(),
        // Printed by `login_in`, which reads the config too.
        Err(_) => return Ok(String::new()),
    };
    databases.sort();
    databases.dedup();
    match <[String; 1]>::try_from(databases) {
        Ok([database]) => Ok(database),
        Err(databases) => {
            print_error(&format!(
                "cannot choose a database: the config has {}; name one with --database",
                databases.join(", ")
            ));
            Err(launcher_status::FAILED)
        }
    }
}

fn ask(place: &ConfigPlace, named: Option<&str>, question: FlowRequest) -> Result<String, u8> {
    let database = database_of(place, named)?;
    let (_, target) = login_in(place, &database)?;
    one_shot::ask(&target, "pgmill flow", INSTALL_TIMEOUT, |client| put(client, question)).map_err(|db_error| {
        print_error(&format!("{database}: {db_error}"));
        launcher_status::FAILED
    })
}

/// A statement that answers with one text.
struct FlowRequest {
    text: &'static str,
    values: [Option<String>; 2],
}

async fn put(client: Rc<Client>, question: FlowRequest) -> Result<String, DbError> {
    catalog::read_trusted(&client).await?;
    // What is made belongs to the catalog's owner, not to the login that happened to carry it.
    let owner = "SELECT n.nspowner::pg_catalog.regrole::text FROM pg_catalog.pg_namespace n WHERE n.nspname = 'mill' \
                 AND pg_catalog.pg_has_role(n.nspowner, 'MEMBER')";
    let owner = client.query_opt(owner, &[]).await.map_err(|error| DbError::of(&error))?;
    if let Some(owner) = owner {
        let role = format!("SET ROLE {}", owner.get::<_, String>(0));
        client.batch_execute(&role).await.map_err(|error| DbError::of(&error))?;
    }
    let [first, second] = &question.values;
    let values: &[&(dyn tokio_postgres::types::ToSql + Sync)] =
        if question.text.contains("$2") { &[first, second] } else { &[first] };
    let row = client.query_one(question.text, values).await.map_err(|error| DbError::of(&error))?;
    Ok(row.get(0))
}

pub fn apply(place: &ConfigPlace, database: Option<&str>, file: &Path) -> u8 {
    let shown = file.display();
    let text = match if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    } {
        Ok(text) => text,
        Err(error) => {
            print_error(&format!("{shown}: cannot read the document: {error}"));
            return launcher_status::FAILED;
        }
    };
    if let Err(error) = serde_json::from_str::<Value>(&text) {
        print_error(&format!("{shown}: the document is not valid JSON: {error}"));
        return launcher_status::FAILED;
    }
    let question = FlowRequest { text: "SELECT mill.apply($1::text::jsonb)", values: [Some(text), None] };
    tell(ask(place, database, question))
}

pub fn export(place: &ConfigPlace, database: Option<&str>, flow: &str) -> u8 {
    let question = FlowRequest { text: "SELECT mill.export($1)::text", values: [Some(flow.to_owned()), None] };
    tell(ask(place, database, question).map(|text| match serde_json::from_str::<Value>(&text) {
        Ok(document) => serde_json::to_string_pretty(&document).unwrap_or(text),
        Err(_) => text,
    }))
}

pub fn graph(place: &ConfigPlace, database: Option<&str>, flow: &str, at: Option<&str>, svg: bool) -> u8 {
    let text = "SELECT mill.picture($1, $2::text::timestamptz)::text";
    let question = FlowRequest { text, values: [Some(flow.to_owned()), at.map(str::to_owned)] };
    let dot =
        ask(place, database, question).map(|text| dot_text::draw(&serde_json::from_str(&text).unwrap_or(Value::Null)));
    match dot {
        Ok(dot) if svg => tell(render(&dot).map_err(|why| {
            print_error(&why);
            launcher_status::FAILED
        })),
        other => tell(other),
    }
}

fn tell(answer: Result<String, u8>) -> u8 {
    match answer {
        Ok(text) => {
            print(text.trim_end());
            launcher_status::ORDERLY
        }
        Err(status) => status,
    }
}

/// By Graphviz.
fn render(dot: &str) -> Result<String, String> {
    let missing = "cannot draw the graph: the program dot of Graphviz";
    let mut child = Command::new("dot")
        .arg("-Tsvg")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{missing} does not start ({error}); install Graphviz, or omit --svg"))?;
    if let Some(mut input) = child.stdin.take() {
        // It reads all before it writes; if it dies, its status shows it.
        let _ = input.write_all(dot.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("{missing} cannot be read: {error}"))?;
    if !output.status.success() {
        return Err(format!("{missing} failed: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
