//! Everything that a person may call of the catalog, called: each function that he may execute with arguments that make
//! sense, each table and view that he may read, each change of jobs, flows and edges. After each of them his session must be
//! as it was before.

use postgres::error::SqlState;
use postgres::{Client, Row, SimpleQueryMessage};

use crate::trap_stage::Stage;

/// How long one call may take.
const CALL_TIMEOUT: &str = "2s";

/// What a sweep has come to.
#[derive(Debug, Default)]
pub struct Swept {
    pub faults: Vec<String>,
    pub done: usize,
    pub refused: Vec<String>,
}

/// These end the launcher's work, keep a lock of the session, or take the catalog away.
const LEFT_OUT: &[&str] = &[
    "start",
    "stop",
    "restart",
    "send_message",
    "lock_message",
    "wait_for_answer",
    "pre_restore",
    "post_restore",
    "s_watch_graph",
    "uninstall",
    "delete_job",
    // steps of others, by which the owner of a catalog breaks it: rights and numbers of jobs are gone afterwards
    "revoke_all",
    "set_function_rights",
    "run_grant",
    "grant_levels",
    "revoke_levels",
    "make_entry_points",
    "forget_job",
];

/// Arguments of the functions for people; what is not here gets arguments by their names and types.
const CALLS: &[(&str, &[&str])] = &[
    ("why", &["1::bigint, 'evil.task'", "2::bigint, 'evil.task'", "'spy'", "'spy', now()", "'members', now()", "'1'"]),
    ("fsck", &[""]),
    (
        "run_job",
        &["(SELECT min(id) FROM mill.job WHERE name = 'spy')", "(SELECT min(id) FROM mill.job WHERE name = 'members')"],
    ),
    ("run", &["'spy', date_trunc('day', now())", "'members', now()"]),
    (
        "rerun",
        &[
            "'spy', date_trunc('day', now()), 'only'",
            "'spy', date_trunc('day', now()), 'down'",
            "'spy', date_trunc('day', now()), 'failed'",
        ],
    ),
    ("clear", &["'f', date_trunc('day', now())"]),
    ("cancel", &["'spy'", "'members'", "flow => 'f'"]),
    ("skip", &["'spy', date_trunc('hour', now())"]),
    ("mark", &["'spy', date_trunc('hour', now()), 'failure'", "'spy', date_trunc('day', now()), 'success'"]),
    ("fire", &["'clock'"]),
    ("pause", &["job => 'spy'", "flow => 'f'", "job => 'members'"]),
    ("resume", &["job => 'spy'", "flow => 'f'", "job => 'members'"]),
    (
        "alter_job",
        &[
            "(SELECT min(id) FROM mill.job WHERE name = 'spy'), scheduled => false",
            "(SELECT min(id) FROM mill.job WHERE name = 'spy'), scheduled => true",
            "(SELECT min(id) FROM mill.job WHERE name = 'often'), next_start => now()",
            "(SELECT min(id) FROM mill.job WHERE name = 'members'), max_retries => 3, next_start => now()",
        ],
    ),
    ("set_next_start", &["(SELECT min(id) FROM mill.job WHERE name = 'often'), now()"]),
    ("picture", &["'f'", "'f', date_trunc('day', now())"]),
    ("export", &["'f'"]),
    ("grant", &["current_user, 'use'"]),
    ("revoke", &["'nobody'"]),
    ("admit", &["current_user"]),
];

