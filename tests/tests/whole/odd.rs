//! Bad input: rows that nobody should insert and configs that nobody should write. Each is
//! refused or fails with a reason, healthy tasks go on beside them, and nothing panics.

use std::time::{Duration, Instant};

use postgres::types::ToSql;
use serde_json::json;
use tests::{Cluster, Database, Supervisor, sized};

/// What a row may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    /// With these words in the error.
    Fail(&'static str),
    Gone,
    /// Its time never comes, or somebody must change something.
    Waits,
    /// The table itself says no, with these words.
    Refused(&'static str),
}

struct Odd {
    input: String,
    /// Columns and SQL expressions.
    columns: &'static str,
    end: End,
}

fn odd(input: impl Into<String>, columns: &'static str, end: End) -> Odd {
    Odd { input: input.into(), columns, end }
}

fn inputs() -> Vec<Odd> {
    use End::{Done, Fail};
    let many = |count: usize, text: &str| text.repeat(count);
    vec![
        odd("", "", Done),
        odd(" \t\n\u{c}\u{b}", "", Fail("syntax error")),
        odd(";;;;", "", Done),
        odd("-- nothing", "", Done),
        odd("/* /* nested */ */", "", Done),
        odd("/* never ends", "", Fail("unterminated /* comment")),
        odd("SELECT 'never ends", "", Fail("unterminated quoted string")),
        odd("SELECT $a$never ends$b$", "", Fail("unterminated dollar-quoted string")),
        odd("SELECT \"", "", Fail("unterminated quoted identifier")),
        odd("SELECT E'\\000'", "", Fail("invalid")),
        odd("SELECT E'\\xff'", "", Fail("invalid byte sequence")),
        odd("SELECT U&'\\D800'", "", Fail("invalid Unicode")),
        odd("SELECT '\\0', '\u{2400}', '\u{1}\u{1b}[2J\u{7f}'", "", Done),
        odd("\u{feff}SELECT 1", "", Fail("syntax error")),
        odd("SELECT '\u{202e}\u{1f4a9}'", "", Done),
        odd(many(50_000, "("), "", Fail("")),
        odd(format!("SELECT {}1{}", many(50_000, "("), many(50_000, ")")), "", Fail("")),
        odd(format!("SELECT {}", many(20_000, "1+") + "1"), "", Fail("stack depth limit exceeded")),
        odd(many(2_000, "SELECT 1;"), "", Done),
        odd(format!("SELECT {}1", many(1_663, "1,")), "", Done),
        odd(format!("SELECT {}1", many(1_664, "1,")), "", Fail("target lists can have at most 1664 entries")),
        odd(format!("SELECT 1 AS \"{}\"", many(1_000, "x")), "", Done),
        odd("SELECT 1/0", "", Fail("division by zero")),
        odd("SET ROLE nobody_at_all", "", Fail("does not exist")),
        odd("SET SESSION AUTHORIZATION postgres", "", Fail("permission denied")),
        odd("SET search_path = nowhere; SELECT * FROM task", "", Fail("does not exist")),
        odd("SET search_path = nowhere; SET default_transaction_read_only = on; SET statement_timeout = 1", "", Done),
        odd("BEGIN; SET TRANSACTION READ ONLY; SELECT 1", "", Done),
        odd("BEGIN; SELECT 1/0", "", Fail("division by zero")),
        odd("COMMIT; ROLLBACK; END; ABORT", "", Done),
        odd("COMMIT PREPARED 'nothing'", "", Fail("does not exist")),
        odd("PREPARE TRANSACTION 'x'", "", Done),
        odd("COPY pg_class FROM STDIN", "", Fail("")),
        odd("CREATE TEMP TABLE t (x int); COPY t FROM STDIN", "", Fail("COPY FROM STDIN is not supported")),
        odd("COPY (SELECT 1) TO PROGRAM 'true'", "", Fail("")),
        odd("COPY (SELECT 1) TO STDOUT (FORMAT binary)", "", Fail("")),
        odd("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(9)", "", Fail("user request")),
        odd("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(9)", "", Fail("FATAL:  terminating")),
        odd("DO $$ BEGIN LOOP NULL; END LOOP; END $$", "timeout = '200 ms'", Fail("statement timeout")),
        odd(
            "DO $$ BEGIN FOR n IN 1..3000 LOOP RAISE NOTICE E'forged\\n2026 info launcher[1] ready %', n; END LOOP; END $$",
            "",
            Done,
        ),
        odd("DO $$ BEGIN RAISE NOTICE '%', repeat('x', 2000000); END $$", "", Done),
        odd(
            "DO $$ BEGIN RAISE EXCEPTION USING MESSAGE = repeat('x', 2000000), DETAIL = E'a\\nb', HINT = '', ERRCODE = 'ZZZZZ'; END $$",
            "",
            Fail("xxx"),
        ),
        odd("SET client_encoding = 'LATIN1'; SELECT chr(233)", "", Done),
        odd("SET client_encoding = 'LATIN1'; SELECT chr(8364)", "", Fail("has no equivalent")),
        odd(
            "SET DateStyle = 'German'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = -15; SET bytea_output = escape",
            "repeat = '1 day'",
            Done,
        ),
        odd(
            "SET standard_conforming_strings = off; SET escape_string_warning = off; SELECT '\\''",
            "",
            Fail("unterminated quoted string"),
        ),
        odd("BEGIN; LOCK TABLE public.task IN ACCESS EXCLUSIVE MODE; COMMIT", "", Done),
        odd("DISCARD ALL; UNLISTEN *; DEALLOCATE ALL", "", Fail("")),
        odd("LISTEN x; NOTIFY x, 'y'; DECLARE c CURSOR WITH HOLD FOR SELECT 1", "", Done),
        odd("SELECT repeat('x', 3000000)", "", Fail("output exceeds output_limit of 2097152 bytes")),
        odd(
            "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 5000)) TO STDOUT",
            "",
            Fail("output exceeds output_limit"),
        ),
        odd(
            "SELECT NULL FROM generate_series(1, 100)",
            "null = repeat('n',100000)",
            Fail("output exceeds output_limit"),
        ),
    ]
}

fn columns() -> Vec<Odd> {
    use End::{Done, Fail, Gone, Refused, Waits};
    vec![
        odd("SELECT 1", "group = ''", Done),
        odd("SELECT 1", "group = E'\\n\\t\\x1b[31m%s%n\\\\'", Done),
        odd("SELECT 1", "group = repeat('g',1000000)", Done),
        odd("SELECT 1", "group = repeat('g',1000000), count = 5", Done),
        odd("SELECT 1", "data = repeat('d',1000000), repeat = '1 hour'", Done),
        odd("SELECT 1, 2", "delimiter = E'\\x01', quote = '\"', escape = '\"'", Done),
        odd("SELECT 'a', 'b'", "delimiter = 'é', header = false", Fail("invalid byte sequence")),
        odd("SELECT 'a', NULL", "quote = 'é', header = false", Fail("invalid byte sequence")),
        odd("SELECT 1", "plan = '294276-12-31 23:59:59'", Waits),
        odd("SELECT 1", "plan = 'infinity'", Waits),
        odd("SELECT 1", "plan = 'infinity', repeat = '1 day'", Waits),
        odd("SELECT 1", "plan = '-infinity'", Gone),
        odd("SELECT 1", "plan = '-infinity', repeat = '1 day'", Gone),
        odd("SELECT 1", "plan = '4713-01-01 BC', repeat = '1 microsecond'", Gone),
        odd("SELECT 1", "plan = '4713-01-01 BC', active = '178000000 years'", Done),
        odd("SELECT 1", "plan = '4713-01-01 BC', active = '178000000 years', repeat = '1 year'", Done),
        odd("SELECT 1", "active = '178000000 years', live = '178000000 years', timeout = '178000000 years'", Done),
        odd("SELECT 1", "active = '1 microsecond', live = '1 microsecond', timeout = '1 hour'", Gone),
        odd("SELECT pg_sleep(1)", "timeout = '1 microsecond'", Fail("statement timeout")),
        odd("SELECT 1", "repeat = '178000000 years'", Fail("timestamp out of range")),
        odd("SELECT 1", "repeat = '178000000 years', drift = true", Fail("timestamp out of range")),
        odd(
            "SELECT 1",
            "repeat = '293000 years', plan = now() - interval '10 seconds'",
            Fail("timestamp out of range"),
        ),
        odd("SELECT 1", "active = '-1 day'", Refused("violates check constraint")),
        odd("SELECT 1", "repeat = '-1 us'", Refused("violates check constraint")),
        odd("SELECT 1", "count = -1", Refused("violates check constraint")),
        odd("SELECT 1", "repeat = '200000000 years'", Refused("")),
        odd("SELECT 1", "plan = '294277-01-01'", Refused("out of range")),
        odd("SELECT 1", "state = 'ODD'", Refused("invalid input value for enum")),
        odd("SELECT 1", "input2 = '1'", Refused("does not exist")),
        odd("SELECT 1", "max = 2147483647, priority = -2147483648", Done),
        odd("SELECT 1", "max = -2147483648, priority = 2147483647, group = 'paused'", Done),
        odd("SELECT 1", "count = 2147483647, live = '1 us'", Done),
        odd("SELECT 1", "attempt = 2147483647, group = 'worn out'", Done),
        odd("SELECT 1", "attempt = 2147483647, group = 'worn out and kept', count = 9", Done),
        odd("SELECT 1", "attempt = -2147483648", Done),
        odd("SELECT 1", "id = -9223372036854775808", Done),
        odd("SELECT 1", "id = 9223372036854775807", Done),
        odd("SELECT 1", "parent = -1, pid = -1, start = 'infinity', stop = '-infinity'", Done),
        odd("SELECT 1", "state = 'STOP'", Waits),
        odd("SELECT 1", "state = 'DONE', error = 'forged'", Done),
        odd("SELECT 1", "state = 'TAKE'", Done),
        odd("SELECT 1", "state = 'WORK', pid = 1, start = now()", Done),
        odd("SELECT 1", "state = 'WORK', pid = pg_backend_pid(), start = '-infinity'", Done),
        odd("SELECT 1", "output = 'before', error = 'before', reason = 'before'", Done),
        odd("SELECT 1", "held = true", Done),
    ]
}

fn remotes() -> Vec<Odd> {
    let fail = |columns, words| odd("SELECT 1", columns, End::Fail(words));
    vec![
        fail("remote = ''", "neither a conninfo nor the name"),
        fail("remote = E'\\n'", "neither a conninfo nor the name"),
        fail("remote = repeat('x',1000000)", "remote has 1000000 bytes"),
        fail("remote = 'host=127.0.0.1'", "remote has no user"),
        fail("remote = '='", "remote is not valid"),
        fail("remote = 'host=''x'", "never ends"),
        fail("remote = 'postgresql://'", "remote has no host"),
        fail("remote = 'postgresql://%00@x'", "remote is not valid"),
        fail("remote = 'postgresql://a:b@h:p/d'", "remote is not valid"),
        fail("remote = 'host=127.0.0.1 port=1 user=a password=b'", "Connection refused"),
        fail("remote = 'host=127.0.0.1 port=1 user=a password=b', repeat = '1 hour'", "Connection refused"),
        fail("remote = 'host=/tmp user=a password=b'", "Unix socket"),
        fail("remote = 'host=256.256.256.256 user=a password=b connect_timeout=3'", "could not look up"),
        fail("remote = 'host=a..b user=a password=b connect_timeout=3'", "could not look up"),
        fail("remote = 'x', atomic = true", "an atomic task cannot be remote"),
    ]
}

/// `name = value, ..` in SQL; a value that a text literal cannot hold is cast by the server.
fn insert(client: &mut postgres::Client, input: &str, columns: &str, group: &str) -> Result<i64, postgres::Error> {
    let pairs: Vec<(&str, &str)> = columns.split(", ").filter_map(|pair| pair.split_once(" = ")).collect();
    let mut names = String::new();
    let mut values = String::new();
    for (name, value) in &pairs {
        names += &format!(", \"{name}\"");
        values += &format!(", {value}");
    }
    if !pairs.iter().any(|(name, _)| *name == "group") {
        names += ", \"group\"";
        values += &format!(", '{group}'");
    }
    let sql = format!("INSERT INTO public.task (input{names}) VALUES ($1{values}) RETURNING id");
    let parameters: [&(dyn ToSql + Sync); 1] = [&input];
    client.query_one(sql.as_str(), &parameters).map(|row| row.get(0))
}

/// The state of a task and the begin of its error.
fn state(database: &Database, id: i64) -> Option<(String, String)> {
    let sql = "SELECT state::text, coalesce(left(error, 200000), '') FROM public.task WHERE id = $1";
    database.query(sql, &[&id])?.first().map(|row| (row.get(0), row.get(1)))
}

fn matches(end: End, found: Option<&(String, String)>) -> bool {
    match (end, found) {
        // nothing to say, so it was deleted
        (End::Done, None) => true,
        (End::Done, Some((state, _))) => state == "DONE",
        (End::Fail(words), Some((state, error))) => state == "FAIL" && !error.is_empty() && error.contains(words),
        (End::Gone, Some((state, error))) => state == "GONE" && error == "ERROR:  task not active",
        (End::Waits, Some((state, _))) => state == "PLAN" || state == "STOP",
        _ => false,
    }
}

#[track_caller]
pub fn no_panic(supervisor: &Supervisor<'_>) {
    let log = supervisor.log().lines().join("\n");
    assert!(!log.contains("panic"), "{log}");
    assert!(!log.contains("worker died"), "{log}");
    assert!(!log.contains("scheduler died"), "{log}");
    assert!(log.lines().all(|line| line.len() < 4_200), "a line is one write of at most 4,096 bytes");
}

#[test]
fn odd_rows_end_with_a_reason_and_healthy_tasks_go_on_beside_them() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database)
        .queue_key("output_limit", 2 << 20)
        // rows that claim to run are nobody's, which is found out at a reset
        .queue_key("reset", 2000)
        .key("defaults", json!({"delete": false}))
        .key("max_workers", 12)
        .start();
    let kinds: Vec<Odd> = inputs().into_iter().chain(columns()).chain(remotes()).collect();
    let total = sized(250, 10_000);
    let mut client = database.connect();
    let mut inserted: Vec<(usize, i64)> = Vec::new();
    let mut worst = Duration::ZERO;
    let mut refused = 0;
    for (n, (at, kind)) in kinds.iter().enumerate().cycle().enumerate() {
        if inserted.len() + refused >= total {
            break;
        }
        // what can be there once only, and what takes long, is there once
        let once = kind.columns.contains("id =") || kind.columns.contains("infinity") || kind.input.len() > 100_000;
        if once && n >= kinds.len() {
            continue;
        }
        match (insert(&mut client, &kind.input, kind.columns, &format!("odd {}", n % 8)), kind.end) {
            (Ok(_), End::Refused(_)) => panic!("was to be refused: {}", kind.columns),
            (Ok(id), _) => inserted.push((at, id)),
            (Err(error), End::Refused(words)) => {
                let said = error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_default();
                assert!(said.contains(words), "{}: {said}", kind.columns);
                refused += 1;
            }
            (Err(error), _) => panic!("{}: {:?}", kind.columns, error),
        }
        if n % 50 == 25 {
            let asked = Instant::now();
            let healthy = database.insert_with("SELECT 1", "group = 'healthy', priority = 1");
            supervisor.eventually("a healthy task is done", || database.finished(healthy));
            worst = worst.max(asked.elapsed());
        }
    }
    let mut open = inserted.clone();
    let ended = tests::wait("all have ended").within(Duration::from_secs(sized(60, 900))).attempt(|| {
        open.retain(|(at, id)| !matches(kinds[*at].end, state(&database, *id).as_ref()));
        open.is_empty()
    });
    let told: Vec<String> = open
        .iter()
        .map(|(at, id)| {
            let Odd { input, columns, end } = &kinds[*at];
            let seen =
                database.task(*id).map(|row| (row["state"].clone(), row["output"].clone(), row["error"].to_string()));
            let seen = short(&format!("{seen:?}"));
            format!("{:?} with {columns:?} was to end as {end:?} and is {seen}", short(input))
        })
        .collect();
    assert!(ended.is_some(), "{}\n{}", told.join("\n"), supervisor.log().tail(20));
    for (at, id) in &inserted {
        let why = database.query("SELECT mill.why($1::bigint)", &[id]).expect("why has an answer");
        let why: Option<String> = why[0].get(0);
        assert!(why.is_some_and(|why| !why.is_empty()), "{:?}", kinds[*at].columns);
    }
    eprintln!(
        "{} odd rows, {refused} refused by the table; a healthy task took {worst:?} at most",
        inserted.len() + refused
    );
    no_panic(&supervisor);
    let log = supervisor.log().lines();
    assert!(!log.iter().any(|line| line.starts_with("2026 info launcher[1] ready")), "no line can be forged");
}

