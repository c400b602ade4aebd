//! To read a table can run code of its owner: mill.why(id) and mill.fsck() read a table that could do so for its owner alone, and
//! say to others what stands against it.

use postgres::Client;

use crate::queries::one;
use crate::trap_stage::{CatalogOf, Stage};

/// What is armed, and what the refusal names.
const KINDS: [(&str, &str); 9] = [
    ("ALTER TABLE evil.task ENABLE ROW LEVEL SECURITY", "it has row security"),
    ("CREATE RULE r AS ON INSERT TO evil.task DO ALSO SELECT 1", "it has a rule"),
    ("CREATE INDEX ON evil.task (id) WHERE evil.spy(input)", "an index uses function evil.spy(text)"),
    ("CREATE INDEX ON evil.task ((evil.spy(input)))", "an index uses function evil.spy(text)"),
    (
        "CREATE STATISTICS evil.s ON (evil.spy(input)), id FROM evil.task",
        "extended statistics uses function evil.spy(text)",
    ),
    ("ALTER TABLE evil.task ADD CHECK (evil.spy(input))", "a constraint uses function evil.spy(text)"),
    (
        "CREATE CAST (evil.state AS text) WITH FUNCTION evil.state_text(evil.state) AS ASSIGNMENT",
        "column state has the type",
    ),
    ("ALTER TABLE evil.task ADD odd evil.pair", "column odd has the type evil.pair"),
    (
        "CREATE TABLE evil.child () INHERITS (evil.task); CREATE INDEX ON evil.child (id) WHERE evil.spy(input)",
        "an index uses",
    ),
];

fn asked(client: &mut Client, sql: &str) -> String {
    client
        .query_one(sql, &[])
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
        .get::<_, Option<String>>(0)
        .unwrap_or_default()
}

#[test]
fn a_table_that_is_not_plain_is_read_by_its_owner_alone() {
    let stage = Stage::new(CatalogOf::Superuser);
    drop(stage.serve());
    stage.say(
        &stage.evil,
        "CREATE FUNCTION evil.spy(text) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true'; \
         CREATE FUNCTION evil.state_text(evil.state) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''spied'''; \
         CREATE TYPE evil.pair AS (a int, b int); \
         INSERT INTO evil.task (input, plan) VALUES ('SELECT 1', now() + interval '1 day')",
    );
    let task: i64 = one(&stage.database, "SELECT min(id) FROM evil.task");
    let why = format!("SELECT mill.why({task}, 'evil.task')");
    let fsck = "SELECT string_agg(problem, ' ') FROM mill.fsck() WHERE queue = 'evil.task'";
    let (mut root, mut member, mut owner) =
        (stage.database.connect_superuser(), stage.session(&stage.member), stage.session(&stage.evil));
    for client in [&mut root, &mut member, &mut owner] {
        let said = asked(client, &why);
        assert!(said.starts_with("no scheduler serves"), "a plain table is read: {said}");
    }
    for (arm, named) in KINDS {
        owner.batch_execute(&format!("BEGIN; {arm}; COMMIT")).unwrap_or_else(|error| panic!("{arm}: {error:?}"));
        for client in [&mut root, &mut member] {
            let said = asked(client, &why);
            assert!(said.contains("is not read here") && said.contains(named), "{arm}: {said}");
            assert!(asked(client, fsck).contains("the table is not read here"), "{arm}");
        }
        let said = asked(&mut owner, &why);
        assert!(said.starts_with("no scheduler serves"), "{arm}: its owner asks: {said}");
        let disarm = "ALTER TABLE evil.task DISABLE ROW LEVEL SECURITY; DROP RULE IF EXISTS r ON evil.task; \
             DROP STATISTICS IF EXISTS evil.s; DROP CAST IF EXISTS (evil.state AS text); ALTER TABLE evil.task DROP COLUMN IF EXISTS odd; \
             DROP TABLE IF EXISTS evil.child; \
             DO $$ DECLARE n text; BEGIN FOR n IN SELECT format('DROP INDEX %s', i.indexrelid::regclass) FROM pg_index i JOIN pg_depend d \
               ON d.objid = i.indexrelid AND d.refobjid = 'evil.spy(text)'::regprocedure WHERE i.indrelid = 'evil.task'::regclass \
               UNION SELECT format('ALTER TABLE evil.task DROP CONSTRAINT %I', k.conname) FROM pg_constraint k JOIN pg_depend d \
               ON d.objid = k.oid AND d.refobjid = 'evil.spy(text)'::regprocedure LOOP EXECUTE n; END LOOP; END $$";
        owner.batch_execute(disarm).unwrap_or_else(|error| panic!("{arm}: {error:?}"));
    }
    // a view in its place
    owner.batch_execute("ALTER TABLE evil.task RENAME TO was; CREATE VIEW evil.task AS SELECT * FROM evil.was; GRANT SELECT ON evil.task TO PUBLIC").expect("a view");
    for client in [&mut root, &mut member] {
        let said = asked(client, &why);
        assert!(said.contains("it is a view"), "{said}");
    }
}
