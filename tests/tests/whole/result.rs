//! What a task leaves in its row: every rule of the result format, through INSERT and the
//! row's columns. Each test puts all its tasks in at once, each in a group of its own.

use tests::{Cluster, Supervisor};

use crate::result_cases::{Case, Expected, ask, check, deleted, done, fails, make};

#[test]
fn every_example_of_the_result_format_comes_out_to_the_letter() {
    let database = Cluster::shared().database();
    make(&database, "CREATE TABLE t (a int, b text)");
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    check(
        &supervisor,
        &database,
        &[
            done("SELECT 1 AS a", "1"),
            done("SELECT 1 AS a, 2 AS b", "a\tb\n1\t2"),
            done("SELECT 1 AS a, 2 AS b;SELECT 3 AS c", "a\tb\n1\t2\n3"),
            deleted("SELECT 1 AS a WHERE false"),
            done("SELECT pg_sleep(0)", ""),
            done("INSERT INTO t VALUES (2,'y'),(3,NULL) RETURNING *", "a\tb\n2\ty\n3\t\\N"),
            done("DELETE FROM t WHERE false", "DELETE 0"),
            fails("SELECT 1/0", "", "ERROR:  division by zero"),
            fails("SELECT 1;SELECT 1/0;SELECT 2", "1", "ERROR:  division by zero"),
            fails("SELEC 1", "", "ERROR:  syntax error at or near \"SELEC\" at character 1"),
            fails("SELECT pg_sleep(2)", "", "ERROR:  canceling statement due to statement timeout")
                .with("timeout = '1 sec'"),
            done(r#"SELECT 'a"b\c'"#, r#""a\"b\\c""#).with(r#"quote = '"', escape = '\'"#),
            done("SELECT 1 AS a,'x' AS b,NULL AS c,true AS d", "\"a\"\t\"b\"\t\"c\"\t\"d\"\n1\t\"x\"\t\\N\tt")
                .with(r#"quote = '"'"#),
            done("BEGIN;SELECT 1", "BEGIN\n1"),
            done("VACUUM t", "VACUUM"),
            done("COPY (SELECT 1) TO STDOUT", "1\n"),
        ],
    );
}

#[test]
fn a_row_is_deleted_only_if_output_and_error_are_null_and_its_owner_wants_it() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let nothing = Expected::Row { state: "DONE", output: None, error: None };
    check(
        &supervisor,
        &database,
        &[
            deleted("SELECT 1 WHERE false"),
            deleted("SELECT 1, 2 WHERE false;VALUES (1) LIMIT 0"),
            Case { expected: nothing, ..deleted("SELECT 1 WHERE false").with("delete = false") },
            done("SELECT ''", ""),
            done("SELECT pg_sleep(0)", ""),
            done("COPY (SELECT 1 WHERE false) TO STDOUT", ""),
            // empty statements write nothing
            deleted(""),
            deleted(" ;; ; "),
            deleted("-- nothing\n/* nothing */"),
            done(";SELECT 1;;SELECT 2;", "1\n2"),
        ],
    );
}

#[test]
fn newlines_and_headers_stand_between_results_and_nowhere_else() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    check(
        &supervisor,
        &database,
        &[
            done("SELECT generate_series(1,3)", "1\n2\n3"),
            // a newline only if the text so far is not empty
            done("SELECT unnest(ARRAY['','','a'])", "a"),
            done("SELECT unnest(ARRAY['a','',''])", "a\n\n"),
            done("SELECT 1 AS a, 2 AS b;SELECT 3 AS a, 4 AS b", "a\tb\n1\t2\na\tb\n3\t4"),
            done("SELECT 1 AS a, 2 AS b;SELECT 3 AS a, 4 AS b", "1\t2\n3\t4").with("header = false"),
            // no row, no header; several rows, one header
            done("SELECT 1 AS a, 2 AS b WHERE false;SELECT 3", "3"),
            done("SELECT a, a AS b FROM generate_series(1,2) a", "a\tb\n1\t1\n2\t2"),
            done("SELECT 1 AS a", "1").with(r#"quote = '"'"#),
            done("SELECT E'x\ty', E'l1\nl2'", "?column?\t?column?\nx\ty\tl1\nl2"),
            done("SELECT;SELECT 1", "1"),
        ],
    );
}

#[test]
fn quotes_escapes_delimiters_and_nulls_are_the_rows_own() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let value = r#"SELECT 'a"b\c' AS x, 1 AS y, NULL AS z"#;
    check(
        &supervisor,
        &database,
        &[
            done(value, "x\ty\tz\na\"b\\c\t1\t\\N"),
            done(value, "x,y,z\na\"b\\c,1,\\N").with("delimiter = chr(44)::\"char\""),
            done(value, "xyz\na\"b\\c1\\N").with("delimiter = ''"),
            done(value, "x\ty\tz\na\"b\\c\t1\tnil").with("null = 'nil'"),
            done(value, "x\ty\tz\na\"b\\c\t1\t").with("null = ''"),
            // a quote alone escapes nothing; an escape alone does nothing
            done(value, "\"x\"\t\"y\"\t\"z\"\n\"a\"b\\c\"\t1\t\\N").with(r#"quote = '"'"#),
            done(value, "x\ty\tz\na\"b\\c\t1\t\\N").with(r"escape = '\'"),
            done(value, "'x'\t'y'\t'z'\n'a\"b\\c'\t1\t\\N").with("quote = '''', escape = ''''"),
            done(value, "\"x\"\t\"y\"\t\"z\"\n\"a\"\"b\\c\"\t1\t\\N").with(r#"quote = '"', escape = '"'"#),
            done(value, "\"x\"\t\"y\"\t\"z\"\n\"a\\\"b\\\\c\"\t1\t\\N").with(r#"quote = '"', escape = '\'"#),
            done(value, "\"x\"\t\"y\"\t\"z\"\n\"a\"b\\c\"\t\"1\"\t\\N").with(r#"quote = '"', string = false"#),
            // names are quoted, but not escaped; NULL is never quoted
            done(r#"SELECT 1 AS "a b", NULL AS b"#, "\"a b\"\t\"b\"\n\"1\"\t-")
                .with(r#"quote = '"', string = false, null = '-'"#),
            done("SELECT NULL", "\\N"),
            done("SELECT NULL", "\\N").with(r#"quote = '"', string = false"#),
            done("SELECT ''", "\"\"").with(r#"quote = '"'"#),
        ],
    );
}

#[test]
fn numbers_and_their_like_are_bare_and_all_else_is_quoted() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let bare = [
        ("B'101'::bit(3)", "101"),
        ("true", "t"),
        ("'1'::cid", "1"),
        ("1.5::float4", "1.5"),
        ("1.5::float8", "1.5"),
        ("1::int2", "1"),
        ("1::int4", "1"),
        ("1::int8", "1"),
        ("1.50::numeric", "1.50"),
        ("1::oid", "1"),
        ("'(0,1)'::tid", "(0,1)"),
        ("'1'::xid", "1"),
    ];
    let quoted = [
        "B'101'::varbit",
        "1::money",
        "'1'::xid8",
        "date '2020-01-02'",
        "timestamptz '2020-01-02 03:04:05+00'",
        "interval '1 day'",
        "ARRAY[1,2]",
        "'{\"a\": 1}'::json",
        "'c'::\"char\"",
        "'x'::text",
        "'x'::varchar",
        "'x'::name",
        "'\\x01'::bytea",
    ];
    let mut cases: Vec<Case> =
        bare.iter().map(|(sql, text)| done(&format!("SELECT {sql}"), text).with("quote = '|'")).collect();
    for sql in quoted {
        let text = ask(&database, &format!("SELECT ({sql})::text"));
        cases.push(done(&format!("SELECT {sql}"), &format!("|{text}|")).with("quote = '|'"));
    }
    cases.push(done("SELECT pg_sleep(0)", "||").with("quote = '|'"));
    cases.push(done("SELECT 1.5::float8", "|1.5|").with("quote = '|', string = false"));
    check(&supervisor, &database, &cases);
}

#[test]
fn a_statement_without_columns_shows_its_tag_as_the_server_sends_it() {
    let database = Cluster::shared().database();
    make(
        &database,
        "CREATE TABLE t (a int); INSERT INTO t VALUES (1);
         CREATE PROCEDURE quiet() LANGUAGE plpgsql AS 'BEGIN END';
         CREATE PROCEDURE talks(INOUT a int, INOUT b int) LANGUAGE plpgsql AS 'BEGIN a := 5; b := 6; END';
         CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';",
    );
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    check(
        &supervisor,
        &database,
        &[
            done("CREATE TABLE made AS SELECT generate_series(1,3)", "SELECT 3"),
            done("CREATE TABLE other (a int)", "CREATE TABLE"),
            done("INSERT INTO t SELECT 2 FROM generate_series(1,2)", "INSERT 0 2"),
            done("UPDATE t SET a = a WHERE false", "UPDATE 0"),
            done("SET application_name = 'zz';SHOW application_name", "SET\nzz"),
            done("DO 'BEGIN END'", "DO"),
            done("CALL quiet()", "CALL"),
            done("CALL talks(1, 2)", "a\tb\n5\t6"),
            done("CALL commits()", "CALL"),
            done("VALUES (1),(2)", "1\n2"),
            done("EXPLAIN (COSTS OFF) SELECT 1", "Result"),
            done(
                "BEGIN;DECLARE c CURSOR FOR SELECT generate_series(1,3);FETCH 2 FROM c;COMMIT",
                "BEGIN\nDECLARE CURSOR\n1\n2\nCOMMIT",
            ),
            done("PREPARE p AS SELECT 7;EXECUTE p;DEALLOCATE p", "PREPARE\n7\nDEALLOCATE"),
            // a row description writes no tag, even with no row
            done("UPDATE t SET a = 1 WHERE false RETURNING a;SELECT 1 WHERE false;SELECT 2", "2"),
            done("VACUUM t", "VACUUM"),
            done("SELECT 1;CREATE TABLE third (a int);SELECT 2", "1\nCREATE TABLE\n2"),
        ],
    );
}

#[test]
fn the_input_is_one_transaction_unless_it_has_its_own() {
    let database = Cluster::shared().database();
    make(&database, "CREATE TABLE t (a int)");
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let zero = "ERROR:  division by zero";
    check(
        &supervisor,
        &database,
        &[
            fails("INSERT INTO t VALUES (1);SELECT 1/0;INSERT INTO t VALUES (2)", "INSERT 0 1", zero),
            fails("BEGIN;INSERT INTO t VALUES (3);COMMIT;SELECT 1/0", "BEGIN\nINSERT 0 1\nCOMMIT", zero),
            fails("BEGIN;INSERT INTO t VALUES (4);SELECT 1/0", "BEGIN\nINSERT 0 1", zero),
            fails("SELECT 1;SELEC 2", "", "ERROR:  syntax error at or near \"SELEC\" at character 10"),
            fails("VACUUM t;SELECT 1", "", "ERROR:  VACUUM cannot run inside a transaction block"),
            fails("SELECT 1 AS a, 2 AS b UNION ALL SELECT 1, 1/(random() * 0)::int", "a\tb\n1\t2", zero),
        ],
    );
    let kept = database.query("SELECT a FROM t ORDER BY a", &[]).expect("the server is there");
    assert_eq!(kept.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [3]);
}

#[test]
fn a_transaction_left_open_is_committed_and_its_error_is_shown() {
    let database = Cluster::shared().database();
    make(
        &database,
        "CREATE TABLE parent (a int PRIMARY KEY);
         CREATE TABLE child (a int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
         CREATE TABLE t (a int)",
    );
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let violated = "ERROR:  insert or update on table \"child\" violates foreign key constraint \"child_a_fkey\"\n\
                    DETAIL:  Key (a)=(99) is not present in table \"parent\".";
    check(
        &supervisor,
        &database,
        &[
            done("BEGIN;INSERT INTO t VALUES (1)", "BEGIN\nINSERT 0 1"),
            done("START TRANSACTION READ ONLY;SELECT 1", "START TRANSACTION\n1"),
            done("COMMIT;BEGIN;INSERT INTO t VALUES (2) RETURNING a", "COMMIT\nBEGIN\n2"),
            fails("BEGIN;INSERT INTO child VALUES (99)", "BEGIN\nINSERT 0 1", violated),
            done("BEGIN;CREATE TEMP TABLE x (a int);COPY (SELECT 5) TO STDOUT", "BEGIN\nCREATE TABLE5\n"),
        ],
    );
    let count = |table: &str| ask(&database, &format!("SELECT count(*)::text FROM {table}"));
    assert_eq!((count("t"), count("child")), ("2".to_owned(), "0".to_owned()));
}

#[test]
fn copy_to_stdout_is_appended_as_it_comes() {
    let database = Cluster::shared().database();
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    check(
        &supervisor,
        &database,
        &[
            done("COPY (SELECT generate_series(1,3)) TO STDOUT", "1\n2\n3\n"),
            done("SELECT 0;COPY (SELECT 1) TO STDOUT;SELECT 2", "01\n\n2"),
            done(
                "COPY (SELECT 1, NULL, E'a\\tb') TO STDOUT WITH (FORMAT csv, HEADER)",
                "?column?,?column?,?column?\n1,,a\tb\n",
            ),
            done("COPY (SELECT 1 WHERE false) TO STDOUT;SELECT 2", "2"),
            done("COPY (SELECT 'a') TO STDOUT", "a\n").with(r#"quote = '"'"#),
            fails("COPY (SELECT 1/(2-a) FROM generate_series(1,2) a) TO STDOUT", "1\n", "ERROR:  division by zero"),
        ],
    );
}

#[test]
fn copy_from_stdin_is_refused_and_hangs_nothing() {
    let database = Cluster::shared().database();
    make(&database, "CREATE TABLE t (a int)");
    let supervisor = Supervisor::of(&database).queue_key("sleep", 50).start();
    let refused = "ERROR:  COPY from stdin failed: COPY FROM STDIN is not supported\nCONTEXT:  COPY t, line 1";
    check(
        &supervisor,
        &database,
        &[
            fails("COPY t FROM STDIN", "", refused),
            fails("COPY t FROM STDIN WITH (FORMAT csv)", "", refused),
            fails("SELECT 1;COPY t FROM STDIN;SELECT 2", "1", refused),
            fails("BEGIN;COPY t FROM STDIN", "BEGIN", refused),
        ],
    );
    // one after the other in one group: the next task runs
    let first = database.insert("COPY t FROM STDIN");
    let second = database.insert("SELECT 2");
    assert_eq!(supervisor.finished(&database, second)["output"], "2");
    assert_eq!(database.finished(first).expect("it came first")["state"], "FAIL");
    supervisor.eventually("no worker is left", || supervisor.workers().is_empty());
}