pub fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

#[test]
fn rows_of_bytes_that_are_no_text_run_in_a_sql_ascii_database() {
    let database = Cluster::shared().database();
    let owner = database.owner();
    let ascii = format!("{}_ascii", database.name());
    let server = database.server();
    server
        .connect("postgres")
        .batch_execute(&format!(
            "CREATE DATABASE {ascii} OWNER {owner} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        ))
        .expect("a database of bytes");
    let supervisor = Supervisor::of(&database).queue(json!({"data": ascii, "user": owner})).start();
    let mut client = server.try_connect(owner, &ascii).expect("a session there");
    let bytes = |sql: &str| format!("convert_from('{sql}'::bytea, 'SQL_ASCII')");
    let insert = |client: &mut postgres::Client, input: &str, more: &str, values: &str| -> i64 {
        let sql = format!("INSERT INTO public.task (input{more}) VALUES ({input}{values}) RETURNING id");
        client.query_one(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
    };
    supervisor.eventually("its table is there", || client.query("SELECT 1 FROM public.task", &[]).is_ok());
    let (plain, group) = (bytes("SELECT ''\\377\\200\\001''"), bytes("\\377\\376 \\012 x"));
    let ids = [
        insert(&mut client, &plain, "", ""),
        insert(&mut client, &plain, ", \"group\"", &format!(", {group}")),
        insert(&mut client, &bytes("SELEC \\377"), "", ""),
        insert(&mut client, &bytes("\\377"), ", atomic", ", true"),
        insert(&mut client, "'SELECT 1'", ", remote", &format!(", {}", bytes("host=\\377 user=a password=b"))),
    ];
    let finished = |client: &mut postgres::Client, id: i64| {
        let sql = "SELECT state::text, encode(output::bytea, 'hex'), encode(convert_to(coalesce(error, ''), 'SQL_ASCII'), 'hex') \
                   FROM public.task WHERE id = $1 AND state IN ('DONE', 'FAIL', 'GONE')";
        let sql = sql.replace("output::bytea", "convert_to(coalesce(output, ''), 'SQL_ASCII')");
        let rows = client.query(&sql, &[&id]).expect("the query");
        rows.first().map(|row| (row.get::<_, String>(0), row.get::<_, String>(1), row.get::<_, String>(2)))
    };
    let ends: Vec<(String, String, String)> =
        ids.iter().map(|id| supervisor.eventually("it ends", || finished(&mut client, *id))).collect();
    for end in &ends[..2] {
        assert_eq!((end.0.as_str(), end.1.as_str()), ("DONE", "ff8001"), "the bytes come through");
    }
    assert!(ends[2..].iter().all(|end| end.0 == "FAIL" && !end.2.is_empty()), "{ends:?}");
    assert!(ends[4].2.contains(&hex("remote is not UTF-8 text")), "{ends:?}");
    // and when connections are kept that the next ones could inherit
    for _ in 0..3 {
        let id = insert(&mut client, &plain, "", "");
        assert_eq!(supervisor.eventually("it ends", || finished(&mut client, id)).0, "DONE");
    }
    no_panic(&supervisor);
    drop(supervisor);
    drop(client);
    let _ = server.connect("postgres").batch_execute(&format!("DROP DATABASE {ascii} WITH (FORCE)"));
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
