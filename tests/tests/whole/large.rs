//! Large inputs and outputs, and the limit of the output: what fits comes through whole,
//! what does not fails with a clear word, and a worker's memory stays in bounds.

use std::time::Duration;

use tests::{Cluster, Database, Supervisor, sized};

const MEGABYTE: usize = 1 << 20;
/// What a worker needs besides twice the limit.
const SLACK: usize = 16 * MEGABYTE;
const TIMEOUT: Duration = Duration::from_secs(120);

/// A finished task, without its long texts.
#[derive(Debug, PartialEq, Eq)]
struct Ending {
    state: String,
    output_bytes: Option<i64>,
    error: Option<String>,
}

/// Waits for the end of a task and watches its worker meanwhile; the peak of its memory in bytes.
#[track_caller]
fn ending(supervisor: &Supervisor<'_>, database: &Database, id: i64) -> (Ending, usize) {
    let title_end = format!(" #{id}");
    let mut peak = 0;
    let sql = "SELECT state::text, octet_length(output)::bigint, left(error, 300) FROM public.task \
               WHERE id = $1 AND state IN ('DONE', 'FAIL')";
    let ending = supervisor.wait("the task has ended").within(TIMEOUT).until(|| {
        for worker in supervisor.workers().iter().filter(|worker| worker.title.ends_with(&title_end)) {
            peak = peak.max(peak_bytes(worker.pid).unwrap_or(0));
        }
        let rows = database.query(sql, &[&id])?;
        let row = rows.first()?;
        Some(Ending { state: row.get(0), output_bytes: row.get(1), error: row.get(2) })
    });
    (ending, peak)
}

/// The most memory a process has had so far.
fn peak_bytes(pid: i32) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok().map(|kilobytes| kilobytes * 1024)
}

fn done(output_bytes: usize) -> Ending {
    Ending { state: "DONE".into(), output_bytes: Some(output_bytes as i64), error: None }
}

#[test]
fn a_large_input_comes_through_whole() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let bytes = sized(20, 100) * MEGABYTE;
    let filler = "x".repeat(bytes);
    let literal = database.insert_with(&format!("SELECT length('{filler}')"), "group = 'literal'");
    let comment = database.insert_with(&format!("/*{filler}*/ SELECT 1"), "group = 'comment'");
    for (id, output) in [(literal, bytes.to_string()), (comment, "1".to_owned())] {
        let (ending, _) = ending(&supervisor, &database, id);
        assert_eq!(ending, done(output.len()));
        let rows = database.query("SELECT output FROM public.task WHERE id = $1", &[&id]);
        assert_eq!(rows.expect("the server is there")[0].get::<_, String>(0), output);
    }
}

#[test]
fn a_large_input_that_fails_is_told_whole_in_the_error() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let input = format!("SELECT 1/0 /*{}*/", "y".repeat(sized(5, 50) * MEGABYTE));
    let id = database.insert(&input);
    let (ending, _) = ending(&supervisor, &database, id);
    assert_eq!(ending.state, "FAIL");
    let sql = "SELECT error = E'ERROR:  division by zero\\nSTATEMENT:  ' || input FROM public.task WHERE id = $1";
    assert!(database.query(sql, &[&id]).expect("the server is there")[0].get::<_, bool>(0));
}

#[test]
fn a_large_output_comes_through_whole_and_a_workers_memory_stays_in_bounds() {
    let database = Cluster::shared().database();
    let bytes = sized(20, 100) * MEGABYTE;
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).queue_key("output_limit", bytes).start();
    let rows = bytes / 1024;
    let inputs = [
        // one value, many rows, COPY; not compressible, so that nothing is saved on the way
        format!("SELECT repeat('x', {bytes})"),
        format!("SELECT repeat(chr(65 + n % 26), 1023) FROM generate_series(1, {rows}) n"),
        format!("COPY (SELECT repeat(chr(65 + n % 26), 1023) FROM generate_series(1, {rows}) n) TO STDOUT"),
    ];
    // rows are joined by newlines, COPY's end with one
    for (input, expected) in inputs.iter().zip([bytes, bytes - 1, bytes]) {
        let id = database.insert(input);
        let (ending, peak) = ending(&supervisor, &database, id);
        assert_eq!(ending, done(expected), "{input}");
        assert!(peak > expected, "the worker was seen at work: {peak} bytes");
        assert!(peak < 2 * bytes + SLACK, "{input}: a peak of {peak} bytes with a limit of {bytes}");
        let sql = "SELECT output = (SELECT string_agg(repeat(chr(65 + n % 26), 1023), E'\\n' ORDER BY n) \
                   FROM generate_series(1, $2::int) n) FROM public.task WHERE id = $1";
        if expected < bytes {
            let same = database.query(sql, &[&id, &(rows as i32)]).expect("the server is there");
            assert!(same[0].get::<_, bool>(0), "it is the same text");
        }
    }
}

#[test]
fn output_over_the_limit_fails_with_a_clear_word_and_within_bounds() {
    let database = Cluster::shared().database();
    let limit = sized(8, 64) * MEGABYTE;
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).queue_key("output_limit", limit).start();
    // in a sub-select, so that the server sends the rows as it makes them
    let endless = "SELECT repeat('x', 1023) FROM (SELECT generate_series(1, 2000000000)) AS s";
    let inputs = [
        (endless.to_owned(), limit - 1),
        (format!("COPY ({endless}) TO STDOUT"), limit),
        (format!("SELECT 1;SELECT repeat('x', {})", 10 * limit), 1),
        (format!("SELECT repeat('x', {})", limit + 1), 0),
        (format!("SELECT 1, repeat('x', {})", sized(200_000_000, 1_000_000_000)), 0),
    ];
    for (input, kept) in inputs {
        let id = database.insert(&input);
        let (ending, peak) = ending(&supervisor, &database, id);
        let error = format!("ERROR:  output exceeds output_limit of {limit} bytes\nSTATEMENT:  {input}");
        let expected = Ending { state: "FAIL".into(), output_bytes: Some(kept as i64), error: Some(error) };
        assert_eq!(ending, expected);
        assert!(peak < 2 * limit + SLACK, "{input}: a peak of {peak} bytes with a limit of {limit}");
    }
    let id = database.insert(&format!("SELECT repeat('x', {limit})"));
    assert_eq!(ending(&supervisor, &database, id).0, done(limit), "just what is allowed");
}

#[test]
fn the_limit_is_64_megabytes_unless_told() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let id = database.insert("SELECT repeat('x', 64 * 1024 * 1024 + 1)");
    let (ending, _) = ending(&supervisor, &database, id);
    assert_eq!(ending.state, "FAIL");
    let error = ending.error.expect("it fails");
    assert!(error.starts_with("ERROR:  output exceeds output_limit of 67108864 bytes\n"), "{error}");
}