/// Changes by plain SQL. They leave flows and jobs going.
const CHANGES: &[&str] = &[
    "UPDATE mill.job SET scheduled = false WHERE name IN ('spy', 'members', 'often')",
    "UPDATE mill.job SET scheduled = true WHERE name IN ('spy', 'members', 'often')",
    "UPDATE mill.job SET queue = 'public.task' WHERE name = 'members'",
    "UPDATE mill.job SET queue = 'evil.task' WHERE name = 'members'",
    "UPDATE mill.job SET priority = priority + 1 WHERE queue = 'evil.task'",
    "INSERT INTO mill.job (name, input, queue, schedule_interval) VALUES ('doomed', 'SELECT 1', 'evil.task', '1 day')",
    "SELECT mill.run_job((SELECT id FROM mill.job WHERE name = 'doomed'))",
    "INSERT INTO mill.edge (job, from_job, \"on\") VALUES ('spy', 'home', 'done')",
    "UPDATE mill.edge SET \"on\" = 'failure' WHERE job = 'spy' AND \"on\" = 'done'",
    "DELETE FROM mill.edge WHERE job = 'spy' AND \"on\" = 'failure'",
    "INSERT INTO mill.backfill (timer, lo, hi) VALUES ('clock', '2026-01-01', '2026-01-03')",
    "UPDATE mill.flow SET paused = true WHERE name = 'f'",
    "UPDATE mill.flow SET parallel = 1 WHERE name = 'f'",
    "UPDATE mill.flow SET parallel = 8, paused = false WHERE name = 'f'",
    "INSERT INTO mill.command (action, job) VALUES ('cancel', 'doomed')",
    "SELECT mill.delete_job((SELECT id FROM mill.job WHERE name = 'doomed'))",
];

/// What a session is, so that a change of it can be seen. No prepared statement of the driver is in between.
const SESSION: &str = "SELECT pg_catalog.concat_ws(' ', 'user', current_user, 'login', session_user, 'temporary', (
        SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c WHERE c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()),
    'prepared', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_statements), 'cursors', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_cursors),
    'set', (SELECT pg_catalog.string_agg(pg_catalog.concat(s.name, '=', s.setting), ',') FROM pg_catalog.pg_settings s
             WHERE s.source OPERATOR(pg_catalog.=) 'session'))";

fn cell(client: &mut Client, sql: &str) -> Result<String, postgres::Error> {
    let messages = client.simple_query(sql)?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(row.unwrap_or_default().to_owned())
}

/// A role whose session is watched.
struct Watched<'s> {
    stage: &'s Stage,
    role: &'s str,
    client: Client,
    before: String,
    swept: Swept,
    /// Calls that somebody's code kept until they timed out.
    kept: usize,
}

/// After so many of them no more is called: it would take minutes, and the verdict is known.
const ENOUGH: usize = 10;

impl<'s> Watched<'s> {
    fn open(stage: &'s Stage, role: &'s str) -> Watched<'s> {
        let (client, before) = session(stage, role);
        Watched { stage, role, client, before, swept: Swept::default(), kept: 0 }
    }

    fn call(&mut self, sql: &str) {
        if self.kept >= ENOUGH {
            return;
        }
        match self.client.simple_query(sql) {
            Ok(_) => self.swept.done += 1,
            Err(error) => {
                let said = error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned());
                if error.code() == Some(&SqlState::QUERY_CANCELED) {
                    self.kept += 1;
                    if self.kept == ENOUGH {
                        self.swept
                            .faults
                            .push(format!("calls of {} take longer than {CALL_TIMEOUT}: {sql}", self.role));
                    }
                }
                self.swept.refused.push(format!("{sql}: {said}"));
            }
        }
        let after = cell(&mut self.client, SESSION).unwrap_or_else(|error| error.to_string());
        if after != self.before {
            self.swept.faults.push(format!("the session of {} became \"{after}\" by {sql}", self.role));
            (self.client, self.before) = session(self.stage, self.role);
        }
    }
}

fn session(stage: &Stage, role: &str) -> (Client, String) {
    let mut client = stage.session(role);
    client.batch_execute(&format!("SET statement_timeout = '{CALL_TIMEOUT}'")).expect("SET");
    let before = cell(&mut client, SESSION).expect("a fresh session");
    (client, before)
}

