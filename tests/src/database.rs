//! A database for one test, with the roles that a careful operator would give us: a row
//! user that owns the database and nothing else, and a login for the launcher that is
//! a member of it. Neither is a superuser.
//!
//! Looking is done by the superuser, over one session that is opened again when the
//! server was restarted. Made by `Cluster::database`; dropped with all its sessions.

use std::sync::{Mutex, PoisonError};

use postgres::error::SqlState;
use postgres::types::ToSql;
use postgres::{Client, Row};
use serde_json::Value;

use crate::cluster::{SUPERUSER, Server};

/// A session of ours as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub pid: i32,
    pub user: String,
    pub application_name: String,
    pub state: String,
}

#[derive(Debug)]
pub struct Database {
    server: Server,
    name: String,
    owner: String,
    login: String,
    observer: Mutex<Observer>,
    /// Dropped at the end; a copy on another server is not.
    made: bool,
}

/// The superuser's session, or none yet.
#[derive(Default)]
struct Observer(Option<Client>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Observer({})", self.0.is_some())
    }
}

impl Database {
    pub(crate) fn make(server: &Server, name: &str, owner: &str) -> Database {
        let login = format!("{owner}_mill");
        let mut client = server.connect("postgres");
        for statement in [
            format!("CREATE ROLE {} LOGIN", quote_ident(owner)),
            format!("CREATE ROLE {} LOGIN", quote_ident(&login)),
            format!("GRANT {} TO {}", quote_ident(owner), quote_ident(&login)),
            format!("CREATE DATABASE {} OWNER {}", quote_ident(name), quote_ident(owner)),
        ] {
            client.batch_execute(&statement).unwrap_or_else(|error| panic!("{statement}: {}", tell(&error)));
        }
        Database {
            server: server.clone(),
            name: name.to_owned(),
            owner: owner.to_owned(),
            login,
            observer: Mutex::default(),
            made: true,
        }
    }