/// Calls as `role` whatever `like` may call: the functions for people, if that is somebody who only may use the catalog.
pub fn sweep(stage: &Stage, role: &str, like: &str) -> Swept {
    let mut watched = Watched::open(stage, role);
    let functions = stage.database.look(
        "SELECT n.nspname::text, p.proname::text, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS u (t, o) ORDER BY o), \
                coalesce(p.proargnames, '{}')::text[] \
           FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
          WHERE n.nspname IN ('mill', 'mill_private') AND p.prokind = 'f' AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype) \
            AND has_schema_privilege($1, n.oid, 'USAGE') AND has_function_privilege($1, p.oid, 'EXECUTE') ORDER BY 2, 3",
        &[&like],
    );
    let mut known: Vec<String> = Vec::new();
    for function in functions.expect("functions") {
        let (schema, name): (String, String) = (function.get(0), function.get(1));
        // Whoever takes orders by the entry points of his own queue, and makes no rows of them, loses them.
        let own_entry = like == stage.database.owner() && is_entry_point(&name);
        if own_entry || LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        match CALLS.iter().find(|(one, _)| *one == name && schema == "mill") {
            Some((_, calls)) if !known.contains(&name) => {
                calls.iter().for_each(|arguments| watched.call(&format!("SELECT * FROM mill.{name}({arguments})")));
                known.push(name);
            }
            Some(_) => {}
            None => watched.call(&format!("SELECT * FROM {schema}.{name}({})", arguments(&function))),
        }
    }
    let relations = stage.database.look(
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
          WHERE n.nspname IN ('mill', 'mill_private') AND c.relkind IN ('r', 'v', 'p', 'm') \
            AND has_schema_privilege($1, n.oid, 'USAGE') AND has_table_privilege($1, c.oid, 'SELECT') ORDER BY 1",
        &[&like],
    );
    for relation in relations.expect("relations") {
        let name: String = relation.get(0);
        watched.call(&format!("SELECT * FROM {name}"));
        watched.call(&format!("EXPLAIN SELECT * FROM {name}"));
    }
    CHANGES.iter().for_each(|change| watched.call(change));
    watched.swept
}

/// q<oid>_..
fn is_entry_point(name: &str) -> bool {
    name.strip_prefix('q').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn arguments(function: &Row) -> String {
    let (types, names): (Vec<String>, Vec<String>) = (function.get(2), function.get(3));
    let values = types.iter().enumerate().map(|(place, kind)| value(kind, names.get(place).map_or("", String::as_str)));
    values.collect::<Vec<_>>().join(", ")
}

/// A value that makes sense by the name and the type of an argument.
pub fn value(kind: &str, name: &str) -> String {
    if let Some(element) = kind.strip_suffix("[]") {
        return format!("ARRAY[{}]::{kind}", value(element, name));
    }
    match (kind, name) {
        ("integer", name) if name.contains("job") => "(SELECT min(j.id) FROM mill.job j WHERE j.name = 'spy')".into(),
        ("integer" | "smallint", _) => "1".into(),
        ("bigint", _) => "1::bigint".into(),
        ("double precision" | "numeric" | "real", _) => "1".into(),
        ("oid" | "regclass", _) => format!("'evil.task'::regclass::{kind}"),
        ("boolean", _) => "true".into(),
        ("timestamp with time zone", _) => "now()".into(),
        ("interval", _) => "interval '1 second'".into(),
        ("jsonb" | "json", _) => format!("'{{}}'::{kind}"),
        ("name" | "text", "schema") => "'evil'".into(),
        ("name" | "text", "name" | "table") => "'task'".into(),
        ("name" | "text", "owner" | "role") => "current_user".into(),
        ("name" | "text", "flow") => "'f'".into(),
        ("name" | "text", "timer") => "'clock'".into(),
        ("name" | "text", "queue" | "relation" | "place") => "'evil.task'".into(),
        ("name" | "text", _) => "'spy'".into(),
        ("mill.job", _) => "(SELECT x FROM mill.job x WHERE x.name = 'spy')".into(),
        ("mill.queue", _) => "(SELECT x FROM mill.queue x WHERE x.schema = 'evil')".into(),
        (kind, _) if kind.starts_with("mill.") => format!("(SELECT x FROM {kind} x LIMIT 1)"),
        (kind, _) => format!("NULL::{kind}"),
    }
}