    /// The same database on another server, which has it from a base backup.
    pub fn on(&self, server: &Server) -> Database {
        Database {
            server: server.clone(),
            name: self.name.clone(),
            owner: self.owner.clone(),
            login: self.login.clone(),
            observer: Mutex::default(),
            made: false,
        }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queue's user.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The launcher's login.
    pub fn login(&self) -> &str {
        &self.login
    }

    /// Gives both roles a password, for logins over TCP.
    pub fn set_password(&self, password: &str) {
        let password = password.replace('\'', "''");
        for role in [&self.owner, &self.login] {
            self.run(&format!("ALTER ROLE {} PASSWORD '{password}'", quote_ident(role)));
        }
    }

    /// A new session of the queue's user.
    pub fn connect(&self) -> Client {
        self.server
            .try_connect(&self.owner, &self.name)
            .unwrap_or_else(|error| panic!("connect to {}: {}", self.name, tell(&error)))
    }

    /// A new session of the superuser.
    pub fn connect_superuser(&self) -> Client {
        self.server.connect(&self.name)
    }

    /// Runs statements as the superuser.
    #[track_caller]
    pub fn run(&self, sql: &str) {
        let mut client = self.connect_superuser();
        if let Err(error) = client.batch_execute(sql) {
            panic!("{sql}: {}", tell(&error));
        }
    }

    /// Inserts a task into public.task as the queue's user; gives its id.
    #[track_caller]
    pub fn insert(&self, input: &str) -> i64 {
        self.insert_with(input, "")
    }

    /// The same with more columns: `insert_with("SELECT 1", "max = 2, header = false")`.
    /// The list is SQL, split at commas: no commas inside a value.
    #[track_caller]
    pub fn insert_with(&self, input: &str, columns: &str) -> i64 {
        let pairs = columns.split(',').filter_map(|pair| pair.split_once('='));
        let (names, values): (Vec<_>, Vec<_>) = pairs.unzip();
        let names: String = names.iter().map(|name| format!(", {}", quote_ident(name.trim()))).collect();
        let values: String = values.iter().map(|value| format!(", {value}")).collect();
        let sql = format!("INSERT INTO public.task (input{names}) VALUES ($1{values}) RETURNING id");
        match self.connect().query_one(&sql, &[&input]) {
            Ok(row) => row.get(0),
            Err(error) => panic!("{sql}: {}", tell(&error)),
        }
    }

    /// One task of public.task as JSON, every column by its name; `None` if it is not
    /// there (deleted, no table yet) or the server is away.
    #[track_caller]
    pub fn task(&self, id: i64) -> Option<Value> {
        let rows = self.query("SELECT to_jsonb(t)::text FROM public.task t WHERE id = $1", &[&id])?;
        rows.first().map(to_json)
    }

    /// All tasks of public.task in order of id; empty as above.
    #[track_caller]
    pub fn tasks(&self) -> Vec<Value> {
        let rows = self.query("SELECT to_jsonb(t)::text FROM public.task t ORDER BY id", &[]);
        rows.unwrap_or_default().iter().map(to_json).collect()
    }

    /// The task, once its state is final.
    #[track_caller]
    pub fn finished(&self, id: i64) -> Option<Value> {
        let finals = ["DONE", "FAIL", "GONE"];
        self.task(id).filter(|row| row["state"].as_str().is_some_and(|state| finals.contains(&state)))
    }

    /// Our sessions on the server: all of the queue's user's and the launcher's, in any
    /// database, but those that tests opened.
    #[track_caller]
    pub fn sessions(&self) -> Vec<Session> {
        let sql = "SELECT pid, usename::text, application_name, coalesce(state, '') FROM pg_stat_activity \
                   WHERE usename::text IN ($1, $2) AND application_name <> 'tests' ORDER BY pid";
        let rows = self.query(sql, &[&self.owner, &self.login]).unwrap_or_default();
        rows.iter()
            .map(|row| Session { pid: row.get(0), user: row.get(1), application_name: row.get(2), state: row.get(3) })
            .collect()
    }

    /// A query of the superuser. `None` if the server or the table is not there (it may
    /// come: that is what waiting is for); any other error is the test's mistake.
    #[track_caller]
    pub fn query(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Option<Vec<Row>> {
        match self.try_query(sql, parameters) {
            Ok(rows) => Some(rows),
            Err(error) => match error.as_db_error() {
                None => None,
                Some(said) if is_passing(said.code()) => None,
                Some(_) => panic!("{sql}: {}", tell(&error)),
            },
        }
    }

    fn try_query(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, postgres::Error> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if observer.0.as_ref().is_none_or(Client::is_closed) {
            observer.0 = Some(self.server.try_connect(SUPERUSER, &self.name)?);
        }
        match observer.0.as_mut() {
            Some(client) => client.query(sql, parameters),
            None => unreachable!("just opened"),
        }
    }

    /// Closes the session that looks, for whoever wants to have the database for himself.
    pub fn leave(&self) {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner).0 = None;
    }

    /// Rows and sessions, for a message.
    pub fn describe(&self) -> String {
        let sql = "SELECT concat_ws(' ', id, state, 'group=' || \"group\", 'attempt=' || attempt, 'pid=' || pid, \
                   'plan=' || plan, 'start=' || start, 'stop=' || stop, 'input=' || left(input, 60), \
                   'output=' || left(output, 60), 'error=' || left(error, 200)) \
                   FROM public.task ORDER BY id DESC LIMIT 20";
        let rows = match self.try_query(sql, &[]) {
            Ok(rows) => rows.iter().map(|row| row.get(0)).collect::<Vec<String>>().join("\n"),
            Err(error) => format!("({})", tell(&error)),
        };
        format!(
            "-- tasks of {}, the last first\n{rows}\n-- sessions\n{}",
            self.name,
            match self.try_query(
                "SELECT concat_ws(' ', pid, usename, datname, application_name, state, wait_event, left(query, 80)) \
                FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
                &[]
            ) {
                Ok(rows) => rows.iter().map(|row| row.get(0)).collect::<Vec<String>>().join("\n"),
                Err(error) => format!("({})", tell(&error)),
            }
        )
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // a test may have stopped its cluster: then all goes with its folder
        self.observer.get_mut().unwrap_or_else(PoisonError::into_inner).0 = None;
        if !self.made {
            return;
        }
        let Ok(mut client) = self.server.try_connect(SUPERUSER, "postgres") else {
            return;
        };
        let name = quote_ident(&self.name);
        let _ = client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        for role in [&self.login, &self.owner] {
            let _ = client.batch_execute(&format!("DROP ROLE IF EXISTS {}", quote_ident(role)));
        }
    }
}

/// Errors that pass by themselves: the server is starting or stopping, or the table is not made yet.
fn is_passing(code: &SqlState) -> bool {
    code.code().starts_with("57P")
        || code.code().starts_with("08")
        || *code == SqlState::UNDEFINED_TABLE
        || *code == SqlState::INVALID_SCHEMA_NAME
}

fn to_json(row: &Row) -> Value {
    serde_json::from_str(row.get(0)).expect("to_jsonb gives JSON")
}

/// An identifier, quoted.
pub fn quote_ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The server's words, which the crate's Display leaves out.
fn tell(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} {}: {}", said.severity(), said.code().code(), said.message()),
        None => error.to_string(),
    }
}
